"""tools/doctor-check with made-up programs and a made-up millrace: what it lets pass, what not, and what it keeps from call to call."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools/doctor-check"
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools"))
import doctor_bench  # noqa: E402
import doctor_judge as judging  # noqa: E402
import doctor_report  # noqa: E402

# Prints the speed that the folder's `speeds` has for it, in no time. Line 6 is the illness, lines 8 and 9 the loop. It and the made-up
# millrace are started a hundred times, so they import next to nothing.
PROGRAM = '''"""{kind}: made up."""
import os, sys
mode = " ".join(sys.argv[2:])
speeds = eval(open(os.path.join(os.path.dirname(__file__), "speeds")).read())
class Clock: __enter__ = __exit__ = lambda *_: None
speed = speeds[(os.path.basename(__file__)[:-3] + " " + mode).strip()]{mark}
print("starts", flush=True)
with Clock():
    print(f"steps/s {{speed}}")
print(f"samples/s {{speed * 32}}")
'''
# `record` runs the command and keeps its command line; `diagnose` and `compare` answer with what lies in answers/ for that program.
MILLRACE = '''#!{python} -SE
import os, sys
here, given = os.path.dirname(__file__), sys.argv[1:]
with open(here + "/calls", "a") as calls:
    calls.write(" ".join(given) + "\\n")
def who(run):
    if not os.path.isdir(run):
        return "trace"
    words = eval(open(run + "/command").read())
    return (os.path.basename(words[1])[:-3] + " " + " ".join(words[3:])).strip()
def answer(name):
    return open(here + "/answers/" + name + ".json").read()
if given[0] == "--version":
    print("millrace made up")
elif given[0] == "record":
    run, command = given[given.index("-o") + 1], given[given.index("--") + 1:]
    os.makedirs(run)
    open(run + "/command", "w").write(repr(command))
    child = os.posix_spawn(command[0], command, os.environ)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    sys.exit(status if status >= 0 else 128 - status)
elif given[0] == "diagnose":
    for option in ("--html", "--md"):
        if option in given:
            open(given[given.index(option) + 1], "w").write("report")
    print(answer(who(given[1])))
    sys.exit(1)
else:
    before, after = who(given[1]), who(given[2])
    try:
        print(answer(before + " to " + after))
    except FileNotFoundError:
        print('{{"verdict": "%s", "change": 0.2}}' % ("no difference" if before == after else "better"))
'''

# As much of PyTorch as the check's own scripts use.
TORCH = {"__init__.py": """
import contextlib
class Tensor:
    __matmul__ = __add__ = add_ = lambda self, other: self
    tanh = lambda self: self
    sum = lambda self: 1.5
def randn(*shape, device): return Tensor()
empty = randn
def manual_seed(number): pass
class cuda:
    Stream = object
    stream = staticmethod(lambda which: contextlib.nullcontext())
    empty_cache = staticmethod(lambda: None)
""", "profiler.py": """
class ProfilerActivity: CPU = CUDA = None
class profile:
    def __init__(self, **options): pass
    def __enter__(self): return self
    def __exit__(self, *what): pass
    def export_chrome_trace(self, path): open(path, "w").write("trace")
