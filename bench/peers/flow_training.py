"""One training step of the energy flow model in PyTorch, as its user would write it."""
import torch
from torch import nn
from torch.nn import functional as F

from flow_model import EnergyFlow
from timing import compile_options

PAIRS = 5021
CLIP = 1.0


class FlowTraining:
    """A model and its pairs of unit vectors on one device; `step()` is one update."""

    def __init__(self, cube, device, precision, stacked=False, compiled=False):
        if stacked:
            raise ValueError("the energy flow model has no members to stack")
        torch.manual_seed(0)
        self.batch, self.device, self.bf16 = cube.batch, device, precision == "bf16"
        self.inputs, self.targets = F.normalize(torch.randn(2, PAIRS, cube.embedding, device=device), dim=2)
        self.model = EnergyFlow(cube).to(device)
        self.forward = torch.compile(self.model, **compile_options()) if compiled else self.model
        options = dict(fused=True, capturable=True) if device == "cuda" else {}
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, weight_decay=1e-5, **options)

    def step(self):
        rows = torch.randint(0, PAIRS, (self.batch,), device=self.inputs.device)
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.bf16):
            surface = self.forward(self.inputs[rows])
        with torch.no_grad():
            goal = self.model.target(self.targets[rows])
        loss = F.mse_loss(surface, goal)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimizer.step()
        return loss
