#!/usr/bin/env python3
"""Opponents of the language models, in PyTorch and JAX: one JSON row per mode on standard output.

    language.py --device cpu  --preset transformer --batch 32 --threads 2
    language.py --device cuda --preset k1 --batch 256 --modes graph,compile+graph
    language.py --device cuda --width 768 --heads 12 --inner 3072 --depth 12 --length 1024 --vocabulary 50304 --batch 8 --modes compile+graph,jax

The step is the one Millrace runs: random windows of a resident stream of tokens, mean cross-entropy over all positions, backward, clip,
choice of nodes where the model is a tree, AdamW.
"""
import argparse
import sys

from command import add_options, parsed, run, step_of
from language_shape import add_shape_options, problem_of, shape_of, tokens_of


def arguments():
    parser = argparse.ArgumentParser(description="times language models in PyTorch and JAX")
    add_options(parser)
    add_shape_options(parser)
    given = parsed(parser)
    given.modes = given.modes or ("eager" if given.device == "cpu" else "eager,graph,compile+graph")
    if problem := problem_of(given):
        parser.error(problem)
    return given


def training(given, compiled):
    """A function that makes one update."""
    import torch
    from torch.nn import functional as F
    from language_model import Language
    from timing import compile_options, operands
    if given.members > 1:
        raise ValueError(f"{given.members} members run in the mode jax only")
    torch.manual_seed(0)
    operand, rounded = operands(given.precision)
    tokens = tokens_of(given)
    stream = torch.randint(0, given.vocabulary, (tokens,), device=given.device)
    model = Language(**shape_of(given)).to(given.device)
    forward = torch.compile(model, **compile_options()) if compiled else model
    options = dict(fused=True, capturable=True) if given.device == "cuda" else {}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, **options)
    places = torch.arange(given.length + 1, device=given.device)

    def step():
        first = torch.randint(0, tokens - given.length - 1, (given.batch, 1), device=given.device)
        window = stream[first + places]
        with torch.autocast(given.device, dtype=operand, enabled=rounded):
            logits = forward(window[:, :-1])
        loss = F.cross_entropy(logits.view(-1, given.vocabulary).float(), window[:, 1:].reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if model.k:
            model.choose()
        optimizer.step()

    return step


def main():
    given = arguments()
    members = "" if given.members == 1 else f"-k{given.members}"
    return run(given, "language.py", f"{given.preset}-b{given.batch}{members}", step_of(training, given), "language_jax.py")


if __name__ == "__main__":
    sys.exit(main())