"""}


def finding(kind, line, lost, file="host_sync.py", severity="warning"):
    return dict(kind=kind, severity=severity, where=dict(file=f"/somewhere/{file}", line=line, function="f"), lost_ms_per_step=lost)


def diagnosis(*findings, compute=10.0, unexplained=0.0, **more):
    document = dict(healthy=not findings, busy_share=0.8, steps=100, step_ms=compute + unexplained, mean_step_ms=compute + unexplained,
                    window_overhead_share=0.1, overhead_share=0.001, breakdown={"compute": compute, "unexplained": unexplained}, findings=list(findings))
    return {**document, **more}


class Folder:
    """Programs, studies, and a build folder with the made-up millrace."""

    def __init__(self, path):
        self.path, self.build, self.out = path, path / "build", path / "out"
        for folder in ("programs", "studies", "build/answers"):
            (path / folder).mkdir(parents=True)
        self.millrace = self.build / "millrace"
        self.millrace.write_text(MILLRACE.format(python=sys.executable))
        self.millrace.chmod(0o755)
        (self.build / "libmillrace-probe.so").write_text("made up")
        self.python = path / "python"
        self.python.write_text(f"#!/bin/sh\nexec {sys.executable} -S \"$@\"\n")
        self.python.chmod(0o755)
        self.speeds = {}
        (path / "modules/torch").mkdir(parents=True)
        for name, text in TORCH.items():
            (path / "modules/torch" / name).write_text(text)

    def program(self, name, kind, sick, cured=None, folder="programs"):
        mark = "" if kind == "healthy" else "  # <- illness"
        (self.path / folder / f"{name}.py").write_text(PROGRAM.format(kind=kind, mark=mark))
        self.speeds.update({name: sick, **({f"{name} cured": cured} if cured else {})})
        for where in ("programs", "studies"):
            (self.path / where / "speeds").write_text(repr(self.speeds))

    def answer(self, name, document):
        (self.build / "answers" / f"{name}.json").write_text(json.dumps(document))

    def check(self, *given, **environment):
        command = [sys.executable, SCRIPT, "--build", self.build, "--programs", self.path / "programs", "--studies", self.path / "studies", "--out", self.out]
        return subprocess.run([*map(str, command), *given], capture_output=True, text=True, check=False,
                              env={**os.environ, "MILLRACE_PYTHON": str(self.python), "PYTHONPATH": str(self.path / "modules"), **environment})

    def kept(self):
        return json.loads((self.out / "doctor-check.json").read_text())

    def calls(self, word):
        path = self.build / "calls"
        return sum(line.startswith(word) for line in path.read_text().splitlines()) if path.exists() else 0


class Judge(unittest.TestCase):
    """Sick 80 steps/s, cured 100: 12.5 ms per step, of which 2.5 are lost; a quarter of that is more than 2 % of the step."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name, "host_sync.py")
        self.path.write_text(PROGRAM.format(kind="host-sync", mark="  # <- illness"))
        self.addCleanup(self.folder.cleanup)

    def judge(self, document, sick=80.0, cured=100.0, kind="host-sync", cured_document=None):
        return judging.judge(self.path, kind, sick, cured, document, cured_document)

    def expect(self, text, *given, **more):
        problems, _ = self.judge(*given, **more)
        self.assertEqual(len(problems), 1, problems)
        self.assertIn(text, problems[0])

    def test_right_finding_passes_up_to_the_edge(self):
        for lost in (2.5, 2.5 * 1.249, 2.5 * 0.751):
            self.assertEqual(self.judge(diagnosis(finding("host-sync", 6, lost))), ([], ""))

    def test_wrong_kind(self):
        self.expect("first finding is python-work, not host-sync", diagnosis(finding("python-work", 6, 2.5), finding("host-sync", 6, 2.5)))

    def test_no_finding(self):
        self.expect("no finding instead of host-sync", diagnosis())

    def test_wrong_line_and_wrong_file(self):
        self.expect("host_sync.py:7, the illness at host_sync.py:6", diagnosis(finding("host-sync", 7, 2.5)))
        self.expect("the illness at", diagnosis(finding("host-sync", 9, 2.5)))  # the loop is no place for this kind
        self.expect("xhost_sync.py:6", diagnosis(finding("host-sync", 6, 2.5, "xhost_sync.py")))
        self.expect("no file:None", diagnosis({**finding("host-sync", 6, 2.5), "where": None}))

    def test_wrong_amount(self):
        for lost in (2.5 * 1.26, 2.5 * 0.74):
            self.expect("the truth is 2.50 +- 0.62", diagnosis(finding("host-sync", 6, lost)))
        self.expect("lost unsaid", diagnosis(finding("host-sync", 6, None)))

    def test_two_per_cent_of_the_step_are_allowed_where_a_quarter_of_the_truth_is_less(self):
        # 10 ms, of which 0.385 are lost: a quarter is 0.096, 2 % of the step 0.2.
        self.assertEqual(self.judge(diagnosis(finding("host-sync", 6, 0.2)), sick=100.0, cured=104.0)[0], [])
        self.expect("+- 0.20", diagnosis(finding("host-sync", 6, 0.1)), sick=100.0, cured=104.0)

    def test_cure_that_gains_little_does_not_count(self):
        problems, remark = self.judge(diagnosis(), sick=100.0, cured=102.9)
        self.assertEqual((problems, remark), ([], "does not count here: the cure gains 2.9 %"))
        self.assertNotEqual(self.judge(diagnosis(), sick=100.0, cured=103.1)[0], [])
        # The breakdown is held to its bars all the same.
        self.expect("unexplained", diagnosis(compute=8.0, unexplained=2.0), sick=100.0, cured=102.9)

    def test_loop_is_a_right_place_for_what_belongs_to_a_step(self):
        for line, right in ((6, True), (7, False), (8, True), (9, True), (10, False)):
            problems, _ = self.judge(diagnosis(finding("launch-bound", line, 2.5)), kind="launch-bound")
            self.assertEqual(not problems, right, line)

    def test_launch_bound_is_right_where_the_cured_run_is_launch_bound_too(self):
        bound = diagnosis(finding("launch-bound", 9, 2.5))
        self.expect("first finding is launch-bound, not host-sync", bound)
        self.expect("first finding is launch-bound, not host-sync", bound, cured_document=diagnosis())
        self.assertEqual(self.judge(bound, cured_document=bound)[0], [])
        # The truth belongs to the illness, so its own finding is held to it where there is one.
        both = diagnosis(finding("launch-bound", 9, 9.0), finding("host-sync", 6, 2.4))
        self.assertEqual(self.judge(both, cured_document=bound)[0], [])
        self.expect("the truth is 2.50", diagnosis(finding("launch-bound", 9, 9.0)), cured_document=bound)
        self.expect("the truth is 2.50", diagnosis(finding("launch-bound", 9, 2.5), finding("host-sync", 6, 4.0)), cured_document=bound)

    def test_healthy_program_needs_a_clean_bill(self):
        self.assertEqual(self.judge(diagnosis(), kind="", sick=100.0, cured=100.0), ([], ""))
        self.expect("no clean bill: host-sync at 6", diagnosis(finding("host-sync", 6, 0.5)), kind="")
        self.expect("no clean bill: no finding either", diagnosis(healthy=False), kind="")
        noted = diagnosis(finding("memory-edge", 6, 0.0, severity="note"), healthy=True)
        self.assertEqual(self.judge(noted, kind="")[0], [])

    def test_breakdown_must_sum_to_the_step_and_be_explained(self):
        self.expect("sums to 10.000 ms, a mean step took 10.200", diagnosis(mean_step_ms=10.2), kind="")
        self.assertEqual(self.judge(diagnosis(mean_step_ms=10.09), kind="")[0], [])
        self.expect("does not say how long a mean step took", diagnosis(mean_step_ms=None), kind="")
        self.expect("10.0 % unexplained", diagnosis(compute=9.0, unexplained=1.0), kind="")
        self.assertEqual(self.judge(diagnosis(compute=9.1, unexplained=0.9), kind="")[0], [])
        self.expect("no step was found", diagnosis(steps=0, breakdown={"compute": None, "unexplained": None}), kind="")

    def test_kinds_come_from_docstrings_or_from_the_table(self):
        folder = pathlib.Path(self.folder.name)
        (folder / "bench.py").write_text('"""shared: what scripts share."""\n')
        (folder / "pageable.py").write_text('"""Illness: copies."""\nx = 1  # <- illness\n')
        (folder / "healthy.py").write_text('"""Nothing wrong."""\n')
        (folder / "README.md").write_text("| `pageable.py` | pageable-copy | 1 |\n| `healthy.py` | none | 2 |\n")
        self.assertEqual(judging.kinds_of(folder), {"healthy": "", "host_sync": "host-sync", "pageable": "pageable-copy"})
        self.assertGreaterEqual(len(judging.kinds_of(ROOT / "examples/sick")), 15)
        for name in judging.kinds_of(ROOT / "examples/sick"):
            self.assertTrue(judging.loop_lines(ROOT / f"examples/sick/{name}.py"), name)


