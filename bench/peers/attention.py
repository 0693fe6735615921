#!/usr/bin/env python3
"""PyTorch's causal attention: one JSON row per backend and pass on standard output.

    attention.py --device cuda 4 16 64 4096        sequences, heads, columns of a head, positions

Passes: forward, and forward with backward ("both"). A backward pass alone runs on the stream of its forward pass, so it cannot be captured
by itself. Each is captured several times into one CUDA graph; on a CPU the passes run as they are. Queries, keys
and values are tensors of their own, [sequences, positions, heads, columns] in memory, so that nothing is split or joined.
"""
import argparse
import contextlib
import json
import sys

from command import ready

REPEATS = 20


def arguments():
    parser = argparse.ArgumentParser(description="times PyTorch's scaled_dot_product_attention")
    parser.add_argument("sizes", type=int, nargs=4, metavar=("SEQUENCES", "HEADS", "WIDTH", "POSITIONS"))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--backends", default="flash,cudnn,efficient,math", help="comma-separated")
    parser.add_argument("--seconds", type=float, default=0.5, help="least time measured per pass")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    given = parser.parse_args()
    if min(given.sizes) < 1:
        parser.error("sizes must be positive")
    return given


def chosen(name):
    """A context in which scaled_dot_product_attention uses this backend alone."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    return sdpa_kernel({"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION,
                        "efficient": SDPBackend.EFFICIENT_ATTENTION, "math": SDPBackend.MATH}[name])


def passes(given):
    """(name, step) of the passes; a step does its work REPEATS times on cuda, once on a CPU."""
    import torch
    sequences, heads, width, positions = given.sizes
    kind = torch.bfloat16 if given.device == "cuda" else torch.float32
    make = lambda: torch.rand(sequences, positions, heads, width, device=given.device, dtype=kind).mul_(2).sub_(1).transpose(1, 2)
    inputs = [make().requires_grad_() for _ in range(3)]
    slope = make()
    forward = lambda: torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=True)
    both = lambda: torch.autograd.grad(forward(), inputs, slope)
    repeats = REPEATS if given.device == "cuda" else 1

    def repeated(step):
        def run():
            for _ in range(repeats):
                step()
        return run
    return repeats, [("forward", repeated(forward)), ("both", repeated(both))]


def main():
    given = arguments()
    if not ready(given, "attention.py"):
        return 2
    from timing import captured, measure, versions
    fine = True
    for backend in given.backends.split(","):
        name = None
        try:
            with chosen(backend) if given.device == "cuda" else contextlib.nullcontext():
                repeats, steps = passes(given)
                for name, step in steps:
                    row = measure(captured(step) if given.device == "cuda" else step, given.device, given.seconds)
                    row = {key: value / repeats if key in ("ms", "low", "high") else value for key, value in row.items()}
                    print(json.dumps(dict(peer=f"torch {backend} {name}", **row, versions=versions(given.device))), flush=True)
        except Exception as error:  # that a backend cannot be used is a result, too
            print(json.dumps(dict(peer=f"torch {backend}", error=f"{type(error).__name__}: {error}"[:300],
                                  versions=versions(given.device))), flush=True)
            fine = False
        if given.device == "cpu":
            break  # a CPU has one way
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
