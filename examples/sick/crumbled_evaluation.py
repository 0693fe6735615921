"""slow-evaluation: after every tenth step the held-out rows are judged in crumbs of 64, each a full round of small kernels."""
import torch
from patient import Case, Training, network

EVERY, CRUMB = 10, 64
case = Case(rows=8192, width=1024, blocks=16)
samples, labels = case.bank(64 if case.dry else 65536)
held, answers = case.bank(256 if case.dry else 4096)
training = Training(case, network(case))


def evaluate():
    """How many of the held-out rows are answered rightly; stays on the device."""
    size = len(held) if case.cured else CRUMB
    right = torch.zeros((), dtype=torch.long, device=case.device)
    with torch.no_grad(), training.precision():
        for x, y in zip(held.split(size), answers.split(size)):
            right += (training.model(x).argmax(1) == y).sum()  # <- illness
    return right


def step_once():
    rows = case.some(len(samples))
    return training.step(samples[rows], labels[rows])


for _ in range(3):
    step_once()
right = evaluate()
with case.stopwatch():
    for step in range(case.steps):
        loss = step_once()
        if step % EVERY == EVERY - 1:
            right = evaluate()
print(f"loss {loss.item():.4f}, {right.item()} of {len(held)} right")
