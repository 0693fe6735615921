"""Workers on a real Slurm cluster of two nodes, started here: arrays, what is passed on before the time limit, and being run again.

Skipped where Slurm is not installed: tools/setup --servers.
"""
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
    while :; do sleep 0.05; done
fi
exit 0
"""


@unittest.skipUnless((BUILD / "test_sweep").exists(), f"no test_sweep in {BUILD}: build the tests")
@unittest.skipIf(slurm_cluster.missing(), f"no {', '.join(slurm_cluster.missing())}: tools/setup --servers")
class Workers(unittest.TestCase):
    def setUp(self):
        self.holder = tempfile.TemporaryDirectory(prefix="millrace-slurm-")
        self.addCleanup(self.holder.cleanup)
        self.folder = pathlib.Path(self.holder.name)
        self.cluster = slurm_cluster.Cluster(self.folder)
        self.addCleanup(self.cluster.close)
        self.cluster.start()

    def submit(self, options):
        """Hands the script that src/sweep/slurm.cpp writes to sbatch; the job's number."""
        worker = self.folder / "worker.sh"
        worker.write_text(WORKER.replace("FOLDER", str(self.folder)))
        worker.chmod(0o755)
        done = subprocess.run([BUILD / "test_sweep", "--gtest_filter=SlurmScript.SubmitsToACluster"], cwd=self.folder, text=True, capture_output=True,
                              env={**self.cluster.environment, "MILLRACE_SLURM": options, "MILLRACE_SLURM_WORKER": str(worker)})
        found = re.search(r"Submitted batch job (\d+)", done.stdout)
        self.assertTrue(found, done.stdout + done.stderr)
        return found[1]

    def runs(self, task):
        file = self.folder / f"task-{task}"
        return file.read_text().splitlines() if file.exists() else []

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
