"""A sweep under the real mpirun: every rank is a worker. Whatever happens, every trial ends once, with the values of a study that one worker ran in peace.

Skipped where Open MPI is not installed: tools/setup --mpi.
"""
import json
import os
import pathlib
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import sweep_workers_test as workers  # noqa: E402

PROGRAM = workers.PROGRAM
TRIALS, EPOCHS, FINALS = workers.TRIALS, workers.EPOCHS, workers.FINALS
LIMIT = 300  # seconds for one mpirun


def ranks_of(mpirun):
    """{rank: process} of those that it has started so far."""
    found = {}
    for child in pathlib.Path(f"/proc/{mpirun.pid}/task/{mpirun.pid}/children").read_text().split():
        for variable in pathlib.Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
            if variable.startswith(b"OMPI_COMM_WORLD_RANK="):
                found[int(variable.split(b"=")[1])] = int(child)
    return found


def is_alive(process):
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@unittest.skipUnless(PROGRAM.exists(), f"no {PROGRAM}: build it")
class Ranks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory(prefix="millrace-ranks-")
        cls.addClassCleanup(holder.cleanup)
        cls.folder = pathlib.Path(holder.name)
        (cls.folder / "recipe.toml").write_text(workers.RECIPE)
        (cls.folder / "study.toml").write_text(workers.STUDY)
        subprocess.run([PROGRAM, "data", "make", "garments", "--train", "1500", "--test", "60", "--out", "data"], cwd=cls.folder, check=True,
                       stdout=subprocess.DEVNULL)
        # By itself, and a plugin that is not there is not missed.
        peace = subprocess.run([PROGRAM, "sweep", "study.toml", "--out", "peace", "--lanes", "2", "--quiet"], cwd=cls.folder, text=True, capture_output=True,
                               env={**os.environ, "MILLRACE_MPI": "/nowhere/libmillrace-mpi.so"})
        assert peace.returncode == 0, peace.stdout + peace.stderr
        cls.expected = cls.reports(cls.folder / "peace")
        assert len(cls.expected) == TRIALS + FINALS

    @staticmethod
    def query(out, sql):
        file = out / "sweep.db"
        if not file.exists():
            return []
        try:
            with sqlite3.connect(file, timeout=30) as database:
                return database.execute(sql).fetchall()
        except sqlite3.OperationalError:  # it is being made
            return []

    @classmethod
    def reports(cls, out):
        return workers.reports_of(cls.query(out, workers.REPORTS))

    def setUp(self):
        if not shutil.which("mpirun") or not (PROGRAM.parent / "libmillrace-mpi.so").exists():
            self.skipTest("no Open MPI: tools/setup --mpi")
        self.out = self.folder / self._testMethodName
        self.started = []
        self.addCleanup(self.end)

    def end(self):
        for one in self.started:
            if one.poll() is None:
                one.kill()
            one.wait()

    def start(self, ranks, *words, study="study.toml", environment=None):
        with open(f"{self.out}.log", "ab") as log:
            self.started.append(subprocess.Popen(
                ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks), PROGRAM, "sweep", study, "--out", self.out, "--lanes", "2", "--quiet",
                 *words],
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **(environment or {})}))
        return self.started[-1]

    def text(self):
        return pathlib.Path(f"{self.out}.log").read_text(errors="replace")

    def wait_for(self, what, is_so, seconds=LIMIT):
        until = time.monotonic() + seconds
        while not is_so():
            self.assertLess(time.monotonic(), until, f"{what}: not after {seconds} s\n{self.text()}")
            time.sleep(0.02)

    def wait_for_reports(self, mpirun, count):
        """Until the study has so many more than it had."""
        count += sum(map(len, self.reports(self.out).values()))
        self.wait_for(f"{count} reports", lambda: mpirun.poll() is not None or sum(map(len, self.reports(self.out).values())) >= count)
        self.assertIsNone(mpirun.poll(), self.text())

    def check(self):
        """Every trial is there once, complete, with the reports of the peaceful study; returns how many workers ended trials."""
        rows = self.query(self.out, workers.TRIAL_ROWS)
        self.assertEqual([number for number, _, _ in rows], list(range(TRIALS + FINALS)), self.text())
        self.assertEqual({state for _, state, _ in rows}, {"COMPLETE"}, rows)
        self.assertEqual(self.reports(self.out), self.expected)
        self.assertEqual(self.query(self.out, "SELECT COUNT(*) FROM trial_heartbeats"), [(0,)])
        self.assertEqual((self.out / "best.toml").read_text(), (self.folder / "peace" / "best.toml").read_text())
        self.assertGreater((self.out / "sweep.html").stat().st_size, 10000)
        return len({owner for _, _, owner in rows})

    def test_one_two_and_four_ranks_train_every_trial_once(self):
        for ranks in (1, 2, 4):
            with self.subTest(ranks):
                self.out = self.folder / f"once-{ranks}"
                self.assertEqual(self.start(ranks, "--json").wait(LIMIT), 0, self.text())
                owners = self.check()
                self.assertEqual(owners == 1, ranks == 1)
                # Summed over the ranks: no epoch was trained twice.
                report = json.loads(self.text()[self.text().index("{"):])
                self.assertEqual(report["trial_epochs"], (TRIALS + FINALS) * EPOCHS)
                self.assertEqual(report["run"], str(self.out))
                self.assertEqual(list(self.folder.glob("runs/*")), [])

    def test_three_killed_ranks_end_all_and_resume_loses_nothing(self):
        chance = random.Random(9)
        for kill in range(3):
            mpirun = self.start(3, "--grace", "2s", *(["--resume"] if kill > 0 else []))
            self.wait_for_reports(mpirun, 3)
            ranks = ranks_of(mpirun)
            self.assertEqual(sorted(ranks), [0, 1, 2], self.text())
            os.kill(ranks[chance.randrange(3)], signal.SIGKILL)
            self.assertEqual(mpirun.wait(LIMIT), 128 + signal.SIGKILL, self.text())
            self.wait_for("the end of all ranks", lambda: not any(map(is_alive, ranks.values())))
        self.assertEqual(self.start(2, "--grace", "2s", "--resume").wait(LIMIT), 0, self.text())
        self.check()

    def test_a_stop_signal_to_one_rank_ends_all_which_give_back_their_trials(self):
        for rank, number, status in ((1, signal.SIGTERM, 143), (0, signal.SIGUSR1, 75)):
            mpirun = self.start(2, *(["--resume"] if self.out.exists() else []))
            self.wait_for_reports(mpirun, 6)
            ranks = ranks_of(mpirun)
            os.kill(ranks[rank], number)
            self.assertEqual(mpirun.wait(LIMIT), status, self.text())
            self.assertIn(f"stopped; --resume --out {self.out} goes on", self.text())
            # What was not complete when the signal came was given back. After a signal in the last epoch of all trials that is none.
            states = {state for _, state, _ in self.query(self.out, workers.TRIAL_ROWS)}
            self.assertLessEqual(states, {"COMPLETE", "WAITING"}, self.text())
        self.assertEqual(self.start(2, "--resume").wait(LIMIT), 0, self.text())
        self.check()

    def test_usr1_to_mpirun_stops_all(self):
        mpirun = self.start(2)
        self.wait_for_reports(mpirun, 4)
        mpirun.send_signal(signal.SIGUSR1)
        self.assertEqual(mpirun.wait(LIMIT), 75, self.text())
        self.assertNotIn("RUNNING", {state for _, state, _ in self.query(self.out, workers.TRIAL_ROWS)}, self.text())

    def test_what_is_wrong_is_said_once(self):
        self.assertEqual(self.start(3, study="none.toml").wait(LIMIT), 2, self.text())
        self.assertEqual(self.text().count("none.toml"), 1, self.text())
        self.assertFalse(self.out.exists())
        self.out.mkdir()
        (self.out / "mine").write_text("")
        self.assertEqual(self.start(2).wait(LIMIT), 2, self.text())
        self.assertEqual(self.text().count(f"millrace: {self.out}"), 1, self.text())

    def test_ranks_without_the_plugin_are_told_what_is_missing(self):
        self.assertEqual(self.start(2, environment={"MILLRACE_MPI": "/nowhere/libmillrace-mpi.so"}).wait(LIMIT), 2, self.text())
        self.assertIn("libopenmpi-dev", self.text())


if __name__ == "__main__":
    unittest.main()
