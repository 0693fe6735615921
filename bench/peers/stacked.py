"""The collective with members of equal shape stacked by hand: what a PyTorch user who knows the model's structure would write.

K whole models lie side by side: x [K, B, inputs] -> logits [K, B, classes]. Weights are [groups, in, out] and one product serves
all groups; BatchNorm sees [B, groups * width], so one call normalises every member. The first layer of a group of members that
read the same input is one wide product per model, since concatenating outputs costs nothing there.
"""
import torch
from torch import nn
from torch.nn import functional as F


def fold(y):
    """[groups, B, width] -> [B, groups * width], free for one group."""
    groups, rows, width = y.shape
    return y.view(rows, width) if groups == 1 else y.permute(1, 0, 2).reshape(rows, groups * width)


def unfold(y, groups):
    """[B, groups * width] -> [groups, B, width] as a view that the batched product reads in place."""
    rows, features = y.shape
    return y.view(rows, groups, features // groups).permute(1, 0, 2)


class StackedLinear(nn.Module):
    """y[g] = x[g] W[g] + b[g]; x [groups, B, in] -> [groups, B, out]."""

    def __init__(self, groups, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(groups, inputs, outputs))
        self.bias = nn.Parameter(torch.empty(groups, 1, outputs))

    def forward(self, x):
        groups, inputs, outputs = self.weight.shape
        if groups == 1:
            return torch.addmm(self.bias.view(outputs), x.reshape(-1, inputs), self.weight.view(inputs, outputs)).unsqueeze(0)
        return torch.baddbmm(self.bias, x, self.weight)


class StackedNorm(nn.Module):
    """BatchNorm over the rows of [B, features] with running statistics, without PyTorch's counter of batches."""

    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.register_buffer("running_mean", torch.zeros(features))
        self.register_buffer("running_var", torch.ones(features))

    def forward(self, y):
        return F.batch_norm(y, self.running_mean, self.running_var, self.weight, self.bias, self.training, 0.1, 1e-5)


class StackedChain(nn.Module):
    """One part of the collective for K models of `members` each, built from the plain chains [model][member].

    x [K, B, in] -> [K, B, members * out]; the members of a model share its input.
    """

    def __init__(self, chains, take):
        super().__init__()
        self.models, self.members = len(chains), len(chains[0])
        self.plan = []
        self.blocks = nn.ModuleList()
        flat = [chain for model in chains for chain in model]
        first = True
        for position, part in enumerate(flat[0]):
            parts = [chain[position] for chain in flat]
            if isinstance(part, nn.Linear):
                self.plan.append("wide" if first else "linear")
                self.blocks.append(self.wide(parts, take) if first else self.grouped(parts, take))
                first = False
            elif isinstance(part, nn.BatchNorm1d):
                self.plan.append("norm")
                self.blocks.append(self.norm(parts, take))
            elif isinstance(part, nn.ReLU):
                self.plan.append("relu")
                self.blocks.append(nn.ReLU())
            elif part.p > 0:
                self.plan.append("dropout")
                self.blocks.append(nn.Dropout(part.p))

    def wide(self, parts, take):
        """Members' outputs side by side: [K, in, members * out]."""
        rows = [parts[k * self.members:(k + 1) * self.members] for k in range(self.models)]
        inputs, outputs = parts[0].in_features, parts[0].out_features
        layer = StackedLinear(self.models, inputs, self.members * outputs)
        layer.weight.data = torch.stack([torch.cat([take(p.weight).t() for p in row], 1) for row in rows]).contiguous()
        layer.bias.data = torch.stack([torch.cat([take(p.bias) for p in row]).unsqueeze(0) for row in rows])
        return layer

    def grouped(self, parts, take):
        layer = StackedLinear(len(parts), parts[0].in_features, parts[0].out_features)
        layer.weight.data = torch.stack([take(p.weight).t() for p in parts]).contiguous()
        layer.bias.data = torch.stack([take(p.bias).unsqueeze(0) for p in parts])
        return layer

    def norm(self, parts, take):
        layer = StackedNorm(len(parts) * parts[0].num_features)
        layer.weight.data = torch.cat([take(p.weight) for p in parts])
        layer.bias.data = torch.cat([take(p.bias) for p in parts])
        layer.running_mean = torch.cat([p.running_mean for p in parts]).clone()
        layer.running_var = torch.cat([p.running_var for p in parts]).clone()
        return layer

    def forward(self, x):
        groups = self.models * self.members
        y, folded = x, False
        for kind, block in zip(self.plan, self.blocks):
            product = kind in ("wide", "linear")
            if product and folded:
                y, folded = unfold(y, groups), False
            elif not product and not folded and (kind == "norm" or self.members > 1):
                y, folded = fold(y), True
            y = block(y)
        rows, width = y.shape[1], y.shape[2]
        return y.view(self.models, self.members, rows, width).transpose(1, 2).reshape(self.models, rows, self.members * width)


class StackedCollective(nn.Module):
    """K plain models of one shape as one module. `take` picks what is copied from each parameter: its value, or its gradient."""

    def __init__(self, models, take=lambda parameter: parameter.detach()):
        super().__init__()
        self.experts = StackedChain([list(m.experts) for m in models], take)
        self.encoder = StackedChain([[m.encoder] for m in models], take)
        self.analysts = StackedChain([list(m.analysts) for m in models], take)
        self.analyst_encoder = None
        if models[0].analyst_encoder is not None:
            self.analyst_encoder = StackedChain([[m.analyst_encoder] for m in models], take)
        self.head = StackedChain([[m.head] for m in models], take)

    def forward(self, x):
        """[K, B, inputs] -> [K, B, classes]"""
        seen = torch.cat([x, self.encoder(self.experts(x))], 2)
        votes = self.analysts(seen)
        return self.head(votes if self.analyst_encoder is None else self.analyst_encoder(votes))