class Figures(unittest.TestCase):
    def test_interval_holds_the_median_and_widens_with_the_spread(self):
        low, high = judging.interval([0.4, 0.5, 0.6, 0.5, 0.4, 0.6, 0.5, 0.5, 0.4, 0.6])
        self.assertLessEqual(low, 0.5)
        self.assertGreaterEqual(high, 0.5)
        self.assertLess(high - low, 0.21)
        wide = judging.interval([-5, 5, -4, 4, -3, 3, -2, 2, -1, 1])
        self.assertGreater(wide[1] - wide[0], 3)

    def test_an_hour_is_what_is_there_and_the_later_pace(self):
        # 30 MB at once, then 10 KB a second.
        samples = [(second, 30e6 + 1e4 * second) for second in range(1, 121)]
        hour, day = judging.growth(samples, 60)
        self.assertAlmostEqual(hour, 30e6 + 3600e4, delta=1)
        self.assertAlmostEqual(day, 30e6 + 86400e4, delta=1)
        self.assertEqual(judging.growth([(1, 5), (2, 5)], 0), (5, 5))
        for few in ([], [(1, 5)], [(1, 5), (1, 6)]):
            with self.assertRaises(ValueError):
                judging.growth(few, 0)


class Check(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Folder(pathlib.Path(holder.name))

    def sick(self, name="host_sync", kind="host-sync", lost=2.5, line=6):
        self.folder.program(name, kind, 80.0, 100.0)
        self.folder.answer(name, diagnosis(finding(kind, line, lost, f"{name}.py")))

    def healthy(self):
        self.folder.program("healthy", "healthy", 50.0)
        self.folder.answer("healthy", diagnosis())

    def expect(self, status, text, *given):
        done = self.folder.check(*given)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.assertIn(text, done.stdout + done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        return done.stdout

    def test_right_diagnoses_pass_and_are_kept(self):
        self.sick()
        self.healthy()
        self.expect(0, "all bars that were tried hold", "--parts", "cases")
        recorded = self.folder.calls("record")
        self.assertEqual(recorded, 2)
        said = self.expect(0, "2 of them finished earlier, about 0.0 min", "--parts", "cases")
        self.assertIn("80.0 ->    100.0 steps/s", said)
        self.assertEqual(self.folder.calls("record"), recorded)
        self.expect(0, "2 to do", "--parts", "cases", "--again", "--only", "healthy,host_sync")
        self.assertEqual(self.folder.calls("record"), 2 * recorded)
        text = (self.folder.out / "doctor-check.md").read_text()
        self.assertIn("| `host_sync` | host-sync | 80.0 | 100.0 | 2.50 | host-sync | 6 | 2.50 | 80 % | 0.0 % | 80.0 | right |", text)
        self.assertRegex(text, r"- date: \d{4}-\d\d-\d\d")
        self.assertTrue((self.folder.out / "reports/host_sync.html").exists())

    def test_speeds_are_remembered(self):
        self.sick()
        self.folder.check("--parts", "cases")
        self.assertEqual(self.folder.kept()["speeds"], {"host_sync": 80.0, "host_sync cured": 100.0})

    def test_wrong_diagnoses_fail_and_are_named(self):
        self.sick(lost=9.0)
        self.healthy()
        self.folder.answer("healthy", diagnosis(finding("host-sync", 6, 0.5)))
        said = self.expect(1, "2 of the bars tried do not hold", "--parts", "cases")
        self.assertIn("does not hold: cases/host_sync: lost 9.00 ms, the truth is 2.50 +- 0.62", said)
        self.assertIn("does not hold: cases/healthy: no clean bill", said)
        # A kept result that is wrong stays wrong.
        self.expect(1, "2 of the bars tried do not hold", "--parts", "cases")

    def test_results_of_another_build_are_put_aside(self):
        self.sick(lost=9.0)
        self.expect(1, "", "--parts", "cases")
        self.folder.answer("host_sync", diagnosis(finding("host-sync", 6, 2.5)))
        (self.folder.build / "libmillrace-probe.so").write_text("mended")
        self.expect(0, "are of another build", "--parts", "cases")
        self.assertEqual(len(list(self.folder.out.glob("doctor-check-*.json"))), 1)

    def test_cured_run_is_recorded_where_launch_bound_might_be_right(self):
        self.sick()
        self.folder.answer("host_sync", diagnosis(finding("launch-bound", 9, 2.5)))
        self.folder.answer("host_sync cured", diagnosis(finding("launch-bound", 9, 1.5)))
        self.expect(0, "launch-bound, line 9", "--parts", "cases")
        self.assertEqual(self.folder.calls("record"), 2)

    def test_missing_things_are_named(self):
        self.sick()
        self.expect(2, "no program is called sink; there are host_sync", "--only", "sink")
        self.expect(2, "none of cases", "--parts", "casses")
        self.folder.millrace.rename(self.folder.build / "elsewhere")
        self.expect(2, "build/millrace is missing")
        for path in (self.folder.path / "programs").glob("*.py"):
            path.unlink()
        (self.folder.build / "elsewhere").rename(self.folder.millrace)
        self.expect(2, "is no folder with programs")
        done = self.folder.check(MILLRACE_PYTHON="/no/python")
        self.assertEqual(done.returncode, 2)

    def test_a_program_that_crashes_fails_alone_and_is_tried_again(self):
        self.sick()
        self.healthy()
        path = self.folder.path / "programs/speeds"
        path.write_text(repr({"healthy": 50.0}))
        said = self.expect(1, "1 of the bars tried do not hold", "--parts", "cases")
        self.assertIn("cases/host_sync: host_sync: status 1", said)
        self.assertIn("healthy ", said)
        path.write_text(repr(self.folder.speeds))
        self.expect(0, "1 of them finished earlier", "--parts", "cases")

    def test_output_that_is_no_json_fails(self):
        self.sick()
        (self.folder.build / "answers/host_sync.json").unlink()
        self.expect(1, "diagnose host_sync: its output is no JSON", "--parts", "cases")

    def test_late_items_are_left_for_the_next_call(self):
        self.sick()
        self.expect(3, "time was up before cases/host_sync; call again with the same --out", "--parts", "cases", "--minutes", "0.01")
        self.expect(0, "all bars that were tried hold", "--parts", "cases", "--minutes", "5")

    def test_compare_needs_every_pair(self):
        self.sick()
        self.healthy()
        said = self.expect(0, "itself no different 2 of 2, cured better 2 of 2", "--parts", "compare", "--repeats", "2,healthy=3")
        self.assertIn("itself no different 3 of 3, cured better -", said)
        self.assertEqual(self.folder.calls("record"), (1 + 2 * 2) + (1 + 3))
        # More pairs than are kept: only those that are missing, and one recording to begin with.
        self.expect(0, "itself no different 3 of 3, cured better 3 of 3", "--parts", "compare", "--repeats", "3")
        self.assertEqual(self.folder.calls("record"), 9 + 3)
        self.folder.answer("host_sync to host_sync cured", dict(verdict="no difference", change=0.0))
        said = self.expect(1, "cured better 3 of 4", "--parts", "compare", "--repeats", "4", "--only", "host_sync")
        self.assertIn("cured against sick: no difference", said)

    def test_steps_of_another_size_are_not_compared(self):
        self.sick("narrow", "small-batch")
        self.expect(0, "itself no different 1 of 1, cured better -", "--parts", "compare", "--repeats", "1")

    def test_compare_counts_two_programs_ten_times(self):
        self.sick()
        self.sick("pageable", "pageable-copy")
        self.expect(0, "itself no different 10 of 10", "--parts", "compare")
        self.assertEqual({name: len(item["itself"]) for name, item in self.folder.kept()["items"].items()},
                         {"compare/host_sync": 10, "compare/pageable": 3})

    def test_overhead_goes_on_pair_by_pair(self):
        self.healthy()
        self.sick("tiny", "launch-bound")
        self.folder.answer("tiny cured", diagnosis())
        given = ("--parts", "overhead", "--seconds", "1")
        said = self.expect(0, "+0.00 % [+0.00, +0.00], limit 1 %, 2 pairs", *given, "--pairs", "2")
        self.assertIn("tiny-cured", said)
        self.assertIn("inside windows 10.0 %", said)
        self.assertEqual(self.folder.calls("record"), 6)
        self.expect(0, "3 pairs", *given, "--pairs", "3", "--only", "tiny-cured")
        self.assertEqual(self.folder.calls("record"), 7)
        self.expect(3, "time was up before overhead/tiny", *given, "--pairs", "3", "--only", "tiny", "--minutes", "0.01")
        self.assertIn("Begun, not finished: overhead/tiny.", (self.folder.out / "doctor-check.md").read_text())

    def test_overhead_above_its_limit_fails(self):
        self.healthy()
        # Under `record` the made-up program finds itself 2 % slower.
        self.change_millrace("    child =", "    command += ['slowed']\n    child =")
        self.folder.speeds["healthy slowed"] = 49.0
        self.folder.program("healthy", "healthy", 50.0)
        self.expect(1, "slow-down up to 2.04 %, the limit is 1 %", "--parts", "overhead", "--pairs", "2", "--seconds", "1")

    def test_case_studies_give_a_table(self):
        self.healthy()
        self.folder.program("study", "case study", 10.0, 50.0, "studies")
        self.folder.answer("study", diagnosis(finding("host-sync", 6, 80.0)))
        self.folder.answer("study cured", diagnosis())
        said = self.expect(0, "| as it was | 10.0 | 320 | 80 % | `host-sync`, 6, 80.00 |  |", "--parts", "case-studies")
        self.assertIn("| cured | 50.0 | 1600 | 80 % | none: a clean bill | better (+20 % steps/s) |", said)
        self.assertIn("## Case study: study", (self.folder.out / "doctor-check.md").read_text())

    def change_millrace(self, old, new):
        text = self.folder.millrace.read_text()
        self.assertIn(old, text)
        self.folder.millrace.write_text(text.replace(old, new))

    def test_output_and_status_must_be_the_same(self):
        self.healthy()
        said = self.expect(0, "all bars that were tried hold", "--parts", "output")
        for line in ("ends                   status 0", "crashes                status 1", "killed                 status 137", "aborts                 status 134",
                     "exits                  status 7", "forks                  status 0", "execs                  status 0"):
            self.assertIn(f"{line}, the same", said)
        self.change_millrace("    child =", "    print('recording', flush=True)\n    child =")
        said = self.expect(1, "7 of the bars tried do not hold", "--parts", "output")
        self.assertIn("output/ends: output: b'recording\\n1.5\\nend\\n' instead of b'1.5\\nend\\n'", said)

    def test_another_exit_status_is_seen(self):
        self.healthy()
        self.change_millrace("128 - status", "0")
        said = self.expect(1, "2 of the bars tried do not hold", "--parts", "output")
        self.assertIn("output/killed: status: 0 instead of 137", said)
        self.assertIn("output/aborts: status: 0 instead of 134", said)

    def test_a_program_that_never_got_to_its_end_shows_nothing(self):
        self.healthy()
        (self.folder.path / "modules/torch/__init__.py").write_text("raise ImportError('no GPU')\n")
        self.expect(1, "the plain program ended with 1, not 7", "--parts", "output")

    def test_stress_must_come_to_its_end(self):
        self.healthy()
        self.expect(0, "rounds ", "--parts", "stress", "--long-seconds", "0.1")

    def test_trace_of_the_profiler_must_lead_where_the_probe_leads(self):
        self.sick()
        self.folder.answer("trace", diagnosis(finding("host-sync", 6, 2.0)))
        self.expect(0, "its trace leads to host-sync in line 6", "--parts", "profiler")
        self.folder.answer("trace", diagnosis(finding("host-sync", 9, 2.0)))
        self.expect(1, "its trace leads to ['host-sync', 9], the probe to ['host-sync', 6]", "--parts", "profiler", "--again")

    def test_size_is_watched_while_it_grows(self):
        self.sick("tiny", "launch-bound")
        text = (self.folder.path / "programs/tiny.py").read_text()
        (self.folder.path / "programs/tiny.py").write_text(text + "import time\nif int(sys.argv[1]) > 90:\n    time.sleep(2.6)\n")
        # A recording that grows by 100 KB in every tenth of a second.
        self.change_millrace("os.waitpid(child, 0)[1]", "ended[1]")
        self.change_millrace(
            "    status =", "    import time\n    ended = (0, 0)\n    while ended[0] == 0:\n        open(run + '/trace', 'ab').write(bytes(100000))\n"
            "        time.sleep(0.1)\n        ended = os.waitpid(child, os.WNOHANG)\n    status =")
        self.expect(1, "an hour would take", "--parts", "size", "--long-seconds", "2")
        item = self.folder.kept()["items"]["size/tiny-cured"]
        self.assertGreater(item["hour"], 2e8)  # a loaded machine is slower
        self.assertLess(item["hour"], 5e9)


class Bench(unittest.TestCase):
    def test_a_run_that_hangs_is_ended_with_its_children(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            results = doctor_bench.Results(folder, folder, folder)
            runner = doctor_bench.Bench(folder, folder, folder, results)
            script = "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print(p.pid, file=open('child', 'w'), flush=True); p.wait()"
            with self.assertRaisesRegex(doctor_bench.Failed, "a program: no end after 2 s"):
                runner.run([sys.executable, "-c", script], "a program", patience=2)
            state = pathlib.Path("/proc", (folder / "child").read_text().strip(), "stat")
            for _ in range(100):
                try:
                    if state.read_text().split()[2] in "ZX":
                        return
                except OSError:
                    return
                time.sleep(0.05)
            self.fail("its child lives on")

    def test_commit_is_that_of_the_programs(self):
        with tempfile.TemporaryDirectory() as name:
            build = pathlib.Path(name, "bin")
            build.mkdir()
            pathlib.Path(name, "manifest.json").write_text(json.dumps(dict(commit="above")))
            self.assertEqual(doctor_bench.commit_of(build), "above")
            (build / "manifest.json").write_text(json.dumps(dict(commit="beside")))
            self.assertEqual(doctor_bench.commit_of(build), "beside")

    def test_markdown_of_nothing_is_a_title(self):
        self.assertEqual(doctor_report.markdown(dict(items={})), "# Doctor check\n\n")


if __name__ == "__main__":
    unittest.main()
