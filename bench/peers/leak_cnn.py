#!/usr/bin/env python3
"""PyTorch opponents of the leak detector: one JSON row per mode on standard output.

    leak_cnn.py --device cpu  --batch 512 --threads 2
    leak_cnn.py --device cuda --batch 8192 --modes graph,compile+graph

The step is the one Millrace runs: random rows of resident half-precision features, both heads, weighted cross-entropy and the second
head's loss, backward, clip, AdamW.
"""
import argparse
import sys

from command import add_options, parsed, run, step_of

WINDOWS = 400_000


def arguments():
    parser = argparse.ArgumentParser(description="times the leak detector in PyTorch")
    add_options(parser)
    parser.add_argument("--preset", choices=("base",), default="base")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--members", type=int, default=1, choices=(1,), help="there is no form with several")
    given = parsed(parser)
    given.modes = given.modes or ("eager" if given.device == "cpu" else "eager,graph,compile+graph")
    if given.batch < 1:
        parser.error("--batch must be positive")
    return given


def training(given, compiled):
    """A function that makes one update."""
    import torch
    from leak_model import LeakCnn
    from timing import compile_options, operands
    torch.manual_seed(0)
    operand, rounded = operands(given.precision)
    features = torch.randn(WINDOWS, 64, device=given.device).half()
    labels = torch.randint(0, 2, (WINDOWS,), device=given.device)
    model = LeakCnn().to(given.device)
    both = torch.compile(model.both, **compile_options()) if compiled else model.both
    options = dict(fused=True, capturable=True) if given.device == "cuda" else {}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, **options)

    def step():
        rows = torch.randint(0, WINDOWS, (given.batch,), device=given.device)
        with torch.autocast(given.device, dtype=operand, enabled=rounded):
            logits, leak = both(features[rows].float())
        loss = sum(model.losses(logits.float(), leak.float(), labels[rows]))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def main():
    given = arguments()
    return run(given, "leak_cnn.py", f"leak_cnn-b{given.batch}", step_of(training, given))


if __name__ == "__main__":
    sys.exit(main())
