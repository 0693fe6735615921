"""One training step of the collective in PyTorch, as its user would write it."""
import torch
from torch.nn import functional as F

from model import Collective
from presets import shape_of
from stacked import StackedCollective
from timing import compile_options, operands

IMAGES = 54000


class Training:
    """K models and their data on one device; `step()` is one update of all of them."""

    def __init__(self, given, stacked, compiled):
        if given.members > 1 and not stacked:
            raise ValueError(f"{given.members} members run stacked only")
        torch.manual_seed(0)
        self.members, self.batch, self.device, self.stacked = given.members, given.batch, given.device, stacked
        self.operand, self.rounded = operands(given.precision)
        self.images = torch.randint(0, 256, (IMAGES, 784), dtype=torch.uint8, device=given.device)
        self.labels = torch.randint(0, 10, (IMAGES,), device=given.device)
        models = [Collective(**shape_of(given)) for _ in range(given.members)]
        self.model = (StackedCollective(models) if stacked else models[0]).to(given.device)
        options = dict(fused=True, capturable=True) if given.device == "cuda" else {}
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, **options)
        self.forward, self.objective = self.model, self.loss
        if compiled and stacked:  # who stacks by hand also compiles normalisation and loss along
            self.objective = torch.compile(self.loss, **compile_options())
        elif compiled:
            self.forward = torch.compile(self.model, **compile_options())

    def loss(self, pixels, labels):
        """Sum over the models of each one's mean cross-entropy, so that their gradients do not mix."""
        x = (pixels.float() / 255 - 0.286) / 0.353
        with torch.autocast(self.device, dtype=self.operand, enabled=self.rounded):
            logits = self.forward(x)
        if not self.stacked:
            return F.cross_entropy(logits.float(), labels)
        return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), reduction="sum") / self.batch

    def step(self):
        shape = (self.members, self.batch) if self.stacked else (self.batch,)
        rows = torch.randint(0, IMAGES, shape, device=self.images.device)
        loss = self.objective(self.images[rows], self.labels[rows])
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
