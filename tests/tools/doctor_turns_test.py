"""Programs that run in turn, each in slices of time (tools/doctor_turns.py)."""
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
for folder in ("tools", "tests/tools"):
    sys.path.insert(0, str(ROOT / folder))
import doctor_ahead as ahead  # noqa: E402
from doctor_turns import Turn, active_seconds, in_turns  # noqa: E402
from made_up_doctor import is_gone  # noqa: E402

# Steps of some milliseconds, each of which says when it was over.
PROGRAM = """
import sys, time
begin = time.monotonic()
ends = []
for number in range(60):
    time.sleep(0.003)
    ends.append(time.monotonic())
open(sys.argv[1], "w").write(repr((begin, ends)))
print(f"steps/s {len(ends) / (ends[-1] - begin):.6f}")
"""


class Turns(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "program.py").write_text(PROGRAM)
        self.ahead = ahead.Ahead(self.folder, sys.executable, 2)
        self.assertEqual(self.ahead.reason, "")

    def turn(self, name, program="program.py"):
        gate = self.ahead.gate(framework=())
        process = ahead.Process([sys.executable, self.folder / program, self.folder / name], gate=gate)
        while not process.is_settled():
            pass
        return Turn(process, name)

    def test_time_of_its_own(self):
        self.assertAlmostEqual(active_seconds(100, 10.0, 50.0, []), 10.0)
        self.assertAlmostEqual(active_seconds(100, 10.0, 50.0, [(41.0, 42.0), (44.0, 47.0)]), 6.0)
        # What was before its clock began to run, and after it stopped, does not count.
        self.assertAlmostEqual(active_seconds(100, 10.0, 50.0, [(30.0, 39.0), (39.5, 40.5), (49.0, 52.0), (60.0, 70.0)]), 8.5)

    def test_no_step_ends_in_a_pause(self):
        turns = [self.turn("first"), self.turn("second")]
        in_turns(turns, 0.02, 60)
        for turn in turns:
            begin, ends = eval((self.folder / turn.what).read_text())
            self.assertGreater(len(turn.pauses), 1)
            for start, end in turn.pauses:
                self.assertFalse([at for at in ends if start < at < end])
            paused = sum(max(0.0, min(end, ends[-1]) - max(start, begin)) for start, end in turn.pauses)
            self.assertGreater(paused, 0)
            said = turn.lines[-1][0]
            self.assertGreaterEqual(said, ends[-1])
            # The clock of the program stopped a moment before it was heard.
            self.assertAlmostEqual(60 / turn.rate(60), ends[-1] - begin - paused, delta=2 * (said - ends[-1]) + 1e-3)
        for one, other in (turns, turns[::-1]):  # nor while the other one runs
            slices = zip([0.0] + [end for _, end in one.pauses], [start for start, _ in one.pauses])
            for start, end in list(slices)[1:]:
                self.assertFalse([at for at in eval((self.folder / other.what).read_text())[1] if start < at < end])

    def test_who_fails_says_why_and_nobody_lives_on(self):
        (self.folder / "broken.py").write_text("import sys\nsys.exit('no GPU here')\n")
        (self.folder / "endless.py").write_text("while True: pass\n")
        with self.assertRaisesRegex(ahead.Failed, "first: status 1: no GPU here"):
            in_turns([self.turn("first", "broken.py"), self.turn("second")], 0.02, 60)
        turns = [self.turn("first", "endless.py"), self.turn("second", "endless.py")]
        with self.assertRaisesRegex(ahead.Failed, "no end after"):
            in_turns(turns, 0.02, 0.2)
        for turn in turns:
            self.assertTrue(is_gone(turn.pid))
        self.assertFalse(ahead.Process.alive)


if __name__ == "__main__":
    unittest.main()
