"""pageable-copy: batches go up from ordinary host memory, so the driver copies them twice and the host waits."""
import torch
from patient import CLASSES, Case, Training, network

SHELF = 6  # batches kept on the host
case = Case(blocks=2)
shelf = torch.randn(SHELF, case.rows, case.width, device=case.device).cpu()
labels = torch.randint(CLASSES, (SHELF, case.rows), device=case.device)
if case.cured:
    shelf = case.pinned(shelf)
batch = torch.empty(case.rows, case.width, device=case.device)
training = Training(case, network(case))


def step_once(step):
    batch.copy_(shelf[step % SHELF], non_blocking=case.cured)  # <- illness
    return training.step(batch, labels[step % SHELF])


for step in range(3):
    step_once(step)
with case.stopwatch():
    for step in range(case.steps):
        loss = step_once(step)
print(f"loss {loss.item():.4f}")
