#!/usr/bin/env python3
"""Checks that the opponents do the same work: parameter counts, and the stacked form against the plain one in float64."""
import argparse
import json
import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import torch
from torch.nn import functional as F

import language_shape
from language_model import Language as LanguageModel
from model import PARAMETERS, PRESETS, Collective, count
from stacked import StackedCollective
from work import products, work

SMALL = dict(experts=2, analysts=3, expert=(12, 7, 6), analyst=(9, 5, 4), inputs=23, dropout=0.0)


def gradient(parameter):
    return parameter.grad


class Counts(unittest.TestCase):
    def test_plain_and_stacked_models_have_the_published_totals(self):
        for (preset, revision), total in PARAMETERS.items():
            model = Collective(**PRESETS[preset], revision=revision)
            self.assertEqual(count(model), total, (preset, revision))
            self.assertEqual(count(StackedCollective([model])), total, (preset, revision))

    def test_work_is_counted_from_the_shapes_the_model_really_has(self):
        for preset, revision in PARAMETERS:
            model = Collective(**PRESETS[preset], revision=revision)
            linears = [part for part in model.modules() if isinstance(part, torch.nn.Linear)]
            macs = sum(part.in_features * part.out_features for part in linears)
            self.assertEqual(work(preset, 1, revision)["forward_macs"], macs)
            self.assertEqual(sum(row[1] for row in products(preset, revision)), len(linears))

    def test_work_of_the_published_configurations(self):
        debug, phase1 = work("debug", 32), work("phase1", 256)
        self.assertEqual((debug["forward_macs"], phase1["forward_macs"]), (556480, 2871040))
        self.assertEqual((debug["flop_sample"], debug["flop_sample_autograd"]), (2335360, 2937472))
        self.assertEqual((phase1["flop_sample"], phase1["flop_sample_autograd"]), (13212160, 15620608))
        self.assertEqual((debug["features"], phase1["features"]), (1274, 5066))
        self.assertEqual(work("phase1", 256, "r2")["forward_macs"], 2955923)


class Stacking(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)

    def compare(self, members, **shape):
        models = [Collective(**shape).double() for _ in range(members)]
        for model in models:
            for parameter in model.parameters():
                parameter.data.add_(0.1 * torch.randn_like(parameter))
        stacked = StackedCollective(models).double()
        x = torch.randn(members, 11, shape["inputs"], dtype=torch.float64)
        labels = torch.randint(0, 10, (members, 11))
        plain = torch.stack([model(x[k]) for k, model in enumerate(models)])
        sum(F.cross_entropy(plain[k], labels[k]) for k in range(members)).backward()
        batched = stacked(x)
        self.assertEqual(batched.shape, (members, 11, 10))
        (F.cross_entropy(batched.flatten(0, 1), labels.flatten(), reduction="sum") / 11).backward()
        self.assertLess((plain - batched).abs().max().item(), 1e-12)
        wanted = StackedCollective(models, take=gradient)
        largest = 0.0
        for (name, mine), (_, theirs) in zip(stacked.named_parameters(), wanted.named_parameters()):
            self.assertEqual(mine.grad.shape, theirs.shape, name)
            self.assertLess((mine.grad - theirs.data).abs().max().item(), 1e-12, name)
            largest = max(largest, mine.grad.abs().max().item())
        self.assertGreater(largest, 1e-3)
        for (name, mine), (_, theirs) in zip(stacked.named_buffers(), wanted.named_buffers()):
            self.assertLess((mine - theirs).abs().max().item(), 1e-12, name)

    def test_one_model_gives_the_logits_gradients_and_statistics_of_the_plain_one(self):
        self.compare(1, **SMALL)

    def test_one_r2_model_likewise(self):
        self.compare(1, **SMALL, revision="r2", code=9)

    def test_three_models_do_not_mix(self):
        self.compare(3, **SMALL)

    def test_three_r2_models_with_three_hidden_layers_do_not_mix(self):
        self.compare(3, **dict(SMALL, expert=(12, 8, 7, 6)), revision="r2", code=9)

    def test_a_single_expert_and_a_single_analyst_are_groups_of_one(self):
        self.compare(2, **dict(SMALL, experts=1, analysts=1))

    def test_dropout_keeps_its_places(self):
        model = Collective(**dict(SMALL, dropout=1.0))
        rates = lambda m: sorted(part.p for part in m.modules() if isinstance(part, torch.nn.Dropout))
        self.assertEqual(rates(model), [0.1] + [0.2] * 6)
        self.assertEqual(rates(StackedCollective([model])), [0.1, 0.2, 0.2, 0.2])


