#!/usr/bin/env python3
"""PyTorch opponents of the language models: one JSON row per mode on standard output.

    language.py --device cpu  --preset transformer --batch 32 --threads 2
    language.py --device cuda --preset k1 --batch 256 --modes graph,compile+graph

The step is the one Millrace runs: random windows of a resident stream of tokens, mean cross-entropy over all positions, backward, clip,
choice of nodes where the model is a tree, AdamW. Dropout is 0 unless the preset names it.
"""
import argparse
import sys

from command import add_options, parsed, run

TOKENS, LENGTH, VOCABULARY = 2_051_910, 64, 10_000
PRESETS = {"transformer": dict(), "transformer-dropout": dict(dropout=0.1), "k1": dict(branching=(3, 3), k=5), "k1-deep": dict(branching=(4, 3, 2), k=5)}


def arguments():
    parser = argparse.ArgumentParser(description="times language models in PyTorch")
    add_options(parser)
    parser.add_argument("--preset", choices=tuple(PRESETS), default="transformer")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--members", type=int, default=1, choices=(1,), help="there is no form with several")
    given = parsed(parser)
    given.modes = given.modes or ("eager" if given.device == "cpu" else "eager,graph,compile+graph")
    if given.batch < 1:
        parser.error("--batch must be positive")
    return given


def training(given, compiled):
    """A function that makes one update."""
    import torch
    from torch.nn import functional as F
    from language_model import Language
    from timing import compile_options
    torch.manual_seed(0)
    stream = torch.randint(0, VOCABULARY, (TOKENS,), device=given.device)
    model = Language(**PRESETS[given.preset]).to(given.device)
    forward = torch.compile(model, **compile_options()) if compiled else model
    options = dict(fused=True, capturable=True) if given.device == "cuda" else {}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, **options)
    places = torch.arange(LENGTH + 1, device=given.device)

    def step():
        first = torch.randint(0, TOKENS - LENGTH - 1, (given.batch, 1), device=given.device)
        window = stream[first + places]
        with torch.autocast(given.device, dtype=torch.bfloat16, enabled=given.precision == "bf16"):
            logits = forward(window[:, :-1])
        loss = F.cross_entropy(logits.view(-1, VOCABULARY).float(), window[:, 1:].reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if model.k:
            model.choose()
        optimizer.step()

    return step


def main():
    given = arguments()
    return run(given, "language.py", f"{given.preset}-b{given.batch}", training)


if __name__ == "__main__":
    sys.exit(main())
