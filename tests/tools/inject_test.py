"""What tools/inject makes of a source: the illness and nothing else, at known lines, and where it finds loops, models and loaders."""
import ast
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
for folder in ("tools", "tests/tools"):
    sys.path.insert(0, str(ROOT / folder))
import inject_cases as cases          # noqa: E402
import inject_illnesses as illnesses  # noqa: E402
import inject_programs as programs    # noqa: E402
import inject_sites as sites          # noqa: E402
from inject_source import Insert, Replace, Source, edited  # noqa: E402
from made_up_training import MAIN, MODEL, make_programs    # noqa: E402

ACCUMULATING = """import torch
for batch in loader:
    with torch.autocast("cuda"):
        loss = model(batch)
    loss.backward()
    if step % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
    step += 1
"""
BY_HAND = """import torch
for epoch in range(9):
    for batch in loader:
        loss = model(batch)
        loss.backward()
        if use_optimizer:
            optimizer.step()
        else:
            for p in model.parameters():
                p.data.add_(p.grad)
        total += loss.item()
    scheduler.step()
"""
LIBRARY = """import torch
import pytorch_lightning as pl
class Model(pl.LightningModule):
    def training_step(self, batch, index):
        loss = self.net(batch)
        return loss
pl.Trainer().fit(Model(), torch.utils.data.DataLoader(rows, batch_size=4))
"""
JITTED = """import jax
@jax.jit
def update(params, x):
    value, grads = jax.value_and_grad(loss)(params, x)
    return params, value
for number in range(9):
    params, value = update(params, rows[number])
    total += float(value)
"""


def sources():
    return [Source("main.py", MAIN), Source("model.py", MODEL)]


def view(some=None, **known):
    some = some or sources()
    return illnesses.View(some, some[0], 10.0, **known)


def counter(text):
    source = Source("main.py", text)
    return sites.counters([source], source)["main.py"]


class Editing(unittest.TestCase):
    def test_lines_go_in_and_all_others_stay_as_they_were(self):
        result = edited("a\nb = 'x'; c\nd", [Insert(1, ("  one", "  two"), (1,)), Replace(2, 4, 7, "'yy'"), Insert(0, ("top",)), Insert(3, ("end",), (0,))])
        self.assertEqual(result.text, "top\na\n  one\n  two\nb = 'yy'; c\nd\nend\n")
        self.assertEqual(result.lines, {1: 2, 2: 5, 3: 6})
        self.assertEqual(result.marked, [[4], [5], [], [7]])
        self.assertEqual(result.inserted, [1, 3, 4, 7])

    def test_other_line_ends_and_two_replacements_in_a_line(self):
        self.assertEqual(edited("a\r\nb\r\n", [Insert(1, ("x",))]).text, "a\r\nx\r\nb\r\n")
        self.assertEqual(edited("one two\n", [Replace(1, 0, 3, "1"), Replace(1, 4, 7, "2")]).text, "1 2\n")

    def test_columns_are_characters(self):
        source = Source("a.py", "x = 'ä', f(True)\n")
        call = next(node for node in ast.walk(source.tree) if isinstance(node, ast.Call))
        self.assertEqual(edited(source.text, [source.replace(call.args[0], "False"), source.before_closing(call, "y=1")]).text, "x = 'ä', f(False, y=1)\n")

    def test_arguments_are_added_behind_a_comma_of_any_kind(self):
        for text, wanted in (("f()", "f(k=1)"), ("f(a,)", "f(a,k=1)"), ("f(a)", "f(a, k=1)")):
            source = Source("a.py", text)
            self.assertEqual(edited(text, [source.before_closing(source.tree.body[0].value, "k=1")]).text, wanted + "\n")


