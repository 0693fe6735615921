"""memory-check: small runs of every family hold what their plans said, and the tool notices a plan that is wrong."""
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MILLRACE_BUILD", ROOT / "build")).resolve()
TOOL = ROOT / "tools" / "memory-check"

# Stands in for `millrace`: takes 100 MiB and more, and plans PLANNED bytes.
PROGRAM = """\
    #!/usr/bin/env python3
    import json, os, pathlib, sys
    if sys.argv[1] == "data":
        sys.exit(0)
    memory = b"x" * (100 << 20)
    out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
    out.mkdir()
    (out / "events.jsonl").write_text(json.dumps({"kind": "memory", "planned_peak_bytes": int(os.environ["PLANNED"])}))
    """


def check(*words, **environment):
    return subprocess.run([sys.executable, TOOL, *words], capture_output=True, text=True, env={**os.environ, **environment}, check=False)


class MemoryCheck(unittest.TestCase):
    def test_every_family_holds_what_was_planned(self):
        if not (BUILD / "millrace").exists():
            self.skipTest("millrace is not built")
        done = check("--small", "--millrace", BUILD / "millrace")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_plan_that_is_too_small_is_noticed(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "millrace"
            program.write_text(textwrap.dedent(PROGRAM))
            program.chmod(0o755)
            wrong = check("--only", "cnn", "--millrace", program, PLANNED=str(60 << 20))
            self.assertEqual(wrong.returncode, 1, wrong.stdout + wrong.stderr)
            right = check("--only", "leak_cnn", "--millrace", program, PLANNED=str(112 << 20))
            self.assertEqual(right.returncode, 0, right.stdout + right.stderr)


if __name__ == "__main__":
    unittest.main()
