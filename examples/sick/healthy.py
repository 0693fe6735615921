"""healthy: samples lie on the GPU, kernels are large, and the loss is read once in fifty steps."""
from patient import Case, Training, network

BANK = 65536
case = Case()
samples, labels = case.bank(case.rows if case.dry else BANK)
training = Training(case, network(case))


def step_once():
    rows = case.some(len(samples))
    return training.step(samples[rows], labels[rows])


for _ in range(3):
    step_once()
with case.stopwatch():
    for step in range(case.steps):
        loss = step_once()
        if step % 50 == 49:
            print(f"step {step + 1}: loss {loss.item():.4f}")
print(f"loss {loss.item():.4f}")
