#!/usr/bin/env python3
"""Checks the JAX peers against the PyTorch ones: the same logits, losses and updates. Runs on a stand-in for JAX, made of PyTorch."""
import argparse
import contextlib
import io
import json
import os
import sys
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import torch
from torch.nn import functional as F

import collective_jax
import jax_timing
import language_jax
import language_shape
import made_up_jax as jax
import presets
from jax_timing import window_of
from language_model import Language
from model import Collective, count

WORDS = dict(vocabulary=23, length=7, width=12, heads=3, inner=20, depth=2, dropout=0.0)
SMALL = ["--n-total=5", "--n-experts=2", "--expert-hidden=12,7", "--expert-output=6", "--analyst-hidden=9,8,5", "--analyst-output=4", "--batch=11"]


def options(module, *words):
    with mock.patch.object(sys, "argv", ["peer", "--device=cpu", "--seconds=0.01", *words]):
        return module.arguments()


def fill(linear, source):
    linear.weight.data, linear.bias.data = source["weight"].t().clone(), source["bias"].clone()


def fill_norm(norm, source):
    norm.weight.data, norm.bias.data = source["gamma"].clone(), source["beta"].clone()


def disturbed(tree):
    return jax.tree_map(lambda leaf: leaf + 0.1 * torch.randn(leaf.shape), tree)


class Transformer(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)
        self.model = language_jax.Model(jax, WORDS, 4, torch.float32, "xla")
        self.parameters = disturbed(self.model.initial(jax.random.key(3))[0])

    def twin(self):
        twin, given = Language(**WORDS), self.parameters
        twin.embed.tokens.weight.data, twin.embed.places.weight.data = given["tokens"].clone(), given["positions"].clone()
        for node, layer in zip(twin.nodes, given["layers"]):
            fill(node.self_attn.in_proj, layer["in"]), fill(node.self_attn.out_proj, layer["out"])
            fill(node.linear1, layer["up"]), fill(node.linear2, layer["down"])
            fill_norm(node.norm1, layer["norm1"]), fill_norm(node.norm2, layer["norm2"])
        fill_norm(twin.norm, given["norm"]), fill(twin.head, given["head"])
        return twin

    def test_logits_and_loss_are_those_of_pytorch(self):
        ids = torch.randint(0, 23, (4, 7))
        wanted = self.twin()(ids)
        self.assertLess((self.model.logits(self.parameters, jax.random.key(1), ids) - wanted).abs().max().item(), 1e-4)
        stream, key = torch.randint(0, 23, (60,)), jax.random.key(9)
        first = torch.randint(0, 60 - 8, (4, 1), generator=jax.generator(jax.split(key)[0]))
        window = stream[first + torch.arange(8)]
        wanted = F.cross_entropy(self.twin()(window[:, :-1]).flatten(0, 1), window[:, 1:].flatten())
        self.assertAlmostEqual(self.model.loss(self.parameters, {}, key, stream)[0].item(), wanted.item(), places=4)

    def test_updates_clip_and_decay_as_pytorchs(self):
        zeros = lambda: jax.tree_map(torch.zeros_like, self.parameters)
        state = dict(parameters=self.parameters, first=zeros(), second=zeros(), count=torch.zeros(()))
        theirs = [torch.nn.Parameter(leaf.clone()) for leaf in jax.leaves(self.parameters)]
        optimizer = torch.optim.AdamW(theirs, lr=1e-3, weight_decay=0.01)
        for size in (0.001, 1.0, 3.0):
            gradient = jax.tree_map(lambda leaf: size * torch.randn(leaf.shape), self.parameters)
            for parameter, leaf in zip(theirs, jax.leaves(gradient)):
                parameter.grad = leaf.clone()
            torch.nn.utils.clip_grad_norm_(theirs, 1.0)
            optimizer.step()
            state = self.model.update(state, gradient)
        for mine, parameter in zip(jax.leaves(state["parameters"]), theirs):
            self.assertLess((mine - parameter.detach()).abs().max().item(), 1e-6)

    def test_dropout_leaves_a_share_and_its_mean(self):
        self.assertIs(self.model.dropped(jax.random.key(1), x := torch.ones(3)), x)
        self.model.rate = 0.25
        y = self.model.dropped(jax.random.key(1), torch.ones(100, 100))
        self.assertAlmostEqual((y == 0).float().mean().item(), 0.25, delta=0.02)
        self.assertAlmostEqual(y.max().item(), 1 / 0.75, places=5)
        ids = torch.randint(0, 23, (4, 7))
        one, other = (self.model.logits(self.parameters, jax.random.key(k), ids) for k in (1, 2))
        self.assertGreater((one - other).abs().max().item(), 0.01)

    def test_a_window_trains_every_member_on_its_own(self):
        stream = torch.arange(60) % 23
        expected = language_shape.count_parameters(**WORDS)
        for members in (1, 3):
            window, state = window_of(jax, self.model, stream, members, 40, expected)
            state, losses = window(state)
            self.assertEqual(tuple(losses.shape), (40,) if members == 1 else (40, members))
            self.assertTrue((losses[-10:].mean(0) < 0.9 * losses[:10].mean(0)).all(), losses)
            self.assertEqual(float(state["count"].max()), 40)
        self.assertGreater((state["parameters"]["tokens"][0] - state["parameters"]["tokens"][1]).abs().max().item(), 1e-3)
        with self.assertRaisesRegex(ValueError, "parameters instead of"):
            window_of(jax, self.model, stream, 1, 40, expected + 1)

    def test_counts_are_those_of_the_models(self):
        self.assertEqual(count(Language(**WORDS)), language_shape.count_parameters(**WORDS))
        tree = dict(WORDS, branching=(3, 2), k=2)
        self.assertEqual(count(Language(**tree)), language_shape.count_parameters(**tree))
        self.assertEqual(count(self.twin()), sum(leaf.numel() for leaf in jax.leaves(self.parameters)))

    def test_windows_and_attention_follow_the_shape(self):
        base = options(language_jax, "--batch=32")
        large = options(language_jax, "--batch=8", "--width=768", "--heads=12", "--inner=3072", "--depth=12", "--length=1024", "--vocabulary=50304")
        for given in (base, large):
            given.device, given.precision = "cuda", "bf16"
        for given, steps in ((base, 200), (large, 10)):
            parameters = language_shape.count_parameters(**language_shape.shape_of(given))
            self.assertEqual(jax_timing.steps_of(given, parameters, given.batch * given.length), steps)
        self.assertEqual((language_jax.forms_of(base), language_jax.forms_of(large)), (["xla"], ["cudnn", "xla"]))
        self.assertEqual(language_jax.forms_of(argparse.Namespace(**dict(vars(large), precision="tf32"))), ["xla"])
        self.assertEqual(language_jax.forms_of(argparse.Namespace(**dict(vars(large), members=2))), ["xla"])