class Sites(unittest.TestCase):
    def test_steps_are_counted_where_they_end(self):
        self.assertEqual([(edit.after, edit.lines[0]) for edit in counter(ACCUMULATING)], [(7, "        " + sites.COUNT)])
        self.assertEqual([(edit.after, edit.lines[0]) for edit in counter(BY_HAND)], [(10, "        " + sites.COUNT)])
        self.assertEqual([edit.after for edit in counter(JITTED)], [7])
        self.assertEqual([(edit.after, edit.lines[0]) for edit in counter(LIBRARY)], [(2, sites.HOOK)])
        self.assertEqual([edit.after for edit in counter(MAIN)], [MAIN.splitlines().index("            optimizer.step()") + 1])

    def test_a_step_of_two_optimizers_and_a_step_in_a_function(self):
        both = "import torch\nfor x in rows:\n    optimizerD.step()\n    optimizerG.step()\n"
        self.assertEqual([edit.after for edit in counter(both)], [4])
        apart = "import torch\ndef learn(x):\n    opt.step()\nfor x in rows:\n    learn(x)\n"
        self.assertEqual([edit.after for edit in counter(apart)], [3])
        source = Source("main.py", apart)
        self.assertEqual([loop.lineno for _, loop in sites.training_loops([source])], [4])

    def test_no_line_goes_where_it_would_not_run_or_not_parse(self):
        lines = MAIN.splitlines()
        places = sites.loop_places(sources())
        self.assertTrue(places)
        for place in places:
            tree = ast.parse(edited(MAIN, [Insert(place.after, (place.indent + "_x = 1",))]).text)
            loop = next(node for node in ast.walk(tree) if isinstance(node, ast.For) and node.lineno == lines.index("    for number, batch in enumerate(loader):") + 1)
            self.assertEqual(["_x = 1" in ast.unparse(statement) for statement in loop.body].count(True), 1, place)
        self.assertEqual({place.model for place in places}, {"model"})
        before = lines.index("        loss = model(batch)") + 1
        self.assertTrue(all((place.tensor == "loss") == (place.after >= before) for place in places))

    def test_only_models_that_steps_were_seen_to_call(self):
        net = MODEL.splitlines().index("    def forward(self, x, other=None):") + 1
        places = sites.forward_places(sources(), {("model.py", net): 6.0})
        self.assertEqual({(place.source.path, place.calls, place.tensor) for place in places}, {("model.py", 6.0, "x")})
        self.assertEqual(sites.forward_places(sources(), {}), [])
        self.assertGreater(len(sites.forward_places(sources(), None)), len(places))

    def test_loops_of_evaluations_are_no_training_loops(self):
        self.assertEqual([loop.target.id for _, loop in sites.evaluation_loops(sources())], ["row"])
        self.assertEqual(len(sites.training_loops(sources())), 1)


class Illnesses(unittest.TestCase):
    def every(self, some=None, **known):
        for name, ways in illnesses.possible(view(some, **known)).items():
            for way in ways:
                yield name, way(random.Random(7))

    def test_each_is_valid_python_that_differs_by_the_illness_alone(self):
        names = set()
        for name, illness in self.every():
            names.add(name)
            some = sources()
            results, well = programs.changed(some, [illness]), programs.changed(some)
            lines, also = programs.lines_of(illness, [illness], some, results)
            self.assertTrue(lines, illness)
            for source in some:
                result = results[source.path]
                ast.parse(result.text)
                new, old = result.text.splitlines(), well[source.path].text.splitlines()
                changed = {line for edit in illness.edits.get(source.path, []) if isinstance(edit, Replace) for line in [edit.line]}
                kept = [line for at, line in enumerate(new, 1) if at not in result.inserted]
                for number, (line, original) in enumerate(zip(kept, source.text.splitlines()), 1):
                    self.assertTrue(line == original or number in changed, (name, line, original))
                self.assertEqual(len([line for line in new if "step_counter" in line]), len([line for line in old if "step_counter" in line]))
            for path, line in lines:
                said = results[path].text.splitlines()[line - 1]
                self.assertTrue(line in results[path].inserted or said not in next(each for each in some if each.path == path).lines, (name, said))
            for path, line in also:
                self.assertNotIn(line, results[path].inserted)
        self.assertEqual(names, {"host-read", "blocking-copy", "pageable-copy", "python-work", "slow-loading", "small-launches", "file-output", "repeated-work"})

    def test_only_who_uses_tf32_loses_it(self):
        for line, wanted in (("", False), ("torch.backends.cuda.matmul.allow_tf32 = True", True), ("torch.set_float32_matmul_precision('high')", True),
                             ("layer = torch.nn.Conv2d(1, 2, 3)", True)):
            some = [Source("main.py", f"import torch\n{line}\n" + ACCUMULATING.replace("autocast", "profile"))]
            self.assertEqual("wrong-type" in illnesses.possible(view(some)), wanted, line)

    def test_the_line_of_two_illnesses_at_one_place(self):
        some = sources()
        place = sites.loop_places(some)[-1]
        one, other = (illnesses.Illness(name, (name,), illnesses.inserted(place, (f"_{name} = 1",))) for name in ("first", "second"))
        results = programs.changed(some, [one, other])
        for illness in (one, other):
            ((path, line),), _ = programs.lines_of(illness, [one, other], some, results)
            self.assertEqual(results[path].text.splitlines()[line - 1].strip(), f"_{illness.name} = 1")

    def test_places_and_strengths_come_of_the_seed(self):
        def draws(seed):
            return [[(one.name, one.strength.split()[-1], one.edits) for one in illnesses.drawn(view(), random.Random(f"{seed}-{number}"))] for number in range(40)]
        illnesses.speeds.update({work: 1e-4 for work in illnesses.WORK})
        self.addCleanup(illnesses.speeds.clear)
        first = draws(1)
        self.assertEqual(first, draws(1))
        self.assertNotEqual(first, draws(2))
        counts = [len(each) for each in first + draws(3) + draws(4)]
        self.assertTrue(all(30 < counts.count(number) for number in (1, 2)), counts)
        self.assertGreater(len({str(one[0][2]) for one in first if one}), 15)

    def test_a_third_is_untouched_with_the_programs_as_they_are(self):
        for programs in (1, 3, 6):
            collection = cases.Collection.__new__(cases.Collection)
            collection.known = dict.fromkeys(range(programs))
            for draws in range(50):
                healthy = collection.healthy_in(draws)
                self.assertIn(collection.healthy_in(draws + 1) - healthy, (0, 1))
                self.assertGreaterEqual(3 * (programs + healthy), programs + draws)
                self.assertTrue(healthy == 0 or 3 * (programs + healthy - 1) < programs + draws)

    def test_strengths_are_above_the_spread_of_processes(self):
        source = random.Random(1)
        drawn = [view().milliseconds(source) / 10.0 for _ in range(500)]
        self.assertTrue(0.15 <= min(drawn) < 0.16)
        self.assertTrue(0.8 < max(drawn) <= 0.9)
        self.assertAlmostEqual(sorted(drawn)[250], 0.367, delta=0.05)  # the root of 15 % times 90 %

    def test_a_busy_gpu_gets_no_small_launches_and_jax_no_torch(self):
        self.assertNotIn("small-launches", illnesses.possible(view(busy=0.95)))
        some = [Source("main.py", JITTED)]
        for name, illness in self.every(some, is_jax=True):
            self.assertNotIn("torch", str(illness.edits), name)

    def test_what_is_held_out_keeps_its_loader(self):
        for text, wanted in (("train_loader = DataLoader(rows, batch_size=4)", True), ("val_loader = DataLoader(rows, batch_size=4)", False)):
            some = [Source("main.py", f"import torch\nfrom torch.utils.data import DataLoader\n{text}\n" + ACCUMULATING)]
            self.assertEqual("slow-loading" in illnesses.possible(view(some)), wanted)

    def test_evaluations_get_smaller_batches(self):
        text = "import torch\ntest_batch_size = 512\ndef test():\n    with torch.no_grad():\n        for x in rows:\n            model(x)\n" + ACCUMULATING
        some = [Source("main.py", text)]
        illness = illnesses.possible(view(some))["tiny-evaluation"][0](random.Random(1))
        result = programs.changed(some, [illness])["main.py"]
        self.assertRegex(result.text.splitlines()[1], r"^test_batch_size = max\(1, \(512\) // \d+\)$")
        self.assertIn(("main.py", 5), illness.also)


