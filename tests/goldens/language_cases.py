"""The language goldens: a stack of causal transformer layers, and a tree of them of which a step updates the nodes with the largest
gradients, both stepped ten times.

Layers have their norms behind the residual. What is not chosen gets a gradient of zero behind clipping, so decay and moments go on.
As in cases.py the file holds the run in float64, and a run in float32 must stay inside the tolerances.
"""
import json
import os
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from cases import STEPS, deviation, optimizer_of
from text_cases import ADAMW, fill, quiet_keys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench", "peers"))
from language_model import Language  # noqa: E402

TOLERANCE = dict(logits=1e-5, loss=1e-5, norms=1e-4, grad=1e-4, after1=1e-3, after10=1e-3)
SHAPE = dict(vocabulary=23, length=7, width=8, heads=2, inner=12)

CASES = {
    "language_series": dict(model=dict(SHAPE, depth=2, branching=[], topology="tree", k=0), batch=5, clip=1.0, optimizer=ADAMW, seed=91),
    "language_tree": dict(model=dict(SHAPE, depth=0, branching=[2, 3], topology="tree", k=4), batch=5, clip=1.0, optimizer=ADAMW, seed=92),
    "language_level": dict(model=dict(SHAPE, depth=0, branching=[3, 2], topology="level", k=3), batch=4, clip=0.5, optimizer=ADAMW, seed=93),
}


def state(model, prefix):
    return {f"{prefix}.{name}": value.detach().numpy().copy() for name, value in model.named_parameters()}


def train(case, model, data):
    out = state(model, "init")
    optimizer = optimizer_of(model, case["optimizer"])
    losses, norms, chosen = [], [], []
    for step, (window, lengths) in enumerate(data):
        window, lengths = torch.from_numpy(window).long(), torch.from_numpy(lengths).long()
        told = torch.arange(window.shape[1] - 1)[None] < lengths[:, None]
        optimizer.zero_grad()
        logits = model(window[:, :-1])
        loss = F.cross_entropy(logits[told], window[:, 1:][told])
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            out["logits"] = (logits * told[:, :, None]).detach().numpy().copy()
            out.update({f"grad.{name}": value.grad.numpy().copy() for name, value in model.named_parameters()})
        whole = nn.utils.clip_grad_norm_(model.parameters(), case["clip"])
        if model.k:
            size, keep = model.choose()
            ranked = size.sort(descending=True).values
            assert ranked[model.k - 1] > 1.001 * ranked[model.k], "the choice hangs on rounding"
            norms.append((size * max(1.0, whole.item() / case["clip"])).numpy())  # before clipping
            chosen.append(keep.numpy().astype(np.int32))
        optimizer.step()
        if step in (0, STEPS - 1):
            out.update(state(model, f"after{step + 1}"))
    out["loss"] = np.array(losses)
    if norms:
        out["norms"], out["chosen"] = np.stack(norms), np.stack(chosen)
    return out


def batches(case, random):
    """(windows of length + 1 tokens, targets that count) of every step; the last window of each is a short one."""
    shape, made = case["model"], []
    for _ in range(STEPS):
        window = random.randint(0, shape["vocabulary"], (case["batch"], shape["length"] + 1))
        lengths = np.full(case["batch"], shape["length"])
        lengths[-1] = random.randint(0, shape["length"])
        window[-1, lengths[-1] + 1:] = 0
        made.append((window.astype(np.int32), lengths.astype(np.int32)))
    return made


def golden(name):
    """(tensors, metadata) of one case."""
    case = CASES[name]
    random = np.random.RandomState(case["seed"])
    torch.manual_seed(0)
    model = Language(**case["model"])
    fill(model, random)
    data = batches(case, random)
    start = {key: value.clone() for key, value in model.state_dict().items()}
    rounded = train(case, model, data)
    model.load_state_dict(start)
    exact = train(case, model.double(), data)
    width = case["model"]["width"]
    limits = {group: limit for group, limit in TOLERANCE.items() if group != "norms" or case["model"]["k"]}
    worst = deviation(quiet_keys(exact, width), quiet_keys(rounded, width), set(), limits)
    for group, limit in limits.items():
        assert worst[group] < limit, (name, group, worst)
    tensors = {key: value.astype(np.float32) if value.dtype.kind == "f" else value for key, value in exact.items()}
    tensors.update(windows=np.stack([d[0] for d in data]), lengths=np.stack([d[1] for d in data]))
    metadata = dict(case=name, seed=str(case["seed"]), model=json.dumps(case["model"]), optimizer=json.dumps(case["optimizer"]),
                    clip=str(case["clip"]), steps=str(STEPS), batch=str(case["batch"]),
                    parameters=str(sum(p.numel() for p in model.parameters())), zero_gradient="[]", drifting="[]",
                    float32_deviation=json.dumps({key: float(f"{value:.2e}") for key, value in worst.items()}))
    return tensors, metadata
