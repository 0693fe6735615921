"""tools/flow-claims: its table, what it says when something cannot be measured, and every claim on a tiny cube where a build is at hand."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools/flow-claims"
sys.dont_write_bytecode = True
from load_script import load  # noqa: E402

claims = load(SCRIPT, "flow_claims")
report = claims.report


class FakeBench:
    """Answers like a machine on which the batch alone decides and nothing but f32 exists."""

    def __init__(self, device="cuda"):
        self.options, self.profile = claims.arguments([]), claims.PROFILES["debug"]
        self.options.device = device

    def ours(self, what, *settings, extra=()):
        given = dict(setting.split("=") for setting in settings)
        if "bf16" in extra or "model.skip_arrived" in given:
            raise claims.Unavailable("unknown key")
        batch = int(given.get("train.batch", 8))
        steps = 2 if given.get("model.early_stop") == "true" and given["model.arrive"] != "1.0" else 5
        ms = 0.5 + batch * steps / 10
        return dict(ours_ms=ms, samples_per_second=1000 * batch / ms, memory_growth_bytes=0, spread=0.01, memory_bytes=2**30,
                    work=dict(steps_used=steps, flow_steps=6, flow_steps_all=10), parts_ms=dict(forward=ms / 3, data=0.001))

    def knows(self, setting):
        return False

    def peer(self, what, *arguments, mode="eager"):
        return dict(ms=10.0 if "--clear-cache" not in arguments else 12.0, low=9.9, high=10.1)


class Claims(unittest.TestCase):
    def test_a_remedy_that_helps_is_above_one(self):
        bench = FakeBench()
        self.assertAlmostEqual(claims.take("cache", bench)["lines"][1]["effect"], 1.2)
        self.assertAlmostEqual(claims.take("batch", bench)["lines"][0]["effect"], 2 * 4.5 / 8.5)  # per sample
        early = claims.take("steps", bench)
        self.assertAlmostEqual(early["lines"][0]["effect"], 4.5 / 2.1)
        self.assertEqual(early["lines"][0]["note"], "in proportion it would be 2.50x")
        self.assertEqual(early["lines"][1]["effect"], 1.0)
        self.assertIn("bar", early["lines"][1]["note"])

    def test_what_cannot_be_measured_is_said_and_what_was_before_stays(self):
        early = claims.take("steps", FakeBench())
        self.assertEqual((len(early["lines"]), early["absent"]), (2, "unknown key"))
        self.assertEqual(claims.take("precision", FakeBench())["lines"], [])
        self.assertIn("GPU", claims.take("cache", FakeBench("cpu"))["absent"])

    def test_every_claim_has_a_line(self):
        for name in claims.CLAIMS:
            found = claims.take(name, FakeBench())
            self.assertTrue(found["lines"] or found["absent"], name)

    def test_tables_have_one_width(self):
        result = dict(profile="debug", machine="cuda: x", seconds=1, failed=[], claims=[claims.take(name, FakeBench()) for name in claims.CLAIMS])
        table = report.lines_of(result["claims"])
        self.assertEqual({len(line) for line in table}, {len(report.HEADER)})
        self.assertEqual(sum(bool(line[0]) for line in table), 1 + len(claims.CLAIMS))  # a claim is named once
        rows = [line for line in report.markdown(result).splitlines() if line.startswith("|")]
        self.assertEqual({line.count("|") for line in rows}, {len(report.HEADER) + 1})
        self.assertIn("2-3x; 8.33x noted", report.text_table(result))


class WholeScript(unittest.TestCase):
    def run_script(self, *given):
        return subprocess.run([sys.executable, SCRIPT, *given], capture_output=True, text=True, check=False)

    def test_bad_input_is_refused(self):
        for words in (("--claims", "paralel"), ("--seconds", "0"), ("--tiny", "--profile", "debug"), ("--build", "/no/such/folder")):
            done = self.run_script(*words)
            self.assertEqual(done.returncode, 2, words)
            self.assertTrue(done.stderr)

    def test_dry_run_on_a_build(self):
        build = os.environ.get("MILLRACE_BUILD")
        if not build or not os.access(os.path.join(build, "millrace"), os.X_OK):
            self.skipTest("MILLRACE_BUILD names no build with millrace")
        with tempfile.TemporaryDirectory() as folder:
            done = self.run_script("--tiny", "--device", "cpu", "--no-peers", "--seconds", "0.01", "--claims", "parallel,steps,fusion", "--build", build,
                                   "--out", folder)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            result = json.loads((pathlib.Path(folder) / "flow-claims.json").read_text())
            self.assertIn("| parallel flows |", (pathlib.Path(folder) / "flow-claims.md").read_text())
        self.assertEqual([claim["name"] for claim in result["claims"]], ["parallel", "steps", "fusion"])
        early = result["claims"][1]["lines"][0]
        self.assertEqual((early["off"], early["on"]), ("4 steps", "2 steps"))


if __name__ == "__main__":
    unittest.main()
