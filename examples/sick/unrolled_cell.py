"""launch-bound: a small recurrent cell, unrolled by a Python loop, has kernels shorter than the host needs to launch them."""
import torch
from torch import nn
from patient import CLASSES, Case, Training

FEATURES, LENGTH = 64, 48


class Reader(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.cell = nn.GRUCell(FEATURES, width)
        self.answer = nn.Linear(width, CLASSES)

    def forward(self, x):  # [rows, LENGTH, FEATURES]
        state = x.new_zeros(len(x), self.cell.hidden_size)
        for moment in x.unbind(1):
            state = self.cell(moment, state)
        return self.answer(state)


case = Case(steps=600, rows=256, width=128, blocks=1)
sequences, labels = case.bank(64 if case.dry else 32768, LENGTH, FEATURES)
training = Training(case, Reader(case.width), mixed=False, capturable=True)


def step_once():
    rows = case.some(len(sequences))
    return training.step(sequences[rows], labels[rows])  # <- illness


def captured(function):
    """The same work as one CUDA graph: one launch per step."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = function()
    return lambda: graph.replay() or loss


if case.dry:
    step_once()
else:
    aside = torch.cuda.Stream()  # a capture wants warm-up steps on another stream than the default one
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(5):
            step_once()
    torch.cuda.current_stream().wait_stream(aside)
advance = captured(step_once) if case.cured and not case.dry else step_once
with case.stopwatch():
    for _ in range(case.steps):
        loss = advance()
print(f"loss {loss.item():.4f}")
