"""python-work: a full garbage collection after every step walks through everything the program remembers."""
import gc

from patient import Case, Training, network

case = Case(rows=8192)
samples, labels = case.bank(64 if case.dry else 65536)
training = Training(case, network(case))
gc.freeze()  # how much PyTorch itself keeps differs from version to version: it is left out
memories = [[number] for number in range(1000 if case.dry else 600_000)]  # what long programs gather: a cache, a history


def step_once():
    rows = case.some(len(samples))
    loss = training.step(samples[rows], labels[rows])
    if not case.cured:
        gc.collect()  # <- illness
    return loss


for _ in range(3):
    step_once()
with case.stopwatch():
    for _ in range(case.steps):
        loss = step_once()
print(f"loss {loss.item():.4f}, {len(memories)} things remembered")
