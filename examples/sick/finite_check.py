"""host-sync: every loss is tested on the host, so the host chooses the next batch while the GPU has nothing to do."""
import numpy
import torch
from patient import Case, Training, network

case = Case()
POOL = 2000 if case.dry else 600_000  # the shuffle of this many numbers is the host's honest work, some milliseconds
samples, labels = case.bank(64 if case.dry else 65536)
training = Training(case, network(case))
generator = numpy.random.default_rng(7)
broken = torch.zeros((), dtype=torch.bool, device=case.device)


def choose():
    order = generator.permutation(POOL)[:case.rows] % len(samples)
    return case.pinned(torch.from_numpy(order)).to(case.device, non_blocking=True)


def step_once():
    global broken
    rows = choose()
    loss = training.step(samples[rows], labels[rows])
    if case.cured:
        broken = broken | ~torch.isfinite(loss)  # stays on the device, is asked once at the end
    elif not torch.isfinite(loss):  # <- illness
        raise SystemExit("the loss is not finite")
    return loss


for _ in range(3):
    step_once()
with case.stopwatch():
    for _ in range(case.steps):
        loss = step_once()
if broken:
    raise SystemExit("a loss was not finite")
print(f"loss {loss.item():.4f}")
