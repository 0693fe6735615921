"""tools/flow-curve: when two sets of curves agree and when not, what it reads, what it writes, and a short dry run where torch and a build are
at hand."""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools/flow-curve"
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench/peers"))
import pair_files  # noqa: E402
from load_script import load  # noqa: E402

curve = load(SCRIPT, "flow_curve_tool")
report = curve.report
CHECKPOINTS = [10, 20, 40]


def noisy(seed, factor=1.0, steps=40):
    """Losses that fall from 1 to 0.2, with noise."""
    dice = random.Random(seed)
    return [factor * (1 - 0.8 * step / steps) + dice.gauss(0, 0.02) for step in range(steps)]


def result_of(ours, theirs, **other):
    return dict(profile="tiny", device="cpu", steps=len(ours[0]), seeds=len(ours), ours=ours, theirs=theirs, odd_starts=[], tensors=3,
                **report.judged(ours, theirs, CHECKPOINTS), **other)


class Judgement(unittest.TestCase):
    theirs = [noisy(seed) for seed in range(5)]

    def test_curves_of_one_kind_agree(self):
        result = result_of([noisy(seed) for seed in range(10, 15)], self.theirs)
        self.assertEqual(report.problems(result), [])
        self.assertGreater(result["chance"], report.LEAST_CHANCE)

    def test_a_slower_fall_is_told_apart(self):
        result = result_of([noisy(seed, 1.1) for seed in range(10, 15)], self.theirs)
        found = "\n".join(report.problems(result))
        self.assertIn("step 10: the medians differ", found)
        self.assertIn("told apart", found)

    def test_the_chance_counts_all_ways_to_label_the_runs(self):
        ours = [[loss + 1.0 for loss in noisy(seed)] for seed in range(5)]
        result = result_of(ours, self.theirs)
        self.assertEqual(result["chance"], 1 / 126)
        two = result_of(ours[:2], self.theirs[:2])
        self.assertEqual(two["chance"], 1 / 3)  # two seeds prove nothing by labels

    def test_a_loss_that_does_not_fall_is_a_problem(self):
        rising = [losses[::-1] for losses in self.theirs]
        self.assertEqual(len(report.problems(result_of(rising, rising))), 1)
        self.assertIn("does not fall", report.problems(result_of(rising, rising))[0])

    def test_ratio_by_hand(self):
        spreads, difference, pooled = report.ratio([1.0, 2.0, 3.0], [5.0, 7.0, 9.0])
        self.assertEqual(difference, -5.0)
        self.assertAlmostEqual(pooled, ((2 + 8) / 4) ** 0.5)
        self.assertAlmostEqual(spreads, 5 / 2.5 ** 0.5)
        self.assertEqual(report.ratio([1.0, 1.0], [1.0, 1.0])[0], 0)
        self.assertEqual(report.ratio([1.0, 1.0], [2.0, 2.0])[0], float("inf"))

    def test_smoothing_looks_back_only(self):
        self.assertEqual(report.smoothed([1.0] * 10 + [11.0])[8:], [1.0, 1.0, 2.0])
        self.assertEqual(report.smoothed([4.0, 2.0]), [4.0, 3.0])

    def test_tensors_that_begin_otherwise_are_named(self):
        like = [[0.0, 0.02, 10000], [0.0001, 0.0201, 10000]]
        self.assertEqual(report.odd_starts({"mapper.weight": like, "zero": [[0, 0, 9], [0, 0, 9]]}), [])
        for odd in ([[0.0, 0.05, 10000], like[1]], [None, like[1]], [[0.0, 0.02, 9999], like[1]], [[0.01, 0.02, 10000], like[1]],
                    [[0.0, 0.0, 10000], like[1]]):
            self.assertEqual(len(report.odd_starts({"mapper.weight": odd})), 1, odd)


