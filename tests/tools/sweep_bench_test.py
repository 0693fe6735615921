"""tools/sweep-bench and tools/sweep-check: what they hold against their bars; both for real, on little data, where a build is at hand."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MILLRACE_BUILD", ROOT / "build")).resolve()
PYTHON = os.environ.get("MILLRACE_PYTHON", "/usr/bin/python3")
sys.dont_write_bytecode = True
from load_script import load  # noqa: E402

check = load(ROOT / "tools/sweep-check", "sweep_check")
studies = check.studies


def lacks(*modules):
    """Why the peer cannot run, or None."""
    if not os.access(PYTHON, os.X_OK):
        return f"no {PYTHON}"
    code = f"import importlib.util, sys; sys.exit(any(importlib.util.find_spec(each) is None for each in {modules!r}))"
    return None if subprocess.run([PYTHON, "-c", code], check=False).returncode == 0 else f"{PYTHON} lacks one of {', '.join(modules)}"


def run(script, *words):
    return subprocess.run([sys.executable, ROOT / script, "--build", BUILD, *words], capture_output=True, text=True, check=False,
                          env=dict(os.environ, MILLRACE_PYTHON=PYTHON))


class StudyFiles(unittest.TestCase):
    def test_values_become_toml(self):
        self.assertEqual(studies.toml(dict(log=[1e-5, 0.1])), "{ log = [1e-05, 0.1] }")
        self.assertEqual(studies.toml([dict(metric="a", direction="b"), True, 3]), '[{ metric = "a", direction = "b" }, true, 3]')
        text = studies.study_text("recipes/x.toml", dict(trials=4), {"optim.lr": dict(log=[1, 2])})
        self.assertIn('\n[space]\n"optim.lr" = { log = [1, 2] }\n', text)
        self.assertIn("\n[study]\nobjectives = [{ metric", text)
        self.assertTrue(text.startswith('recipe = "/'), text)

    def test_a_program_that_is_missing_or_fails_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(studies.Failed, "there is no .*absent"):
                studies.Sweeps(pathlib.Path(folder, "absent"), folder, "cpu")
            with self.assertRaisesRegex(studies.Failed, "what it was ended with 3: bad luck"):
                studies.call([sys.executable, "-c", "import sys; print('bad luck', file=sys.stderr); sys.exit(3)"], "what it was")
            with self.assertRaises(studies.Failed):
                studies.complete_values(pathlib.Path(folder))

    def test_tables_are_aligned(self):
        self.assertEqual(studies.table([["a", "bcd"], ["efg", "h"]]), "a    bcd\nefg  h")


class Bars(unittest.TestCase):
    def held(self, rows):
        return [each["held"] for each in rows]

    def test_asha_may_lose_little_and_take_a_quarter(self):
        grid = dict(best=0.94, epochs=400)
        self.assertEqual(self.held(check.asha_rows(42, grid, dict(best=0.9381, epochs=100))), [True, True])
        self.assertEqual(self.held(check.asha_rows(42, grid, dict(best=0.9379, epochs=101))), [False, False])
        self.assertEqual(self.held(check.asha_rows(42, grid, dict(best=0.95, epochs=1))), [True, True])

    def test_medians_decide_between_samplers(self):
        self.assertEqual(self.held(check.tpe_rows(dict(tpe=[1, 2, 9], random=[2, 2, 1]))), [True])
        self.assertEqual(self.held(check.tpe_rows(dict(tpe=[9, 1, 1], random=[2, 2, 1]))), [False])
        self.assertIn("better in 1", check.tpe_rows(dict(tpe=[9, 1, 1], random=[2, 2, 1]))[0]["measured"])

    def test_a_study_with_failed_trials_or_a_weak_winner_does_not_hold(self):
        finalist = dict(test=dict(test_file_f1=dict(mean=0.9, spread=0.01, count=3)))
        report = dict(complete=30, pruned=20, failed=0, finalists=[finalist])
        self.assertEqual(self.held(check.leak_rows(report, 50)), [True, True])
        self.assertEqual(self.held(check.leak_rows(dict(report, complete=29, failed=1), 50)), [False, True])
        finalist["test"]["test_file_f1"]["mean"] = 0.89
        self.assertEqual(self.held(check.leak_rows(report, 50)), [True, False])
        self.assertEqual(self.held(check.leak_rows(dict(report, finalists=[]), 50)), [True, False])
        self.assertEqual(self.held(check.leak_rows(dict(report, finalists=[dict(reruns=[])]), 50)), [True, False])

    def test_the_summary_is_short(self):
        score = dict(mean=0.91234, spread=0.012, count=3)
        finalist = dict(objectives=dict(segment_f1=score), test=dict(test_file_f1=score, test_loss=score), parameters={"optim.lr": "0.00123456", "model.loss": "focal"})
        report = dict(trials=5, complete=3, pruned=2, trial_epochs=70, seconds=1.5, lanes=5, programs=2, bookkeeping_percent=1, building_percent=2,
                      finalists=[finalist], importance={"model.loss": 0.3, "optim.lr": 0.7})
        lines = check.leak_summary(report)
        self.assertEqual(lines[1:], ["  segment_f1 0.9123 +- 0.012, test_file_f1 0.9123 +- 0.012", "    optim.lr=0.001235 model.loss=focal",
                                     "  importance: optim.lr 70 %, model.loss 30 %"])
        self.assertEqual(len(check.leak_summary(dict(report, importance={}, finalists=[]))), 1)

    def test_the_table_says_which_bar_fell(self):
        lines = check.text_of([check.row("one", "1", "2", True), check.row("two", "3", "2", False)]).splitlines()
        self.assertEqual([line.split()[0] for line in lines], ["what", "ok", "FAIL"])


@unittest.skipIf(sys.version_info < (3, 11), "reads TOML: Python 3.11")
class Bench(unittest.TestCase):
    def judged(self, ours, theirs):
        bench = load(ROOT / "tools/sweep-bench", "sweep_bench")
        return bench.judged(bench.arguments(["--trials", "4", "--epochs", "2"]), dict(trials=4, epochs=8, seconds=1.0, processor_seconds=2.0, **ours),
                            {**dict(trials=4, epochs=8, processor_seconds=8.0), **theirs})

    def test_the_bar_and_equal_work_are_held_against_it(self):
        self.assertEqual(self.judged({}, dict(seconds=5.0))["problems"], [])
        self.assertEqual(self.judged({}, dict(seconds=5.0))["processor_ratio"], 4)
        self.assertIn("4.90x is below", self.judged({}, dict(seconds=4.9))["problems"][0])
        self.assertIn("4 trials with 7 epochs", self.judged({}, dict(seconds=5.0, epochs=7))["problems"][0])
        self.assertEqual(len(self.judged({}, dict(seconds=5.0, trials=3))["problems"]), 1)

    @unittest.skipUnless((BUILD / "millrace").exists(), f"no millrace in {BUILD}")
    @unittest.skipIf(lacks("torch", "optuna", "tomllib"), str(lacks("torch", "optuna", "tomllib")))
    def test_both_sides_count_the_same_trials_and_epochs(self):
        done = run("tools/sweep-bench", "--trials", "2", "--epochs", "2", "--images", "300", "--batch", "64", "--threads", "1", "--form", "stacked", "--json")
        self.assertIn(done.returncode, (0, 1), done.stderr)
        result = json.loads(done.stdout)
        self.assertEqual((result["ours"]["trials"], result["ours"]["epochs"]), (2, 4))
        self.assertEqual((result["theirs"]["trials"], result["theirs"]["epochs"]), (2, 4))
        self.assertEqual(result["theirs"]["steps"], 2 * 2 * 5)  # 270 rows in batches of 64
        self.assertAlmostEqual(result["ratio"], result["theirs"]["seconds"] / result["ours"]["seconds"])
        self.assertTrue(all("below the bar" in problem for problem in result["problems"]), result["problems"])


@unittest.skipIf(lacks("torch", "optuna", "tomllib"), str(lacks("torch", "optuna", "tomllib")))
class Peer(unittest.TestCase):
    def refused(self, space, *words):
        with tempfile.TemporaryDirectory() as folder:
            study = pathlib.Path(folder, "study.toml")
            study.write_text(space)
            done = subprocess.run([PYTHON, ROOT / "bench/peers/study.py", "--study", study, "--data", folder, *words], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        return done.stderr

    def test_what_it_cannot_do_is_refused(self):
        self.assertIn("model.width is not searched here", self.refused('[space]\n"model.width" = { log = [1, 2] }\n'))

    def test_the_space_is_that_of_the_file(self):
        sys.path.insert(0, str(ROOT / "bench/peers"))
        self.addCleanup(sys.path.remove, str(ROOT / "bench/peers"))
        if sys.version_info < (3, 11):
            self.skipTest("reads TOML: Python 3.11")
        study = load(ROOT / "bench/peers/study.py", "peer_study")
        space = study.read_space(ROOT / "recipes/study-collective.toml")
        asked = []

        def suggest(name, low, high, log=False):
            asked.append((name, low, high, log))
            return low
        settings = study.suggested(types.SimpleNamespace(suggest_float=suggest), space)
        self.assertEqual(settings["optim.weight_decay"], 0)  # the draw of `or` was low
        self.assertEqual(settings["optim.lr"], 1e-5)
        self.assertEqual([each[0] for each in asked], ["optim.lr", "optim.weight_decay:or", "optim.beta1", "optim.clip_norm:or"])
        self.assertEqual([each[3] for each in asked], [True, False, False, False])


@unittest.skipUnless((BUILD / "millrace").exists(), f"no millrace in {BUILD}")
class Tiny(unittest.TestCase):
    def test_asha_against_a_grid_on_the_cpu(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run("tools/sweep-check", "--tiny", "--device", "cpu", "--only", "asha", "--keep", folder)
            self.assertIn(done.returncode, (0, 1), done.stderr)
            result = json.loads(pathlib.Path(folder, "sweep-check.json").read_text())
        self.assertEqual(len(result["rows"]), 2)
        self.assertRegex(result["rows"][1]["measured"], r" of 27\)$")  # 9 configurations of 3 epochs
        self.assertEqual(done.returncode, 0 if all(each["held"] for each in result["rows"]) else 1)


if __name__ == "__main__":
    unittest.main()
