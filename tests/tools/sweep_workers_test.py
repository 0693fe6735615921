"""Workers of a sweep on a real PostgreSQL server: killed, told to stop, and cut off from it. Whatever happens, every trial ends once, with the values of a
study that one worker ran in peace.

Skipped where PostgreSQL is not installed: tools/setup --servers.
"""
import os
import pathlib
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import postgres_server  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("MILLRACE_BUILD", ROOT / "build")).resolve() / "millrace"
TRIALS, EPOCHS, FINALS, KILLS = 24, 3, 2, 20

RECIPE = """device = "cpu"
threads = 1
[model]
name = "collective"
preset = "debug"
[data]
path = "data"
[train]
batch = 128
"""
STUDY = f"""recipe = "recipe.toml"
[study]
objectives = [{{ metric = "validation_loss", direction = "minimize" }}]
sampler = "random"
rungs = {{ last = {EPOCHS} }}
trials = {TRIALS}
finalists = {FINALS}
replicates = 1
[space]
"optim.lr" = {{ log = [1e-4, 1e-2] }}
"optim.weight_decay" = {{ log = [1e-6, 1e-2], or = 0 }}
"""
TRIAL_ROWS = """SELECT t.number, t.state, COALESCE(MAX(CASE WHEN s.key = 'millrace:worker' THEN s.value_json END), '')
FROM trials t LEFT JOIN trial_system_attributes s ON s.trial_id = t.trial_id GROUP BY t.trial_id, t.number, t.state ORDER BY t.number"""
REPORTS = "SELECT t.number, r.step, r.intermediate_value FROM trials t JOIN trial_intermediate_values r ON r.trial_id = t.trial_id"
VALUES = "SELECT t.number, v.value FROM trials t JOIN trial_values v ON v.trial_id = t.trial_id"
FINAL_NUMBERS = "SELECT t.number FROM trials t JOIN trial_user_attributes a ON a.trial_id = t.trial_id WHERE a.key = 'final'"
# Every seventeenth statement that writes ends its own connection, within its transaction. A sequence counts on when that is rolled back.
CUTS = """CREATE SEQUENCE writes;
CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF nextval('writes') % 17 = 0 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; RETURN NULL; END $$;
""" + "".join(f"CREATE TRIGGER cut AFTER INSERT OR UPDATE OR DELETE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION cut();"
              for table in ("trials", "trial_intermediate_values", "trial_heartbeats"))


def reports_of(rows):
    """{trial: {epoch: value}}"""
    found = {}
    for number, step, value in rows:
        found.setdefault(int(number), {})[int(step)] = float(value)
    return found


