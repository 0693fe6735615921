"""The collective model in plain PyTorch: experts -> encoder -> analysts (-> encoder in r2) -> head, and its baselines.

Shapes: x [B, inputs] -> logits [B, classes]. The peers time it and the goldens are made from it, so there is one definition.
`dropout` scales every rate: 1 is the model as trained, 0 switches dropout off.
"""
import math

import torch
from torch import nn

from presets import PARAMETERS, PRESETS, collective_code  # noqa: F401 (read from here by those that need the model, too)


def member(inputs, widths, dropout):
    """Hidden layers Linear, BatchNorm, ReLU with dropout between them, then a plain Linear to the last width."""
    blocks, width = [], inputs
    for depth, hidden in enumerate(widths[:-1]):
        if depth > 0:
            blocks.append(nn.Dropout(dropout))
        blocks += [nn.Linear(width, hidden), nn.BatchNorm1d(hidden), nn.ReLU()]
        width = hidden
    blocks.append(nn.Linear(width, widths[-1]))
    return nn.Sequential(*blocks)


def encoder(inputs, outputs, dropout):
    middle = math.isqrt(inputs * outputs)
    return nn.Sequential(nn.Linear(inputs, middle), nn.BatchNorm1d(middle), nn.ReLU(), nn.Dropout(dropout),
                         nn.Linear(middle, outputs))


class Collective(nn.Module):
    """`code` overrides the width of the r2 analyst encoder; r1 has no such encoder and ignores it. `rates` of dropout: in members,
    encoders and the head."""

    def __init__(self, experts, analysts, expert, analyst, inputs=784, classes=10, compression=0.25, hidden_scale=1.0,
                 revision="r1", code=None, dropout=1.0, rates=(0.2, 0.1, 0.2)):
        super().__init__()
        in_member, in_encoder, in_head = (rate * dropout for rate in rates)
        opinions = experts * expert[-1]
        summary = int(opinions * compression)
        votes = analysts * analyst[-1]
        self.experts = nn.ModuleList([member(inputs, expert, in_member) for _ in range(experts)])
        self.encoder = encoder(opinions, summary, in_encoder)
        self.analysts = nn.ModuleList([member(inputs + summary, analyst, in_member) for _ in range(analysts)])
        self.analyst_encoder = None
        if revision == "r2":
            code = code or collective_code(analysts, analyst[-1])
            self.analyst_encoder = encoder(votes, code, in_encoder)
            votes = code
        hidden = max(int(votes * hidden_scale), 2 * classes)
        self.head = nn.Sequential(nn.Linear(votes, hidden), nn.ReLU(), nn.Dropout(in_head), nn.Linear(hidden, classes))
        initialise(self, "in")

    def opinions(self, x):
        """Outputs of every expert, every analyst ([B, width] each), and the logits."""
        experts = [expert(x) for expert in self.experts]
        seen = torch.cat([x, self.encoder(torch.cat(experts, 1))], 1)
        analysts = [analyst(seen) for analyst in self.analysts]
        votes = torch.cat(analysts, 1)
        if self.analyst_encoder is not None:
            votes = self.analyst_encoder(votes)
        return experts, analysts, self.head(votes)

    def forward(self, x):
        return self.opinions(x)[2]


class BaselineLayer(nn.Module):
    """relu(norm(linear(x)) [+ x, or + skip(x) when the widths differ]), then dropout."""

    def __init__(self, inputs, outputs, residual, dropout):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.norm = nn.BatchNorm1d(outputs)
        self.skip = nn.Linear(inputs, outputs) if residual and inputs != outputs else None
        self.residual = residual
        self.dropout = nn.Dropout(0.1 * dropout)

    def forward(self, x):
        y = self.norm(self.linear(x))
        if self.residual:
            y = y + (x if self.skip is None else self.skip(x))
        return self.dropout(torch.relu(y))


class Baseline(nn.Module):
    """A chain of hidden layers and a Linear head: the monolithic MLP, or with `residual` the one with skips."""

    def __init__(self, widths, inputs=784, classes=10, residual=False, dropout=1.0):
        super().__init__()
        ends = [inputs, *widths]
        self.layers = nn.ModuleList([BaselineLayer(a, b, residual, dropout) for a, b in zip(ends, ends[1:])])
        self.out = nn.Linear(ends[-1], classes)
        initialise(self, "out")

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


def initialise(model, fan):
    """Weights N(0, 2 / fan), biases zero; the collective counts fan-in, the baselines fan-out."""
    for part in model.modules():
        if isinstance(part, nn.Linear):
            width = part.in_features if fan == "in" else part.out_features
            nn.init.normal_(part.weight, std=math.sqrt(2 / width))
            nn.init.zeros_(part.bias)


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())