class Language(unittest.TestCase):
    def rows(self, *options):
        return run_peer("language.py", "--batch", "3", *options)

    def test_every_part_of_the_shape_is_followed(self):
        shape = dict(width=24, heads=3, inner=40, depth=2, length=9, vocabulary=31, dropout=0.25)
        given = argparse.Namespace(preset="transformer", batch=3, members=1, branching=None, k=None, dropout_scale=2.0, **shape)
        model = LanguageModel(**language_shape.shape_of(given))
        self.assertEqual(model(torch.zeros(3, 9, dtype=torch.long)).shape, (3, 9, 31))
        self.assertEqual(count(model), language_shape.count_parameters(**shape))
        self.assertEqual((len(model.nodes), model.nodes[0].self_attn.heads, model.nodes[0].dropout.p), (2, 3, 0.5))
        tree = argparse.Namespace(**dict(vars(given), preset="k1", branching=(2,), k=1))
        self.assertEqual(len(LanguageModel(**language_shape.shape_of(tree)).nodes), 3)

    def test_rows_of_a_small_shape(self):
        small = ("--width", "8", "--heads", "2", "--inner", "8", "--depth", "1", "--length", "5", "--vocabulary", "11")
        status, rows, text = self.rows(*small, "--modes", "eager,stacked,jax")
        self.assertEqual([row["peer"] for row in rows], ["eager", "stacked", "jax"], text)
        self.assertTrue(0 < rows[0]["low"] <= rows[0]["ms"], rows[0])
        self.assertIn("no members to stack", rows[1]["error"])
        status, rows, _ = self.rows(*small, "--members", "2", "--modes", "eager")
        self.assertEqual((status, rows[0]["name"]), (1, "transformer-b3-k2"))
        self.assertIn("mode jax only", rows[0]["error"])

    def test_a_cpu_has_one_precision(self):
        for precision in ("bf16", "f16", "tf32"):
            status, rows, text = self.rows("--precision", precision)
            self.assertEqual((status, rows), (2, []))
            self.assertIn(f"{precision} needs --device cuda", text)


def run_peer(script, *options):
    done = subprocess.run([sys.executable, os.path.join(HERE, script), "--threads", "1", "--seconds", "0.01", *options],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


class Program(unittest.TestCase):
    def rows(self, *options):
        return run_peer("collective.py", *options)

    def test_rows_have_a_median_between_their_quartiles_and_failures_an_error(self):
        status, rows, _ = self.rows("--batch", "7", "--modes", "eager,stacked,graph,warp")
        self.assertEqual(status, 1)
        self.assertEqual([row["peer"] for row in rows], ["eager", "stacked", "graph", "warp"])
        for row in rows[:2]:
            self.assertEqual((row["name"], row["precision"], row["device"]), ("collective-debug-b7", "fp32", "cpu"))
            self.assertGreaterEqual(row["windows"], 7)
            self.assertTrue(0 < row["low"] <= row["ms"] <= row["high"], row)
        for row in rows[2:]:
            self.assertIn("error", row)
            self.assertNotIn("ms", row)

    def test_members_that_are_not_stacked_are_refused(self):
        status, rows, _ = self.rows("--batch", "5", "--members", "2", "--modes", "eager")
        self.assertEqual(status, 1)
        self.assertIn("stacked only", rows[0]["error"])

    def test_jax_gives_a_row_installed_or_not(self):
        status, rows, _ = self.rows("--batch", "8", "--members", "2", "--modes", "jax")
        self.assertEqual([(row["name"], row["peer"]) for row in rows], [("collective-debug-b8-k2", "jax")])
        if status == 0:
            self.assertTrue(0 < rows[0]["low"] <= rows[0]["ms"] <= rows[0]["high"], rows[0])
        else:
            self.assertIn("has no jax", rows[0]["error"])

    def test_jax_knows_revision_r1_alone(self):
        status, rows, _ = self.rows("--batch", "8", "--revision", "r2", "--modes", "jax")
        self.assertEqual(status, 1)
        self.assertIn("revision r1", rows[0]["error"])

    def test_a_batch_of_one_is_bad_usage(self):
        self.assertEqual(self.rows("--batch", "1")[0], 2)


if __name__ == "__main__":
    unittest.main()
