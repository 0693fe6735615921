"""One process of tools/probe-leaves: a loop that CUPTI leaves, from its start to its end, with this side in the recorder's place."""
import ctypes
import os
import pathlib
import random
import re
import signal
import subprocess
import tempfile
import time

from probe_mapping import FULL, HEADER, PULSING, Mapping

THREADS = {"one": (1, 0), "three": (3, 0), "three, one not led": (3, 1)}  # as the loop is told
WATCHES = {"none": {}, "perturb": {"MALLOC_PERTURB_": "165", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"},  # that cache is not filled
           "poison": {"MILLRACE_GUARD": "poison"}, "fence": {"MILLRACE_GUARD": "fence"}}
SET = 6                   # CallKind::kSetAsync, of which the loop makes one in each step
WINDOWS, ALONE = 2, 14    # windows of a process with and without a leave
START, OBEY, LEAVE, AFTER = 60, 10, 4, 1.2  # seconds; what CUPTI frees is kept for one
KEPT = 40                 # lines of what a process said that ended badly
UNBEGUN = "before the probe was there"
COMPLAINTS = re.compile(r"malloc\(\)|malloc:|free\(\)|realloc\(\)|munmap_chunk|double free|corrupt|^guard:", re.MULTILINE)
C_LIBRARY = ctypes.CDLL(None)
FAULTS = ["", "no libcupti was found", "another profiler holds CUPTI", "CUPTI failed", "no memory", "the probe made way", "the recorder was not heard"]


def die_with_parent():
    """Nothing stays behind, stopped perhaps, when this script is killed."""
    C_LIBRARY.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Process:
    """One of them from its start to its end. `case`: number, threads, watch, signals, alone."""

    def __init__(self, case, setup, folder):
        self.case, self.setup, self.folder, self.random = case, setup, folder, random.Random(case["number"])
        self.mapping, self.stopped, self.turn, self.unobeyed = None, False, None, 0
        environment = {**os.environ, **WATCHES[case["watch"]], "CUDA_INJECTION64_PATH": setup["library"], "MILLRACE_PROBE_DIR": str(folder),
                       "MILLRACE_PROBE_LOG": str(folder / "log")}
        if case["watch"] in ("poison", "fence"):
            environment["LD_PRELOAD"] = setup["guard"]
        with open(folder / "output", "wb") as output, open(folder / "errors", "wb") as errors:
            self.process = subprocess.Popen([*setup["loop"], *map(str, THREADS[case["threads"]])], stdin=subprocess.PIPE, stdout=output, stderr=errors,
                                            env=environment, preexec_fn=die_with_parent)

    def disturb(self):
        if self.turn is not None and time.monotonic() >= self.turn:
            self.stopped = not self.stopped
            self.process.send_signal(signal.SIGSTOP if self.stopped else signal.SIGCONT)
            self.turn = time.monotonic() + self.random.uniform(0.005, 0.05)

    def calm(self):
        self.turn, self.stopped = None, False
        self.process.send_signal(signal.SIGCONT)

    def wait(self, seconds, condition=lambda: False):
        """True where the condition came true in time; false where the process has ended before."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.process.poll() is None:
            if self.mapping:
                self.mapping.drain()
            self.disturb()
            if condition():
                return True
            time.sleep(0.004)
        return condition()

    def has_begun(self):
        found = [path for path in self.folder.glob("*.probe") if path.stat().st_size > HEADER]
        if self.mapping is None and found:
            self.mapping = Mapping(found[0], keep=False)
        return self.mapping is not None and self.mapping.state("magic") != 0 and b"ready\n" in (self.folder / "output").read_bytes()

    def order(self, mode, **words):
        self.mapping.order(mode, pulse=SET, **words)
        if not self.wait(OBEY, self.mapping.is_obeyed) and self.process.poll() is None:
            self.unobeyed += 1

    def has_decided(self):
        return self.mapping.state("presence") != 0

    def work(self):
        if not self.wait(START, self.has_begun):
            return
        if self.case["signals"]:
            self.turn = time.monotonic()
        for window in range(ALONE if self.case["alone"] else WINDOWS):
            if window > 0:
                self.order(PULSING)
                self.wait(0.1)
            self.order(FULL, sites=3)
            self.wait(self.random.uniform(0.1, 0.2))
        self.order(PULSING, led=1, detach=int(not self.case["alone"]))
        if not self.case["alone"]:
            self.wait(LEAVE, self.has_decided)
        self.wait(AFTER)

    def finish(self):
        """Lets it come to its end; what was wrong with that."""
        begun = self.has_begun()
        self.calm()
        self.process.stdin.close()
        self.wait(self.setup["patience"])
        hangs = self.process.poll() is None
        self.process.kill()
        status = self.process.wait()
        if hangs or status != 0 or not begun:
            ended = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
            how = f"no end within {self.setup['patience']:g} s" if hangs else ended
            return how + f" {UNBEGUN}" * (not begun)
        sums = re.findall(r"^checksum (\d+) (\d+)$", self.text("output"), re.MULTILINE)
        if len(sums) != 1 or sums[0][0] != sums[0][1] or sums[0][1] == "0":
            return "checksum " + (" ".join(sums[0]) if sums else "absent")
        complaint = COMPLAINTS.search(self.text("errors"))
        return f"said {complaint[0]!r}" if complaint else ""

    def text(self, name):
        path = self.folder / name
        return path.read_text(errors="replace") if path.exists() else ""

    def why_stayed(self, presence, miscounted):
        """As far as it is known."""
        if miscounted:
            return "CUPTI lost count"
        if "CUPTI may go" not in self.text("log"):
            return "it was not let go: a call of the last window did not end, or it cannot go"
        return "no moment came, or it refused" if presence == 2 else f"no moment came within {LEAVE} s"

    def told(self, bad):
        """All that is kept of it."""
        state = self.mapping.state if self.mapping else lambda name: 0
        result = {**self.case, "bad": bad, "went": state("presence") == 1, "unended": state("unended"), "stale": state("stale"),
                  "fault": FAULTS[min(state("fault"), len(FAULTS) - 1)], "unobeyed": self.unobeyed, "cupti": state("cupti_version"),
                  "driver": state("driver_version")}
        guarded = re.search(r"^guarded (\d+) pieces$", self.text("errors"), re.MULTILINE)
        if guarded:
            result["guarded"] = int(guarded[1])
        if not result["went"] and not self.case["alone"]:
            result["stayed"] = result["fault"] or self.why_stayed(state("presence"), result["unended"] + result["stale"] > 0)
        if bad:
            result.update(status=self.process.returncode, **{name: self.text(name).splitlines()[-KEPT:] for name in ("errors", "log")})
        return result


def run(case, setup):
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="probe-leaves-", dir=setup["scratch"]) as folder:
        process = Process(case, setup, pathlib.Path(folder))
        try:
            process.work()
            return {**process.told(process.finish()), "seconds": round(time.monotonic() - begun, 2)}
        finally:
            process.process.kill()
            process.process.wait()
