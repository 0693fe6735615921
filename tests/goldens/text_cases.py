"""The sentence goldens: a tiny encoder (masked mean, tanh) and a tiny causal decoder behind a prefix, stepped ten times.

The layers are PyTorch's own nn.TransformerEncoderLayer, norms first. As in cases.py the file holds the run in float64, and a run in
float32 must stay inside the tolerances.
"""
import json

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from cases import STEPS, deviation, optimizer_of

TOLERANCE = dict(output=1e-5, logits=1e-5, loss=1e-5, grad=1e-4, after1=1e-3, after10=1e-3)
SGD = dict(kind="sgd", lr=0.05, momentum=0.9, weight_decay=1e-4)
ADAMW = dict(kind="adamw", lr=1e-3, weight_decay=0.01)

CASES = {
    "text_encoder": dict(model=dict(kind="encoder", vocabulary=17, tokens=7, prefix=0, width=12, heads=3, inner=20, layers=2, cells=9),
                         batch=5, optimizer=SGD, seed=71),
    "text_decoder": dict(model=dict(kind="decoder", vocabulary=13, tokens=6, prefix=3, width=10, heads=2, inner=17, layers=2, cells=8),
                         batch=5, optimizer=ADAMW, seed=72),
}


class Embed(nn.Module):
    def __init__(self, vocabulary, places, width):
        super().__init__()
        self.tokens, self.position = nn.Embedding(vocabulary, width), nn.Embedding(places, width)


class Sentences(nn.Module):
    """Both kinds; `sight` says which places a place may not see, whatever the lengths."""

    def __init__(self, kind, vocabulary, tokens, prefix, width, heads, inner, layers, cells):
        super().__init__()
        self.kind, self.prefix = kind, prefix
        places = prefix + tokens
        if kind == "decoder":
            self.start = nn.Linear(cells, prefix * width)
        self.embed = Embed(vocabulary, places, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, inner, dropout=0.0, activation=F.gelu, batch_first=True, norm_first=True)
            for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, cells if kind == "encoder" else vocabulary)
        i, j = torch.arange(places)[:, None], torch.arange(places)[None]
        self.sight = (j > i) & (j >= prefix) if kind == "decoder" else torch.zeros(places, places, dtype=torch.bool)

    def forward(self, ids, lengths, surface=None):
        x = self.embed.tokens(ids.clamp(min=0))
        if surface is not None:
            x = torch.cat([self.start(surface).view(len(ids), self.prefix, -1), x], 1)
        x = x + self.embed.position.weight
        hidden = torch.arange(x.shape[1])[None] >= self.prefix + lengths[:, None]
        for layer in self.layers:
            x = layer(x, src_mask=self.sight, src_key_padding_mask=hidden)
        x = self.norm(x)
        if self.kind == "decoder":
            return self.out(x)
        filled = (~hidden).to(x.dtype)[:, :, None]
        return torch.tanh(self.out((x * filled).sum(1) / filled.sum(1)))


def fill(model, random):
    """Weights N(0, 1 / in), embeddings N(0, 1); biases, gains and shifts are moved off 0 and 1."""
    with torch.no_grad():
        for name, value in model.named_parameters():
            drawn = torch.from_numpy(random.standard_normal(value.shape))
            if name.startswith("embed"):
                value.copy_(drawn)
            elif value.dim() == 2:
                value.copy_(drawn / value.shape[1] ** 0.5)
            else:
                value.copy_(0.1 * drawn + (1 if "norm" in name and name.endswith("weight") else 0))


def spoken(name):
    """The names of our layers: a dot where PyTorch has an underscore."""
    return name.replace("in_proj_", "in_proj.")


def state(model, prefix):
    return {f"{prefix}.{spoken(name)}": value.detach().numpy().copy() for name, value in model.named_parameters()}


def token_losses(model, logits, ids, lengths):
    """(mean, [sum, tokens, right, whole], logits where a token is told and zeros elsewhere)."""
    told = (torch.arange(ids.shape[1])[None] < lengths[:, None])
    first = model.prefix - 1
    about = logits[:, first:first + ids.shape[1]]
    losses = F.cross_entropy(about[told], ids[told], reduction="none")
    right = (about.argmax(2) == ids) & told
    whole = (right.sum(1) == lengths) & (lengths > 0)
    shown = torch.zeros_like(logits)
    shown[:, first:first + ids.shape[1]][told] = about[told].detach()
    return losses.mean(), [losses.sum().item(), told.sum().item(), right.sum().item(), whole.sum().item()], shown


