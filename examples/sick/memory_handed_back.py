"""allocator-churn: unused memory goes back to the driver after every step and must be asked for again in the next."""
import torch
from patient import Case, Training, network

case = Case()
samples, labels = case.bank(64 if case.dry else 65536)
training = Training(case, network(case))


def tidy_up():
    if not case.cured:
        torch.cuda.empty_cache()  # <- illness


def step_once():
    rows = case.some(len(samples))
    loss = training.step(samples[rows], labels[rows])
    training.optimizer.zero_grad(set_to_none=True)
    tidy_up()
    return loss


for _ in range(3):
    step_once()
with case.stopwatch():
    for _ in range(case.steps):
        loss = step_once()
print(f"loss {loss.item():.4f}")
