"""The doctor's page in a real browser: what it shows, how it looks, that nothing of a recording comes alive in it.

    doctor_report_test.py                                   runs the tests; skipped where there is no Chromium or no build
    doctor_report_test.py --screenshot OUT.png [PAGE.html]  takes the picture of the README
"""
import base64
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import browser  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MILLRACE_BUILD", ROOT / "build")).resolve()
PROGRAM = browser.find()


def write_reports(folder):
    """Pages of made-up diagnoses: sick, healthy, empty, hostile. Names in them are relative to the folder."""
    subprocess.run([BUILD / "test_report", "--gtest_filter=DiagnosisHtml.WritesReportsForABrowser"], check=True, cwd=folder,
                   env={**os.environ, "MILLRACE_REPORTS_TO": ""}, stdout=subprocess.DEVNULL)


@unittest.skipUnless((BUILD / "test_report").exists(), f"no test_report in {BUILD}: build the tests")
class Script(unittest.TestCase):
    def test_policy_names_the_script_that_the_page_holds(self):
        with tempfile.TemporaryDirectory() as folder:
            write_reports(pathlib.Path(folder))
            script = pathlib.Path(folder, "script.js").read_bytes()
            right = base64.b64encode(hashlib.sha256(script).digest()).decode()
            self.assertEqual(pathlib.Path(folder, "script.sha256").read_text(), right, "html_script_hash() must be this")


