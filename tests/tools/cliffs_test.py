"""tools/cliffs: its shapes, its rules, and whole scans by a stand-in for `millrace bench`."""
import contextlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock
import xml.dom.minidom

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MILLRACE_BUILD", ROOT / "build")).resolve()
sys.dont_write_bytecode = True
from load_script import load  # noqa: E402

cliffs = load(ROOT / "tools/cliffs", "cliffs")
turn = load(ROOT / "bench/peers/command.py", "command").turn
report = sys.modules["cliff_report"]
space = sys.modules["cliff_space"]

# A step takes as long as its samples, and from a batch of 512 on three times as long; peers take 1.5 milliseconds per thousand samples.
BENCH = '''#!{python}
import json, sys
words = sys.argv[1:]
if "train.f32=strict" in words:
    sys.exit(2)
log = open("{log}", "a")
for line in open(words[words.index("--points") + 1]):
    name, *settings = line.split()
    given = dict(setting.split("=") for setting in settings)
    batch, members = int(given["train.batch"]), int(given["members"])
    print(line.strip(), file=log)
    if batch == {broken}:
        print(json.dumps(dict(name=name, settings=settings, error="no memory")), flush=True)
        continue
    samples = batch * members
    ms = samples * 1e-3 * (3 if batch >= 512 else 1)
    row = dict(name=name, ours_ms=ms, spread=0.01, batch=samples, parameters={parameters}, precision="bf16", machine="cuda: made up",
               work=dict(flop=1e6 * samples), peers={{}}, versions=dict(peers=""))
    if "--no-peers" in words:
        row["no_peer"] = "--no-peers"
    else:
        row.update(peers={{mode: 1.5e-3 * samples for mode in words[words.index("--peers") + 1].split(",")}}, versions=dict(peers="torch 0"))
    print(json.dumps(row), flush=True)
sys.exit({status})
'''


# Ends when two of it run at the same time, with status 1 when no second one comes.
MEETING = '''import os, sys, time
open(os.path.join("{folder}", f"here-{{os.getpid()}}"), "w").close()
end = time.monotonic() + 60
while sum(name.startswith("here-") for name in os.listdir("{folder}")) < 2:
    if time.monotonic() > end:
        sys.exit(1)
    time.sleep(0.01)
print("met")
'''


class Shapes(unittest.TestCase):
    def test_neighbours_are_a_factor_of_about_1_4_apart_and_the_base_is_among_them(self):
        for (model, axis), points in space.lines(space.MODELS, space.AXES, ["bf16", "f32"]).items():
            values = [point[axis] for point in points]
            self.assertIn({**space.MODELS[model].base, "precision": "bf16"}[axis], values, (model, axis))
            if axis in ("batch", "width", "length", "members"):
                self.assertEqual(values, sorted(set(values)))
                self.assertTrue(all(b / a < 1.51 or a < 3 for a, b in zip(values, values[1:])), (axis, values))
        widths = space.Transformer.values["width"]
        self.assertEqual((widths[0], widths[-1], [width % 16 for width in widths]), (64, 1024, len(widths) * [0]))
        self.assertEqual((space.Collective.values["batch"][0], space.Collective.values["batch"][-1]), (8, 8192))

    def test_thinned_lines_keep_their_base(self):
        points = space.lines(["collective"], ["batch"], ["bf16"], thin=7)["collective", "batch"]
        self.assertIn(128, [point["batch"] for point in points])
        self.assertLess(len(points), 6)

    def test_the_base_of_the_collective_is_the_preset(self):
        point = dict(space.Collective.base, model="collective", precision="tf32")
        line = space.line_of_bench(point)
        for setting in ("model.expert_hidden=128,64", "model.expert_output=32", "model.analyst_hidden=64,32", "model.analyst_output=16",
                        "model.member_dropout=0.2", "model.encoder_dropout=0.1", "precision=f32", "train.f32=tf32"):
            self.assertIn(setting, line.split())

    def test_a_seed_draws_the_same_points_again(self):
        drawn = space.draw(7, 40, space.MODELS, ["bf16", "f32"], "cuda")
        self.assertEqual(drawn, space.draw(7, 40, space.MODELS, ["bf16", "f32"], "cuda"))
        self.assertNotEqual(drawn, space.draw(8, 40, space.MODELS, ["bf16", "f32"], "cuda"))
        self.assertEqual({point["model"] for point in drawn}, set(space.MODELS))
        self.assertEqual(len({space.key_of(point) for point in drawn}), 40)
        for point in drawn:
            self.assertTrue(space.is_possible(point, "cuda"), point)
        for axis in ("batch", "dropout", "members", "width"):  # all axes at once, not along lines
            self.assertGreater(len({point[axis] for point in drawn}), 4, axis)


