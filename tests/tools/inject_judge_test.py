"""How tools/inject judges diagnoses: made by hand, with what was measured; and what a corpus keeps."""
import array
import io
import json
import pathlib
import sys
import tarfile
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
for folder in ("tools", "tests/tools"):
    sys.path.insert(0, str(ROOT / folder))
import inject_corpus as corpus  # noqa: E402
import inject_judge as judge    # noqa: E402
import inject_runs as runs      # noqa: E402
from inject_programs import Bad                                # noqa: E402
from made_up_training import diagnosis, finding, make_millrace  # noqa: E402


def illness(name="host-read", kinds=("host-sync",), line=20, loss=2.0, gain=0.2, spread=0.1, also=()):
    return dict(name=name, kinds=list(kinds), strength="1 read", lines=[["main.py", line]], also=[list(each) for each in also], loss_ms=loss, gain=gain, spread_ms=spread)


def truth(*illnesses, inserted=(20,), **more):
    return dict(name="case-1", program="case", folder="work", illnesses=list(illnesses), inserted={"main.py": list(inserted)}, steps=1000, said_steps=1001, **more)


def one(document, *illnesses, own=()):
    return judge.judged(truth(*(illnesses or (illness(),))), document, own)[0]


class Judging(unittest.TestCase):
    def test_kind_line_rank_and_cost(self):
        right = one(diagnosis(finding("host-sync", 20, 2.4)))
        self.assertEqual((right.found, right.cost, right.counts), (True, True, True))
        self.assertEqual((one(diagnosis(finding("python-work", 20, 2.4))).kind, one(diagnosis()).kind), (False, False))
        elsewhere = one(diagnosis(finding("host-sync", 21, 2.4)))
        self.assertEqual((elsewhere.kind, elsewhere.line, elsewhere.found), (True, False, False))
        other_file = one(diagnosis(finding("host-sync", 20, 2.4, file="model.py")))
        self.assertFalse(other_file.line)
        self.assertFalse(one(diagnosis(finding("host-sync", 20, 2.51))).cost)
        self.assertFalse(one(diagnosis(finding("host-sync", 20, None))).cost)
        self.assertTrue(one(diagnosis(finding("host-sync", 20, 1.5))).cost)

    def test_the_first_three_lines_count_and_places_that_are_right_too(self):
        self.assertTrue(one(diagnosis(finding("host-sync", 4, 2.0, lines=(7, 8, 20, 9)))).line)
        self.assertFalse(one(diagnosis(finding("host-sync", 4, 2.0, lines=(7, 8, 9, 20)))).line)
        self.assertTrue(one(diagnosis(finding("host-sync", 11, 2.0)), illness(also=[("main.py", 11)])).line)

    def test_nothing_but_what_gains_more_may_come_before(self):
        behind = diagnosis(finding("python-work", 5, 3.0), finding("host-sync", 20, 2.0))
        self.assertEqual((one(behind).line, one(behind).ranked, one(behind).found), (True, False, False))
        stronger, weaker = illness("python-work", ("python-work",), 5, loss=3.0, gain=0.3), illness("python-work", ("python-work",), 5, loss=1.0, gain=0.1)
        self.assertTrue(one(behind, illness(), stronger).ranked)
        self.assertFalse(one(behind, illness(), weaker).ranked)
        self.assertTrue(one(behind, illness(spread=0.6), dict(weaker, loss_ms=1.0, spread_ms=0.5)).ranked, "which is stronger was not certain")

    def test_what_the_untouched_program_has_is_set_aside(self):
        # Line 20 was inserted: 5 is 5, 31 is 30 of the original.
        own = judge.own_findings(diagnosis(finding("launch-bound", 5, 3.0), finding("host-sync", 33, 1.0)), {"main.py": [3, 7]})
        self.assertEqual(own[0][1], ("main.py", 4))
        own = [("python-work", ("main.py", 30), "f", 0.1), ("launch-bound", ("main.py", 9), "train", 0.1)]
        self.assertTrue(one(diagnosis(finding("python-work", 31, 3.0), finding("host-sync", 20, 2.0)), own=own).ranked)
        self.assertTrue(one(diagnosis(finding("launch-bound", 12, 3.0), finding("host-sync", 20, 2.0)), own=own).ranked, "same function")
        self.assertFalse(one(diagnosis(finding("python-work", 30, 3.0), finding("host-sync", 20, 2.0)), own=own).ranked)
        again = [("host-sync", ("main.py", 12), "train", 1.0)]
        self.assertTrue(one(diagnosis(finding("host-sync", 20, 2.0)), own=again).found, "the injected line is never set aside")
        self.assertEqual(one(diagnosis(finding("host-sync", 20, 3.0)), own=again).said_ms, 2.0, "of its cost the untouched program has 1 ms")
        self.assertTrue(one(diagnosis(finding("host-sync", 20, 3.0)), own=again).cost)
        self.assertFalse(one(diagnosis(finding("host-sync", 20, 2.0)), own=again).cost)

    def test_small_gains_and_uncertain_costs(self):
        self.assertFalse(one(diagnosis(), illness(gain=0.029)).counts)
        self.assertFalse(one(diagnosis(), illness(loss=1.0, gain=0.1, spread=0.8)).counts, "2 % are left where the turns differ most")
        self.assertTrue(one(diagnosis(), illness(loss=1.0, gain=0.1, spread=0.6)).counts)
        self.assertIsNone(one(diagnosis(finding("host-sync", 20, 9.0)), illness(spread=0.51)).cost)

    def test_false_findings(self):
        document = diagnosis(finding("host-sync", 20, 2.0), finding("python-work", 31, 0.6), finding("file-output", 40, 0.5), finding("host-sync", 50, 4.0))
        self.assertEqual(judge.false_findings(truth(illness()), document), ["python-work at main.py:31 (0.60 ms)"])
        self.assertEqual(judge.false_findings(truth(illness()), document, [("python-work", ("main.py", 30), "f", 0.1)]), [])
        self.assertEqual(len(judge.false_findings(truth(inserted=()), document, judge.own_findings(document, {}))), 3, "of an untouched program all are to be verified")

    def test_steps(self):
        self.assertEqual(judge.steps_verdict(truth(), {}), (1001, 1000, True))
        self.assertEqual(judge.steps_verdict(truth(), {"run_steps": 979}), (979, 1000, False))
        self.assertEqual(judge.steps_verdict(truth(), {"run_steps": 1020})[2], True)
        self.assertEqual(judge.steps_verdict(truth(), {"run_steps": None})[2], None)

    def test_what_was_measured(self):
        ((loss, spread, gain),) = judge.measured({"well": [10.0, 10.2], "sick": [12.0, 12.6]}, 1)
        self.assertAlmostEqual(loss, 2.2)
        self.assertAlmostEqual(spread, 0.2)
        self.assertAlmostEqual(gain, 12.3 / 10.1 - 1)
        both = judge.measured({"well": [10.0], "sick": [15.0], "without-0": [12.0], "without-1": [13.5]}, 2)
        self.assertEqual([row[0] for row in both], [3.0, 1.5])

    def test_the_table_holds_or_not(self):
        right, wrong = one(diagnosis(finding("host-sync", 20, 2.0))), one(diagnosis(finding("host-sync", 21, 9.0)))
        small = one(diagnosis(), illness(gain=0.01))
        fine = (1000, 1000, True)
        rows = [(truth(illness()), [right], [], fine)] * 9
        text, holds = judge.bars(rows + [(truth(illness()), [small], [], fine)])
        self.assertTrue(holds)
        self.assertIn("9/10", text[0])
        text, holds = judge.bars(rows + [(truth(illness()), [wrong], ["x"], fine)])
        self.assertTrue(holds)
        self.assertRegex("\n".join(text), r"ranked as their gain +9/10 \(90 %\)  \(bar: 85 %\)")
        self.assertRegex("\n".join(text), r"without a false finding above 5 % +9/10")
        self.assertFalse(judge.bars(rows + [(truth(illness()), [wrong], [], fine)] * 2)[1], "9 of 11 lines")
        self.assertFalse(judge.bars(rows + [(truth(), [], [], (900, 1000, False))])[1])
        self.assertTrue(judge.bars(rows + [(truth(), [], [], (None, 1000, None))] * 2)[1])
        self.assertFalse(judge.bars(rows + [(truth(), [], [], (None, 1000, None))] * 3)[1])
        uncertain = right._replace(cost=None)
        self.assertIn("cost within 25 %", judge.bars([(truth(illness()), [uncertain], [], fine)])[0][4])


