"""How tools/doctor-check starts programs, some of them before their turn, and which recordings it keeps."""
import json
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
for folder in ("tools", "tests/tools"):
    sys.path.insert(0, str(ROOT / folder))
import doctor_ahead  # noqa: E402
import doctor_bench  # noqa: E402
import doctor_report  # noqa: E402
from made_up_doctor import is_gone, wait_for  # noqa: E402


MODULES = ("framework", "framework.missing", "framework.late", "absent.part")
# Prints all that it might see of having been held back; so does a child.
CURIOUS = """
import os, subprocess, sys
print(__name__, sys.argv, sys.path, sorted(os.environ.items()), 'framework.late' in sys.modules, 'sitecustomize' in sys.modules, flush=True)
if sys.argv[1:] == ['a b']:
    subprocess.run([sys.executable, __file__, 'child'], check=True)
    os.execv(sys.executable, [sys.executable, __file__, 'successor'])
"""


class Ahead(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.script, self.modules = self.folder / "curious.py", self.folder / "modules"
        self.script.write_text(CURIOUS)
        self.modules.mkdir()
        self.framework = self.modules / "framework/__init__.py"
        self.framework.parent.mkdir()
        self.framework.write_text("import time\n")
        (self.framework.parent / "late.py").write_text("")
        self.ahead = doctor_ahead.Ahead(self.folder, sys.executable, 1)
        path = mock.patch.dict(os.environ, PYTHONPATH=str(self.modules))
        path.start()
        self.addCleanup(path.stop)

    def held(self, *words):
        """A program at its gate."""
        gate = self.ahead.gate(MODULES)
        process = doctor_ahead.Process([sys.executable, *words], gate=gate)
        wait_for(lambda: pathlib.Path(f"{gate.path}{doctor_ahead.HERE}").exists())
        return process

    def test_it_works_here_and_not_without_site(self):
        self.assertEqual((self.ahead.most, self.ahead.reason), (1, ""))
        python = self.folder / "python"
        python.write_text(f"#!/bin/sh\nexec {sys.executable} -S \"$@\"\n")
        python.chmod(0o755)
        without = doctor_ahead.Ahead(self.folder / "other", str(python), 2)
        self.assertEqual(without.most, 0)
        self.assertIn("cannot be held back", without.reason)

    def test_a_program_waits_before_its_first_line(self):
        mark = self.folder / "mark"
        process = self.held("-c", f"open({str(mark)!r}, 'w')")
        self.assertFalse(mark.exists())
        self.assertIsNone(process.process.poll())
        process.let_go()
        process.finish("it", 60)
        self.assertTrue(mark.exists())
        self.assertEqual(list(self.ahead.gates.iterdir()), [])

    def test_who_stands_at_its_gate_or_has_ended_is_settled(self):
        gate = self.ahead.gate(MODULES)
        process = doctor_ahead.Process(["sleep", "600"], gate=gate)
        self.assertFalse(process.is_settled())
        open(f"{gate.path}{doctor_ahead.HERE}", "w").close()
        self.assertTrue(process.is_settled())
        process.end()
        process = doctor_ahead.Process([sys.executable, "-c", "raise SystemExit(7)"], gate=self.ahead.gate(MODULES))
        process.let_go()
        wait_for(process.is_settled)
        process.finish("it", 60)
        self.assertEqual(process.status, 7)

    def test_a_program_let_go_early_does_not_wait(self):
        gate = self.ahead.gate(MODULES)
        process = doctor_ahead.Process([sys.executable, "-c", "print('went on')"], gate=gate)
        process.let_go()
        self.assertEqual(process.finish("it", 60), (b"went on\n", b""))

    def same_as_without(self):
        process = self.held(self.script, "a b")
        process.let_go()
        said, errors = process.finish("it", 60)
        without = doctor_ahead.Process([sys.executable, self.script, "a b"])
        right, right_errors = without.finish("it", 60)
        lines, right_lines = said.decode().splitlines(), right.decode().splitlines()
        # The program itself has the framework imported, and a sitecustomize; those it starts have nothing of it.
        self.assertEqual(lines[0].rsplit(" ", 2)[0], right_lines[0].rsplit(" ", 2)[0])
        self.assertTrue(lines[0].endswith(" True True"))
        self.assertEqual((len(lines), lines[1:]), (3, right_lines[1:]))
        self.assertEqual((errors, process.status), (right_errors, without.status))
        return said.decode()

    def test_a_program_finds_everything_as_without(self):
        self.same_as_without()
        with mock.patch.dict(os.environ):
            del os.environ["PYTHONPATH"]
            (self.folder / "framework.py").write_text("")
            gate = self.ahead.gate(MODULES)
            process = doctor_ahead.Process([sys.executable, self.script], gate=gate)
            process.let_go()
            self.assertNotIn("PYTHONPATH", process.finish("it", 60)[0].decode())

    def test_another_sitecustomize_has_its_turn(self):
        (self.modules / "sitecustomize.py").write_text("import sys\nsys.stderr.write('customised ' + __file__ + '\\n')\n")
        process = self.held(self.script)
        process.let_go()
        self.assertEqual(process.finish("it", 60)[1].decode(), f"customised {self.modules / 'sitecustomize.py'}\n")
        # One that fails is told of, and holds nobody up.
        (self.modules / "sitecustomize.py").write_text("raise RuntimeError('on purpose')\n")
        process = self.held(self.script)
        process.let_go()
        said, errors = process.finish("it", 60)
        self.assertIn("on purpose", errors.decode())
        self.assertIn("__main__", said.decode())

    def test_a_framework_that_cannot_be_imported_is_the_programs_own_affair(self):
        tries = self.folder / "tries"
        self.framework.write_text(f"open({str(tries)!r}, 'a').write('.')\nraise ImportError('broken')\n")
        process = self.held("-c", "print('begins')\nimport framework")
        self.assertEqual(tries.read_text(), ".")  # its parts are not asked for
        process.let_go()
        said, errors = process.finish("it", 60)
        self.assertEqual((said, process.status), (b"begins\n", 1))
        self.assertIn(b"ImportError: broken", errors)

    def test_a_program_whose_turn_never_comes_ends(self):
        mark = self.folder / "mark"
        script = f"open({str(mark)!r}, 'w')"
        process = self.held("-c", script)
        process.gate.close()  # as when the check is killed
        process.gate = None
        process.finish("it", 60)
        self.assertEqual(process.status, 143)
        late = self.ahead.gate(MODULES)  # killed before the program came to the gate
        late.close()
        process = doctor_ahead.Process([sys.executable, "-c", script])
        process.finish("it", 60)
        mark.unlink()
        with mock.patch.dict(os.environ, late.environment):
            process = doctor_ahead.Process([sys.executable, "-c", script])
            process.finish("it", 60)
        self.assertEqual(process.status, 143)
        process = self.held("-c", script)
        process.end()
        self.assertTrue(is_gone(process.process.pid))
        self.assertFalse(mark.exists())
        self.assertEqual(doctor_ahead.Process.alive, set())


class Program:
    """Stands at its gate at the n-th look; ended or not."""

    def __init__(self, looks):
        self.looks, self.is_ended = looks, False

    def is_settled(self):
        self.looks -= 1
        return self.looks < 0

    def end(self):
        self.is_ended = True


class Planned:
    """A run; its program comes to its gate at the n-th look."""

    def __init__(self, what="one", is_known=True, looks=0):
        self.what, self.known, self.program, self.begun = what, is_known, Program(looks), 0

    def is_known(self):
        return self.known

    is_ready = is_known

    def start(self, gate):
        self.begun += 1
        return self.program


class Batch(unittest.TestCase):
    def setUp(self):
        self.ahead = doctor_ahead.Ahead(pathlib.Path("."), sys.executable, 0)
        self.ahead.most, self.ahead.gate = 3, lambda: None
        self.glances = []
        glance = mock.patch.object(doctor_ahead.time, "sleep", self.glances.append)
        glance.start()
        self.addCleanup(glance.stop)

    def begun(self, runs):
        return [run.begun for run in runs]

    def test_all_are_at_their_gates_before_the_first_is_let_go(self):
        runs = [Planned(looks=looks) for looks in (0, 5, 2, 0, 0)]
        self.ahead.plan(runs)
        self.assertTrue(self.ahead.get_ready(runs[0]))
        self.assertEqual((self.begun(runs), len(self.glances)), ([1, 1, 1, 0, 0], 5))
        for run in runs[:3]:
            self.assertFalse(self.ahead.get_ready(run))  # nothing is started while one still waits
            self.assertIs(self.ahead.take(run), run.program)
        self.assertEqual(self.begun(runs), [1, 1, 1, 0, 0])
        self.assertTrue(self.ahead.get_ready(runs[3]))
        self.assertEqual(self.begun(runs), [1] * 5)

    def test_none_is_started_for_a_run_that_was_not_planned(self):
        runs = [Planned(), Planned()]
        self.ahead.plan(runs)
        self.assertFalse(self.ahead.get_ready(Planned()))
        self.assertFalse(self.ahead.get_ready(runs[1]))
        self.assertEqual(self.begun(runs), [0, 0])
        self.ahead.most = 0
        self.assertFalse(self.ahead.get_ready(runs[0]))

    def test_a_run_of_unknown_length_ends_a_batch(self):
        runs = [Planned(), Planned(is_known=False), Planned()]
        self.ahead.plan(runs)
        self.assertTrue(self.ahead.get_ready(runs[0]))
        self.assertEqual(self.begun(runs), [1, 0, 0])
        self.ahead.take(runs[0])
        runs[1].known = True
        self.assertTrue(self.ahead.get_ready(runs[1]))
        self.assertEqual(self.begun(runs), [1, 1, 1])

    def test_who_does_not_come_in_time_begins_anew_at_its_turn(self):
        runs = [Planned(), Planned(looks=10**9), Planned()]
        self.ahead.plan(runs)
        with mock.patch.object(doctor_ahead, "GATHER", 0.0):
            self.assertTrue(self.ahead.get_ready(runs[0]))
        self.assertEqual([run.program.is_ended for run in runs], [False, True, False])
        self.assertEqual([self.ahead.take(run) is run.program for run in runs], [True, False, True])

    def test_batches_are_foretold(self):
        known, unknown = [Planned() for _ in range(7)], [Planned("another", False) for _ in range(4)]
        self.assertEqual([self.ahead.batches(known[:count]) for count in (0, 1, 3, 4, 7)], [0, 1, 1, 2, 3])
        self.assertEqual(self.ahead.batches(known[:1] + unknown), 3)  # the first of them tells how long the others are
        self.ahead.plan(known)
        self.ahead.get_ready(known[0])
        self.assertEqual([self.ahead.batches(known[:count]) for count in (3, 4, 7)], [0, 1, 2])


class Shelf(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.results = doctor_bench.Results(self.folder, self.folder, self.folder)

    def shelf(self, anew=False):
        return doctor_bench.Shelf(self.folder / "pairs", self.results, anew)

    def put(self, shelf, count, most=20, mode=""):
        places = [shelf.place("program", mode) for _ in range(count)]
        for place in places:
            place.mkdir(parents=True)
            shelf.add(place, most)

    def names(self, shelf, mode=""):
        return [path.name for path in shelf.of("program", mode)]

    def test_recordings_are_counted_when_whole_in_the_order_they_were_made(self):
        shelf = self.shelf()
        self.put(shelf, 11)
        self.put(shelf, 2, mode="cured")
        shelf.place("program").mkdir()
        self.assertEqual(self.names(shelf), [str(number) for number in range(1, 12)])
        self.assertEqual(self.names(shelf, "cured"), ["1", "2"])
        later = self.shelf()
        self.assertEqual((len(self.names(later)), len(list(later.folder.glob("program/*")))), (11, 11))
        self.assertEqual(later.place("program").name, "12.half")

    def test_the_oldest_go(self):
        shelf = self.shelf()
        self.put(shelf, 11, most=3)
        self.assertEqual(self.names(shelf), ["9", "10", "11"])

    def test_anew_only_new_ones_count(self):
        self.put(self.shelf(), 2)
        shelf = self.shelf(anew=True)
        self.assertEqual(self.names(shelf), [])
        self.put(shelf, 1)
        self.assertEqual(self.names(shelf), ["3"])
        self.assertEqual(self.names(self.shelf()), ["1", "2", "3"])

    def test_a_call_leaves_no_fewer_than_it_found(self):
        self.put(self.shelf(), 5)
        self.put(self.shelf(), 2, mode="cured")
        for anew in (True, False):
            shelf = self.shelf(anew)
            self.put(shelf, 2, most=3)
            self.put(shelf, 4, most=3, mode="cured")
        self.assertEqual((self.names(self.shelf()), self.names(self.shelf(), "cured")), (["5", "6", "7", "8", "9"], ["8", "9", "10"]))

    def test_those_of_another_build_go(self):
        self.put(self.shelf(), 2)
        self.results.data["build"] = "another"
        self.assertEqual(self.names(self.shelf()), [])
        self.assertEqual(list((self.folder / "pairs").iterdir()), [])


class Bench(unittest.TestCase):
    def test_a_run_that_hangs_is_ended_with_its_children(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            results = doctor_bench.Results(folder, folder, folder)
            runner = doctor_bench.Bench(folder, folder, folder, results)
            script = "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print(p.pid, file=open('child', 'w'), flush=True); p.wait()"
            with self.assertRaisesRegex(doctor_bench.Failed, "a program: no end after 2 s"):
                runner.run([sys.executable, "-c", script], "a program", patience=2)
            wait_for(lambda: is_gone((folder / "child").read_text().strip()))

    def test_slow_programs_are_recorded_for_longer(self):
        bench = mock.Mock(first_steps=30)
        bench.results.data = dict(speeds=dict(fast=100.0, middling=25.0, slow=10.0))
        def steps(name, folder, **more):
            run = doctor_bench.Run(bench, name, "", doctor_bench.Length(9.0, **more), folder)
            self.assertTrue(run.is_ready())
            return run.length.steps
        self.assertEqual([steps("fast", None), steps("fast", "folder")], [901, 901])
        self.assertEqual([steps("slow", None), steps("slow", "folder"), steps("slow", None, recorded=True)], [91, 121, 121])
        self.assertEqual(steps("middling", "folder"), 246)
        self.assertEqual([steps("fast", None, least=900), steps("fast", None, least=902)], [901, 902])

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
