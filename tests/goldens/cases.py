"""The training goldens: small models of every kind, stepped ten times under each optimizer variant.

A case is run in float64 from float32 inputs; that run is what the file holds. A second run in float32 tells how far PyTorch itself
is from it, and must stay inside the tolerances that the tests will use.
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
from leak_model import LeakCnn  # noqa: E402
from model import Baseline, Collective  # noqa: E402

STEPS = 10
ADAM = dict(kind="adam", lr=1e-3, weight_decay=0.0)
SMALL = dict(experts=2, analysts=3, expert=[12, 7, 6], analyst=[9, 5, 4], inputs=20, classes=10, revision="r1")
SMALL_R2 = dict(SMALL, revision="r2", code=9)
TOLERANCE = dict(logits=1e-5, loss=1e-5, grad=1e-4, after1=1e-3, after10=1e-3)

CASES = {
    "collective_r1_adam": dict(model=SMALL),
    "collective_r2_adam": dict(model=SMALL_R2),
    "collective_r1_batch5": dict(model=dict(SMALL, inputs=23, classes=7), batch=5),
    "collective_r1_tail5": dict(model=SMALL, tail=5),
    "collective_r1_adamw": dict(model=SMALL, optimizer=dict(kind="adamw", lr=1e-3, weight_decay=0.01)),
    "collective_r1_adam_decay": dict(model=SMALL, optimizer=dict(kind="adam", lr=1e-3, weight_decay=0.01)),
    "collective_r1_sgd": dict(model=SMALL, optimizer=dict(kind="sgd", lr=1e-2, momentum=0.9, weight_decay=1e-4)),
    "collective_r1_clip": dict(model=SMALL, clip=0.5),
    "collective_r1_accumulate2": dict(model=SMALL, accumulate=2),
    "collective_r2_diversity": dict(model=dict(SMALL_R2, inputs=23), diversity=dict(weight=0.01, temperature=0.5)),
    "shallow_adam": dict(model=dict(baseline=[11, 9], inputs=20, classes=10, residual=False)),
    "resnet_adam": dict(model=dict(baseline=[9, 9, 9, 7], inputs=23, classes=10, residual=True)),
    "leak_cnn_weighted": dict(model=dict(channels=[5, 8, 12], hidden=11, inputs=64, classes=2, positive=1, loss="weighted",
                                         weights=[0.871, 1.129], gamma=0, auxiliary=0.5),
                              optimizer=dict(kind="adamw", lr=1e-3, weight_decay=0.01), clip=0.2),
    "leak_cnn_focal": dict(model=dict(channels=[4, 7, 6], hidden=9, inputs=20, classes=5, positive=2, loss="focal",
                                      weights=[0.0625, 0.0625, 0.75, 0.0625, 0.0625], gamma=2, auxiliary=0.3), batch=13, tail=5),
}


def build(shape):
    shape = dict(shape, dropout=0.0)
    if "channels" in shape:
        return LeakCnn(**shape)
    if "baseline" in shape:
        return Baseline(shape.pop("baseline"), **shape)
    return Collective(**shape)


def fill(model, random, fan):
    """Weights N(0, 2 / fan); biases, gains and shifts are moved off 0 and 1, where mistakes would hide."""
    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, nn.Linear):
                width = part.in_features if fan == "in" else part.out_features
                part.weight.copy_(torch.from_numpy(random.standard_normal(part.weight.shape) * math.sqrt(2 / width)))
                part.bias.copy_(torch.from_numpy(0.1 * random.standard_normal(part.bias.shape)))
            elif isinstance(part, nn.Conv2d):
                deviation_of = math.sqrt(2 / (9 * part.out_channels))
                part.weight.copy_(torch.from_numpy(random.standard_normal(part.weight.shape) * deviation_of))
                part.bias.copy_(torch.from_numpy(0.1 * random.standard_normal(part.bias.shape)))
            elif isinstance(part, nn.BatchNorm1d):
                part.weight.copy_(torch.from_numpy(1 + 0.1 * random.standard_normal(part.weight.shape)))
                part.bias.copy_(torch.from_numpy(0.1 * random.standard_normal(part.bias.shape)))


def norms(model):
    """Pairs (Linear, BatchNorm) of names where the second reads the first directly."""
    pairs, previous = [], None
    for name, part in model.named_modules():
        if isinstance(part, nn.BatchNorm1d) and previous:
            pairs.append((previous, name))
        if not list(part.children()):
            previous = name if isinstance(part, nn.Linear) else None
    return pairs


def zero_gradient(model, diverse):
    """Names of the parameters whose gradient is zero by algebra, whatever the data.

    BatchNorm takes away any constant added to its input. That silences the bias of the Linear before it, and also a bias two Linears
    before it when nothing nonlinear lies between: outputs of the experts (read by the encoder), of the encoder (read by the analysts
    beside x) and in r2 of the analysts. The diversity term reads the members' outputs and wakes theirs.
    """
    names = [f"{linear}.bias" for linear, _ in norms(model)]
    if isinstance(model, Collective):
        last = lambda group: [f"{group}.{i}.{len(chain) - 1}.bias" for i, chain in enumerate(getattr(model, group))]
        names.append(f"encoder.{len(model.encoder) - 1}.bias")
        if not diverse:
            names += last("experts") + (last("analysts") if model.analyst_encoder is not None else [])
    return names


def diversity(outputs, temperature):
    """Mean over unordered pairs of |batch mean of the cosine| / temperature; outputs are [B, width] each."""
    unit = [F.normalize(o, dim=1, eps=1e-12) for o in outputs]
    pairs = [(unit[i] * unit[j]).sum(1).mean().div(temperature).abs() for i in range(len(unit)) for j in range(i)]
    return sum(pairs) / len(pairs)


def optimizer_of(model, given):
    options = dict(lr=given["lr"], weight_decay=given["weight_decay"])
    if given["kind"] == "sgd":
        return torch.optim.SGD(model.parameters(), momentum=given["momentum"], **options)
    kind = dict(adam=torch.optim.Adam, adamw=torch.optim.AdamW)[given["kind"]]
    return kind(model.parameters(), betas=(0.9, 0.999), eps=1e-8, **options)


def losses(model, x, labels, terms):
    """(logits, objective, named terms) of one micro-batch."""
    if isinstance(model, LeakCnn):
        logits, leak = model.both(x)
        return logits, sum(model.losses(logits, leak, labels)), {}
    if terms is None:
        logits = model(x)
        return logits, F.cross_entropy(logits, labels), {}
    experts, analysts, logits = model.opinions(x)
    found = dict(cross_entropy=F.cross_entropy(logits, labels), diversity_experts=diversity(experts, terms["temperature"]),
                 diversity_analysts=diversity(analysts, terms["temperature"]))
    extra = terms["weight"] * (found["diversity_experts"] + found["diversity_analysts"])
    return logits, found["cross_entropy"] + extra, found


def batches(case, random):
    """Micro-batches as (x [B, inputs], labels [B]) float32 / int32; with `tail` the last one is shorter."""
    inputs, classes = case["model"]["inputs"], case["model"]["classes"]
    total = STEPS * case.get("accumulate", 1)
    rows = [case.get("batch", 16)] * total
    if "tail" in case:
        rows[-1] = case["tail"]
    centres = random.standard_normal((classes, inputs))
    made = []
    for count in rows:
        labels = random.randint(0, classes, count)
        made.append(((centres[labels] + random.standard_normal((count, inputs))).astype(np.float32), labels.astype(np.int32)))
    return made


def train(case, model, data, evaluation, precision):
    """Steps `model` in place and returns every tensor of the golden, as numpy arrays of the run's own precision."""
    out = {f"init.{name}": value.numpy().copy() for name, value in model.state_dict().items()}
    optimizer = optimizer_of(model, case.get("optimizer", ADAM))
    micro = case.get("accumulate", 1)
    series = {"loss": []}
    for step in range(STEPS):
        optimizer.zero_grad()
        sums = {}
        for x, labels in data[step * micro:(step + 1) * micro]:
            logits, loss, terms = losses(model, torch.from_numpy(x).to(precision), torch.from_numpy(labels).long(), case.get("diversity"))
            (loss / micro).backward()
            for name, value in dict(terms, loss=loss).items():
                sums[name] = sums.get(name, 0.0) + value.item() / micro
            out.setdefault("logits", logits.detach().numpy().copy())
        if step == 0:
            out.update({f"grad.{name}": value.grad.numpy().copy() for name, value in model.named_parameters()})
        if "clip" in case:
            sums["grad_norm"] = nn.utils.clip_grad_norm_(model.parameters(), case["clip"]).item()
        optimizer.step()
        for name, value in sums.items():
            series.setdefault(name, []).append(value)
        if step in (0, STEPS - 1):
            out.update({f"after{step + 1}.{name}": value.numpy().copy() for name, value in model.state_dict().items()})
    out.update({name: np.array(values) for name, values in series.items()})
    model.eval()
    with torch.no_grad():
        out["eval.logits"] = model(torch.from_numpy(evaluation).to(precision)).numpy()
    return out


