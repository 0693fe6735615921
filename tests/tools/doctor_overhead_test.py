"""tools/doctor-check with made-up programs: pairs of runs with and without recording, and runs that are started ahead."""
import json
import os
import pathlib
import shutil
import signal
import sys
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
for folder in ("tools", "tests/tools"):
    sys.path.insert(0, str(ROOT / folder))
from made_up_doctor import Trial, diagnosis, is_gone, wait_for  # noqa: E402


class Overhead(Trial):
    def test_compare_takes_what_cases_and_overhead_recorded(self):
        self.sick("tiny", "launch-bound")
        self.folder.answer("tiny cured", diagnosis())
        self.expect(0, "all bars that were tried hold", "--parts", "cases,overhead", "--pairs", "2", "--seconds", "1", "--repeats", "2",
                    "--slices", "0")
        self.assertEqual(self.folder.calls("record"), 1 + 2 * 2)
        self.expect(0, "itself no different 2 of 2, cured better 2 of 2", "--parts", "compare", "--repeats", "2")
        self.assertEqual(self.folder.calls("record"), 5)
        kept = self.folder.out / "pairs"
        self.assertEqual(len(list(kept.glob("*/tiny/*"))), 3)
        # Anew means new recordings, and no more than are needed stay.
        self.expect(0, "2 of 2", "--parts", "compare", "--repeats", "2", "--again")
        self.assertEqual(self.folder.calls("record"), 5 + 3 + 2)
        self.assertEqual(sorted(path.name for path in kept.glob("*/tiny/*")), ["4", "5", "6"])

    def test_overhead_goes_on_pair_by_pair(self):
        self.healthy()
        self.sick("tiny", "launch-bound")
        self.folder.answer("tiny cured", diagnosis())
        given = ("--parts", "overhead", "--seconds", "1", "--slices", "0")
        said = self.expect(0, "+0.00 % [+0.00, +0.00], limit 1 %, 2 pairs", *given, "--pairs", "2")
        self.assertIn("tiny-cured", said)
        self.assertIn("printed 0.10 %, inside windows 10.0 %", said)
        self.assertEqual(self.folder.calls("record"), 6)
        self.expect(0, "3 pairs", *given, "--pairs", "3", "--only", "tiny-cured")
        self.assertEqual(self.folder.calls("record"), 7)
        self.expect(3, "overhead: 1 to do", *given, "--pairs", "3", "--only", "tiny-sick", "--minutes", "0.01")
        self.expect(3, "time was up before overhead/tiny", *given, "--pairs", "3", "--only", "tiny", "--minutes", "0.01")
        self.assertIn("Begun, not finished: overhead/tiny.", (self.folder.out / "doctor-check.md").read_text())

    def test_overhead_above_its_limit_fails(self):
        self.healthy()
        # Under `record` the made-up program finds itself 2 % slower.
        self.change_millrace("    child =", "    command += ['slowed']\n    child =")
        self.folder.speeds["healthy slowed"] = 49.0
        self.folder.program("healthy", "healthy", 50.0)
        self.expect(1, "slow-down up to 2.04 %, the limit is 1 %", "--parts", "overhead", "--pairs", "2", "--seconds", "1")
        self.assertEqual(self.folder.calls("record"), 2)  # its median is above the limit: more pairs are no help

    def test_a_printed_figure_that_is_off_fails(self):
        self.sick("tiny", "launch-bound")
        given = ("--parts", "overhead", "--pairs", "2", "--seconds", "1", "--slices", "0", "--only", "tiny-sick")
        self.folder.answer("tiny", dict(diagnosis(), overhead_share=0.012))
        self.expect(0, "printed 1.20 %", *given)
        self.folder.answer("tiny", dict(diagnosis(), overhead_share=0.017))
        self.expect(1, "printed are 1.70 %, measured 0.00 %: 1.5 points are allowed", *given, "--again")

    def test_recordings_of_restless_programs_that_are_too_short_are_not_compared(self):
        self.sick("churn", "allocator-churn")
        given = ("--parts", "overhead,compare", "--pairs", "2", "--seconds", "1", "--repeats", "2", "--only", "churn")
        self.expect(0, "2 of 2", *given)
        self.assertEqual(self.folder.calls("record"), 2 + 3 + 2)  # one of the three was made to tell the cost inside of windows

    def test_any_program_is_measured_when_it_is_named(self):
        self.sick("host_sync", "host-sync")
        given = ("--parts", "overhead", "--pairs", "2", "--seconds", "1")
        self.expect(0, "overhead: 1 to do", *given, "--only", "host_sync-sick")
        kept = self.folder.kept()["items"]
        self.assertEqual([name for name in kept if name.startswith("overhead/")], ["overhead/host_sync"])
        self.assertEqual(kept["overhead/host_sync"]["limit"], 3)
        self.expect(0, "overhead: 0 to do", *given, "--only", "host_sync")

    def test_overhead_says_where_cupti_left(self):
        self.healthy()
        events = ('[{"kind": "window_begun", "monotonic_ns": 2000000000}, {"kind": "window_begun", "monotonic_ns": 9}, '
                  '{"kind": "cupti_left", "monotonic_ns": 3500000000, "took_ns": 250000000}]')
        self.change_millrace("    child =", f"    import json; open(run + '/events.jsonl', 'w').write('\\n'.join(map(json.dumps, {events})))\n    child =")
        self.expect(0, "CUPTI left 2 of 2 in 250 ms, ", "--parts", "overhead", "--pairs", "2", "--seconds", "1")
        self.assertEqual(self.folder.kept()["items"]["overhead/healthy"]["left"], [[1.5, 0.25], [1.5, 0.25]])

    def test_overhead_that_stays_open_gets_as_many_pairs_again(self):
        self.folder.use_python()
        self.healthy()
        self.sick("tiny", "launch-bound")
        self.folder.answer("tiny cured", diagnosis())
        # One recorded run of the healthy program is 3 % slower: one in four widens the interval beyond the limit, one in eight does not.
        self.change_millrace("    child =", "    command += ['recorded']\n    child =")
        self.folder.speeds.update({f"{name} recorded": self.folder.speeds[name] for name in list(self.folder.speeds)})
        self.folder.program("healthy", "healthy", 50.0)
        self.folder.answer("healthy recorded", diagnosis())
        self.folder.answer("tiny recorded", diagnosis())
        self.folder.answer("tiny cured recorded", diagnosis())
        self.change_program("healthy", "speed /= 1.03 if (mode, number) == ('recorded', 1) else 1")
        given = ("--parts", "overhead", "--pairs", "4", "--seconds", "1", "--ahead", "3", "--slices", "0")
        said = self.expect(0, "+0.00 % [+0.00, +0.00], limit 1 %, 4 + 4 pairs, mean +0.38 +- 0.38 %, pairs differ by 1.06 %", *given)
        self.assertEqual(said.count("limit 3 %, 4 pairs"), 2)
        self.assertEqual(self.folder.calls("record"), 8 + 4 + 4)
        self.assertEqual(self.folder.kept()["runs"], dict(ahead=2 * 16, others=3))  # not ahead: three runs to learn a speed
        text = (self.folder.out / "doctor-check.md").read_text()
        self.assertIn("| `healthy` | 4 + 4 of 8 s | +0.00 % | +0.00 to +0.00 % | +0.38 +- 0.38 % | 1.06 % | 1 % |", text)
        self.assertIn("by a rule fixed beforehand", text)
        # Time was up in between: the next call goes on where it was.
        kept = self.folder.kept()
        item = kept["items"]["overhead/healthy"]
        item.update(finished=False, pairs=item["pairs"][:5], seconds=item["seconds"][:5])
        (self.folder.out / "doctor-check.json").write_text(json.dumps(kept))
        self.expect(3, "time was up before overhead/healthy", *given, "--minutes", "0.01")
        self.expect(0, "4 + 4 pairs", *given)
        self.assertEqual(self.folder.calls("record"), 16 + 3)

    def test_programs_started_ahead_run_one_after_another_and_it_is_said(self):
        self.folder.use_python()
        self.healthy()
        self.sick("tiny", "launch-bound")
        self.folder.answer("tiny cured", diagnosis())
        log = self.log_of_runs()
        self.expect(0, "all bars that were tried hold", "--parts", "cases,overhead", "--pairs", "3", "--seconds", "1", "--ahead", "4",
                    "--slices", "0")
        # Three plain runs, two of them once more, two recordings, and nine pairs. What is done once more was not planned.
        runs = self.folder.kept()["runs"]
        self.assertEqual([word for word in log.read_text().split() if word != "ready"], ["begins", "ends"] * sum(runs.values()))
        self.assertEqual(runs, dict(ahead=3 + 2 + 18, others=2))
        self.assertIn(f"- runs: {runs['ahead']} of {sum(runs.values())} were started ahead", (self.folder.out / "doctor-check.md").read_text())
        self.expect(0, "all bars", "--parts", "cases", "--again", "--ahead", "0")
        self.assertEqual(self.folder.kept()["runs"]["ahead"], runs["ahead"])

    def log_of_runs(self):
        """A file in which programs say that they are `ready` at their gate, and that their own lines begin and end."""
        log = self.folder.path / "log"
        for path in (self.folder.path / "programs").glob("*.py"):
            path.write_text(path.read_text().replace("import os, sys\n", f"import os, sys, atexit; log = lambda word: open({str(log)!r}, 'a').write(word); "
                                                                         "log('begins '); atexit.register(log, 'ends ')\n"))
        with open(self.folder.path / "modules/torch/__init__.py", "a") as module:
            module.write(f"open({str(log)!r}, 'a').write('ready ')\n")
        return log

    def test_nothing_gets_ready_while_a_run_is_timed(self):
        self.folder.use_python()
        self.healthy()
        self.sick("tiny", "launch-bound")
        self.folder.answer("tiny cured", diagnosis())
        log, run = self.log_of_runs(), ["begins", "ends"]
        self.expect(0, "all bars that were tried hold", "--parts", "overhead", "--pairs", "3", "--seconds", "1", "--ahead", "4", "--slices", "0")
        # Of each program a run to learn its speed, which the batch before cannot know, then six.
        self.assertEqual(log.read_text().split(), 3 * (run + 4 * ["ready"] + 4 * run + 2 * ["ready"] + 2 * run))
        kept = self.folder.kept()
        self.assertEqual([len(kept[key]) for key in ("get_ready", "let_go", "start_up")], [3 * 2, 3 * 6, 3])

    def test_runs_of_launch_bound_pairs_take_turns(self):
        self.folder.use_python()
        self.sick("tiny", "launch-bound")
        self.folder.answer("tiny cured", diagnosis())
        given = ("--parts", "overhead", "--only", "tiny", "--pairs", "3", "--seconds", "1", "--ahead", "2")
        said = self.expect(0, "limit 3 %, 3 pairs, in turns of 0.25 s", *given)
        self.assertIn("limit 3 %, 3 pairs, mean", said)  # the cured one's do not
        self.assertIn("inside windows 10.0 %", said)
        # Recordings that were stopped are not kept: one that was not says what windows cost.
        self.assertEqual(self.folder.calls("record"), 3 + 1 + 3)
        self.assertEqual(len(list((self.folder.out / "pairs").glob("*/tiny/*"))), 1)
        self.assertIn("3 of 7 s, in turns of 0.25 s", (self.folder.out / "doctor-check.md").read_text())
        # Runs one after the other are another measurement.
        self.expect(0, "3 pairs", *given[:-2], "--slices", "0", "--only", "tiny-sick")
        self.assertEqual(self.folder.calls("record"), 7 + 3)
        self.expect(2, "--slices: -1 will not do", "--slices", "-1")

    def log_of_steps(self, name, change="pass"):
        """A file of the program's runs: steps, with an `r` where it was recorded."""
        log = self.folder.path / "steps"
        self.change_millrace("    child =", "    os.environ['RECORDED'] = 'r'\n    child =")
        self.change_program(name, f"recorded = os.environ.get('RECORDED', '')\n{change}\nopen({str(log)!r}, 'a').write(sys.argv[1] + recorded + ' ')")
        return log

    def test_pairs_begin_with_either_side_in_turn(self):
        self.healthy()
        log = self.log_of_steps("healthy")
        self.expect(0, "5 pairs", "--parts", "overhead", "--pairs", "5", "--seconds", "10")
        self.assertEqual(log.read_text().split(), ["30"] + ["576", "576r", "576r", "576"] * 2 + ["576", "576r"])
        log.unlink()
        self.expect(0, "6 pairs", "--parts", "overhead", "--pairs", "6", "--seconds", "10")
        self.assertEqual(log.read_text().split(), ["576r", "576"])

    def test_pairs_and_seconds_by_program(self):
        self.healthy()
        self.sick("tiny", "launch-bound")
        self.folder.answer("tiny cured", diagnosis())
        self.expect(0, "all bars", "--parts", "overhead", "--pairs", "2,tiny=3", "--seconds", "10,tiny=20,tiny-cured=30")
        items = self.folder.kept()["items"]
        self.assertEqual({name: ([int(seconds) for seconds in item["seconds"]], item["asked"]) for name, item in items.items()},
                         {"overhead/healthy": ([11, 11], 2), "overhead/tiny": ([23, 23, 23], 3), "overhead/tiny-cured": ([34, 34], 2)})
        for given, said in ((("--pairs", "2,healthy-cured=3"), "overhead does not measure healthy-cured; it measures healthy, tiny, tiny-cured"),
                            (("--seconds", "tin=3"), "overhead does not measure tin"), (("--pairs", "2,tiny=1"), "--pairs: 1 will not do, at least 2"),
                            (("--pairs", "tiny"), "--pairs: expected N[,NAME=N]..., got tiny"), (("--seconds", "nan"), "--seconds: nan will not do"),
                            (("--seconds", "2,tiny="), "--seconds: expected"), (("--repeats", "0"), "--repeats: 0 will not do")):
            self.expect(2, said, *given)

    def test_a_pair_that_was_too_short_is_done_again_with_more_steps(self):
        self.folder.use_python()
        self.healthy()
        # The fourth run, the recorded one of the second pair, is half as fast again: 576 steps last 7.7 s.
        log = self.log_of_steps("healthy", "speed *= 1.5 if number == 3 else 1")
        self.expect(0, "+0.00 % [+0.00, +0.00], limit 1 %, 3 pairs", "--parts", "overhead", "--pairs", "3", "--seconds", "10", "--ahead", "6")
        self.assertEqual(log.read_text().split(), ["30", "576", "576r", "576r", "576", "863r", "863", "863", "863r"])
        item = self.folder.kept()["items"]["overhead/healthy"]
        self.assertEqual((item["pairs"], item["short"]), ([[50.0, 50.0]] * 3, 1))
        self.assertIn("done again with more steps (1 of `healthy`).", (self.folder.out / "doctor-check.md").read_text())

    def test_pairs_that_are_too_short_by_now_do_not_count(self):
        self.healthy()
        log = self.log_of_steps("healthy")
        self.expect(0, "2 pairs", "--parts", "overhead", "--pairs", "2", "--seconds", "10")
        log.unlink()
        self.expect(0, "2 pairs", "--parts", "overhead", "--pairs", "2", "--seconds", "10,healthy=20")
        self.assertEqual(log.read_text().split(), ["1151", "1151r", "1151r", "1151"])
        self.expect(0, "1 of them finished earlier", "--parts", "overhead", "--pairs", "2", "--seconds", "10")

    def test_nothing_lives_on_when_the_check_is_ended(self):
        self.folder.use_python()
        self.healthy()
        program, began = self.folder.path / "programs/healthy.py", self.folder.path / "began"
        lasting = f"import time\nif int(sys.argv[1]) > 30:\n    open({str(began)!r}, 'w').write(str(os.getpid()))\n    time.sleep(600)\n"
        program.write_text(program.read_text().replace("print(\"starts\"", lasting + "print(\"starts\""))
        for number in (signal.SIGTERM, signal.SIGKILL):
            shutil.rmtree(self.folder.out, ignore_errors=True)
            imported = self.folder.path / "modules/torch/imported"
            for path in (began, imported):
                path.unlink(missing_ok=True)
            process = self.folder.begin("--parts", "overhead", "--pairs", "2", "--seconds", "2", "--ahead", "2")
            wait_for(lambda: began.exists() and began.read_text())
            running = int(began.read_text())
            waiting, = {int(pid) for pid in imported.read_text().split()} - {running}
            process.send_signal(number)
            process.communicate()
            wait_for(lambda pid=waiting: is_gone(pid))
            if number == signal.SIGTERM:
                self.assertEqual(process.returncode, 3)
                wait_for(lambda pid=running: is_gone(pid))
            else:
                os.kill(running, signal.SIGKILL)  # nobody was left to do so


if __name__ == "__main__":
    unittest.main()
