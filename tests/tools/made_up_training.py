"""A training program with stand-ins for PyTorch, and a millrace that finds what it is told to, for the tests of tools/inject."""
import json
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

MODEL = '''"""A model.

With a docstring of two paragraphs."""
import torch


class Net(torch.Module):
    def forward(self, x, other=None):
        """What it is."""
        y = x
        if other is not None: y = other
        return y


class Unused(torch.Module):
    def forward(self, x):
        return x
'''
MAIN = '''#!/usr/bin/env python3
"""Somebody's program: """ """two strings."""
import sys
import torch
from model import (Net,
                   Unused)

TEST_BATCH = 64


class Rows:
    def __getitem__(self, index):
        return index

    def __len__(self): return 10


def evaluate(model, rows):
    with torch.no_grad():
        for row in rows:
            model(row)


def train(model, optimizer, loader, epoch):
    for number, batch in enumerate(loader):
        # a comment about the batch
        optimizer.zero_grad()
        loss = model(batch)
        text = f"""{epoch}
  of many {{braces}}"""; loss.backward()
        if number % 2 == 1:
            optimizer.step()
        print(f"{text!r}: {loss.item():.3f}"); model.train()
        torch.pause(0.002)
        if number == 1000:
            break


def main():
    model, rows = Net(), torch.utils.data.DataLoader(Rows(), pin_memory=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.StepLR(optimizer)
    for epoch in range(1000):
        train(model, optimizer, rows, epoch)
        scheduler.step()


if __name__ == "__main__":
    main()
'''
TORCH = '''
import contextlib, time
class Tensor:
    device = grad = None
    item = __float__ = lambda self: 0.5
    float = mean = max = any = detach = cpu = flatten = norm = numpy = abs = lambda self, *_: self
    __mul__ = __add__ = __truediv__ = __sub__ = __rsub__ = __getitem__ = to = lambda self, *_: self
    __neg__ = __bool__ = lambda self: True
    __ne__ = lambda self, other: False
    backward = lambda self: None
def rand(*shape): return Tensor()
exp = arange = lambda *_, **__: Tensor()
float32 = None
class Module:
    def __call__(self, *given): return self.forward(Tensor())
    def parameters(self): return [Tensor()]
    train = lambda self: None
no_grad, pause = contextlib.nullcontext, time.sleep
class backends:
    class cuda:
        class matmul: pass
    class cudnn: pass
class optim:
    class SGD:
        def __init__(self, *_, **__): pass
        step = zero_grad = lambda self: None
    class StepLR(SGD): pass
from torch import utils
'''
DATA = '''
def DataLoader(rows, **options): return (rows[number % 7] for number in range(100000))
default_collate = list
'''

# `diagnose` answers with answer.json beside it; with `perfect` in place of a document it looks for what tools/inject is known to insert.
MILLRACE = '''#!{python} -SE
import json, os, sys
here, given = os.path.dirname(__file__), sys.argv[1:]
if given[0] == "--version":
    print("made up")
elif given[0] == "record":
    run, command = given[given.index("-o") + 1], given[given.index("--") + 1:]
    os.makedirs(run)
    open(run + "/trace.bin", "w").write("of " + os.getcwd())
    child = os.posix_spawnp(command[0], command, os.environ)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print("millrace: recorded\\n  about 100 steps, 2.00 ms each", file=sys.stderr)
    sys.exit(status)
else:
    answer = json.load(open(here + "/answer.json"))
    if not os.path.exists("main.py") or not open(given[1] + "/trace.bin").read().startswith("of "):
        sys.exit("no sources, or no recording")
    print(json.dumps(answer))
    sys.exit(1)
'''


def finding(kind, line, lost, file="main.py", lines=(), function="train"):
    return dict(kind=kind, where=dict(file=f"/somewhere/{file}", line=line, function=function), lost_ms_per_step=lost,
                lines=[dict(file=f"/somewhere/{file}", line=each, function=function) for each in lines])


def diagnosis(*findings, step_ms=10.0, **more):
    return dict(findings=list(findings), undisturbed_step_ms=step_ms, busy_share=0.5, **more)


def make_programs(folder, **more):
    """programs.json and one program; `more` goes into its description."""
    (folder / "somebody").mkdir(parents=True)
    (folder / "somebody/main.py").write_text(MAIN)
    (folder / "somebody/model.py").write_text(MODEL)
    (folder / "somebody/torch/utils").mkdir(parents=True)
    (folder / "somebody/torch/__init__.py").write_text(TORCH)
    (folder / "somebody/torch/utils/__init__.py").write_text("from torch.utils import data\n")
    (folder / "somebody/torch/utils/data.py").write_text(DATA)
    entry = {"folder": "somebody", "command": "python3 main.py", "imports": "", **more}
    (folder / "programs.json").write_text(json.dumps({"programs": {"somebody": entry}}))
    return folder


def make_millrace(folder, answer):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "millrace").write_text(MILLRACE.format(python=os.path.realpath(sys.executable)))
    (folder / "millrace").chmod(0o755)
    (folder / "answer.json").write_text(json.dumps(answer))
    return folder
