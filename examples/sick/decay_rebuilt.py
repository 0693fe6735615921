"""repeated-work: the weights with which tokens see their past never change, yet every block of every step computes them anew."""
import torch
from patient import CLASSES, Block, Case, Training, network

RATE = 0.01
case = Case(blocks=2)


def decay():
    """[rows, rows]: how much row i takes from row j, fading with their distance; nothing from the future."""
    place = torch.arange(case.rows, device=case.device, dtype=torch.float32)
    return (RATE * torch.exp(-RATE * (place[:, None] - place[None, :]).abs())).tril().to(dtype)  # <- illness


class Mixer(Block):
    def forward(self, x):  # [1, rows, width]
        return super().forward(x + torch.matmul(kept if case.cured else decay(), x))


dtype = torch.float32 if case.dry else torch.bfloat16
kept = decay()
texts = torch.randn(8, case.rows, case.width, device=case.device)
labels = torch.randint(CLASSES, (8, case.rows), device=case.device)
training = Training(case, network(case, Mixer))


def step_once():
    chosen = torch.randint(8, (1,), device=case.device)
    return training.step(texts[chosen], labels[chosen])


for _ in range(3):
    step_once()
with case.stopwatch():
    for _ in range(case.steps):
        loss = step_once()
print(f"loss {loss.item():.4f}")