class Members(unittest.TestCase):
    def test_the_loss_of_the_collective_is_that_of_pytorch(self):
        torch.manual_seed(6)
        given = options(collective_jax, *SMALL, "--expert-compression=0.5", "--hidden-scale=1.5", "--dropout-scale=0")
        shape = presets.shape_of(given)
        self.assertEqual((shape["expert"], shape["analyst"], shape["analysts"]), ((12, 7, 6), (9, 8, 5, 4), 3))
        model, plain = collective_jax.Model(jax, shape, 11, torch.float32), Collective(**shape)
        parameters, statistics = model.initial(jax.random.key(2))
        parameters = disturbed(parameters)

        def copy(chain, layers):
            linears = [part for part in chain if isinstance(part, torch.nn.Linear)]
            norms = [part for part in chain if isinstance(part, torch.nn.BatchNorm1d)]
            for linear, layer in zip(linears, layers):
                fill(linear, layer)
            for norm, layer in zip(norms, layers):
                fill_norm(norm, layer)
        for part in ("experts", "analysts"):
            for i, chain in enumerate(getattr(plain, part)):
                copy(chain, jax.tree_map(lambda leaf: leaf[i], parameters[part]))
        copy(plain.encoder, parameters["encoder"]), copy(plain.head, parameters["head"])
        with mock.patch.object(collective_jax, "IMAGES", 40):
            key = jax.random.key(8)
            images, labels = torch.randint(0, 256, (40, 784), dtype=torch.uint8), torch.randint(0, 10, (40,))
            loss, new = model.loss(parameters, statistics, key, (images, labels))
            rows = torch.randint(0, 40, (11,), generator=jax.generator(jax.split(key, 5)[4]))
        wanted = F.cross_entropy(plain((images[rows].float() / 255 - 0.286) / 0.353), labels[rows])
        self.assertAlmostEqual(loss.item(), wanted.item(), delta=1e-4 * wanted.item())
        self.assertLess((new["encoder"][0]["mean"] - plain.encoder[1].running_mean).abs().max().item(), 1e-4)
        self.assertLess((new["experts"][1]["var"][0] - plain.experts[0][5].running_var).abs().max().item(), 1e-3)

    def test_counts_are_those_of_the_models(self):
        for (preset, revision), total in presets.PARAMETERS.items():
            given = options(collective_jax, f"--preset={preset}", f"--revision={revision}")
            self.assertEqual(presets.count_parameters(**presets.shape_of(given)), total)
            self.assertEqual(count(Collective(**presets.shape_of(given))), total)
        for words in (SMALL, [*SMALL, "--revision=r2", "--code=33"], [*SMALL, "--revision=r2", "--n-experts=0", "--expert-ratio=0.9"]):
            shape = presets.shape_of(options(collective_jax, *words))
            self.assertEqual(count(Collective(**shape)), presets.count_parameters(**shape), words)

    def test_rates_scale(self):
        shape = presets.shape_of(options(collective_jax, "--member-dropout=0.5", "--head-dropout=0", "--dropout-scale=0.5"))
        rates = sorted({part.p for part in Collective(**shape).modules() if isinstance(part, torch.nn.Dropout)})
        self.assertEqual(rates, [0, 0.05, 0.25])


