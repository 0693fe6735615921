"""tools/gpu-check: what it finds, what it counts, what it refuses; and the whole of it on the CPU where a build is at hand."""
import contextlib
import io
import json
import os
import pathlib
import platform
import stat
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools/gpu-check"
sys.dont_write_bytecode = True
from load_script import load  # noqa: E402

check = load(SCRIPT, "gpu_check")
machine, report = check.machine, check.report

XML = """<?xml version="1.0"?><testsuites><testsuite name="S">
<testcase name="Adds" result="completed" classname="S" />
<testcase name="Adds/cuda" result="completed" classname="S" />
<testcase name="Falls" result="completed" classname="S">{failure}</testcase>
<testcase name="Waits" result="skipped" classname="S"><skipped message="{reason}"/></testcase>
</testsuite></testsuites>"""


def write_elf(path, number):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x7fELF" + bytes(14) + number.to_bytes(2, "little") + bytes(40))


def own_number():
    return {name: number for number, name in machine.ELF_MACHINES.items()}.get(platform.machine(), 62)


class Libraries(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def test_cuda_home_goes_before_the_cache_and_the_cache_before_pytorch(self):
        home, torch = self.folder / "home", self.folder / "torch"
        for place in (home, torch):
            write_elf(place / "libcublasLt.so.13", own_number())
        folders, cache = [("PyTorch", str(torch)), ("CUDA_HOME", str(home))], {"libcublasLt.so.13": "/cached"}
        find = lambda *given: machine.find_library("libcublasLt.so.13", *given)
        self.assertEqual(find(folders, cache), (str(home / "libcublasLt.so.13"), "CUDA_HOME"))
        self.assertEqual(find(folders[:1], cache), ("/cached", "the loader's cache"))
        self.assertEqual(find(folders[:1], {}), (str(torch / "libcublasLt.so.13"), "PyTorch"))
        self.assertEqual(find([], {}), (None, None))

    def test_libraries_of_another_architecture_are_passed_over(self):
        write_elf(self.folder / "libcupti.so.13", 62 if own_number() != 62 else 183)
        self.assertEqual(machine.find_library("libcupti.so.13", [("PyTorch", str(self.folder))], {}), (None, None))
        (self.folder / "text").write_text("#!/bin/sh\n")
        self.assertIsNone(machine.elf_machine(self.folder / "text"))
        self.assertIsNone(machine.elf_machine(self.folder / "absent"))

    def test_pytorchs_folders_are_looked_through(self):
        (self.folder / "nvidia/cu13/lib").mkdir(parents=True)
        with mock.patch.object(machine, "package_folders", return_value=[str(self.folder)]):
            self.assertIn(("PyTorch", str(self.folder / "nvidia/cu13/lib")), machine.library_folders())

    def test_a_missing_library_is_named(self):
        options = types.SimpleNamespace(no_tests=False, dry_run=False)
        with mock.patch.object(machine, "find_library", return_value=(None, None)), contextlib.redirect_stdout(io.StringIO()):
            with self.assertRaisesRegex(check.Missing, r"libcublasLt\.so\.13 .*libcupti\.so\.13"):
                check.find_libraries(13, options, None)

    def test_a_library_outside_the_cache_is_linked_beside_the_programs(self):
        write_elf(self.folder / "toolkit/libcublasLt.so.13", own_number())
        options = types.SimpleNamespace(no_tests=True, dry_run=True)
        place = [("CUDA_HOME", str(self.folder / "toolkit"))]
        with mock.patch.object(machine, "library_folders", return_value=place), mock.patch.object(machine, "loader_cache", return_value={}):
            for _ in range(2):
                with contextlib.redirect_stdout(io.StringIO()):
                    check.find_libraries("13", options, self.folder)
        self.assertEqual((self.folder / "lib/libcublasLt.so.13").resolve(), (self.folder / "toolkit/libcublasLt.so.13").resolve())

    def test_code_runs_on_its_own_generation(self):
        for architectures, capability, fits in (("90a", "9.0", True), ("90a", "10.0", False), ("80", "8.6", True), ("86", "8.0", False),
                                                ("80;90a;120", "12.0", True), ("80-virtual", "12.0", True), ("120-real", "10.0", False)):
            self.assertEqual(check.covers(architectures, capability), fits, (architectures, capability))


class Tests(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.options = types.SimpleNamespace(tests="", jobs=1, out=self.folder)

    def program(self, name, text, status):
        """A test program that writes `text` where GoogleTest would."""
        path = self.folder / name
        body = f"import sys\nopen(sys.argv[-1].split(':', 1)[1], 'w').write({text!r})\nsys.exit({status})\n" if text else f"raise SystemExit({status})\n"
        path.write_text(f"#!{sys.executable}\n{body}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def run_tests(self, gpu):
        problems = []
        with contextlib.redirect_stdout(io.StringIO()):
            results = check.run_tests(self.folder, self.options, gpu, problems)
        return results, problems

    def test_passed_tests_are_no_problem(self):
        self.program("test_ops", XML.format(failure="", reason="needs a download"), 0)
        results, problems = self.run_tests(gpu={"devices": [1]})
        self.assertEqual((results[0]["passed"], results[0]["gpu"], results[0]["skipped"]), (3, 1, ["S.Waits"]))
        self.assertEqual(problems, [])

    def test_a_failure_is_named(self):
        self.program("test_ops", XML.format(failure='<failure message="no"/>', reason=""), 1)
        self.assertEqual(self.run_tests(None)[1], ["test_ops: S.Falls failed"])

    def test_a_program_that_dies_is_a_failure(self):
        self.program("test_ops", "", 3)
        self.assertEqual(self.run_tests(None)[1], ["test_ops: the program itself (3) failed"])

    def test_skipping_for_want_of_a_gpu_is_a_failure_where_there_is_one(self):
        self.program("test_ops", XML.format(failure="", reason="no usable CUDA device"), 0)
        self.assertEqual(self.run_tests(None)[1], [])
        self.assertEqual(self.run_tests({"devices": [1]})[1], ["test_ops: skipped although there is a GPU: S.Waits: no usable CUDA device"])

    def test_a_test_for_machines_without_a_gpu_may_skip(self):
        self.program("test_cli", XML.format(failure="", reason="this machine has a GPU"), 0)
        self.assertEqual(self.run_tests({"devices": [1]})[1], [])

    def test_a_run_without_any_gpu_test_is_a_failure(self):
        self.program("test_base", XML.format(failure="", reason="").replace("/cuda", "/cpu"), 0)
        self.assertRegex(" ".join(self.run_tests({"devices": [1]})[1]), "no test ran on the GPU")

    def test_unknown_programs_are_refused(self):
        self.options.tests = "test_opps"
        with self.assertRaisesRegex(check.Missing, "test_opps"):
            self.run_tests(None)


class Report(unittest.TestCase):
    rows = [{"name": "a", "ours_ms": 0.1, "spread": 0.02, "precision": "bf16", "peers": {"torch graph": 0.3, "torch compile+graph": 0.5}},
            {"name": "k16", "ours_ms": 0.2, "peers": {"torch stacked+compile+graph": 0.3}, "peer_errors": {"torch graph": "out of memory"}},
            {"name": "alone", "ours_ms": 0.2, "peers": {}, "no_peer": "no torch"}, {"name": "broken", "error": "status 1"}]

    def test_ratios_are_to_the_fastest_and_to_compile_and_graph(self):
        lines = [line.split() for line in report.text_table(self.rows).splitlines()]
        self.assertEqual(lines[1], ["a", "bf16", "0.1000", "2.0", "%", "0.3000", "0.5000", "-", "3.00x", "5.00x"])
        self.assertEqual(lines[2][-5:], ["failed", "-", "0.3000", "1.50x", "-"])
        self.assertEqual(lines[3][-2:], ["-", "-"])
        self.assertEqual(lines[4], ["broken", "failed"])

    def test_what_the_table_cannot_say_is_noted(self):
        notes = report.notes(self.rows)
        self.assertEqual(notes, ["k16, torch graph: out of memory", "alone: no peer: no torch", "broken: status 1"])

    def test_an_empty_table_is_a_header(self):
        self.assertEqual(len(report.text_table([]).splitlines()), 1)

    def test_rates_idle_and_bars_have_columns_where_a_row_has_them(self):
        flow = {"name": "flow", "ours_ms": 10.0, "spread": 0.01, "precision": "bf16", "peers": {"compile+graph": 16.0}, "bar": 1.5, "idle": 0.0125,
                "sm_active": 97.4, "gemm_tflops": 800.0,
                "work": {"tflops": 500.0, "of_gemm": 0.625, "counted_tflops": 3.0, "counted_of_gemm": 0.00375}}
        lines = report.lines_of([flow, self.rows[0], self.rows[3]])
        self.assertEqual(lines[0][-5:], ["bar", "TFLOP/s", "counted", "idle", "SM"])  # nobody measured tensor cores
        self.assertEqual(lines[1][-5:], ["1.5x", "500 (62 %)", "3.000 (0 %)", "1.25 %", "97 %"])
        self.assertEqual(lines[2][-5:], ["-"] * 5)
        self.assertEqual(lines[3][-5:], [""] * 5)
        self.assertIn("bf16 800", report.legend([flow]))
        self.assertNotIn("idle", report.legend(self.rows[:3]))
        self.assertEqual(len({line.count("|") for line in report.markdown_table([flow]).splitlines()}), 1)


class Rows(unittest.TestCase):
    listed = ["collective-debug-b128", "collective-debug-b32", "energy_flow-debug", "energy_flow-debug-skip", "energy_flow-experiment"]

    def groups(self, rows="", quick=False):
        return check.wanted_rows(self.listed, types.SimpleNamespace(rows=rows, quick=quick))

    def test_rows_with_a_bar_come_first_and_skipping_goes_with_its_row(self):
        self.assertEqual(self.groups(), [["collective-debug-b32"], ["energy_flow-debug", "energy_flow-debug-skip"], ["energy_flow-experiment"],
                                         ["collective-debug-b128"]])

    def test_patterns_choose(self):
        self.assertEqual(self.groups("energy_flow-e*"), [["energy_flow-experiment"]])
        self.assertEqual(self.groups("energy_flow-debug-skip,collective-debug-b128"), [["collective-debug-b128"], ["energy_flow-debug-skip"]])
        self.assertEqual(self.groups(quick=True), [["collective-debug-b32"]])

    def test_a_pattern_without_a_row_is_refused(self):
        with self.assertRaisesRegex(check.Missing, "energy-flow"):
            self.groups("energy-flow*")

    def test_a_program_that_prints_other_rows_is_an_error_for_each(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "millrace"
            program.write_text("#!/bin/sh\necho '[{\"name\": \"a\"}]'\n")
            program.chmod(0o755)
            options = types.SimpleNamespace(quick=True, no_peers=True, peers="")
            self.assertEqual(check.bench_rows(pathlib.Path(folder), ["a"], "cpu", options), [{"name": "a"}])
            self.assertEqual([row["error"] for row in check.bench_rows(pathlib.Path(folder), ["a", "b"], "cpu", options)],
                             ["its output lacks rows"] * 2)


class WholeScript(unittest.TestCase):
    def run_script(self, *given):
        return subprocess.run([sys.executable, SCRIPT, *given], capture_output=True, text=True, check=False)

    def test_without_programs_it_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.run_script("--dry-run", "--build", folder, "--out", folder)
        self.assertEqual(done.returncode, 2)
        self.assertIn("do not start", done.stderr)

    def test_bad_numbers_are_refused(self):
        self.assertEqual(self.run_script("--jobs", "0").returncode, 2)

    def test_dry_run_on_a_build(self):
        build = os.environ.get("MILLRACE_BUILD")
        if not build or not os.access(os.path.join(build, "test_base"), os.X_OK):
            self.skipTest("MILLRACE_BUILD names no build with test_base")
        with tempfile.TemporaryDirectory() as folder:
            done = self.run_script("--dry-run", "--build", build, "--no-bench", "--tests", "test_base", "--out", folder)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            result = json.loads((pathlib.Path(folder) / "gpu-check.json").read_text())
            self.assertIn("| test_base |", (pathlib.Path(folder) / "gpu-check.md").read_text())
        self.assertEqual((result["tests"][0]["name"], result["tests"][0]["failed"]), ("test_base", []))
        self.assertGreater(result["tests"][0]["passed"], 20)


if __name__ == "__main__":
    unittest.main()
