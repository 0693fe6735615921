"""The programs in examples/sick and examples/case-studies work, mark the line to blame, and learn the same when cured.

PyTorch is imported once, by the first interpreter that has it; each dry run is a fork of that process.
"""
import collections
import contextlib
import json
import os
import pathlib
import re
import runpy
import subprocess
import sys
import tempfile
import traceback
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SICK, STUDIES = ROOT / "examples" / "sick", ROOT / "examples" / "case-studies"
OTHER_WORK = {"narrow_batch.py", "leak_detector.py"}  # cured, these take other batches, so their losses differ
NEW_IN_CURE = {  # operators that a cured program runs beside those of the sick one: how it does without the illness
    "finite_check.py": {"bitwise_not", "bitwise_or"}, "rows_in_python.py": {"mul", "add", "remainder", "argsort", "slice"}}
MARK = re.compile(r"  # <- illness$", re.M)


def programs(folder):
    return sorted(path for path in folder.glob("*.py") if path.name != "patient.py")


def kind_of(path):
    return path.read_text().split('"""')[1].split(":")[0]


class Written(unittest.TestCase):
    def test_folders_hold_programs(self):
        self.assertGreaterEqual(len(programs(SICK)), 15)
        self.assertGreaterEqual(len(programs(STUDIES)), 4)

    def test_every_program_compiles(self):
        for path in (SICK / "patient.py", *programs(SICK), *programs(STUDIES)):
            with self.subTest(path.name):
                compile(path.read_text(), str(path), "exec")

    def test_one_line_is_to_blame(self):
        for path in (*programs(SICK), *programs(STUDIES)):
            with self.subTest(path.name):
                self.assertEqual(len(MARK.findall(path.read_text())), 0 if path.name == "healthy.py" else 1)
        self.assertNotRegex((SICK / "patient.py").read_text(), MARK)

    def test_kinds_are_the_doctors_and_stand_in_the_table(self):
        table = dict(re.findall(r"^\| `(\w+\.py)` \| ([\w-]+) \|", (SICK / "README.md").read_text(), re.M))
        self.assertEqual(table.pop("healthy.py"), "none")
        self.assertEqual(kind_of(SICK / "healthy.py"), "healthy")
        self.assertEqual(table, {path.name: kind_of(path) for path in programs(SICK) if path.name != "healthy.py"})
        names = re.search(r"kKindNames\{(.*?)\}", (ROOT / "src" / "diagnose" / "answer" / "diagnosis.cpp").read_text(), re.S).group(1)
        self.assertLessEqual(set(table.values()), set(re.findall(r'"([\w-]+)"', names)))

    def test_studies_are_described(self):
        text = (ROOT / "docs" / "case-studies.md").read_text()
        for path in programs(STUDIES):
            self.assertIn(f"examples/case-studies/{path.name}", text)


class Operators:
    """Counts the operators that run while it is entered, and writes them to a file; entered in a process of their own."""

    def __init__(self, path):
        from torch.utils._python_dispatch import TorchDispatchMode
        self.path, counts = path, collections.Counter()

        class Mode(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, arguments=(), named=None):
                counts[str(function)] += 1
                return function(*arguments, **(named or {}))
        self.mode, self.counts = Mode(), counts

    def __enter__(self):
        self.mode.__enter__()

    def __exit__(self, *error):
        self.mode.__exit__(*error)
        pathlib.Path(self.path).write_text(json.dumps(self.counts))


def dry_run(path, *words, operators=None):
    """Runs a program in a fork of this process; returns (exit status, output). `operators`: a file for how often each one ran."""
    with tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                for stream in (1, 2):
                    os.dup2(output.fileno(), stream)
                sys.argv, sys.path[0] = [str(path), *words], str(path.parent)
                with Operators(operators) if operators else contextlib.nullcontext():
                    runpy.run_path(str(path), run_name="__main__")
                status = 0
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else 1 if end.code else 0
            except BaseException:  # whatever it is, this process must not go on as a second test
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        output.seek(0)
        return status, output.read()


class Run(unittest.TestCase):
    def losses(self, path, modes):
        found = []
        for mode in modes:
            with self.subTest(path.name, mode=mode):
                status, output = dry_run(path, "3", *mode.split(), "--cpu-dry")
                self.assertEqual(status, 0, output)
                self.assertRegex(output, r"(?m)^steps/s \d+\.\d+$")
                found.append(float(re.search(r"(?m)^loss (\d+\.\d+)", output).group(1)))
        return found

    def test_cures_learn_the_same(self):
        for path in (*programs(SICK), *programs(STUDIES)):
            losses = self.losses(path, ("", "cured"))
            if path.name not in OTHER_WORK and len(losses) == 2:
                self.assertAlmostEqual(losses[0], losses[1], delta=5e-4, msg=path.name)

    def operators(self, path, *words):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "operators.json")
            status, output = dry_run(path, "3", *words, "--cpu-dry", operators=file)
            self.assertEqual(status, 0, output)
            return collections.Counter(json.loads(pathlib.Path(file).read_text()))

    def test_cures_add_no_work(self):
        """What an illness costs is the difference of two runs: a cure that computes more than the sick program would hide a part of it."""
        for path in programs(SICK):
            if path.name in OTHER_WORK:
                continue
            with self.subTest(path.name):
                sick, cured = self.operators(path), self.operators(path, "cured")
                self.assertGreater(sum(sick.values()), 100)
                added = {name.split(".")[1] for name in cured - sick}
                self.assertEqual(added, NEW_IN_CURE.get(path.name, set()))

    def test_what_reports_proposed_runs(self):
        claimed = [path for path in programs(STUDIES) if "cured-as-claimed" in path.read_text()]
        self.assertGreaterEqual(len(claimed), 4)
        for path in claimed:
            self.losses(path, ("cured-as-claimed",))

    def test_unknown_words_are_refused(self):
        for path in (SICK / "healthy.py", *programs(STUDIES)):
            for words in (["3", "healed"], ["-1"], ["0"], ["3", "4"]):
                with self.subTest(path.name, words=words):
                    status, output = dry_run(path, *words, "--cpu-dry")
                    self.assertEqual(status, 2, output)
                    self.assertNotIn("Traceback", output)

    def test_without_a_gpu_the_dry_run_is_named(self):
        if torch.cuda.is_available():
            self.skipTest("there is a GPU")
        for path in (SICK / "healthy.py", *programs(STUDIES)):
            status, output = dry_run(path, "3")
            self.assertEqual(status, 2, output)
            self.assertIn("--cpu-dry", output)


def main():
    global torch
    try:
        import torch
        import numpy  # noqa: F401
    except ImportError:
        others = [os.environ.get("MILLRACE_PYTHON"), "/usr/bin/python3"]
        for python in others if "EXAMPLES_TEST_INNER" not in os.environ else []:
            if python and os.access(python, os.X_OK):
                done = subprocess.run([python, "-c", "import torch, numpy"], capture_output=True, check=False)
                if done.returncode == 0:
                    os.execve(python, [python, *sys.argv], {**os.environ, "EXAMPLES_TEST_INNER": "1"})
        print("examples_test: dry runs skipped, no interpreter here has PyTorch and numpy")
        global Run
        del Run
    else:
        torch.set_num_threads(1)  # threads do not survive a fork
    unittest.main()


if __name__ == "__main__":
    main()
