"""python-work: which rows a step takes is worked out by the interpreter, number by number, for longer than the GPU computes."""
import torch
from patient import Case, Training, network

case = Case(rows=8192)
BANK = 64 if case.dry else 131072
PRIME = 65537
samples, labels = case.bank(BANK)
numbers = torch.arange(BANK, device=case.device)
training = Training(case, network(case))


def choose(step):
    """The rows with the smallest keys; both ways give the same ones."""
    if case.cured:
        return torch.argsort((numbers * 40503 + step * 9973) % PRIME, stable=True)[:case.rows]
    order = sorted(range(BANK), key=lambda row: (row * 40503 + step * 9973) % PRIME)  # <- illness
    return case.pinned(torch.tensor(order[:case.rows])).to(case.device, non_blocking=True)


def step_once(step):
    rows = choose(step)
    return training.step(samples[rows], labels[rows])


for step in range(3):
    step_once(step)
with case.stopwatch():
    for step in range(case.steps):
        loss = step_once(step)
print(f"loss {loss.item():.4f}")