def deviation(exact, rounded, exempt, groups=TOLERANCE):
    """Largest distance of the float32 run from the float64 run per group, relative to each tensor's norm (outputs, loss: absolute)."""
    worst = dict.fromkeys(groups, 0.0)
    for name, values in exact.items():
        group, _, rest = name.partition(".")
        if group not in worst or rest in exempt or values.dtype.kind != "f":
            continue
        distance = np.abs(values - rounded[name]).max() if group in ("logits", "surface", "loss") else \
            np.linalg.norm(values - rounded[name]) / max(np.linalg.norm(values), 1e-12)
        worst[group] = max(worst[group], float(distance))
    return worst


def golden(name, seed):
    """(tensors, metadata) of one case."""
    case = CASES[name]
    random = np.random.RandomState(seed)
    torch.manual_seed(0)
    model = build(case["model"])
    fill(model, random, "out" if "baseline" in case["model"] else "in")
    data = batches(case, random)
    evaluation = random.standard_normal((7, case["model"]["inputs"])).astype(np.float32)
    start = {key: value.clone() for key, value in model.state_dict().items()}
    rounded = train(case, model, data, evaluation, torch.float32)
    model.load_state_dict(start)
    model = model.double().train()
    exact = train(case, model, data, evaluation, torch.float64)
    biases = zero_gradient(model, "diversity" in case)
    silent = {key[len("grad."):] for key, value in exact.items() if key.startswith("grad.") and np.abs(value).max() < 1e-12}
    assert silent == set(biases), (name, silent ^ set(biases))
    # Adam turns the rounding noise in those biases into steps, and the running means behind them follow.
    drifting = [f"{norm}.running_mean" for _, norm in norms(model)] if case.get("optimizer", ADAM)["kind"] != "sgd" else []
    worst = deviation(exact, rounded, set(biases))
    worst["after10"] = deviation(exact, rounded, set(biases) | set(drifting))["after10"]
    for group, limit in TOLERANCE.items():
        assert worst[group] < limit, (name, group, worst)
    if "clip" in case:
        assert exact["grad_norm"].min() > case["clip"], "the clip never acts"

    tensors = {key: value.astype(np.float32) if value.dtype.kind == "f" else value for key, value in exact.items()}
    whole = [pair for pair in data if len(pair[0]) == len(data[0][0])]
    tensors["x"] = np.stack([x for x, _ in whole])
    tensors["labels"] = np.stack([labels for _, labels in whole])
    if len(whole) < len(data):
        tensors["tail.x"], tensors["tail.labels"] = data[-1]
    tensors["eval.x"] = evaluation
    metadata = dict(case=name, seed=str(seed), model=json.dumps(case["model"]), optimizer=json.dumps(case.get("optimizer", ADAM)),
                    steps=str(STEPS), accumulate=str(case.get("accumulate", 1)), clip=str(case.get("clip", 0)),
                    diversity=json.dumps(case.get("diversity")), parameters=str(sum(p.numel() for p in model.parameters())),
                    zero_gradient=json.dumps(biases), drifting=json.dumps(drifting),
                    float32_deviation=json.dumps({key: float(f"{value:.2e}") for key, value in worst.items()}))
    return tensors, metadata