def train(case, model, data, precision):
    out = state(model, "init")
    optimizer = optimizer_of(model, case["optimizer"])
    losses, tallies = [], []
    for step, (ids, lengths, cells) in enumerate(data):
        ids, lengths, cells = torch.from_numpy(ids).long(), torch.from_numpy(lengths).long(), torch.from_numpy(cells).to(precision)
        optimizer.zero_grad()
        if model.kind == "encoder":
            output = model(ids, lengths)
            loss = F.mse_loss(output, cells)
            out.setdefault("output", output.detach().numpy().copy())
        else:
            loss, tally, shown = token_losses(model, model(ids, lengths, cells), ids, lengths)
            tallies.append(tally)
            out.setdefault("logits", shown.numpy())
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            out.update({f"grad.{spoken(name)}": value.grad.numpy().copy() for name, value in model.named_parameters()})
        optimizer.step()
        if step in (0, STEPS - 1):
            out.update(state(model, f"after{step + 1}"))
    out["loss"] = np.array(losses)
    if tallies:
        out["tally"] = np.array(tallies)
    return out


def batches(case, random):
    """(ids with -1 behind the length, lengths, values of the surface) of every step."""
    shape, made = case["model"], []
    least = 1 if shape["kind"] == "encoder" else 0  # PyTorch has no softmax over nothing
    for _ in range(STEPS):
        lengths = random.randint(least, shape["tokens"] + 1, case["batch"])
        lengths[0], lengths[1] = shape["tokens"], least
        ids = random.randint(0, shape["vocabulary"], (case["batch"], shape["tokens"]))
        ids[np.arange(shape["tokens"])[None] >= lengths[:, None]] = -1
        cells = np.tanh(random.standard_normal((case["batch"], shape["cells"])))
        made.append((ids.astype(np.int32), lengths.astype(np.int32), cells.astype(np.float32)))
    return made


def quiet_keys(tensors, width):
    """A copy without the biases of the keys: they add the same to all scores of a place, so their gradient is zero."""
    kept = dict(tensors)
    for name in tensors:
        if name.endswith("in_proj.bias"):
            kept[name] = np.delete(tensors[name], slice(width, 2 * width))
    return kept


def golden(name):
    """(tensors, metadata) of one case."""
    case = CASES[name]
    random = np.random.RandomState(case["seed"])
    torch.manual_seed(0)
    model = Sentences(**case["model"])
    fill(model, random)
    data = batches(case, random)
    start = {key: value.clone() for key, value in model.state_dict().items()}
    rounded = train(case, model, data, torch.float32)
    model.load_state_dict(start)
    exact = train(case, model.double(), data, torch.float64)
    width = case["model"]["width"]
    for key, value in exact.items():
        if key.startswith("grad.") and key.endswith("in_proj.bias"):
            assert np.abs(value[width:2 * width]).max() < 1e-12, key
    worst = deviation(quiet_keys(exact, width), quiet_keys(rounded, width), set(), TOLERANCE)
    for group, limit in TOLERANCE.items():
        assert worst[group] < limit, (name, group, worst)

    tensors = {key: value.astype(np.float32) if value.dtype.kind == "f" else value for key, value in exact.items()}
    tensors.update(ids=np.stack([d[0] for d in data]), lengths=np.stack([d[1] for d in data]), cells=np.stack([d[2] for d in data]))
    metadata = dict(case=name, seed=str(case["seed"]), model=json.dumps(case["model"]), optimizer=json.dumps(case["optimizer"]),
                    steps=str(STEPS), batch=str(case["batch"]), parameters=str(sum(p.numel() for p in model.parameters())),
                    zero_gradient="[]", drifting="[]",
                    float32_deviation=json.dumps({key: float(f"{value:.2e}") for key, value in worst.items()}))
    return tensors, metadata
