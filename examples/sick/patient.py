"""What the programs of this folder have in common: command line, network, training, stopwatch.

    python3 PROGRAM.py [steps] [cured] [--rows N] [--width N] [--blocks N] [--cpu-dry]

Most sizes are chosen for 6 to 22 ms of work per step on an H200; other GPUs want other sizes. `--cpu-dry` runs three tiny steps
without a GPU: it shows that a program works, and says nothing about its speed.
"""
import argparse
import contextlib
import sys
import time

import torch
from torch import nn

CLASSES = 16
DRY_SIZES = {"rows": 12, "width": 16, "blocks": 2}


class Case:
    """How a program was called. `device`, `rows`, `width` and `blocks` are what it shall use."""

    def __init__(self, steps=200, **sizes):
        parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
        parser.add_argument("words", nargs="*", metavar="STEPS | cured", help=f"steps to time ({steps}); without the illness")
        parser.add_argument("--cpu-dry", action="store_true", help="three tiny steps on the CPU")
        for name, default in {"rows": 16384, "width": 2048, "blocks": 4, **sizes}.items():
            parser.add_argument("--" + name, type=int, default=argparse.SUPPRESS, help=f"({default})")
            setattr(self, name, default)
        given = parser.parse_args()
        self.dry = given.cpu_dry
        for name, size in {**(DRY_SIZES if self.dry else {}), **vars(given)}.items():
            if name in DRY_SIZES:
                setattr(self, name, size)
        self.cured = "cured" in given.words
        counts = [word for word in given.words if word != "cured"]
        if len(counts) > 1 or not all(word.isdigit() and int(word) > 0 for word in counts):
            parser.error(f"expected a number of steps and the word 'cured', got {' '.join(given.words)}")
        self.steps = int(counts[0]) if counts else 3 if self.dry else steps
        if not self.dry and not torch.cuda.is_available():
            parser.error("no CUDA GPU here; --cpu-dry checks the program without one")
        self.device = "cpu" if self.dry else "cuda"
        torch.manual_seed(20)

    def bank(self, count, *shape):
        """`count` random samples of `shape` (default: [width]) and their labels, resident on the device."""
        shape = shape or (self.width,)
        return torch.randn(count, *shape, device=self.device), torch.randint(CLASSES, (count,), device=self.device)

    def some(self, count):
        """Row numbers below `count` for a batch, drawn on the device."""
        return torch.randint(count, (self.rows,), device=self.device)

    def pinned(self, tensor):
        return tensor if self.dry else tensor.pin_memory()

    def wait(self):
        if not self.dry:
            torch.cuda.synchronize()

    @contextlib.contextmanager
    def stopwatch(self):
        """Times `steps` steps and prints their rate."""
        self.wait()
        begin = time.perf_counter()
        yield
        self.wait()
        print(f"steps/s {self.steps / (time.perf_counter() - begin):.2f}", flush=True)


class Block(nn.Module):
    """Normalise, widen, gate, narrow, add."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.narrow(nn.functional.glu(self.widen(self.norm(x))))


def network(case, block=Block, features=None):
    stem = [nn.Linear(features, case.width)] if features else []
    return nn.Sequential(*stem, *(block(case.width) for _ in range(case.blocks)), nn.Linear(case.width, CLASSES))


def captured(case, function):
    """Calls it three times and returns the same work as one CUDA graph, one launch per step; in a dry run the function itself."""
    aside = None if case.dry else torch.cuda.Stream()  # a capture wants its warm-up on another stream than the default one
    if aside:
        aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside) if aside else contextlib.nullcontext():
        for _ in range(3):
            function()
    if case.dry:
        return function
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = function()
    return lambda: graph.replay() or result


class Training:
    """A model and its optimizer. Losses stay on the device."""

    def __init__(self, case, model, mixed=True, **options):
        self.model = model.to(case.device)
        if not case.dry:
            options["fused"] = True
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, **({} if case.dry else options))
        self.mixed = mixed and not case.dry

    def precision(self):
        return torch.autocast("cuda", torch.bfloat16) if self.mixed else contextlib.nullcontext()

    def gradients(self, x, labels):
        with self.precision():
            guess = self.model(x)
            loss = nn.functional.cross_entropy(guess.flatten(0, -2), labels.flatten())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        return loss.detach()

    def step(self, x, labels):
        loss = self.gradients(x, labels)
        self.optimizer.step()
        return loss
