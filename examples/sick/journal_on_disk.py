"""file-output: a journal of every step is written through to the disk before the next step may begin."""
import os
import tempfile

from patient import Case, Training, network

case = Case(rows=4096)
PAGE = bytes(4096 if case.dry else 32 << 20)  # what a careful person keeps of each step; its seed would do
samples, labels = case.bank(64 if case.dry else 65536)
training = Training(case, network(case))
folder = tempfile.TemporaryDirectory()
journal = os.open(os.path.join(folder.name, "journal"), os.O_WRONLY | os.O_CREAT | os.O_DSYNC)
seeds = os.open(os.path.join(folder.name, "seeds"), os.O_WRONLY | os.O_CREAT)


def note(step):
    if case.cured:
        os.pwrite(seeds, step.to_bytes(8, "little"), 8 * step)
    else:
        os.pwrite(journal, PAGE, 0)  # <- illness


def step_once(step):
    rows = case.some(len(samples))
    loss = training.step(samples[rows], labels[rows])
    note(step)
    return loss


for step in range(3):
    step_once(step)
with case.stopwatch():
    for step in range(case.steps):
        loss = step_once(step)
print(f"loss {loss.item():.4f}")
folder.cleanup()
