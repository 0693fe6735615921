"""Workers and ranks on a real Slurm cluster of two nodes, started here: arrays, ranks that meet by PMIx, what happens before the time limit, and being run
again.

Skipped where Slurm is not installed: tools/setup --servers.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import slurm_cluster  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MILLRACE_BUILD", ROOT / "build")).resolve()

# Task 0 ends well. Task 1 wants to be run again once. Task 2 does when it is told to stop, and fails with 3 then.
WORKER = """#!/bin/bash
echo "$SLURMD_NODENAME run ${SLURM_RESTART_COUNT:-0}" >> "FOLDER/task-$SLURM_ARRAY_TASK_ID"
[ "$SLURM_ARRAY_TASK_ID" = 1 ] && [ -z "$SLURM_RESTART_COUNT" ] && exit 75
if [ "$SLURM_ARRAY_TASK_ID" = 2 ]; then
    [ -n "$SLURM_RESTART_COUNT" ] && exit 3
    trap 'exit 75' USR1
    touch "FOLDER/waits"
    for i in $(seq 1000); do sleep 0.05; done
fi
exit 0
"""
# Ranks of a run that saves when it is told to stop and ends with 143, and meets when it is run again.
RANK = """#!/bin/bash
echo "$SLURMD_NODENAME run ${SLURM_RESTART_COUNT:-0} more $*" >> "FOLDER/rank-$SLURM_PROCID"
[ "$1" = --resume ] && exec RANK_PROGRAM exchanges 1
trap 'exit 143' TERM
touch "FOLDER/run/manifest.json" "FOLDER/waits-$SLURM_PROCID"
for i in $(seq 1000); do sleep 0.05; done
"""
# One of two ranks is gone; the other would wait for ever.
KILLED = """#!/bin/bash
[ "$SLURM_PROCID" = 1 ] && kill -KILL $$
exec RANK_PROGRAM endless 0
"""
RECIPE = """device = "cpu"
threads = 1
[model]
name = "collective"
preset = "debug"
[data]
path = "data"
[train]
batch = 32
epochs = 400
"""


@unittest.skipUnless((BUILD / "test_sweep").exists(), f"no test_sweep in {BUILD}: build the tests")
@unittest.skipIf(slurm_cluster.missing(), f"no {', '.join(slurm_cluster.missing())}: tools/setup --servers")
class Cluster(unittest.TestCase):
    def setUp(self):
        self.holder = tempfile.TemporaryDirectory(prefix="millrace-slurm-")
        self.addCleanup(self.holder.cleanup)
        self.folder = pathlib.Path(self.holder.name)
        self.cluster = slurm_cluster.Cluster(self.folder)
        self.addCleanup(self.cluster.close)
        self.cluster.start()

    def submit(self, options, text=WORKER, environment=None):
        """Hands the script that src/sweep/slurm.cpp writes to sbatch; the job's number."""
        worker = self.folder / "worker.sh"
        worker.write_text(text.replace("FOLDER", str(self.folder)).replace("RANK_PROGRAM", str(BUILD / "comm_rank_program")))
        worker.chmod(0o755)
        done = subprocess.run([BUILD / "test_sweep", "--gtest_filter=SlurmScript.SubmitsToACluster"], cwd=self.folder, text=True, capture_output=True,
                              env={**self.cluster.environment, "MILLRACE_SLURM": options, "MILLRACE_SLURM_WORKER": str(worker),
                                   **(environment or {})})
        found = re.search(r"Submitted batch job (\d+)", done.stdout)
        self.assertTrue(found, done.stdout + done.stderr)
        return found[1]

    def runs(self, task):
        file = self.folder / f"task-{task}"
        return file.read_text().splitlines() if file.exists() else []

    def submit_ranks(self, options, text):
        if not (BUILD / "libmillrace-mpi.so").exists():
            self.skipTest("built without Open MPI: tools/setup --mpi")
        if "pmix" not in self.cluster.run("srun", "--mpi=list"):
            self.skipTest("this Slurm has no plugin for PMIx")
        (self.folder / "run").mkdir()
        return self.submit(options, text, {"MILLRACE_SLURM_RUN": str(self.folder / "run")})

    def train(self, options, *words):
        """`millrace train --slurm` in the folder; the job's number."""
        done = subprocess.run([BUILD / "millrace", "train", *words, "--slurm", options], cwd=self.folder, text=True, capture_output=True,
                              env=self.cluster.environment)
        found = re.search(r"Submitted batch job (\d+)", done.stdout)
        self.assertTrue(found, done.stdout + done.stderr)
        return found[1]

    def output(self, job):
        return (self.folder / f"slurm-{job}.out").read_text(errors="replace")

    def wait_for_state(self, state):
        try:
            self.cluster.wait_for(f"the job {state}", lambda: self.cluster.states() == {state: 1}, 90)
        except TimeoutError as error:
            self.fail(f"{error}\n{self.cluster.states()}\n" + "\n".join(file.read_text(errors="replace") for file in self.folder.glob("slurm-*.out")))

    def test_ranks_on_two_nodes_meet_and_go_on_after_the_time_limit(self):
        job = self.submit_ranks("nodes=2 ntasks-per-node=1 time=1:00:00", RANK)
        self.cluster.wait_for("both ranks", lambda: all((self.folder / f"waits-{rank}").exists() for rank in range(2)))
        self.cluster.run("scancel", "--batch", "--signal=USR1", job)  # what Slurm does before the limit
        self.wait_for_state("COMPLETED")
        runs = [(self.folder / f"rank-{rank}").read_text().splitlines() for rank in range(2)]
        self.assertEqual([[line.split()[1:] for line in lines] for lines in runs], [[["run", "0", "more"], ["run", "1", "more", "--resume"]]] * 2)
        self.assertEqual({line.split()[0] for lines in runs for line in lines}, set(slurm_cluster.NODES))
        for rank in range(2):
            self.assertEqual(self.output(job).count(f"rank {rank} of 2 is right"), 1, self.output(job))

    def test_a_killed_rank_ends_its_job(self):
        job = self.submit_ranks("nodes=2 time=1:00:00", KILLED)
        self.wait_for_state("FAILED")
        self.assertIn("task 1: Killed", self.output(job))

    def test_training_on_two_nodes_goes_on_after_the_time_limit(self):
        if not (BUILD / "libmillrace-mpi.so").exists():
            self.skipTest("built without Open MPI: tools/setup --mpi")
        (self.folder / "recipe.toml").write_text(RECIPE)
        subprocess.run([BUILD / "millrace", "data", "make", "garments", "--train", "1000", "--test", "60", "--out", "data"], cwd=self.folder, check=True,
                       stdout=subprocess.DEVNULL)
        run = self.folder / "runs" / "recipe"
        job = self.train("nodes=2 ntasks-per-node=1 time=1:00:00", "recipe.toml")
        self.cluster.wait_for("the first rows", lambda: (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").stat().st_size > 0)
        self.cluster.run("scancel", "--batch", "--signal=USR1", job)
        self.cluster.wait_for("another run", lambda: len(json.loads((run / "manifest.json").read_text()).get("resumed", [])) == 1)
        self.assertIn("Restarts=1", self.cluster.run("scontrol", "show", "job", job))
        self.cluster.run("scancel", job)  # it would take minutes more
        self.wait_for_state("CANCELLED")
        self.assertEqual(json.loads((run / "manifest.json").read_text())["status"], "interrupted")
        self.assertEqual(self.output(job).count("ranks   2, which share the rows of a step; messages take "), 2, self.output(job))

    def test_an_array_runs_on_both_nodes_and_tasks_that_end_with_75_run_again(self):
        begin = time.monotonic()
        job = self.submit("partition=gpu gres=gpu:1 array=0-2%2 time=1:00:00")
        self.cluster.wait_for("task 2", (self.folder / "waits").exists)
        # What Slurm does before the limit, without an hour's wait: the shell of the batch script alone gets the signal.
        self.cluster.run("scancel", "--batch", "--signal=USR1", f"{job}_2")
        self.cluster.wait_for("all tasks", lambda: self.cluster.states() == {"COMPLETED": 2, "FAILED": 1})
        self.assertEqual([len(self.runs(task)) for task in range(3)], [1, 2, 2])
        self.assertEqual([run.split()[-1] for run in self.runs(1) + self.runs(2)], ["0", "1", "0", "1"])
        self.assertEqual({run.split()[0] for task in range(3) for run in self.runs(task)}, set(slurm_cluster.NODES))
        shown = self.cluster.run("scontrol", "show", "job", f"{job}_2")
        self.assertIn("Restarts=1", shown)
        self.assertIn("ExitCode=3:0", shown)
        self.assertIn("TimeLimit=01:00:00", shown)
        self.assertIn("Requeue=1", shown)
        version = self.cluster.run("sinfo", "--version").strip()
        print(f"note: {version}, nodes {' and '.join(slurm_cluster.NODES)}: 3 tasks ended, 2 of them were requeued after exit status 75, "
              f"{time.monotonic() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    unittest.main()
