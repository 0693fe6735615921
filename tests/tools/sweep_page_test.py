"""The page of a sweep in a real browser: what it shows, that its table sorts, that nothing of a study comes alive in it.

    sweep_page_test.py                               runs the tests; skipped where there is no Chromium or no build
    sweep_page_test.py --screenshot OUT.png [NAME]   takes a picture of a made-up study's page
"""
import base64
import hashlib
import os
import pathlib
import re
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
PAGES = ("one_objective.html", "two_objectives.html", "empty.html", "one_trial.html", "all_failed.html", "troubled.html", "hostile.html")


def write_pages(folder):
    """Pages of made-up studies."""
    subprocess.run([BUILD / "test_sweep", "--gtest_filter=SweepPage.WritesPagesForABrowser"], check=True,
                   env={**os.environ, "MILLRACE_REPORTS_TO": str(folder)}, stdout=subprocess.DEVNULL)


@unittest.skipUnless((BUILD / "test_sweep").exists(), f"no test_sweep in {BUILD}: build the tests")
class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.pages = pathlib.Path(cls.folder.name)
        write_pages(cls.pages)
        cls.page = browser.Browser(PROGRAM) if PROGRAM else None

    @classmethod
    def tearDownClass(cls):
        if cls.page:
            cls.page.close()
        cls.folder.cleanup()

    def open(self, name, **how):
        if not self.page:
            self.skipTest("no Chromium: apt-get install chromium")
        self.page.open(self.pages / name, **how)

    def column(self, name):
        """Texts of a column of the table of trials, from top to bottom."""
        at = self.page.value("[...document.querySelectorAll('#table th')].map((cell) => cell.textContent)").index(name)
        return self.page.value(f"[...document.querySelectorAll('#table tbody tr')].map((row) => row.cells[{at}].textContent)")

    def click_header(self, name):
        self.page.value(f"[...document.querySelectorAll('#table th button')].find((one) => one.textContent === '{name}').click()")

    def test_policy_names_the_script_that_the_page_holds(self):
        right = base64.b64encode(hashlib.sha256((self.pages / "script.js").read_bytes()).digest()).decode()
        self.assertEqual((self.pages / "script.sha256").read_text(), right, "page_script_hash() must be this")

    def test_every_page_opens_without_a_complaint_asks_for_nothing_and_is_named(self):
        for name in PAGES:
            for dark in (False, True) if name in ("two_objectives.html", "troubled.html", "all_failed.html") else (False,):
                self.open(name, dark=dark)
                self.assertEqual(self.page.complaints(), [], name)
                self.assertEqual(self.page.requests(), [(self.pages / name).as_uri()], name)
                self.assertEqual(self.page.value("document.documentElement.lang"), "en")
                self.assertEqual(self.page.value(browser.UNNAMED), [], name)
                if name != "one_objective.html":  # long, and nothing in it that two objectives lack
                    self.assertEqual(self.page.value(browser.CONTRAST), [], f"{name} dark={dark}")

    def test_a_header_sorts_by_number_and_back(self):
        self.open("one_objective.html")
        first = self.column("validation_accuracy")
        for name in ("validation_accuracy", "optim.lr", "took"):
            self.click_header(name)
            at = self.page.value("[...document.querySelectorAll('#table th')].map((cell) => cell.getAttribute('aria-sort'))")
            self.assertEqual([one for one in at if one], ["ascending"])
            values = [text for text in self.column(name) if text not in ("", "NaN")]
            numbers = [float(text.rstrip("s")) for text in values]
            self.assertEqual(numbers, sorted(numbers), name)
            self.assertGreater(len(set(numbers)), 0 if name == "took" else 100, name)
            self.click_header(name)
            down = [float(text.rstrip("s")) for text in self.column(name) if text not in ("", "NaN")]
            self.assertEqual(down, sorted(numbers, reverse=True), name)
        self.click_header("validation_accuracy")
        self.assertEqual(self.column("validation_accuracy")[-1], "NaN")  # what is no number is last in both directions
        self.click_header("validation_accuracy")
        self.assertEqual(self.column("validation_accuracy")[-1], "NaN")
        self.assertEqual(sorted(first), sorted(self.column("validation_accuracy")))
        self.click_header("state")
        self.assertEqual(self.column("state"), sorted(self.column("state")))
        self.assertEqual(self.page.complaints(), [])

    def test_the_best_row_the_verdict_and_the_history_agree(self):
        self.open("one_objective.html")
        text = self.page.value("document.body.innerText")
        values = [float(value) for value, state in zip(self.column("validation_accuracy"), self.column("state")) if state == "complete"]
        self.assertEqual(values, sorted(values, reverse=True))
        self.assertRegex(text, rf"came to {max(values):g} in trial \d+")
        self.assertEqual(self.page.value("document.querySelectorAll('#parallel ~ figure .line').length"), len(self.column("trial")))
        mean = self.page.value("document.querySelector('h1').firstChild.textContent.trim()")
        row = self.page.value("document.querySelector('.finalists tbody tr').innerText")
        self.assertIn(mean, row)
        numbers = [int(one) for one in self.page.value("[...document.querySelectorAll('.finalists tbody tr')][0].cells[2].innerText").split(", ")]
        by_trial = dict(zip(map(int, self.column("trial")), map(float, self.column("validation_accuracy"))))
        self.assertEqual(len(numbers), 3)
        self.assertAlmostEqual(sum(by_trial[one] for one in numbers) / 3, float(mean), delta=2e-6)
        shares = [int(one) for one in re.findall(r"(\d+) %", self.page.value("document.querySelector('.shares').innerText"))]
        self.assertEqual(len(shares), 5)
        self.assertAlmostEqual(sum(shares), 100, delta=3)
        self.assertEqual(self.page.value("document.querySelectorAll('#curves ~ .wide path.curve').length"), 10)
        self.assertNotIn("Pareto", text)

    def test_two_objectives_have_a_front(self):
        self.open("two_objectives.html")
        text = self.page.value("document.body.innerText")
        count = int(re.search(r"(\d+) trials? on the Pareto front", text)[1])
        self.assertEqual(self.page.value("document.querySelectorAll('#front ~ .tall .dot.front').length"), count)
        self.assertEqual(self.page.value("document.querySelectorAll('#history ~ .charts figure').length"), 4)

    def test_keys_and_the_mouse_find_a_trial_in_all_pictures(self):
        self.open("one_objective.html")
        self.page.value("document.querySelector('.rows').focus()")
        self.page.key("ArrowDown")
        self.page.key("ArrowDown")
        trial = self.column("trial")[1]
        marked = self.page.value("[...document.querySelectorAll('path.on')].map((one) => one.dataset.t)")
        self.assertGreaterEqual(len(marked), 3)
        self.assertEqual(set(marked), {trial})
        self.assertIn(f"trial {trial}, state complete, validation_accuracy 0.", self.page.value("document.getElementById('chosen').textContent"))
        place = self.page.value("(() => { const line = document.querySelector('.parallel .line.q0:not(.on)'); line.scrollIntoView({block: 'center'});"
                                " const at = line.getPointAtLength(1), to = line.getScreenCTM(), p = new DOMPoint(at.x, at.y).matrixTransform(to);"
                                " return [p.x, p.y]; })()")
        self.page.mouse("mouseMoved", *place, button="none", buttons=0)
        self.assertRegex(self.page.value("document.getElementById('tip').innerText"), r"^trial \d+, state \w+, validation_accuracy 0\.")
        self.page.mouse("mousePressed", *place)
        self.page.mouse("mouseReleased", *place, buttons=0)
        self.assertNotIn(trial, self.page.value("[...document.querySelectorAll('path.on')].map((one) => one.dataset.t)"))
        self.assertEqual(self.page.value("document.querySelectorAll('#table tr.on').length"), 1)
        reached = set()
        for _ in range(60):
            self.page.key("Tab")
            reached.add(self.page.value("document.activeElement.closest('th') ? 'header' : document.activeElement.className"))
        self.assertTrue({"skip", "scroll", "header", "card scroll rows"} <= reached, reached)

    def test_no_width_scrolls_sideways(self):
        for width in (320, 700, 1600):
            for name in ("two_objectives.html", "hostile.html", "empty.html"):
                self.open(name, width=width)
                self.assertLessEqual(self.page.value("document.documentElement.scrollWidth"), width, f"{name} at {width}")

    def test_hostile_names_are_inert(self):
        for script in (False, True):
            self.open("hostile.html", script=script)
            self.assertIn("</script><script>document.title='owned'</script>", self.page.value("document.body.innerText"))
            self.assertNotEqual(self.page.value("document.title"), "owned")
            self.assertEqual(self.page.value("document.images.length"), 0)
            self.assertEqual(self.page.value("document.scripts.length"), 1)
        self.page.value("document.querySelector('.rows').focus()")
        self.page.key("ArrowDown")  # what it says of a trial is text, too
        self.assertEqual(self.page.value("document.images.length"), 0)

    def test_it_reads_without_its_script(self):
        self.open("one_objective.html", script=False)
        text = self.page.value("document.body.innerText")
        for words in ("All trials", "Finalists", "Which parameters matter", "Learning curves of the best 10"):
            self.assertIn(words, text)
        self.assertNotIn("Click", text)
        self.assertEqual(len(self.column("trial")), 290)

    def test_two_thousand_trials_are_there_and_sort_at_once(self):
        self.open("many.html")
        self.assertEqual(self.page.complaints(), [])
        self.assertEqual(len(self.column("trial")), 2010)
        # Sorting takes a few times as long as laying out the rows, on any machine; comparing every pair would take a thousand times.
        best = ("((act) => Math.min(...[1, 2, 3].map(() => { const begin = performance.now(); act(); document.body.offsetHeight;"
                " return performance.now() - begin; })))(%s)")  # the third click sorts as the first does
        laid_out = self.page.value(best % "() => { const body = document.querySelector('#table tbody'); body.append(...body.rows); }")
        took = self.page.value(best % "() => document.querySelector('#table th:nth-child(3) button').click()")
        self.assertLess(took, 20 * laid_out)
        numbers = [float(text) for text in self.column("validation_accuracy") if text not in ("", "NaN")]
        self.assertEqual(numbers, sorted(numbers))


def take_screenshot(to, words):
    name = next((word for word in words if word.endswith(".html")), "one_objective.html")
    page = browser.Browser(PROGRAM)
    try:
        with tempfile.TemporaryDirectory() as folder:
            write_pages(folder)
            page.open(pathlib.Path(folder, name), width=1160, height=1180, dark="--dark" in words)
            height = page.value("document.documentElement.scrollHeight") if "--whole" in words else 1180
            page.call("Emulation.setDeviceMetricsOverride", width=1160, height=height, deviceScaleFactor=1, mobile=False)
            page.screenshot(to)
    finally:
        page.close()


if __name__ == "__main__":
    browser.main(take_screenshot)
