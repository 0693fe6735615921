"""The acoustic leak network in plain PyTorch: bands x one frame -> class head and a head that says whether the class looked for is there.

Shapes: x [B, bands] -> logits [B, classes]. The peers time it and the goldens are made from it, so there is one definition.
What weighs the losses is kept in buffers, as a checkpoint of ours keeps it.
"""
import torch
from torch import nn
from torch.nn import functional as F


class Weights(nn.Module):
    def __init__(self, weights, gamma, auxiliary):
        super().__init__()
        self.register_buffer("weights", torch.tensor(weights))
        self.register_buffer("gamma", torch.tensor([float(gamma)]))
        self.register_buffer("auxiliary", torch.tensor([float(auxiliary)]))


class LeakCnn(nn.Module):
    def __init__(self, channels=(32, 64, 128), hidden=256, inputs=64, classes=2, positive=1, loss="weighted", weights=(0.871, 1.129),
                 gamma=0.0, auxiliary=0.5, dropout=0.25):
        super().__init__()
        widths = [1, *channels]
        for i, (before, after) in enumerate(zip(widths, widths[1:]), 1):
            setattr(self, f"conv{i}", nn.Conv2d(before, after, 3, padding=1))
        self.depth, self.positive, self.kind = len(channels), positive, loss
        self.drop = nn.Dropout(dropout)
        self.fc = nn.Linear(channels[-1] * (inputs >> (len(channels) - 1)), hidden)
        self.classes, self.leak = nn.Linear(hidden, classes), nn.Linear(hidden, 1)
        self.loss = Weights(list(weights), gamma, auxiliary)
        self.register_buffer("threshold", torch.tensor([0.5]))

    def both(self, x):
        x = x.view(len(x), 1, -1, 1)
        for i in range(1, self.depth + 1):
            x = torch.relu(getattr(self, f"conv{i}")(x))
            if i > 1:
                x = F.max_pool2d(x, (2, 1))
        x = torch.relu(self.fc(self.drop(x.flatten(1))))
        return self.classes(x), self.leak(x).squeeze(1)

    def forward(self, x):
        return self.both(x)[0]

    def losses(self, logits, leak, labels):
        """The loss of the classes, and that of the second head times its weight."""
        if self.kind == "focal":
            plain = F.cross_entropy(logits, labels, reduction="none")
            hard = (1 - torch.exp(-plain)).clamp(min=1e-8)
            first = (self.loss.weights[labels] * hard ** self.loss.gamma * plain).mean()
        else:
            first = F.cross_entropy(logits, labels, self.loss.weights)
        wanted = (labels == self.positive).to(leak.dtype)
        return first, self.loss.auxiliary[0] * F.binary_cross_entropy_with_logits(leak, wanted)
