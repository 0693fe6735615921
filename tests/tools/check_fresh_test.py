"""tools/check-fresh refuses what it cannot do, before it does anything."""
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Arguments(unittest.TestCase):
    def check(self, *given):
        return subprocess.run([sys.executable, ROOT / "tools/check-fresh", *given], capture_output=True, text=True, check=False)

    def test_an_unknown_architecture_or_step_is_refused_with_those_there_are(self):
        for given, answer in ((["vax"], "amd64"), ([], "ARCH"), (["amd64", "--until", "lunch"], "debootstrap"),
                              (["amd64", "--package", "absent.deb"], "make package")):
            done = self.check(*given)
            self.assertEqual((done.returncode, answer in done.stderr), (2, True), done.stderr)


if __name__ == "__main__":
    unittest.main()
