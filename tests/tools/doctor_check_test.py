"""tools/doctor-check with made-up programs and a made-up millrace: what it lets pass, what not, and what it keeps from call to call."""
import json
import pathlib
import shutil
import sys
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
for folder in ("tools", "tests/tools"):
    sys.path.insert(0, str(ROOT / folder))
from made_up_doctor import TORCH, Trial, diagnosis, finding  # noqa: E402


class Check(Trial):
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
        self.assertIn("| `host_sync` | host-sync | 80.0 | 100.0 | 2.50 | 0.62 | host-sync | 6 | 2.50 |  | 80 % | 0.0 % | 80.0 | right |", text)
        self.assertRegex(text, r"- date: \d{4}-\d\d-\d\d")
        self.assertTrue((self.folder.out / "reports/host_sync.html").exists())

    def test_several_truths_show_their_spread_and_further_findings_are_told(self):
        self.sick()
        # Sick it runs at 80 steps/s, then at 75 and 85; one run of it was too short, and one is recorded.
        self.change_program("host_sync", "speed += 0 if mode else [0, 0, 0, -5, 5][number % 5]")
        self.folder.answer("host_sync", diagnosis(finding("host-sync", 6, 2.4), finding("python-work", 9, 0.7)))
        said = self.expect(0, "truth 2.50 (1.76 to 3.33) ms", "--parts", "cases", "--truths", "3")
        self.assertIn("all bars that were tried hold", said)
        item = self.folder.kept()["items"]["cases/host_sync"]
        self.assertEqual(item["speeds"], {"": [80.0, 75.0, 85.0], "cured": [100.0] * 3})
        self.assertEqual(item["findings"][1], ["python-work", 9, 0.7])
        self.assertIn("| 2.50 (1.76 to 3.33) | 0.62 | host-sync | 6 | 2.40 | python-work, line 9, 0.70 ms |", (self.folder.out / "doctor-check.md").read_text())

    def test_several_recordings_and_truths_take_turns_and_medians_count(self):
        self.sick()
        self.change_program("host_sync", f"open({str(self.folder.path / 'turns')!r}, 'a').write((mode or sys.argv[1]) + ' ')")
        # Of three recordings one says 9 ms.
        self.change_millrace("    print(answer(who(given[1])))", "    text = answer(who(given[1]))\n"
                             "    print(text.replace('2.5', '9.0') if open(here + '/calls').read().count('diagnose') == 2 else text)")
        said = self.expect(0, "2.50 ms (median of 3: 2.50 (2.50 to 9.00))", "--parts", "cases", "--truths", "2", "--recordings", "3", "--keep")
        self.assertIn("all bars that were tried hold", said)
        turns = (self.folder.path / "turns").read_text().split()
        # 150 steps, the first guess, are too few for two seconds of either; recordings are of nine.
        self.assertEqual(turns, ["150", "321", "cured", "cured", "721", "321", "cured", "721", "721"])
        item = self.folder.kept()["items"]["cases/host_sync"]
        self.assertEqual((item["lost_ms"], item["losts_ms"], item["recorded_speeds"]), (2.5, [2.5, 9.0, 2.5], [80.0] * 3))
        self.assertIn("| 2.50 (2.50 to 2.50) | 0.62 | host-sync | 6 | 2.50 (2.50 to 9.00) |", (self.folder.out / "doctor-check.md").read_text())
        self.assertEqual(sorted(path.name for path in (self.folder.out / "runs").iterdir()), ["host_sync-sick", "host_sync-sick-2", "host_sync-sick-3"])
        self.assertTrue((self.folder.out / "reports/host_sync-3.html").exists())
        # As many again, or fewer, are there; more are not.
        self.expect(0, "1 of them finished earlier", "--parts", "cases", "--recordings", "3")
        self.assertNotIn("finished earlier", self.expect(0, "1 to do", "--parts", "cases", "--recordings", "4"))
        self.expect(2, "--recordings at least 1", "--recordings", "0")

    def test_one_wrong_recording_fails_and_its_finding_is_told(self):
        self.sick()
        self.change_millrace("    print(answer(who(given[1])))", "    text = answer(who(given[1]))\n"
                             "    print(text.replace('host-sync', 'python-work') if open(here + '/calls').read().count('diagnose') == 2 else text)")
        said = self.expect(1, "recording 2: first finding is python-work, not host-sync", "--parts", "cases", "--recordings", "2")
        self.assertIn(", then recording 2: python-work, line 6, 2.50 ms;", said)
        self.assertIn("| 2.50 | recording 2: python-work, line 6, 2.50 ms |", (self.folder.out / "doctor-check.md").read_text())

    def test_a_first_run_counts_where_the_guess_was_long_enough(self):
        self.healthy()
        self.folder.program("slow", "host-sync", 40.0, 90.0)
        self.folder.answer("slow", diagnosis(finding("host-sync", 6, 13.9, "slow.py")))
        log = self.folder.path / "steps"
        for name in ("healthy", "slow"):
            self.change_program(name, f"open({str(log)!r}, 'a').write(' '.join(sys.argv[1:]) + ',')")
        self.expect(0, "all bars that were tried hold", "--parts", "cases")
        # 150 steps by guess: 3 and 3.75 s count, 1.67 s do not.
        self.assertEqual(log.read_text(), "150,451,150,150 cured,361 cured,361,")
        # The table of the folder guesses better.
        log.unlink()
        shutil.rmtree(self.folder.out)
        (self.folder.path / "programs/README.md").write_text("| program | steps/s sick | cured |\n|---|---|---|\n| `slow.py` | 20 | 100.0 |\n")
        self.expect(0, "all bars that were tried hold", "--parts", "cases", "--only", "slow")
        self.assertEqual(log.read_text(), "81,401 cured,361,")

    def test_recordings_are_kept_by_name_on_demand(self):
        self.sick()
        self.expect(0, "", "--parts", "cases", "--keep")
        self.assertTrue((self.folder.out / "runs/host_sync-sick/command").exists())

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
        self.assertEqual(self.folder.calls("record"), (3 + 2) + 4)
        # More pairs than there were: only the recordings that are missing.
        self.expect(0, "itself no different 3 of 3, cured better 3 of 3", "--parts", "compare", "--repeats", "3")
        self.assertEqual(self.folder.calls("record"), 9 + 2)
        self.folder.answer("host_sync to host_sync cured", dict(verdict="worse", change=-0.031, p=0.0004))
        said = self.expect(1, "cured better 0 of 4", "--parts", "compare", "--repeats", "4", "--only", "host_sync")
        self.assertIn("cured against sick: worse (-3.1 %, p 0.0004, host_sync/1 to host_sync-cured/1)", said)
        pair = self.folder.kept()["items"]["compare/host_sync"]["cured"][3]
        self.assertEqual((pair["verdict"], pair["change"], pair["p"], pair["recordings"]), ("worse", -0.031, 0.0004, ["host_sync/4", "host_sync-cured/4"]))

    def test_sick_and_cured_are_recorded_in_turn(self):
        self.sick()
        self.expect(0, "2 of 2", "--parts", "compare", "--repeats", "2")
        made = [line.split()[-1] for line in self.folder.said_to("record")]
        self.assertEqual([word == "cured" for word in made], [False, True, False, True, False])

    def test_recordings_that_are_lost_or_of_another_build_are_made_anew(self):
        self.healthy()
        self.expect(0, "1 of 1", "--parts", "compare", "--repeats", "1")
        shutil.rmtree(self.folder.out / "pairs")
        self.expect(0, "2 of 2", "--parts", "compare", "--repeats", "2")
        self.assertEqual(self.folder.calls("record"), 2 + 3)
        (self.folder.build / "libmillrace-probe.so").write_text("mended")
        self.expect(0, "2 of 2", "--parts", "compare", "--repeats", "2")
        self.assertEqual(self.folder.calls("record"), 5 + 3)
        self.assertEqual(len(list((self.folder.out / "pairs").iterdir())), 1)

    def test_a_recording_that_failed_does_not_count(self):
        self.healthy()
        self.change_millrace("    child =", "    if run.endswith('/2.half') and not os.path.exists(here + '/mended'): sys.exit(1)\n    child =")
        self.expect(1, "record healthy: status 1", "--parts", "compare", "--repeats", "1")
        self.assertEqual(self.folder.calls("record"), 2)
        (self.folder.build / "mended").touch()
        self.expect(0, "1 of 1", "--parts", "compare", "--repeats", "1")
        self.assertEqual(self.folder.calls("record"), 3)

    def test_steps_of_another_size_are_not_compared(self):
        self.sick("narrow", "small-batch")
        self.expect(0, "itself no different 1 of 1, cured better -", "--parts", "compare", "--repeats", "1")

    def test_compare_counts_two_programs_ten_times(self):
        self.sick("table", "repeated-work")
        self.sick("pageable", "pageable-copy")
        self.expect(0, "itself no different 10 of 10", "--parts", "compare")
        self.assertEqual({name: len(item["itself"]) for name, item in self.folder.kept()["items"].items()},
                         {"compare/table": 10, "compare/pageable": 3})

    def test_case_studies_give_a_table(self):
        self.healthy()
        self.folder.program("study", "case study", 10.0, 50.0, "studies")
        self.folder.answer("study", diagnosis(finding("host-sync", 6, 80.0)))
        self.folder.answer("study cured", diagnosis())
        said = self.expect(0, "| as it was | 10.0 | 320 | 80 % | `host-sync`, 6, 80.00 |  |", "--parts", "case-studies")
        self.assertIn("| cured | 50.0 | 1600 | 80 % | none: a clean bill | better (+20 % steps/s) |", said)
        self.assertIn("## Case study: study", (self.folder.out / "doctor-check.md").read_text())

    def test_output_and_status_must_be_the_same(self):
        self.healthy()
        said = self.expect(0, "all bars that were tried hold", "--parts", "output")
        for line in ("ends                   status 0", "crashes                status 1", "killed                 status 137", "aborts                 status 134",
                     "exits                  status 7", "forks                  status 0", "execs                  status 0"):
            self.assertIn(f"{line}, the same", said)
        self.change_millrace("    child =", "    print('recording', flush=True)\n    child =")
        said = self.expect(1, "7 of the bars tried do not hold", "--parts", "output")
        self.assertIn("output/ends: output: b'recording\\n1.5\\nend\\n' instead of b'1.5\\nend\\n'", said)

    def test_warnings_that_name_a_process_make_no_difference(self):
        self.healthy()
        with open(self.folder.path / "modules/torch/__init__.py", "a") as module:
            module.write("import warnings\nfork = os.fork\ndef warn():\n    warnings.warn(f'process {os.getpid()} has threads', DeprecationWarning, 2)\n"
                         "    return fork()\nos.fork = warn\n")
        self.expect(0, "forks                  status 0, the same", "--parts", "output")

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
        said = self.expect(0, "stress: 1 to do, 1 of them finished earlier", "--parts", "output,stress", "--long-seconds", "0.1")
        self.assertIn("rounds ", said)

    def test_stress_runs_beside_output(self):
        self.healthy()
        # The stress waits for a sign that only the endings give, and they come first.
        (self.folder.path / "modules/torch/__init__.py").write_text(TORCH["__init__.py"] + """
import time
sign = __file__ + '.sign'
def manual_seed(number): open(sign, 'w').close()
class cuda(cuda):
    @staticmethod
    def Stream():
        for _ in range(1200):
            if os.path.exists(sign):
                return None
            time.sleep(0.05)
        os._exit(5)
""")
        said = self.expect(0, "all bars that were tried hold", "--parts", "output,stress", "--long-seconds", "0.1")
        self.assertLess(said.index("ends  "), said.index("rounds "))

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


if __name__ == "__main__":
    unittest.main()
