"""no-tensor-cores: matrix products in plain float32, which tensor cores do not take; with TF32 allowed they do."""
import torch
from torch import nn
from patient import Case, Training, network

case = Case(rows=4096, blocks=2)
torch.set_float32_matmul_precision("high" if case.cured else "highest")


class Plain(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))  # <- illness


samples, labels = case.bank(64 if case.dry else 65536)
training = Training(case, network(case, Plain), mixed=False)


def step_once():
    rows = case.some(len(samples))
    return training.step(samples[rows], labels[rows])


for _ in range(3):
    step_once()
with case.stopwatch():
    for _ in range(case.steps):
        loss = step_once()
print(f"loss {loss.item():.4f}")
