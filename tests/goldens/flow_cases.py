"""The energy flow goldens: small cubes stepped ten times with AdamW and a clip, with a trace of the first forward pass.

A case is run in float64 from float32 inputs; a second run in float32 must stay inside the tolerances that the tests will use. That
holds only while both take the same turns, so no flow may come within CLEARANCE of where its fate changes, in any step of any pass:
batches are drawn until that is so.
"""
import json
import math
import os
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench", "peers"))
from cases import STEPS, deviation, optimizer_of  # noqa: E402
from flow_model import Cube, EnergyFlow  # noqa: E402
from flow_trace import COUNTERS, clearance, counters  # noqa: E402

CLEARANCE = 1e-3
PATIENCE = 2000  # batches drawn for one step before a seed is given up
TOLERANCE = dict(surface=1e-5, loss=1e-5, grad=1e-4, after1=1e-3, after10=1e-3)
ADAMW = dict(kind="adamw", lr=1e-3, weight_decay=0.01)
SMALL = dict(width=4, height=4, depth=4, steps=3, batch=2, hidden=8, layers=2, embedding=12, arrive=1.0, noise=0.0)
ODD = dict(width=5, height=3, depth=6, batch=3, hidden=12, layers=3, arrive=1.0, noise=0.0)
SLOW = dict(SMALL, depth=12, steps=6, arrive=0.6, early_stop=True)
BOTH = dict(arrived_up=1, arrived_down=1)

# `heads` is the standard deviation of the last layers of both heads, `events` what must happen at least so often in the first pass.
CASES = {
    "energy_flow": dict(model=SMALL, seed=102, clip=0.1, events=BOTH),
    "energy_flow_spawn": dict(model=dict(SMALL, headroom=0.5, spawn_length=0.6), heads=0.2, seed=201,
                              events=dict(BOTH, spawned=1, reflected=1, projected=1)),
    "energy_flow_spawn_full": dict(model=dict(SMALL, headroom=0.25, spawn_length=0.3, max_spawn=2), heads=0.2, seed=301,
                                   events=dict(BOTH, spawned=8, refused=1, reflected=1, projected=1)),
    "energy_flow_projection": dict(model=dict(ODD, embedding=40), seed=401, events=BOTH),
    "energy_flow_isometry": dict(model=dict(ODD, embedding=7), seed=500, events=BOTH),
    "energy_flow_stop_share": dict(model=dict(SLOW, stop_at=0.8, headroom=0.5, spawn_length=0.4), heads=0.1, seed=603,
                                   events=dict(BOTH, spawned=1, projected=1), stops=True),
    "energy_flow_stop_patience": dict(model=dict(SLOW, stop_at=1.0, min_steps=2, patience=1), heads=0.2, seed=705,
                                      events=dict(BOTH, projected=1), stops=True),
}


def fill(model, random, heads):
    """Biases, gains and shifts are moved off 0 and 1, where mistakes would hide; energies are spread over (-1, 1)."""
    draw = lambda like, std: torch.from_numpy(std * random.standard_normal(like.shape))
    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, nn.Linear):
                part.weight.copy_(draw(part.weight, 1 / math.sqrt(part.in_features)))
                part.bias.copy_(draw(part.bias, 0.1))
            elif isinstance(part, nn.LayerNorm):
                part.weight.copy_(1 + draw(part.weight, 0.1))
                part.bias.copy_(draw(part.bias, 0.1))
            elif isinstance(part, nn.GRUCell):
                for weight, bias in ((part.weight_ih, part.bias_ih), (part.weight_hh, part.bias_hh)):
                    weight.copy_(draw(weight, 1 / math.sqrt(weight.shape[1])))
                    bias.copy_(draw(bias, 0.2))
        model.mapper.weight.copy_(draw(model.mapper.weight, 0.5))
        for head in (model.carrier.energy, model.carrier.move):
            head[-1].weight.copy_(draw(head[-1].weight, heads))
            head[-1].bias.copy_(draw(head[-1].bias, heads))
        cells, embedding = model.target_map.shape
        basis = np.linalg.qr(random.standard_normal((max(cells, embedding), min(cells, embedding))))[0]
        scale = model.cube.surface_scale * math.sqrt(cells)
        model.target_map.copy_(torch.from_numpy(scale * (basis if cells >= embedding else basis.T)))


def unit(random, *shape):
    rows = random.standard_normal(shape)
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def events_of(cube, trace):
    """What happened to the flows of a pass: counts by name, with `arrived` on both planes and `projected` for those still under way."""
    found = dict(zip(COUNTERS, counters(cube, trace)[-1].tolist()))
    return dict(found, arrived=found["arrived_up"] + found["arrived_down"], projected=int(trace[-1]["active"].sum()))


