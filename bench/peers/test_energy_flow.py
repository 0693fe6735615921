#!/usr/bin/env python3
"""Checks the energy flow opponent against the model's definition: counts, gradients by finite differences, what is conserved, the stop."""
import contextlib
import io
import json
import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import torch
from torch.nn import functional as F

from flow_model import PRESETS, Cube, EnergyFlow, isometry, mirrored
from flow_trace import COUNTERS, clearance, counters
from flow_training import FlowTraining
from timing import report

TINY = dict(width=4, height=4, depth=4, steps=3, batch=2, hidden=8, layers=2, embedding=12, arrive=1.0, noise=0.0)
GRU_PARAMETERS = {"debug": 642816, "experiment": 2465280, "experiment-v2": 4041216, "large-b4": 15946752}


def disturbed(cube, heads=0.2):
    """A float64 model with random heads and energies spread over (-1, 1)."""
    model = EnergyFlow(cube).double()
    torch.nn.init.normal_(model.mapper.weight, std=0.5)
    for head in (model.carrier.energy, model.carrier.move):
        for parameter in head[-1].parameters():
            torch.nn.init.normal_(parameter, std=heads)
    return model


def unit(*shape):
    return F.normalize(torch.randn(*shape, dtype=torch.float64), dim=-1)


def counted(cube, trace):
    return dict(zip(COUNTERS, counters(cube, trace)[-1].tolist()))


def eventful(cube):
    """(model, inputs) of a pass in which flows spawn, bounce, arrive and are left under way, none of them near a turn."""
    for seed in range(1000):
        torch.manual_seed(seed)
        model, x, trace = disturbed(cube), unit(cube.batch, cube.embedding), []
        with torch.no_grad():
            model(x, trace)
            near = clearance(cube, model.mapped(x), trace)
        found = counted(cube, trace)
        arrived = found["arrived_up"] + found["arrived_down"]
        if near > 1e-3 and min(found["spawned"], found["reflected"], arrived, int(trace[-1]["active"].sum())) > 0:
            return model, x
    raise AssertionError("no seed gives all events")


class Shapes(unittest.TestCase):
    def test_the_carriers_have_the_published_sizes(self):
        for preset, total in GRU_PARAMETERS.items():
            cube = Cube(**PRESETS[preset])
            widths = [65] + [cube.hidden] * (cube.layers - 1)
            self.assertEqual(sum(3 * cube.hidden * (width + cube.hidden + 2) for width in widths), total, preset)
        model = EnergyFlow(Cube(**PRESETS["debug"]))
        self.assertEqual(sum(p.numel() for p in model.carrier.cells.parameters()), GRU_PARAMETERS["debug"])
        self.assertEqual(sum(p.numel() for p in model.neuron.parameters()), 3468)

    def test_rows_steps_and_drift_follow_from_the_profile(self):
        debug, large = Cube(**PRESETS["debug"]), Cube(**PRESETS["large-b4"])
        self.assertEqual((debug.steps, debug.rows, debug.min_steps), (5, 3200, 3))
        self.assertAlmostEqual(debug.drift, 0.4)
        self.assertEqual((large.steps, large.rows), (10, 25600))
        self.assertEqual(Cube(**TINY, headroom=0.25).rows, 40)

    def test_checkpoints_hold_the_parameters_and_the_target_map_alone(self):
        model = EnergyFlow(Cube(**TINY))
        self.assertEqual(set(model.state_dict()), {name for name, _ in model.named_parameters()} | {"target_map"})
        for name in ("mapper.bias", "neuron.place.weight", "neuron.net.6.bias", "carrier.cells.1.weight_hh", "carrier.cells.0.bias_ih",
                     "carrier.energy.0.weight", "carrier.move.2.bias"):
            self.assertIn(name, model.state_dict())

    def test_a_new_models_update_gate_leans_open(self):
        for cell in EnergyFlow(Cube(**TINY)).carrier.cells:
            for bias in (cell.bias_ih, cell.bias_hh):
                self.assertEqual(bias.tolist(), [0.0] * 8 + [1.0] * 8 + [0.0] * 8)

    def test_the_target_map_is_a_scaled_isometry_or_projection(self):
        for embedding in (7, 16, 40):
            cube = Cube(**dict(TINY, embedding=embedding))
            q = isometry(cube) / (cube.surface_scale * 4)
            self.assertEqual(q.shape, (16, embedding))
            square = q.T @ q if embedding <= 16 else q @ q.T
            self.assertLess((square - torch.eye(len(square))).abs().max().item(), 1e-5)
            model, vectors = EnergyFlow(cube), unit(3, embedding).float()
            back = model.read(model.target(vectors))
            close = (back - vectors).abs().max().item() < 1e-5
            self.assertEqual(close, embedding <= 16)