class Rows(unittest.TestCase):
    """The programs, with the stand-in in JAX's place."""

    def row(self, module, *words):
        text = io.StringIO()
        with mock.patch.dict(sys.modules, jax=jax), mock.patch.dict(os.environ), contextlib.redirect_stdout(text), \
                mock.patch.object(sys, "argv", ["peer", "--device=cpu", "--seconds=0.01", *words]):
            status = module.main()
        return status, json.loads(text.getvalue())

    def test_a_transformer_is_timed(self):
        status, row = self.row(language_jax, "--batch=2", "--members=2", "--width=8", "--heads=2", "--inner=8", "--depth=1", "--length=5",
                               "--vocabulary=11", "--dropout=0.1")
        self.assertEqual(status, 0, row)
        self.assertEqual((row["name"], row["peer"], row["attention"], row["versions"]), ("transformer-b2-k2", "jax", "xla", dict(jax="made up")))
        self.assertTrue(0 < row["low"] <= row["ms"] <= row["high"], row)

    def test_a_collective_is_timed(self):
        with mock.patch.object(collective_jax, "IMAGES", 50), mock.patch.object(jax_timing, "LEAST_STEPS", 2):
            status, row = self.row(collective_jax, *SMALL, "--members=2")
        self.assertEqual((status, row["name"]), (0, "collective-debug-b11-k2"), row)

    def test_a_form_of_attention_that_fails_gives_way_to_the_next(self):
        with mock.patch.object(language_jax, "forms_of", lambda given: ["cudnn", "xla"]):
            status, row = self.row(language_jax, "--batch=2", "--width=8", "--heads=2", "--inner=8", "--depth=1", "--length=5", "--vocabulary=11")
        self.assertEqual((status, row["attention"]), (0, "xla"), row)

    def test_what_the_models_lack_is_an_error(self):
        self.assertIn("no tree", self.row(language_jax, "--preset=k1")[1]["error"])
        self.assertIn("revision r1", self.row(collective_jax, "--revision=r2")[1]["error"])

    def test_shapes_that_cannot_be_are_bad_usage(self):
        for module, words in ((language_jax, ["--heads=5"]), (language_jax, ["--length=0"]), (language_jax, ["--dropout=1"]),
                              (collective_jax, ["--batch=1"]), (collective_jax, ["--n-experts=8"]), (collective_jax, ["--expert-hidden=4,0"]),
                              (language_jax, ["--precision=bf16"])):
            with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(io.StringIO()):
                options(module, *words)
            self.assertEqual(ended.exception.code, 2, words)


if __name__ == "__main__":
    unittest.main()