def clear_input(case, model, random, first):
    """Inputs [B, embedding] on which no flow of `model` comes near a turn; the first ones also make the case's events happen."""
    cube = model.cube
    for _ in range(PATIENCE):
        x, trace = unit(random, cube.batch, cube.embedding), []
        with torch.no_grad():
            given = torch.from_numpy(x).double()
            model(given, trace)
            if clearance(cube, model.mapped(given), trace) < CLEARANCE:
                continue
        if case.get("stops") and len(trace) == cube.steps:
            continue
        happened = events_of(cube, trace)
        if not first or all(happened[name] >= least for name, least in case.get("events", {}).items()):
            return x
    raise RuntimeError(f"no clear batch among {PATIENCE}: try another seed or smaller heads")


def traced(trace, states):
    """The golden's tensors of a trace: what every row was after each step that ran."""
    kinds = dict(position=None, energy=None, heading=None, active=np.int32, owner=np.int32, parent=np.int32, state=None)
    if not states:
        kinds.pop("state")
    stacked = {name: np.stack([step[name].detach().numpy() for step in trace]) for name in kinds}
    return {f"trace.{name}": values.astype(kinds[name] or values.dtype) for name, values in stacked.items()}


def train(case, model, next_x, targets, eval_x, precision):
    """Steps `model` in place; next_x(step) gives the inputs. Returns every tensor of the golden, in the run's own precision."""
    cube = model.cube
    out = {f"init.{name}": value.numpy().copy() for name, value in model.state_dict().items()}
    optimizer = optimizer_of(model, ADAMW)
    losses, norms, counts = [], [], []
    for step in range(STEPS):
        x, target = torch.from_numpy(next_x(step)).to(precision), torch.from_numpy(targets[step]).to(precision)
        optimizer.zero_grad()
        trace = []
        surface, goal = model(x, trace), model.target(target)
        loss = F.mse_loss(surface, goal)
        loss.backward()
        counts.append(counters(cube, trace).numpy())
        if step == 0:
            out.update(surface=surface.detach().numpy().copy(), goal=goal.numpy(), mapped=model.mapped(x).detach().numpy().copy(),
                       vector=model.read(surface.detach()).numpy())
            out.update(traced(trace, states=True), **{"trace.counters": counts[0]})
            out.update({f"grad.{name}": value.grad.numpy().copy() for name, value in model.named_parameters()})
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), case.get("clip", 1.0)).item())
        losses.append(loss.item())
        optimizer.step()
        if step in (0, STEPS - 1):
            out.update({f"after{step + 1}.{name}": value.numpy().copy() for name, value in model.state_dict().items()})
    out.update(loss=np.array(losses), grad_norm=np.array(norms), counters=np.stack([rows[-1] for rows in counts]))
    model.eval()
    with torch.no_grad():
        out["eval.surface"] = model(torch.from_numpy(eval_x(model)).to(precision)).numpy()
    return out


def golden(name):
    """(tensors, metadata) of one case."""
    case = CASES[name]
    cube, random = Cube(**case["model"]), np.random.RandomState(case["seed"])
    model = EnergyFlow(cube)
    fill(model, random, case.get("heads", 0.05))
    start = {key: value.clone() for key, value in model.state_dict().items()}
    targets = np.stack([unit(random, cube.batch, cube.embedding) for _ in range(STEPS)])
    x, last = [], []

    def draw(step):
        x.append(clear_input(case, model, random, first=step == 0))
        return x[-1]

    def draw_last(model):
        last.append(clear_input(case, model, random, first=False))
        return last[0]

    exact = train(case, model.double(), draw, targets, draw_last, torch.float64)
    model = EnergyFlow(cube)
    model.load_state_dict(start)
    rounded = train(case, model, lambda step: x[step], targets, lambda model: last[0], torch.float32)
    assert all(np.array_equal(rounded[key], values) for key, values in exact.items() if values.dtype.kind == "i"), "other turns in float32"
    assert min(np.abs(values).max() for key, values in exact.items() if key.startswith("grad.")) > 1e-9, "a parameter without a gradient"
    worst = deviation(exact, rounded, set(), TOLERANCE)
    for group, limit in TOLERANCE.items():
        assert worst[group] < limit, (name, group, worst)
    if "clip" in case:
        assert exact["grad_norm"].min() > case["clip"], "the clip never acts"

    tensors = {key: value.astype(np.float32) if value.dtype.kind == "f" else value for key, value in exact.items()}
    tensors.update(x=np.stack(x), targets=targets, **{"eval.x": last[0]})
    metadata = dict(case=name, seed=str(case["seed"]), model=json.dumps(case["model"]), optimizer=json.dumps(ADAMW), steps=str(STEPS),
                    accumulate="1", clip=str(case.get("clip", 1.0)), counters=json.dumps(COUNTERS), clearance=str(CLEARANCE),
                    derived=json.dumps(dict(rows=cube.rows, steps=cube.steps, min_steps=cube.min_steps, drift=cube.drift)),
                    parameters=str(sum(p.numel() for p in model.parameters())), zero_gradient="[]", drifting="[]",
                    float32_deviation=json.dumps({key: float(f"{value:.2e}") for key, value in worst.items()}))
    return tensors, metadata
