"""Drives Chromium over its debugging pipe: nothing but the standard library, no port, no network."""
import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

# Contrast of every piece of text with what is behind it, by the rule of the web's guidelines; those below it are returned.
CONTRAST = """(() => {
  const parse = (colour) => (colour.match(/[0-9.]+/g) || []).map(Number);
  const light = (c) => { const f = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4); };
    return 0.2126 * f(c[0]) + 0.7152 * f(c[1]) + 0.0722 * f(c[2]); };
  const behind = (element) => { for (let at = element; at; at = at.parentElement) { const c = parse(getComputedStyle(at).backgroundColor);
    if (c.length === 3 || c[3] > 0.99) return c; } return [255, 255, 255]; };
  const poor = [];
  for (const element of document.body.querySelectorAll("*")) {
    if (element.closest("svg, script, .skip")) continue;
    if (![...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())) continue;
    const style = getComputedStyle(element), a = light(parse(style.color)), b = light(behind(element));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), large = parseFloat(style.fontSize) >= 24;
    if (ratio < (large ? 3 : 4.5)) poor.push(element.className + ": " + element.textContent.slice(0, 30) + " " + ratio.toFixed(2));
  }
  return poor;
})()"""

# What assistive programs would stumble over: pictures without a name, references to nothing, identifiers given twice.
UNNAMED = """(() => {
  const all = (what) => [...document.querySelectorAll(what)], ids = all("[id]").map((one) => one.id);
  return [...all("svg").filter((one) => !one.closest("[aria-hidden=true]") && !one.getAttribute("aria-label")).map((one) => "nameless " + one.outerHTML.slice(0, 60)),
    ...all("[aria-describedby], [aria-labelledby]").map((one) => one.getAttribute("aria-describedby") || one.getAttribute("aria-labelledby"))
      .filter((id) => !document.getElementById(id)).map((id) => "nothing is " + id),
    ...all("a[href^='#']").filter((one) => !document.getElementById(one.getAttribute("href").slice(1))).map((one) => "leads nowhere: " + one.outerHTML),
    ...ids.filter((id, at) => ids.indexOf(id) !== at).map((id) => "twice " + id)];
})()"""


def find():
    """The browser's file, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page of a headless browser. What it logged, what went wrong in it and what it asked the network for is kept."""

    def __init__(self, program, seconds=60):
        self.limit, self.number, self.answers, self.buffer, self.events = seconds, 0, {}, b"", []
        self.profile = tempfile.TemporaryDirectory(prefix="millrace-browser-", ignore_cleanup_errors=True)
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()
        words = [program, "--headless=new", "--disable-gpu", "--no-first-run", "--hide-scrollbars", "--remote-debugging-pipe",
                 "--disable-background-networking", "--force-color-profile=srgb", f"--user-data-dir={self.profile.name}"]
        if os.geteuid() == 0:
            words.append("--no-sandbox")  # root has none to give up

        # The pipe is on descriptors 3 and 4 by definition; first out of the way of each other.
        script = f"exec 13<&{to_browser} 14>&{from_browser}; exec 3<&13 4>&14 13<&- 14>&-; exec \"$@\""
        self.process = subprocess.Popen(["bash", "-c", script, "browser", *words, "about:blank"], pass_fds=(to_browser, from_browser),
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.session = None
        target = next(one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def close(self):
        try:
            os.write(self.write_end, json.dumps({"id": 0, "method": "Browser.close"}).encode() + b"\0")
            self.process.wait(20)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.write_end)
        os.close(self.read_end)
        self.profile.cleanup()

    def _receive(self, until):
        while b"\0" not in self.buffer:
            if not select.select([self.read_end], [], [], max(0, until - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            piece = os.read(self.read_end, 1 << 20)
            if not piece:
                raise ConnectionError("the browser is gone")
            self.buffer += piece
        message, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(message)
        if "id" in message:
            self.answers[message["id"]] = message
        else:
            self.events.append(message)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + self.limit
        while self.number not in self.answers:
            self._receive(until)
        answer = self.answers.pop(self.number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def open(self, path, width=1200, height=900, dark=False, script=True):
        """Loads a file, or a page by its address, anew and waits until it is there."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}, {"name": "prefers-reduced-motion", "value": "reduce"}]
        self.call("Emulation.setEmulatedMedia", media="screen", features=features)
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.events = []
        self.call("Page.navigate", url=path if isinstance(path, str) else path.as_uri())
        until = time.monotonic() + self.limit
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._receive(until)

    def value(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def complaints(self):
        """Errors and warnings on the console, and exceptions, since the page was opened."""
        self.value("new Promise(requestAnimationFrame)")  # what is under way arrives before
        found = []
        for event in self.events:
            parameters = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(parameters["exceptionDetails"]))
            elif event["method"] == "Runtime.consoleAPICalled":
                found.append(str(parameters["args"]))
            elif event["method"] == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
                found.append(parameters["entry"]["text"])
        return found

    def requests(self):
        """Addresses asked for since the page was opened, data of the page itself left out."""
        asked = [event["params"]["request"]["url"] for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return [url for url in asked if not url.startswith("data:")]

    def key(self, key, code=None):
        for kind in ("keyDown", "keyUp"):
            extra = {"text": key} if kind == "keyDown" and len(key) == 1 else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=code or key, **extra)

    def mouse(self, kind, x, y, button="left", buttons=1):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, buttons=buttons, clickCount=1)

    def screenshot(self, path, whole=False):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]))


def main(take_screenshot):
    """Runs the tests of the script, or with --screenshot FILE calls take_screenshot(FILE, the words behind it)."""
    if len(sys.argv) <= 2 or sys.argv[1] != "--screenshot":
        unittest.main()
    elif not find():
        sys.exit(f"{pathlib.Path(sys.argv[0]).name}: no Chromium: apt-get install chromium")
    else:
        take_screenshot(pathlib.Path(sys.argv[2]), sys.argv[3:])
