"""tools/test-summary on made-up logs of ctest: what passed, failed, was skipped, and where a program died."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools/test-summary"


def entry(name, output, verdict="Test Passed."):
    return (f'1/3 Testing: {name}\n1/3 Test: {name}\nCommand: "x"\nOutput:\n----------\n{output}\n<end of output>\n'
            f"Test time =   1.50 sec\n----------\n{verdict}\n\n")


def gtest(*lines):
    return "\n".join(("[==========] Running 3 tests from 1 test suite.",) + lines)


def summary(*entries, first=()):
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "Testing/Temporary/LastTest.log"
        log.parent.mkdir(parents=True)
        log.write_text("".join(entries))
        if first:
            (log.parents[1] / "first.log").write_text("".join(first))
        done = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout


PASSED = gtest("[ RUN      ] A.One", "[       OK ] A.One (0 ms)", "[ RUN      ] A.Two", "reason", "[  SKIPPED ] A.Two (0 ms)")


class Summary(unittest.TestCase):
    def test_counts_single_tests_and_scripts(self):
        status, text = summary(entry("base.0", PASSED), entry("base.1", PASSED), entry("tools.some_test", "Ran 4 tests in 0.1s\n\nOK (skipped=1)"))
        self.assertEqual(status, 0)
        self.assertEqual(text.splitlines()[-1], "5 passed, 0 failed, 3 skipped")
        self.assertIn("base                             2 passed, 0 failed, 2 skipped, 3.0 s", text)

    def test_shows_what_failed_with_its_output(self):
        output = gtest("[ RUN      ] A/1.One", "x.cpp:3: Failure", "[  FAILED  ] A/1.One, where GetParam() = 3 (2 ms)", "[ RUN      ] A.Two", "[       OK ] A.Two (0 ms)",
                       "[  FAILED  ] A/1.One, where GetParam() = 3")
        status, text = summary(entry("base.0", output, "Test Failed."))
        self.assertEqual(status, 1)
        self.assertIn("FAILED A/1.One\n  [ RUN      ] A/1.One\n  x.cpp:3: Failure", text)
        self.assertEqual(text.splitlines()[-1], "1 passed, 1 failed, 0 skipped")

    def test_names_the_test_that_a_program_died_in(self):
        status, text = summary(entry("base.0", gtest("[ RUN      ] A.One", "[       OK ] A.One (0 ms)", "[ RUN      ] A.Two"), "Test Failed."))
        self.assertEqual(status, 1)
        self.assertIn("FAILED A.Two (the program died in it)", text)
        self.assertEqual(text.splitlines()[-1], "1 passed, 1 failed, 0 skipped")

    def test_a_program_that_ends_badly_after_its_tests_fails(self):
        status, text = summary(entry("base.0", PASSED, "Test Failed."))
        self.assertEqual(status, 1)
        self.assertIn("FAILED base.0 (Failed.)", text)

    def test_counts_results_behind_a_line_without_an_end(self):
        _, text = summary(entry("base.0", gtest("[ RUN      ] A.One", "printed[       OK ] A.One (0 ms)")))
        self.assertEqual(text.splitlines()[-1], "1 passed, 0 failed, 0 skipped")

    def test_what_passes_by_itself_is_named_and_fails_nothing(self):
        failed = entry("base.0", gtest("[ RUN      ] A.One", "too late", "[  FAILED  ] A.One (2 ms)", "[ RUN      ] A.Two", "[       OK ] A.Two (0 ms)"), "Test Failed.")
        other = entry("io.0", gtest("[ RUN      ] B.One", "[       OK ] B.One (0 ms)"))
        both = gtest("[ RUN      ] A.One", "[       OK ] A.One (0 ms)", "[ RUN      ] A.Two", "[       OK ] A.Two (0 ms)")
        status, text = summary(entry("base.0", both), first=(failed, other))
        self.assertEqual(status, 0)
        self.assertIn("UNSTEADY A.One (failed beside other programs, passed by itself)\n  [ RUN      ] A.One\n  too late", text)
        self.assertEqual(text.splitlines()[-1], "3 passed, 0 failed, 0 skipped")

    def test_a_program_that_died_has_failed_whatever_it_did_then(self):
        died = entry("base.0", gtest("[ RUN      ] A.One"), "Test Failed.")
        status, text = summary(entry("base.0", PASSED), first=(died,))
        self.assertEqual(status, 1)
        self.assertIn("FAILED A.One (the program died in it)", text)

    def test_what_fails_by_itself_too_fails(self):
        failed = entry("base.0", gtest("[ RUN      ] A.One", "wrong", "[  FAILED  ] A.One (2 ms)"), "Test Failed.")
        status, text = summary(failed, first=(failed, entry("io.0", PASSED)))
        self.assertEqual(status, 1)
        self.assertIn("FAILED A.One", text)
        self.assertNotIn("UNSTEADY", text)
        self.assertEqual(text.splitlines()[-1], "1 passed, 1 failed, 1 skipped")

    def test_a_program_that_was_not_found_fails(self):
        status, text = summary(entry("base.0", PASSED), entry("cli.0", "").replace('Command: "x"', 'Command: ""'))
        self.assertEqual(status, 1)
        self.assertIn("FAILED cli.0", text)

    def test_a_script_that_fails_or_nothing_at_all_is_no_success(self):
        self.assertEqual(summary(entry("tools.x", "Traceback", "Test Failed."))[0], 1)
        self.assertEqual(summary(entry("tools.x", "Ran 4 tests in 0.1s\n\nFAILED (failures=1, errors=1)", "Test Failed."))[1].splitlines()[-1],
                         "2 passed, 2 failed, 0 skipped")
        self.assertEqual(summary()[0], 1)


if __name__ == "__main__":
    unittest.main()