@unittest.skipUnless(PROGRAM.exists(), f"no {PROGRAM}: build it")
@unittest.skipUnless(postgres_server.programs(), "no PostgreSQL: tools/setup --servers")
class Workers(unittest.TestCase):
    databases = 0

    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory(prefix="millrace-workers-")
        cls.addClassCleanup(holder.cleanup)
        cls.folder = pathlib.Path(holder.name)
        cls.folder.chmod(0o755)
        (cls.folder / "recipe.toml").write_text(RECIPE)
        (cls.folder / "study.toml").write_text(STUDY)
        subprocess.run([PROGRAM, "data", "make", "garments", "--train", "200", "--test", "60", "--out", "data"], cwd=cls.folder, check=True,
                       stdout=subprocess.DEVNULL)
        # What every study must come to: one worker, nothing in its way.
        peace = cls.launch(cls.folder / "peace", "--trials", str(TRIALS))
        cls.addClassCleanup(peace.kill)
        (cls.folder / "server").mkdir()
        cls.server = postgres_server.Server(cls.folder / "server")
        cls.server.start()
        cls.addClassCleanup(cls.server.stop)
        assert peace.wait(60) == 0, (cls.folder / "peace.log").read_text()
        with sqlite3.connect(cls.folder / "peace" / "sweep.db") as database:
            cls.expected = reports_of(database.execute(REPORTS))
        assert len(cls.expected) == TRIALS + FINALS

    @classmethod
    def launch(cls, out, *words):
        with open(f"{out}.log", "wb") as log:
            return subprocess.Popen([PROGRAM, "sweep", "study.toml", "--out", out, "--lanes", "2", "--quiet", *words], cwd=cls.folder,
                                    stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def setUp(self):
        type(self).databases += 1
        self.url = self.server.new_database(f"study{self.databases}")
        self.workers = []
        self.addCleanup(self.end)

    def end(self):
        for worker in self.workers:
            if worker.poll() is None:
                worker.kill()
            worker.wait()

    def start(self, trials=TRIALS):
        out = self.folder / f"{self._testMethodName}-{len(self.workers)}"
        self.workers.append(self.launch(out, "--join", self.url, "--grace", "2s", "--trials", str(trials)))
        return self.workers[-1]

    def logs(self):
        return "\n".join(f"== {path.name}\n{path.read_text(errors='replace')[-2000:]}" for path in sorted(self.folder.glob(f"{self._testMethodName}-*.log")))

    def query(self, sql):
        return self.server.query(self.url, sql)

    def running_of(self, worker):
        """Numbers of the trials that are a worker's."""
        if not self.query("SELECT 1 FROM pg_tables WHERE tablename = 'trial_heartbeats'"):  # no worker has come so far
            return set()
        return {int(number) for number, state, owner in self.query(TRIAL_ROWS) if state == "RUNNING" and f"-{worker.pid}-" in owner}

    def wait_for(self, what, is_so, seconds=30):
        until = time.monotonic() + seconds
        while not is_so():
            self.assertLess(time.monotonic(), until, f"{what}: not after {seconds} s\n{self.logs()}")
            time.sleep(0.05)

    def start_pair(self):
        """Two workers that have trials."""
        pair = [self.start(), self.start()]
        self.wait_for("trials of both", lambda: all(self.running_of(worker) for worker in pair))
        return pair

    def wait_for_end(self, *workers):
        for worker in workers:
            try:
                self.assertEqual(worker.wait(60), 0, self.logs())
            except subprocess.TimeoutExpired:
                self.fail(f"a worker does not end\n{self.query(TRIAL_ROWS)}\n{self.logs()}")

    def check(self, trials=TRIALS):
        """Every trial is there once, complete, with all its reports; returns the names of workers by trial."""
        rows = self.query(TRIAL_ROWS)
        self.assertEqual([int(number) for number, _, _ in rows], list(range(len(rows))))
        self.assertEqual({state for _, state, _ in rows}, {"COMPLETE"}, rows)
        finals = {int(number) for number, in self.query(FINAL_NUMBERS)}
        self.assertEqual(len(rows) - len(finals), trials)
        reports = reports_of(self.query(REPORTS))
        for number in range(len(rows)):
            self.assertEqual(sorted(reports[number]), list(range(1, EPOCHS + 1)), number)
        self.assertEqual([(int(number), float(value)) for number, value in sorted(self.query(VALUES), key=lambda row: int(row[0]))],
                         [(number, reports[number][EPOCHS]) for number in range(len(rows))])
        self.assertEqual(self.query("SELECT COUNT(*) FROM trial_heartbeats"), [["0"]])
        # Finals have other numbers where trials were added after them.
        same = TRIALS + FINALS if trials == TRIALS else TRIALS
        self.assertEqual({number: reports[number] for number in range(same)}, {number: self.expected[number] for number in range(same)})
        if trials == TRIALS:
            self.assertEqual(finals, set(range(TRIALS, TRIALS + FINALS)))
        return {int(number): owner for number, _, owner in rows}

    def test_twenty_kills_lose_no_trial_and_end_none_twice(self):
        chance = random.Random(20)
        begin = time.monotonic()
        trials, hit = TRIALS, 0
        pair = [self.start(), self.start()]
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.05, 0.45))
            at = chance.randrange(2)
            if pair[at].poll() is not None:  # the machine is fast: there must be something left to kill
                self.assertEqual(pair[at].returncode, 0, self.logs())
                trials += 8
                pair[at] = self.start(trials)
                time.sleep(chance.uniform(0.05, 0.45))
            self.assertIsNone(pair[at].poll(), self.logs())
            pair[at].kill()
            self.assertEqual(pair[at].wait(), -signal.SIGKILL)
            hit += len(self.running_of(pair[at]))
            pair[at] = self.start(trials)
        self.wait_for_end(*pair)
        owners = set(self.check(trials).values())
        self.assertGreater(hit, 5, "the kills hit workers that had no trials")
        self.assertGreater(len(owners), 2)
        print(f"note: {KILLS} kills hit {hit} running trials of {trials}; {len(owners)} workers ended them all, {time.monotonic() - begin:.1f} s", flush=True)

    def test_a_server_that_restarts_is_waited_for(self):
        pair = self.start_pair()
        for epochs, pause in ((4, 0), (20, 0), (36, 2.5)):  # the last one is longer than the grace period
            self.wait_for(f"{epochs} epochs", lambda: int(self.query("SELECT COUNT(*) FROM trial_intermediate_values")[0][0]) >= epochs)
            self.server.stop()
            time.sleep(pause)
            self.server.start()
        self.wait_for_end(*pair)
        self.check()

    def test_transactions_that_lose_their_connection_are_made_again(self):
        pair = self.start_pair()
        self.query(CUTS)
        self.wait_for_end(*pair)
        self.check()
        cuts = int(self.query("SELECT last_value FROM writes")[0][0]) // 17
        self.assertGreater(cuts, 5)
        print(f"note: {cuts} connections were cut within a transaction", flush=True)

    def test_a_worker_that_is_told_to_stop_gives_its_trials_back(self):
        leaves, stays = self.start_pair()
        had = set()

        def is_stopped_with_new_trials():  # which it cannot end within the epochs it is in
            nonlocal had
            leaves.send_signal(signal.SIGSTOP)
            had = self.running_of(leaves) - set(reports_of(self.query(REPORTS)))
            if not had:
                leaves.send_signal(signal.SIGCONT)
            return bool(had)

        self.wait_for("new trials of one that is stopped", is_stopped_with_new_trials)
        leaves.send_signal(signal.SIGTERM)
        leaves.send_signal(signal.SIGCONT)
        self.assertEqual(leaves.wait(30), 128 + signal.SIGTERM, self.logs())
        self.assertEqual(self.running_of(leaves), set())
        left = had - {int(number) for number, state, owner in self.query(TRIAL_ROWS) if state == "COMPLETE" and f"-{leaves.pid}-" in owner}
        self.assertTrue(left, "it had ended all of its trials")
        self.wait_for_end(stays)
        owners = self.check()
        for number in left:
            self.assertIn(f"-{stays.pid}-", owners[number])


if __name__ == "__main__":
    unittest.main()
