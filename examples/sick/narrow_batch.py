"""small-batch: so few rows per step that the GPU mostly reads and updates weights, with most of its memory free.

Cured, a step takes sixteen times the rows and there are a sixteenth of the steps; the rate printed is still that of steps of the
narrow size, so that both runs count the same work.
"""
from patient import Case, Training, network

FACTOR = 16
case = Case(steps=480, rows=64, width=8192, blocks=2)
samples, labels = case.bank(64 if case.dry else 16384)
training = Training(case, network(case))
if case.cured:
    case.rows *= FACTOR
    case.steps = max(1, case.steps // FACTOR)


def step_once():
    rows = case.some(len(samples))
    return training.step(samples[rows], labels[rows])  # <- illness


for _ in range(3):
    step_once()
rounds = case.steps
case.steps *= FACTOR if case.cured else 1  # what the stopwatch divides
with case.stopwatch():
    for _ in range(rounds):
        loss = step_once()
print(f"loss {loss.item():.4f}")
