"""Rules of tools/doctor-check: which diagnoses are right, and the figures it derives."""
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
for folder in ("tools", "tests/tools"):
    sys.path.insert(0, str(ROOT / folder))
import doctor_judge as judging  # noqa: E402
from made_up_doctor import PROGRAM, diagnosis, finding  # noqa: E402


class Judge(unittest.TestCase):
    """Sick 80 steps/s, cured 100: 12.5 ms per step, of which 2.5 are lost; a quarter of that is more than 2 % of the step."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name, "host_sync.py")
        self.path.write_text(PROGRAM.format(kind="host-sync", mark="  # <- illness"))
        self.addCleanup(self.folder.cleanup)

    def judge(self, *documents, sick=80.0, cured=100.0, kind="host-sync", cured_document=None):
        return judging.judge(self.path, kind, sick, cured, documents, cured_document)[:2]

    def expect(self, text, *given, **more):
        problems, _ = self.judge(*given, **more)
        self.assertEqual(len(problems), 1, problems)
        self.assertIn(text, problems[0])

    def test_right_finding_passes_up_to_the_edge(self):
        for lost in (2.5, 2.5 * 1.249, 2.5 * 0.751):
            self.assertEqual(self.judge(diagnosis(finding("host-sync", 6, lost))), ([], ""))

    def test_wrong_kind(self):
        self.expect("first finding is python-work, not host-sync", diagnosis(finding("python-work", 6, 2.5), finding("host-sync", 6, 2.5)))

    def test_note_needs_neither_place_nor_cost(self):
        def note(**where):
            return diagnosis(dict(finding("small-batch", 6, 0.0), where=where or None))
        self.assertEqual(self.judge(note(), kind="small-batch"), ([], ""))
        self.assertEqual(self.judge(note(file=str(self.path), line=6), kind="small-batch"), ([], ""))
        self.expect("first finding is at other.py:6", note(file="other.py", line=6), kind="small-batch")
        self.expect("no finding instead of small-batch", diagnosis(), kind="small-batch")
        self.expect("first finding is at no file", diagnosis(dict(finding("host-sync", 6, 2.5), where=None)))

    def test_second_finding_is_told_where_the_first_is_wrong(self):
        second = finding("python-work", 9, 0.7)
        self.expect("not host-sync, then host-sync at 6 (2.50 ms)", diagnosis(finding("python-work", 6, 2.5), finding("host-sync", 6, 2.5)))
        self.expect("host_sync.py:6, then python-work at 9 (0.70 ms)", diagnosis(finding("host-sync", 7, 2.5), second))
        self.expect("+- 0.62, then python-work at 9 (0.70 ms)", diagnosis(finding("host-sync", 6, 9.0), second))
        self.expect("no clean bill: host-sync at 6 (9.00 ms), python-work at 9 (0.70 ms)", diagnosis(finding("host-sync", 6, 9.0), second), kind="")

    def test_median_of_several_recordings_is_held_to_the_truth(self):
        amounts = [diagnosis(finding("host-sync", 6, lost)) for lost in (9.0, 2.6, 2.3)]
        self.assertEqual(self.judge(*amounts), ([], ""))
        verdict = judging.judge(self.path, "host-sync", 80.0, 100.0, amounts)
        self.assertEqual((verdict.lost, verdict.losts), (2.6, [9.0, 2.6, 2.3]))
        self.expect("lost 4.00 ms (2.50 to 9.00 in 3 recordings), the truth is 2.50", amounts[0], *(diagnosis(finding("host-sync", 6, lost)) for lost in (4.0, 2.5)))
        self.expect("lost unsaid", *amounts, diagnosis(finding("host-sync", 6, None)))

    def test_first_finding_must_be_right_in_all_recordings(self):
        right, wrong = diagnosis(finding("host-sync", 6, 2.5)), diagnosis(finding("python-work", 9, 2.5))
        self.expect("recording 2: first finding is python-work, not host-sync", right, wrong, right)
        self.expect("recording 3: no finding", right, right, diagnosis())
        self.expect("recording 1: first finding is at host_sync.py:7", diagnosis(finding("host-sync", 7, 2.5)), right)
        self.expect("recording 2: no clean bill", diagnosis(), right, kind="")
        self.expect("recording 2: 20.0 % unexplained", right, diagnosis(finding("host-sync", 6, 2.5), compute=8.0, unexplained=2.0))
        # Where the cured program is launch-bound, some recordings may say launch-bound and others not.
        bound = diagnosis(finding("launch-bound", 9, 9.0), finding("host-sync", 6, 2.4))
        self.assertEqual(self.judge(bound, right, cured_document=bound), ([], ""))

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


    def test_speeds_come_from_the_table(self):
        folder = pathlib.Path(self.folder.name)
        self.assertEqual(judging.speeds_said(folder), {})
        (folder / "README.md").write_text("""
| program | kind | H200, steps/s sick | cured | lost |
|---|---|---|---|---|
| `pageable.py` | pageable-copy | 23.8 | 104 | 32.5 |
| `loader.py` | loader-wait | 4.5 | measure it | |
| `healthy.py` | none | 0 | 0.0 | 0 |
| `short.py` | none |
text
| `elsewhere.py` | host-sync | 1 | 2 |
""")
        self.assertEqual(judging.speeds_said(folder), {"pageable": 23.8, "pageable cured": 104.0, "loader": 4.5})


class Figures(unittest.TestCase):
    def test_interval_holds_the_median_and_widens_with_the_spread(self):
        low, high = judging.interval([0.4, 0.5, 0.6, 0.5, 0.4, 0.6, 0.5, 0.5, 0.4, 0.6])
        self.assertLessEqual(low, 0.5)
        self.assertGreaterEqual(high, 0.5)
        self.assertLess(high - low, 0.21)
        wide = judging.interval([-5, 5, -4, 4, -3, 3, -2, 2, -1, 1])
        self.assertGreater(wide[1] - wide[0], 3)

    def test_slow_downs_and_their_noise(self):
        slower = judging.slow_downs([[102.0, 100.0], [100.0, 100.0], [104.0, 100.0], [98.0, 100.0]])
        mean, error, deviation = judging.noise(slower)
        self.assertAlmostEqual(mean, 1.0)
        self.assertAlmostEqual(deviation, (20 / 3) ** 0.5)
        self.assertAlmostEqual(error, deviation / 2)

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


if __name__ == "__main__":
    unittest.main()
