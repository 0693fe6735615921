"""tools/inject from draw to table with a stand-in for PyTorch and a made-up millrace: copies wait at their gates, take turns, are recorded and judged."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
for folder in ("tools", "tests/tools"):
    sys.path.insert(0, str(ROOT / folder))
import inject_corpus as corpus  # noqa: E402
from made_up_doctor import is_gone, wait_for  # noqa: E402
from made_up_training import diagnosis, finding, make_millrace, make_programs  # noqa: E402


class Runs(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        make_programs(self.folder / "programs", batch=1)
        make_millrace(self.folder / "build", diagnosis(finding("python-work", 3, 5.0), step_ms=2.0))

    def inject(self, *given, tool="inject"):
        environment = {**os.environ, "MILLRACE_PYTHON": sys.executable}
        done = subprocess.run([sys.executable, ROOT / "tools" / tool, *map(str, given)], capture_output=True, text=True, env=environment)
        self.assertNotIn("Traceback", done.stderr)
        return done

    def collect(self, *given):
        out = self.folder / "out"
        return self.inject(self.folder / "programs", "--build", self.folder / "build", "--out", out, "--seconds", 0.6, "--record-seconds", 0.3, "--ahead", 5, *given)

    def test_from_draw_to_table(self):
        done = self.collect("--seed", "5", "--cases", 4, "--pack", self.folder / "packed")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("seed 5\n== 1 programs as they are\n  somebody-5-well: untouched, ", done.stdout)
        found = corpus.archives(self.folder / "out")
        self.assertEqual(set(found), {"somebody-5-well", *(f"somebody-5-{number}" for number in range(4))}, done.stdout)
        truths = [corpus.read_truth(opened) for opened in found.values()]
        sick = [truth for truth in truths if truth["illnesses"]]
        self.assertTrue(sick)
        for truth in truths:
            # The stand-in pauses for 2 ms a turn, and every other turn is a step.
            self.assertTrue(4 <= truth["paces"]["well"][0] < 40, truth["paces"])
            self.assertTrue(8 <= truth["steps"] < 80, truth["steps"])
            self.assertEqual(len({len(turns) for turns in truth["paces"].values()}), 1)
            self.assertEqual(truth["said_steps"], 100)
        self.assertIn("steps 100 of ", done.stdout)
        self.assertRegex(done.stdout, r"steps within 2 % +0/5")
        self.assertIn("seed 5; ", (self.folder / "packed/report.txt").read_text())
        # Judged again, the same table comes of the bundles alone.
        again = self.inject("--judge", self.folder / "packed", "--build", self.folder / "build")
        self.assertEqual(again.stdout.splitlines()[-8:], done.stdout.splitlines()[-8:])

    def test_what_slows_a_program_down_is_measured(self):
        main = self.folder / "programs/somebody/main.py"
        main.write_text(main.read_text().replace("        torch.pause(0.002)", "        torch.pause(0.002 + WAIT)").replace("TEST_BATCH", "WAIT = 0\nTEST_BATCH"))
        # A loader that is slow in the sick copy alone.
        sys.path.insert(0, str(ROOT / "tools"))
        program = """
import pathlib, random, sys
sys.dont_write_bytecode = True
sys.path[:0] = [{tools!r}]
import inject_illnesses as illnesses, inject_source
def slower(view):
    line = view.main.lines.index("WAIT = 0") + 1
    return [lambda rng: illnesses.Illness("slower", ("python-work",), {{"main.py": [inject_source.Insert(line, ("WAIT = 0.01",), (0,))]}}, (), "10 ms")]
