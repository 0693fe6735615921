"""small-batch: so few rows per step that each kernel keeps only some of the GPU's multiprocessors busy, with most of its memory free.

A step is one CUDA graph, so the host is not what it waits for. Cured, a step takes sixteen times the rows and there are a sixteenth of
the steps; the rate printed is still that of steps of the narrow size, so that both runs count the same work.
"""
from patient import Case, Training, captured, network

FACTOR = 16
case = Case(steps=4800, rows=32, width=256, blocks=8)
samples, labels = case.bank(64 if case.dry else 65536)
training = Training(case, network(case), capturable=True)
if case.cured:
    case.rows *= FACTOR
    case.steps = max(1, case.steps // FACTOR)


def step_once():
    rows = case.some(len(samples))
    return training.step(samples[rows], labels[rows])


advance = captured(case, step_once)
rounds = case.steps
case.steps *= FACTOR if case.cured else 1  # what the stopwatch divides
with case.stopwatch():
    for _ in range(rounds):
        loss = advance()  # <- illness
print(f"loss {loss.item():.4f}")