class Forms(unittest.TestCase):
    def test_rows_of_several_steps_share_a_mean(self):
        row = lambda step, steps, loss, dropped=0: json.dumps(dict(kind="interval", step=step, steps=steps, loss=loss, dropped=dropped))
        epoch = json.dumps(dict(kind="epoch", step=3))
        self.assertEqual(curve.curve_of([row(1, 1, 5.0), row(3, 2, 4.0), epoch], 3), [5.0, 4.0, 4.0])
        for lines in ([row(1, 1, 5.0)], [row(1, 1, 5.0), row(4, 2, 4.0)], [row(3, 3, None)], [row(3, 3, 1.0, 1)], []):
            self.assertRaises(curve.Failed, curve.curve_of, lines, 3)

    def test_table_csv_and_picture(self):
        result = result_of([noisy(seed, 1.5) for seed in range(3)], [noisy(seed) for seed in range(3)])
        lines = report.lines_of(result)
        self.assertEqual({len(line) for line in lines}, {len(report.HEADER)})
        self.assertEqual([line[0] for line in lines[1:]], ["10", "20", "40"])
        self.assertIn("outside", report.text_table(result))
        rows = report.csv(result).splitlines()
        self.assertEqual((len(rows), {row.count(",") for row in rows}), (41, {6}))
        picture = xml.etree.ElementTree.fromstring(report.svg(result))
        self.assertEqual(sum(element.tag.endswith("polyline") for element in picture), 8)

    def test_the_split_is_that_of_millrace(self):
        """Figures of data::split_validation."""
        self.assertEqual(pair_files.training_positions(7), [4, 1, 6, 0, 3, 2, 5])
        order = pair_files.training_positions(5000)
        self.assertEqual(order[:6], [1177, 1063, 3134, 4055, 3031, 727])
        self.assertEqual((len(order), sum(place * value for place, value in enumerate(order, 1))), (4500, 25523206066))


class WholeScript(unittest.TestCase):
    def run_script(self, *given):
        return subprocess.run([sys.executable, SCRIPT, *given], capture_output=True, text=True, check=False)

    def test_bad_input_is_refused(self):
        for words in (("--seeds", "1"), ("--seeds", "11"), ("--steps", "9"), ("--steps", "282"), ("--tiny", "--profile", "debug"), ("--set", "seed"),
                      ("--tiny", "--device", "cpu", "--build", "/no/such/folder")):
            done = self.run_script(*words)
            self.assertEqual(done.returncode, 2, words)
            self.assertTrue(done.stderr)

    def test_dry_run_on_a_build(self):
        build = os.environ.get("MILLRACE_BUILD")
        if not build or not os.access(os.path.join(build, "millrace"), os.X_OK):
            self.skipTest("MILLRACE_BUILD names no build with millrace")
        python = os.environ.get("MILLRACE_PYTHON", "/usr/bin/python3")
        if not os.access(python, os.X_OK) or subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode != 0:
            self.skipTest(f"{python} has no torch")
        with tempfile.TemporaryDirectory() as folder:
            done = self.run_script("--tiny", "--device", "cpu", "--seeds", "2", "--steps", "12", "--build", build, "--out", folder)
            self.assertIn(done.returncode, (0, 1), done.stderr)  # two seeds' spread is no yardstick; the forms are
            out = pathlib.Path(folder)
            result = json.loads((out / "flow-curve.json").read_text())
            self.assertEqual(sorted(path.name for path in out.iterdir()), ["flow-curve.csv", "flow-curve.json", "flow-curve.svg"])
        self.assertEqual(result["odd_starts"], [])
        self.assertEqual((result["tensors"], result["pairs"], [line["step"] for line in result["checkpoints"]]), (31, 1800, [10, 12]))
        for side in ("ours", "theirs"):
            self.assertEqual([len(losses) for losses in result[side]], [12, 12])
            for losses in result[side]:
                self.assertTrue(0.05 < losses[0] < 0.09, losses[0])  # 0.3^2 times the share of a vector that 48 of 64 cells hold
        self.assertNotEqual(*result["theirs"])


if __name__ == "__main__":
    unittest.main()