illnesses.MAKERS = {{"slower": slower}}
sys.path.insert(0, {tests!r})
from load_script import load
import importlib
tool = load({inject!r}, "inject")
illnesses.drawn.__defaults__ = ((0, 1),)
sys.argv = ["inject"] + {given!r}
sys.exit(tool.main())
""".format(tools=str(ROOT / "tools"), tests=str(ROOT / "tests/tools"), inject=str(ROOT / "tools/inject"),
           given=[str(self.folder / "programs"), "--build", str(self.folder / "build"), "--out", str(self.folder / "out"), "--seconds", "0.6",
                  "--record-seconds", "0.3", "--cases", "1"])
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, "MILLRACE_PYTHON": sys.executable})
        self.assertIn("slower (10 ms)", done.stdout, done.stderr)
        truth, = (each for each in map(corpus.read_truth, corpus.archives(self.folder / "out").values()) if each["illnesses"])
        row, = truth["illnesses"]
        self.assertTrue(10 < row["loss_ms"] < 60, truth["paces"])  # 20 ms, more on a machine that is busy
        self.assertGreater(row["gain"], 0.8)

    def test_a_program_that_fails_is_left_out_and_told(self):
        main = self.folder / "programs/somebody/main.py"
        main.write_text(main.read_text().replace("def main():", "def main():\n    raise SystemExit('no GPU')"))
        done = self.collect("--cases", 1)
        self.assertIn("left out: somebody-", done.stdout)
        self.assertIn("no GPU", done.stdout)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("no folder with recordings", done.stderr)

    def test_setup_that_fails_is_told(self):
        make_programs(self.folder / "other", setup="echo no such data >&2; exit 3")
        done = self.inject(self.folder / "other", "--build", self.folder / "build", "--out", self.folder / "out")
        self.assertIn("left out: somebody: its setup ended with 3: no such data", done.stdout)

    def test_every_illness_is_tried(self):
        done = self.inject(self.folder / "programs", "--try", 9, "--seed", "7")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"somebody +python-work +runs, \d+ steps")
        broken = self.folder / "programs/somebody/torch/__init__.py"
        broken.write_text(broken.read_text().replace("detach = ", ""))
        done = self.inject(self.folder / "programs", "--try", 9, "--seed", "7")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"small-launches +FAILS, \d steps")

    def test_doctor_check_hands_described_programs_over(self):
        done = self.inject("--programs", self.folder / "programs", "--build", self.folder / "build", "--out", self.folder / "out", "--minutes", 0.01, tool="doctor-check")
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertIn("time is up before somebody", done.stdout)

    def test_a_copy_ends_when_nobody_waits_for_it(self):
        work = self.folder / "programs/somebody"
        (work / "step_counter.py").write_text((ROOT / "tools/step_counter.py").read_text())
        (work / "three.py").write_text("import step_counter\nfor _ in range(3):\n    step_counter.tick()\nprint('went on')\n")
        os.mkfifo(self.folder / "gate")
        keep = os.open(self.folder / "gate", os.O_RDWR)
        process = subprocess.Popen([sys.executable, "three.py"], cwd=work, stdout=subprocess.PIPE, env={
            **os.environ, "STEP_COUNTER_FILE": str(self.folder / "steps"), "STEP_COUNTER_GATE": str(self.folder / "gate"), "STEP_COUNTER_WARM": "2"})
        while not (self.folder / "gate.here").exists():
            self.assertIsNone(process.poll())
        os.close(keep)
        self.assertEqual(process.communicate(), (b"", None))
        self.assertEqual(process.returncode, 143)
        self.assertTrue(is_gone(process.pid))
        plain = subprocess.run([sys.executable, "three.py"], cwd=work, capture_output=True, text=True)
        self.assertEqual(plain.stdout, "went on\n", "without a file nothing is counted")

    def test_workers_end_with_their_program(self):
        work = self.folder / "programs/somebody"
        (work / "step_counter.py").write_text((ROOT / "tools/step_counter.py").read_text())
        (work / "workers.py").write_text("import multiprocessing, step_counter, time\nworker = multiprocessing.Process(target=time.sleep, args=(60,), daemon=True)\n"
                                         "worker.start()\nprint(worker.pid, flush=True)\nwhile True:\n    step_counter.tick()\n")
        environment = {**os.environ, "STEP_COUNTER_FILE": str(self.folder / "steps"), "STEP_COUNTER_SECONDS": "0.01", "STEP_COUNTER_EXIT": "hard"}
        done = subprocess.run([sys.executable, "workers.py"], cwd=work, stdout=subprocess.PIPE, env=environment, timeout=40)  # the worker holds it open, too
        self.assertEqual(done.returncode, 0)
        wait_for(lambda: is_gone(int(done.stdout)))


if __name__ == "__main__":
    unittest.main()
