"""tools/check-forms by a stand-in for `millrace bench`."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# A step takes 1 ms, and {faster} ms in tiles. `broken`: a word at which the program fails.
BENCH = '''#!{python}
import json, os, sys
words = sys.argv[1:]
if {broken!r} in words:
    sys.exit("millrace: no GPU")
if not os.path.exists(os.environ["MILLRACE_TURNS"]):
    sys.exit("millrace: no turns")
for line in open(words[words.index("--points") + 1]):
    print(json.dumps(dict(ours_ms={faster} if "dense_forward=tiles" in words else 1.0)))
'''


class CheckForms(unittest.TestCase):
    def run_with(self, faster, *words, broken=""):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "millrace"
            program.write_text(BENCH.format(python=sys.executable, faster=faster, broken=broken))
            program.chmod(0o755)
            return subprocess.run([sys.executable, ROOT / "tools/check-forms", "--build", folder, "--shapes", "3", "--seed", "5", *words],
                                  capture_output=True, text=True, check=False)

    def test_a_faster_form_is_named(self):
        done = self.run_with(0.8)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count("dense_forward=tiles 0.8000"), 3)

    def test_a_form_faster_by_less_than_the_bound_is_none(self):
        done = self.run_with(0.95)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("seed 5", done.stdout)
        self.assertEqual(self.run_with(0.95, "--within", "0.02").returncode, 1)

    def test_a_command_that_fails_is_an_error(self):
        done = self.run_with(1, broken="bench")
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertIn("no GPU", done.stderr)

    def test_every_call_is_told_and_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            output = pathlib.Path(folder) / "forms.json"
            done = self.run_with(1, "--output", output, "--lanes", "1", broken="linear_dgrad=tiles")
            self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
            self.assertIn("dense_forward=library, 3 shapes", done.stderr)
            kept = json.loads(output.read_text())["shapes"]
        self.assertEqual([len(times) for times in kept.values()], [4, 4, 4])  # as planned, and dense_forward's

    def test_lanes_are_counted(self):
        self.assertEqual(self.run_with(1, "--lanes", "0").returncode, 2)


if __name__ == "__main__":
    unittest.main()