class Rules(unittest.TestCase):
    def judged(self, figures, axis="batch", drawn=()):
        """figures: {value: (ours, peer or None)} in milliseconds."""
        points = space.lines(["transformer"], [axis], ["bf16"])["transformer", axis]
        rows = {}
        for point in points:
            if point[axis] in figures:
                ours, peer = figures[point[axis]]
                samples = point["batch"] * point["members"]
                rows[space.key_of(point)] = dict(ms=ours, samples=samples, flop=1e9 * point["length"], parameters=1, **({"peers": {"x": peer}} if peer else {}))
        result = dict(models=["transformer"], axes=[axis], precisions=["bf16"], thin=1, drawn=[point for point, _ in drawn], rows=rows, seed=[1])
        rows.update({space.key_of(point): row for point, row in drawn})
        return report.judged(result)

    def test_a_rise_per_sample_breaks_the_rule(self):
        violations, excused, _, missing = self.judged({32: (1.0, None), 45: (1.0 * 45 / 32 * 1.24, None), 64: (4.0, None)})
        self.assertEqual([step["where"] for step in violations], ["batch 45 to 64"])
        self.assertEqual((excused, violations[0]["peer"]), ([], "not measured"))
        self.assertEqual(len(missing), len(space.Transformer.values["batch"]) - 3)

    def test_a_peer_that_rises_too_excuses_it(self):
        self.assertEqual(len(self.judged({32: (1.0, 1.0), 45: (3.0, 3.0)})[1]), 1)
        violations, excused, *_ = self.judged({32: (1.0, 1.0), 45: (3.0, 1.5)})
        self.assertEqual((len(violations), excused, violations[0]["peer"]), (1, [], "+7 %"))

    def test_other_lines_count_flop(self):
        self.assertEqual(self.judged({64: (1.0, None), 91: (1.5, None)}, "length")[0], [])
        self.assertEqual(len(self.judged({64: (1.0, None), 91: (1.9, None)}, "length")[0]), 1)

    def test_drawn_points_have_bars_by_size(self):
        points = space.draw(1, 3, ["transformer"], ["bf16"], "cuda")
        row = lambda parameters, ms: dict(ms=ms, samples=1, flop=1, parameters=parameters, peers={"slow": 9.0, "fast": 1.0})
        drawn = list(zip(points, [row(25e6, 0.9), row(26e6, 0.9), row(1e6, 0.8)]))
        violations = [step for step in self.judged({}, drawn=drawn)[0] if step["rule"] == "ratio"]
        self.assertEqual([(step["found"], step["bar"], step["peer"]) for step in violations], [("1.11x", "1.2x", "fast 1 ms")])


class Turns(unittest.TestCase):
    def test_many_prepare_together_and_each_is_timed_alone(self):
        together, inside, most = threading.Barrier(3), [], []

        def peer():
            with turn(alone=False):
                together.wait(60)  # fails unless three are here at once
            with turn(alone=True):
                inside.append(1)
                threading.Event().wait(0.1)  # another that comes in is seen
                most.append(len(inside))
                inside.pop()

        with tempfile.NamedTemporaryFile() as file, unittest.mock.patch.dict(os.environ, MILLRACE_TURNS=file.name):
            peers = [threading.Thread(target=peer) for _ in range(3)]
            for thread in peers:
                thread.start()
            for thread in peers:
                thread.join()
        self.assertEqual((together.broken, most), (False, [1, 1, 1]))


    def test_the_modes_of_a_point_are_prepared_at_once(self):
        with tempfile.TemporaryDirectory() as folder:
            place = pathlib.Path(folder)
            (place / "turns").touch()
            (place / "jax.py").write_text(MEETING.format(folder=folder))
            (place / "peer.py").write_text(f"""import argparse, sys
sys.path.insert(0, {str(ROOT / "bench/peers")!r})
from command import run
parser = argparse.ArgumentParser()
parser.add_argument("--modes")
sys.exit(run(parser.parse_args(), "peer.py", "row", None, {str(place / "jax.py")!r}))
""")
            done = subprocess.run([sys.executable, place / "peer.py", "--modes", "jax,jax"], capture_output=True, text=True, check=False,
                                  env=dict(os.environ, MILLRACE_TURNS=str(place / "turns")))
        self.assertEqual((done.returncode, done.stdout), (0, "met\nmet\n"), done.stderr)


