"""check-own-data: the three commands of each kind of data give predictions that score what eval says, on small copies."""
import os
import pathlib
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MILLRACE_BUILD", ROOT / "build")).resolve()


class OwnData(unittest.TestCase):
    def test_predictions_of_every_kind_of_data_score_what_eval_says(self):
        if not (BUILD / "millrace").exists():
            self.skipTest("millrace is not built")
        done = subprocess.run([ROOT / "tools" / "check-own-data", "--small", "--millrace", BUILD / "millrace"], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual([line for line in done.stdout.splitlines() if not line.startswith(" ")], ["pictures", "classes", "numbers", "text"])
        self.assertNotIn("NOT", done.stdout)

    def test_a_program_that_fails_is_named(self):
        done = subprocess.run([ROOT / "tools" / "check-own-data", "--small", "--only", "numbers", "--millrace", "/bin/false"], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("`data show table.csv --target price` ended with 1", done.stderr)


if __name__ == "__main__":
    unittest.main()