class Description(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def inject(self, *given):
        return subprocess.run([sys.executable, ROOT / "tools/inject", *map(str, given)], capture_output=True, text=True)

    def refused(self, said, *given):
        done = self.inject(*given)
        self.assertEqual((done.returncode, "Traceback" in done.stderr), (2, False), done.stderr)
        self.assertIn(said, done.stderr)

    def test_what_is_wrong_is_said(self):
        self.refused("expected DIR, or --judge CORPUS")
        self.refused("programs.json: No such file", self.folder)
        self.refused("no folder with recordings", "--judge", self.folder / "none", "--build", self.made_up())
        (self.folder / "programs.json").write_text("[]")
        self.refused("expected an object with the key programs", self.folder)
        make_programs(self.folder / "a", batch="many")
        self.refused("somebody: batch is no int", self.folder / "a")
        make_programs(self.folder / "b", command="python3 other.py")
        self.refused("has to name a script", self.folder / "b")
        make_programs(self.folder / "c", speed=3)
        self.refused("speed is none of folder, command", self.folder / "c")
        make_programs(self.folder / "d")
        self.refused("no program is called x", self.folder / "d", "--only", "x")
        self.refused("millrace is missing", self.folder / "d", "--build", self.folder / "d")

    def made_up(self):
        (self.folder / "millrace").write_text("#!/bin/sh\n")
        (self.folder / "millrace").chmod(0o755)
        return self.folder

    def test_draws_can_be_shown(self):
        make_programs(self.folder / "a")
        shown = [self.inject(self.folder / "a", "--show", 6, "--seed", seed).stdout for seed in ("1f", "1f", "20")]
        self.assertIn("seed 1f\n== somebody: ", shown[0])
        self.assertEqual([line for line in shown[0].splitlines() if line.startswith("==")][0].split("(")[0],
                         [line for line in shown[1].splitlines() if line.startswith("==")][0].split("(")[0])
        self.assertNotEqual(shown[0], shown[2])
        self.assertIn("+" + "            " + sites.COUNT, shown[0])

    def test_a_program_takes_its_modules_and_data_along(self):
        make_programs(self.folder / "a", setup="mkdir ../data; echo 5 > ../data/rows", files=["main.py", "model.py"])
        program = programs.described(self.folder / "a", sys.executable)["somebody"]
        self.assertEqual(programs.imported(program.origin, "main.py"), ["main.py", "model.py"])
        program.prepare(self.folder / "scratch")
        program.copy(self.folder / "copy", program.sources())
        self.assertEqual((self.folder / "copy/data/rows").read_text(), "5\n")
        self.assertIn(sites.COUNT, (self.folder / "copy/somebody/main.py").read_text())
        self.assertEqual((self.folder / "copy/somebody/model.py").read_text(), MODEL)
        self.assertEqual((self.folder / "scratch/prepared/somebody/somebody/main.py").read_text(), MAIN)
        self.assertTrue((self.folder / "copy/somebody/step_counter.py").exists())


if __name__ == "__main__":
    unittest.main()