class Scans(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.output = self.folder / "result.json"
        self.bench()

    def bench(self, broken=-1, parameters=1000, status=0):
        program = self.folder / "millrace"
        program.write_text(BENCH.format(python=sys.executable, log=self.folder / "log", broken=broken, parameters=parameters, status=status))
        program.chmod(0o755)

    def run_tool(self, *words):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = cliffs.main(["--build", str(self.folder), "--output", str(self.output), *words])
        return status, out.getvalue(), err.getvalue()

    def timed(self):
        return (self.folder / "log").read_text().splitlines() if (self.folder / "log").exists() else []

    def test_lanes_keep_every_point(self):
        status, out, err = self.run_tool("--models", "collective", "--lines", "dropout", "--points", "9", "--seed", "3", "--lanes", "4")
        self.assertEqual(len([row for row in json.loads(self.output.read_text())["rows"].values() if "peers" in row]), 9, err)
        self.assertIn("9 ratios", out)
        self.assertIn(status, (0, 1))

    def test_a_cliff_is_found_and_drawn(self):
        status, out, err = self.run_tool("--models", "collective", "--lines", "batch,dropout,heads", "--ours-only", "--document", str(self.folder))
        self.assertEqual(status, 1, err)
        self.assertIn("batch 362 to 512", out)
        self.assertIn("1 broken rules", out)
        self.assertEqual(len(self.timed()), len(set(self.timed())), "a point of two lines is timed once")
        self.assertEqual(json.loads(self.output.read_text())["precisions"], ["bf16", "f16", "f32"])
        text = (self.folder / "cliffs.md").read_text()
        self.assertIn("| rise | collective | batch 362 to 512 |", text)
        self.assertLessEqual(len(text.splitlines()), 150)
        picture = (self.folder / "cliffs.svg").read_text()
        xml.dom.minidom.parseString(picture)
        width, height = map(int, re.search(r'viewBox="0 0 (\d+) (\d+)"', picture).groups())
        places = [(float(x), float(y)) for x, y in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', picture)]
        self.assertEqual(len(places), 21 + 6)
        self.assertTrue(all(0 < x < width and 0 < y < height for x, y in places))
        self.assertEqual(picture.count(report.BAD), 1)

    def test_peers_are_asked_where_ours_rises_and_at_drawn_points(self):
        status, out, err = self.run_tool("--lines", "batch", "--models", "collective", "--points", "3", "--seed", "5")
        self.assertEqual(status, 1, err)
        self.assertIn("seed 5", out)
        rows = json.loads(self.output.read_text())["rows"].values()
        self.assertEqual(sum("peers" in row for row in rows), 2 + 3)
        self.assertRegex(out, r"batch 362 to 512 +\S+ to \S+ ms +\+200 % +\+25 % +\+0 %")
        self.assertIn("torch 0", out)
        before = self.timed()
        again, out_again, _ = self.run_tool("--lines", "batch", "--models", "collective", "--points", "3")
        self.assertEqual((again, self.timed()), (status, before), "nothing is timed twice")
        judged, out_judged, _ = self.run_tool("--from", str(self.output))
        self.assertEqual((judged, out_judged), (again, out_again))

    def test_every_seed_draws_its_points(self):
        status, out, err = self.run_tool("--lines", "dropout", "--models", "collective", "--points", "2", "--seed", "5,6")
        self.assertIn("seed 5, 6", out, err)
        drawn = json.loads(self.output.read_text())["drawn"]
        self.assertEqual(drawn, [point for seed in (5, 6) for point in space.draw(seed, 2, ["collective"], ["bf16", "f16", "f32"], "cuda")])

    def test_a_scan_goes_on_where_its_time_ended(self):
        words = ("--lines", "dropout", "--models", "transformer", "--points", "0")
        status, out, _ = self.run_tool(*words, "--minutes", "0")
        self.assertEqual((status, self.timed()), (3, []))
        self.assertIn("6 missing", out)
        self.assertEqual(self.run_tool(*words)[0], 0)
        self.assertEqual(len(self.timed()), 6)

    def test_what_cannot_run_breaks_a_rule(self):
        self.bench(broken=16)
        status, out, _ = self.run_tool("--lines", "batch", "--models", "transformer", "--ours-only")
        self.assertEqual(status, 1)
        self.assertRegex(out, r"runs +transformer +batch 16 .*no memory")

    def test_mistakes_end_with_status_2(self):
        self.assertEqual(self.run_tool("--lines", "dropout", "--points", "0", "--seed", "3")[0], 0)
        status, _, err = self.run_tool("--seed", "4")
        self.assertEqual((status, "--fresh" in err), (2, True), err)
        self.assertEqual(self.run_tool("--from", str(self.folder / "absent"))[0], 2)
        self.bench(status=2)
        self.assertEqual(self.run_tool("--fresh", "--lines", "dropout", "--ours-only")[0], 2)
        with self.assertRaises(SystemExit) as ended:
            self.run_tool("--lines", "breadth")
        self.assertEqual(ended.exception.code, 2)

    @unittest.skipUnless((BUILD / "millrace").exists(), f"no millrace in {BUILD}")
    def test_the_program_takes_every_kind_of_point(self):
        status, out, err = self.run_tool("--build", str(BUILD), "--device", "cpu", "--lines", "dropout,members", "--thin", "9", "--models", "collective",
                                         "--ours-only", "--seconds", "0.01")
        self.assertIn(status, (0, 1), err)
        self.assertIn(" 0 missing", out)
        self.assertTrue(all("ms" in row and row["flop"] > 0 for row in json.loads(self.output.read_text())["rows"].values()))
        status, out, err = self.run_tool("--build", str(BUILD), "--device", "cpu", "--lines", "length,heads", "--thin", "99", "--models", "transformer",
                                         "--ours-only", "--seconds", "0.01", "--minutes", "0.0001", "--output", str(self.folder / "other.json"))
        self.assertEqual(status, 3, out + err)


if __name__ == "__main__":
    unittest.main()
