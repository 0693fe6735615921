"""One training step of the energy flow model in PyTorch, as its user would write it."""
import torch
from torch import nn
from torch.nn import functional as F

from flow_model import EnergyFlow
from timing import compile_options, operands

PAIRS = 5021
CLIP = 1.0


class PairList(torch.utils.data.Dataset):
    """Pairs one by one, as a training script with a DataLoader asks for them."""

    def __init__(self, inputs, targets):
        self.inputs, self.targets = inputs, targets

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        return dict(input=self.inputs[index], target=self.targets[index])


class FlowTraining:
    """A model and its pairs of unit vectors; `step()` is one update.

    data: where the pairs lie. "resident": on the device, gathered there. "host": in the host's memory, a batch copied in each step.
    "loader": behind a DataLoader that takes them one by one. clear_cache: cached memory goes back to the driver after every step.
    pairs: (inputs, targets) instead of random ones.
    """

    def __init__(self, cube, device, precision, stacked=False, compiled=False, data="resident", clear_cache=False, seed=0, pairs=None):
        if stacked:
            raise ValueError("the energy flow model has no members to stack")
        torch.manual_seed(seed)
        self.batch, self.device = cube.batch, device
        self.operand, self.rounded = operands(precision)
        self.data, self.clear_cache, self.batches = data, clear_cache, iter(())
        home = device if data == "resident" else "cpu"
        self.inputs, self.targets = ([part.to(home) for part in pairs] if pairs else
                                     F.normalize(torch.randn(2, PAIRS, cube.embedding, device=home), dim=2))
        self.model = EnergyFlow(cube).to(device)
        self.forward = torch.compile(self.model, **compile_options()) if compiled else self.model
        options = dict(fused=True, capturable=True) if device == "cuda" else {}
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, weight_decay=1e-5, **options)

    def pairs(self):
        """(inputs, targets) of the next batch, on the device."""
        if self.data == "loader":
            batch = next(self.batches, None)
            if batch is None:
                self.batches = iter(torch.utils.data.DataLoader(PairList(self.inputs, self.targets), self.batch, shuffle=True, drop_last=True))
                batch = next(self.batches)
            return batch["input"].to(self.device), batch["target"].to(self.device)
        rows = torch.randint(0, len(self.inputs), (self.batch,), device=self.inputs.device)
        return self.inputs[rows].to(self.device), self.targets[rows].to(self.device)

    def step(self):
        inputs, targets = self.pairs()
        with torch.autocast(self.device, dtype=self.operand, enabled=self.rounded):
            surface = self.forward(inputs)
        with torch.no_grad():
            goal = self.model.target(targets)
        loss = F.mse_loss(surface, goal)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimizer.step()
        if self.clear_cache and self.device == "cuda":
            torch.cuda.empty_cache()
        return loss