class Semantics(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)

    def test_positions_are_mirrored_for_any_overshoot(self):
        given = torch.tensor([0.3, -1.0, 1.0, 1.25, -1.25, 3.25, -3.25, 5.5], dtype=torch.float64)
        wanted = torch.tensor([0.3, -1.0, 1.0, 0.75, -0.75, -0.75, 0.75, 0.5], dtype=torch.float64)
        self.assertLess((mirrored(given) - wanted).abs().max().item(), 1e-15)

    def test_a_new_model_returns_the_mappers_surface(self):
        for shape in (TINY, dict(TINY, width=5, height=3, layers=3, batch=3), dict(TINY, arrive=0.6, headroom=0.5)):
            cube = Cube(**shape)
            model, x = EnergyFlow(cube), unit(cube.batch, cube.embedding).float()
            torch.nn.init.normal_(model.mapper.weight, std=0.5)
            with torch.no_grad():
                self.assertLess((model(x) - model.mapped(x)).abs().max().item(), 1e-5)

    def test_energy_laid_down_is_the_energy_carried(self):
        cube = Cube(**TINY, headroom=0.25, spawn_length=0.3, max_spawn=2)
        model, x = eventful(cube)
        trace = []
        with torch.no_grad():
            surface = model(x, trace)
        last = trace[-1]
        carried = last["energy"] * torch.where(last["active"], last["position"][:, 2].abs(), 1.0)
        for sample in range(cube.batch):
            mine = (last["owner"] == sample) & (torch.arange(cube.rows) < last["used"])
            self.assertAlmostEqual(surface[sample].sum().item(), carried[mine].sum().item(), places=12)

    def test_spawning_shares_the_parents_energy_and_starts_where_its_stride_began(self):
        cube = Cube(**TINY, headroom=0.25, spawn_length=0.3, max_spawn=2)
        model, x = eventful(cube)
        trace = []
        with torch.no_grad():
            model(x, trace)
        self.assertTrue((trace[0]["parent"] >= 0).any())
        children = (trace[0]["parent"] >= 0).nonzero().flatten()
        parents = trace[0]["parent"][children]
        self.assertEqual(parents.tolist(), sorted(parents.tolist()))
        self.assertLessEqual(parents.bincount().max().item(), 2)
        self.assertTrue(torch.equal(trace[0]["position"][children], model.start[parents]))
        for name in ("energy", "heading", "owner"):
            self.assertTrue(torch.equal(trace[0][name][children], trace[0][name][parents]), name)
        with torch.no_grad():  # without spawning the same step leaves the whole energy with the parent
            plain = []
            same = EnergyFlow(Cube(**TINY)).double()
            same.load_state_dict(model.state_dict())
            same(x, plain)
        whole = trace[0]["energy"][:32] + torch.zeros(32).double().index_add(0, parents, trace[0]["energy"][children])
        self.assertLess((whole - plain[0]["energy"]).abs().max().item(), 1e-12)

    def test_permuting_the_batch_permutes_the_output(self):
        cube = Cube(**dict(TINY, batch=5, headroom=0.0))
        model, x, order = disturbed(cube), unit(5, 12), torch.tensor([3, 0, 4, 2, 1])
        with torch.no_grad():
            straight, permuted = model(x), model(x[order])
        self.assertLess((straight[order] - permuted).abs().max().item(), 1e-12)
        self.assertGreater((straight - permuted).abs().max().item(), 1e-2)

    def test_noise_moves_flows_in_training_only_and_never_along_z(self):
        cube = Cube(**dict(TINY, noise=0.1))
        model, x, quiet, noisy = disturbed(cube), unit(2, 12), [], []
        with torch.no_grad():
            model.eval()(x, quiet)
            model.train()(x, noisy)
        moved = (noisy[0]["raw"] - quiet[0]["raw"]) / (2 / 3)
        self.assertEqual(moved[:, 2].abs().max().item(), 0)
        self.assertTrue(0.06 < moved[:, :2].std().item() < 0.14)

    def test_every_parameters_gradient_is_the_finite_difference(self):
        cube = Cube(**TINY, headroom=0.25, spawn_length=0.35, max_spawn=2)
        model, x = eventful(cube)
        goal = model.target(unit(2, 12))
        loss = lambda: F.mse_loss(model(x), goal)
        loss().backward()
        for name, parameter in model.named_parameters():
            entry = torch.zeros_like(parameter).flatten()
            entry[parameter.grad.abs().argmax()] = 1
            for direction in (entry.view_as(parameter), torch.randn_like(parameter), torch.randn_like(parameter)):
                size, ends = 1e-5 / direction.norm(), []
                for sign in (1, -1):
                    with torch.no_grad():
                        parameter += sign * size * direction
                        ends.append(loss())
                        parameter -= sign * size * direction
                slope, wanted = (ends[0] - ends[1]) / (2 * size), (parameter.grad * direction).sum()
                limit = 1e-6 * parameter.grad.norm() * direction.norm() + 1e-9
                self.assertLess((slope - wanted).abs().item(), limit.item(), name)
                self.assertGreater(parameter.grad.norm().item(), 1e-7, name)


