"""check-signals: a few moments of real training, and that it notices a program that loses something."""
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MILLRACE_BUILD", ROOT / "build")).resolve()
TOOL = ROOT / "tools" / "check-signals"

# Stands in for `millrace`: makes a checkpoint of fixed bytes, and after a signal loses what LOSES names.
PROGRAM = """\
    #!/bin/sh
    [ "$1" = data ] && exit 0
    trap 'stop 130' INT
    trap 'stop 143' TERM
    while [ $# -gt 0 ]; do
        [ "$1" = --out ] && out=$2
        shift
    done
    save() {
        for link in last best; do
            mkdir -p "$out/checkpoints/$link"
            for file in model optimizer; do echo "$1" > "$out/checkpoints/$link/$file.safetensors"; done
        done
        echo '{}' > "$out/manifest.json"
    }
    stop() {
        save half
        [ "$LOSES" = checkpoint ] && rm "$out/checkpoints/last/model.safetensors"
        echo "stopped by a signal after step 1; saved. --resume continues"
        [ "$LOSES" = status ] && exit 134
        exit "$1"
    }
    sleep 0.2
    if [ "$LOSES" = bits ] && grep -q half "$out/checkpoints/last/model.safetensors"; then save other; else save whole; fi
    """


def check(*words, **environment):
    return subprocess.run([sys.executable, TOOL, *words], capture_output=True, text=True, env={**os.environ, **environment}, check=False)


class MadeUp(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.program = pathlib.Path(folder.name) / "millrace"
        self.program.write_text(textwrap.dedent(PROGRAM))
        self.program.chmod(0o755)

    def check(self, loses=""):
        return check("--millrace", self.program, "--runs", "12", "--jobs", "4", LOSES=loses)

    def test_passes_what_loses_nothing(self):
        done = self.check()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("12 passed, 0 failed", done.stdout)

    def test_notices_losses(self):
        for loses, word in (("status", "status 134"), ("bits", "differs"), ("checkpoint", "no checkpoint")):
            done = self.check(loses)
            self.assertEqual(done.returncode, 1, loses + done.stdout + done.stderr)
            self.assertIn(word, done.stderr)


class Usage(unittest.TestCase):
    def test_bad_usage_is_told(self):
        for words in (["--runs", "0"], ["--millrace", "/no/such"], ["--bad"]):
            self.assertEqual(check(*words).returncode, 2, words)


@unittest.skipUnless((BUILD / "millrace").exists(), f"no millrace in {BUILD}")
class Real(unittest.TestCase):
    def test_three_moments(self):
        done = check("--millrace", BUILD / "millrace", "--runs", "3", "--seed", "7")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("3 passed, 0 failed", done.stdout)


if __name__ == "__main__":
    unittest.main()