@unittest.skipUnless((BUILD / "test_report").exists(), f"no test_report in {BUILD}: build the tests")
@unittest.skipUnless(PROGRAM, "no Chromium: apt-get install chromium")
class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.reports = pathlib.Path(cls.folder.name)
        write_reports(cls.reports)
        cls.page = browser.Browser(PROGRAM)

    @classmethod
    def tearDownClass(cls):
        cls.page.close()
        cls.folder.cleanup()

    def open(self, name, **how):
        self.page.open(self.reports / name, **how)

    def visible(self):
        return self.page.value("document.body.innerText")

    def expect_clean(self, name):
        self.assertEqual(self.page.complaints(), [], name)
        self.assertEqual(self.page.requests(), [(self.reports / name).as_uri()], name)

    def test_every_page_opens_without_a_complaint_and_asks_for_nothing(self):
        for name in ("sick.html", "healthy.html", "empty.html", "hostile.html"):
            for dark in (False, True):
                self.open(name, dark=dark)
                self.expect_clean(name)

    def test_a_sick_program_is_told_what_share_where_and_what_to_change(self):
        self.open("sick.html")
        text = self.visible()
        for words in ("The GPU worked 79 % of the time.", "Change this first: train.py line 41", "43.3 steps per second instead of 36.2",
                      "The program waits for the GPU in the middle of a step", "train.py:41 in train", "total += loss.item()",
                      "Add the loss up on the GPU", "4.48 ms", "Where a step goes", "host waits for GPU", "A typical step", "The worst step",
                      "The machine while the program ran", "multiprocessors at work", "Recording cost 0.4 % of the run", "One round of training"):
            self.assertIn(words, text)
        self.assertEqual(self.page.value("document.querySelector('.quote .hit .n').textContent"), "41")

    def test_a_healthy_and_an_empty_one_say_so(self):
        self.open("healthy.html")
        self.assertIn("A clean bill.", self.visible())
        self.assertNotIn("What to change", self.visible())
        self.open("empty.html")
        self.assertIn("No training steps on a GPU were found", self.visible())

    def test_text_stands_out_in_light_and_dark(self):
        backgrounds = []
        for dark in (False, True):
            for name in ("sick.html", "healthy.html", "empty.html"):
                self.open(name, dark=dark)
                self.assertEqual(self.page.value(browser.CONTRAST), [], f"{name} dark={dark}")
            backgrounds.append(self.page.value("getComputedStyle(document.body).backgroundColor"))
        self.assertNotEqual(*backgrounds)

    def test_no_width_scrolls_sideways(self):
        for width in (320, 390, 700, 760, 1024, 1600):
            for name in ("sick.html", "hostile.html", "empty.html"):
                self.open(name, width=width)
                wide = self.page.value("document.documentElement.scrollWidth")
                self.assertLessEqual(wide, width, f"{name} at {width}")

    def test_hostile_names_are_inert(self):
        for script in (False, True):
            self.open("hostile.html", script=script)
            self.assertIn("</script><script>document.title='owned'</script>", self.visible())
            self.assertNotEqual(self.page.value("document.title"), "owned")
            self.assertEqual(self.page.value("document.images.length"), 0)
            self.assertEqual(self.page.value("document.scripts.length"), 1)
        self.expect_clean("hostile.html")

    def test_it_reads_without_its_script(self):
        self.open("sick.html", script=False)
        text = self.visible()
        self.assertIn("The GPU worked 79 % of the time.", text)
        self.assertIn("A typical step", text)
        self.assertNotIn("Whole step", text)  # buttons that would do nothing
        self.assertGreater(self.page.value("document.querySelectorAll('.lane rect title').length"), 100)

    def view(self):
        return [float(part) for part in self.page.value("document.querySelector('.zoomable .lane svg').getAttribute('viewBox')").split()]

    def test_keys_buttons_and_the_mouse_zoom(self):
        self.open("sick.html")
        whole = self.view()
        self.page.value("document.querySelector('.zoomable').focus()")
        self.page.key("+")
        half = self.view()
        self.assertAlmostEqual(half[2], whole[2] / 2)
        self.page.key("ArrowRight")
        self.assertGreater(self.view()[0], half[0])
        self.page.key("0")
        self.assertEqual(self.view(), whole)
        self.page.value("document.querySelector('[data-do=in]').click()")
        self.assertAlmostEqual(self.view()[2], whole[2] / 2)
        self.page.value("document.querySelector('[data-do=all]').click()")
        box = self.page.value("(() => { const lane = document.querySelector('.zoomable .lane'); lane.scrollIntoView({block: 'center'});"
                              " const b = lane.getBoundingClientRect(); return [b.left, b.top + b.height / 2, b.width]; })()")
        self.page.mouse("mousePressed", box[0] + 0.25 * box[2], box[1])
        self.page.mouse("mouseMoved", box[0] + 0.5 * box[2], box[1])
        self.page.mouse("mouseReleased", box[0] + 0.75 * box[2], box[1], buttons=0)
        dragged = self.view()
        self.assertAlmostEqual(dragged[0], 2500, delta=60)
        self.assertAlmostEqual(dragged[2], 5000, delta=60)
        self.expect_clean("sick.html")

    def test_pointing_says_what_is_there(self):
        self.open("sick.html")
        place = self.page.value("(() => { const r = document.querySelector('.lane rect.o0'); r.scrollIntoView({block: 'center'});"
                                " const b = r.getBoundingClientRect(); return [b.left + b.width / 2, b.top + b.height / 2]; })()")
        self.page.mouse("mouseMoved", *place, button="none", buttons=0)
        said = self.page.value("document.getElementById('tip').innerText")
        self.assertIn("gemm", said)
        self.assertIn("ms after the step began", said)

    def test_everything_can_be_reached_and_is_named(self):
        self.open("sick.html")
        self.assertEqual(self.page.value("document.documentElement.lang"), "en")
        self.assertEqual(self.page.value(browser.UNNAMED), [])
        reached = set()
        for _ in range(40):
            self.page.key("Tab")
            reached.add(self.page.value("document.activeElement.className || document.activeElement.tagName"))
        self.assertTrue({"skip", "term", "SUMMARY"} <= {name.split()[0] if name else "" for name in reached}, reached)


def take_screenshot(to, words):
    page = browser.Browser(PROGRAM)
    try:
        with tempfile.TemporaryDirectory() as folder:
            write_reports(pathlib.Path(folder))
            of = pathlib.Path(words[0] if words else pathlib.Path(folder, "sick.html"))
            page.open(of.resolve(), width=1160, height=1180)
            page.screenshot(to)
    finally:
        page.close()


if __name__ == "__main__":
    browser.main(take_screenshot)