class EarlyStop(unittest.TestCase):
    def steps(self, **options):
        torch.manual_seed(2)
        cube = Cube(**dict(TINY, steps=8, arrive=0.6, early_stop=True, **options))
        model, trace = EnergyFlow(cube), []
        with torch.no_grad():
            model(unit(2, 12).float(), trace)
        return len(trace)

    def test_steps_end_when_the_share_has_arrived(self):
        self.assertEqual(self.steps(), 5)

    def test_min_steps_holds_the_stop_back(self):
        self.assertEqual(self.steps(min_steps=7), 7)

    def test_patience_counts_from_the_first_arrival(self):
        self.assertEqual(self.steps(stop_at=1.5, patience=2), 7)
        self.assertEqual(self.steps(stop_at=1.5, patience=1, min_steps=1), 6)

    def test_a_rule_that_never_fires_changes_nothing(self):
        self.assertEqual(self.steps(stop_at=1.5, patience=9), 8)
        outputs = []
        for early in (False, True):
            torch.manual_seed(3)
            model = disturbed(Cube(**TINY, early_stop=early, stop_at=1.5))
            outputs.append(model(unit(2, 12)))
        self.assertTrue(torch.equal(*outputs))


class Program(unittest.TestCase):
    def test_a_tiny_run_gives_a_row(self):
        cube = Cube(**dict(TINY, noise=0.1))
        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            fine = report("energy-flow-tiny", lambda stacked, compiled: FlowTraining(cube, "cpu", "fp32", stacked, compiled), ["eager"],
                          "cpu", "fp32", 0.01, 60)
        row = json.loads(told.getvalue())
        self.assertTrue(fine and 0 < row["low"] <= row["ms"] <= row["high"], row)

    def test_steps_bring_the_surface_closer_to_the_target(self):
        run = FlowTraining(Cube(**dict(TINY, noise=0.1)), "cpu", "fp32")
        run.inputs[:], run.targets[:] = run.inputs[0].clone(), run.targets[0].clone()  # random pairs have nothing in common to learn
        losses = [run.step().item() for _ in range(100)]
        self.assertLess(losses[-1], 0.7 * losses[0])

    def test_modes_that_cannot_run_give_errors_and_bad_usage_status_2(self):
        command = [sys.executable, os.path.join(HERE, "energy_flow.py"), "--threads", "1"]
        done = subprocess.run([*command, "--modes", "graph,stacked,warp"], stdout=subprocess.PIPE, text=True)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual((done.returncode, [row["peer"] for row in rows]), (1, ["graph", "stacked", "warp"]))
        for row in rows:
            self.assertEqual(row["name"], "energy-flow-debug")
            self.assertIn("error", row)
        self.assertIn("no members to stack", rows[1]["error"])
        for wrong in (["--preset", "huge"], ["--precision", "bf16"], ["--seconds", "0"]):
            self.assertEqual(subprocess.run([*command, *wrong], stderr=subprocess.DEVNULL).returncode, 2, wrong)


if __name__ == "__main__":
    unittest.main()