class Paces(unittest.TestCase):
    def test_pauses_leave_the_pace_as_it_is_unless_they_are_the_illness(self):
        times = array.array("q", [0])
        for step in range(1, 100):
            times.append(times[-1] + (50_000_000 if step % 25 == 0 else 2_000_000))
        self.assertAlmostEqual(runs.pace(times), 2.0)
        self.assertAlmostEqual(runs.whole_pace(times), (24 * 2 + 50) / 25)
        self.assertIsNone(runs.pace(times[:5]))
        bursts = array.array("q", (100_000_000 * (step // 4) + 1_000_000 * (step % 4) for step in range(20)))
        self.assertAlmostEqual(runs.pace(bursts), 25.0, delta=4, msg="four workers, whose batches come together")
        self.assertIsNone(runs.whole_pace(times[:40]))

    def test_what_is_printed_after_recording(self):
        self.assertEqual(runs.said_steps("about 2466 steps, 1.97 ms each"), 2466)
        self.assertIsNone(runs.said_steps("no step repeated often enough to be told"))


class Corpus(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.recording = self.folder / "recording"
        self.recording.mkdir()
        (self.recording / "trace.bin").write_text("of somebody")

    def keep(self, **more):
        given = {**truth(illness(), baseline="case-well"), **more}
        return corpus.keep(self.folder / "corpus", given, self.recording, {"main.py": "pass\n", "deep/er.py": "pass\n"})

    def test_recordings_are_judged_again_by_the_untouched_program_of_their_call(self):
        self.keep()
        self.keep(name="case-well", illnesses=[], inserted={"main.py": []})
        millrace = make_millrace(self.folder / "build", diagnosis(finding("host-sync", 20, 2.0), finding("python-work", 3, 5.0))) / "millrace"
        results = corpus.judged(self.folder / "corpus", millrace, 2)
        self.assertEqual([(each[0]["name"], [verdict.found for verdict in each[2]]) for each in results], [("case-1", [True]), ("case-well", [])])
        text, holds = corpus.report(results)
        self.assertFalse(holds, "the same is said of the untouched program: nothing is left of its cost")
        self.assertIn("to be verified: python-work at main.py:3 (5.00 ms)", text)
        self.assertIn("host-read (1 read) at main.py:20: WRONG cost; 0.00 of 2.00 ms", text)
        self.assertFalse((corpus.ROOT / "case-1").exists())

    def test_bundles_are_read_as_well_and_small_enough(self):
        for number in range(3):
            self.keep(name=f"case-{number}")
        left = corpus.pack(self.folder / "corpus", self.folder / "packed", "the report")
        self.assertEqual(left, [])
        self.assertEqual(sorted(path.name for path in (self.folder / "packed").iterdir()), ["bundle-0.tar", "report.txt"])
        self.assertEqual(set(corpus.archives(self.folder / "packed")), {"case-0", "case-1", "case-2"})
        corpus.BUNDLE_BYTES, corpus.BUNDLES, before = 27000, 2, (corpus.BUNDLE_BYTES, corpus.BUNDLES)
        self.addCleanup(lambda: (setattr(corpus, "BUNDLE_BYTES", before[0]), setattr(corpus, "BUNDLES", before[1])))
        for number in range(3, 8):
            self.keep(name=f"case-{number}")
        left = corpus.pack(self.folder / "corpus", self.folder / "small", "the report")
        self.assertTrue(left)
        self.assertTrue(all(path.stat().st_size <= 27000 for path in (self.folder / "small").glob("bundle-*.tar")))

    def test_a_corpus_of_others_does_no_harm(self):
        path = self.keep()

        def write(name):
            with tarfile.open(path, "w:xz") as archive:
                for member, text in (("truth.json", json.dumps({"schema": 1, **truth(illness()), "name": name})), ("recording/../../escaped", "x"), ("sources//etc/x", "x")):
                    entry = tarfile.TarInfo(member)
                    entry.size = len(text)
                    archive.addfile(entry, io.BytesIO(text.encode()))
            return corpus.archives(self.folder / "corpus")["case-1"]
        opened = write("case-1")
        corpus.extract(opened, self.folder / "taken", corpus.read_truth(opened))
        self.assertFalse((self.folder / "escaped").exists())
        for name in ("../away", ".."):
            with self.assertRaises(Bad):
                corpus.read_truth(write(name))


if __name__ == "__main__":
    unittest.main()
