#!/usr/bin/env python3
"""PyTorch opponents of the collective model: one JSON row per mode on standard output.

    collective.py --device cpu  --preset debug --batch 32 --threads 2
    collective.py --device cuda --preset debug --batch 32 --modes eager,graph,compile+graph,stacked+compile+graph
    collective.py --device cuda --preset debug --batch 32 --members 16 --modes stacked+graph,stacked+compile+graph

The step is the one Millrace runs: random rows of a resident u8 data set, normalised, forward, cross-entropy, backward, Adam.
"""
import argparse
import sys

from command import add_options, parsed, ready


def arguments():
    parser = argparse.ArgumentParser(description="times the collective model in PyTorch")
    add_options(parser)
    parser.add_argument("--preset", choices=("debug", "phase1"), default="debug")
    parser.add_argument("--revision", choices=("r1", "r2"), default="r1")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--members", type=int, default=1, help="whole models trained side by side, each on its own rows")
    given = parsed(parser)
    if given.batch < 2:
        parser.error("--batch must be at least 2: BatchNorm has no variance over one row")
    if given.members < 1:
        parser.error("--members must be positive")
    if given.modes is None:
        given.modes = "eager,stacked" if given.device == "cpu" else "eager,graph,compile+graph,stacked+graph,stacked+compile+graph"
        if given.members > 1:
            given.modes = ",".join(mode for mode in given.modes.split(",") if mode.startswith("stacked"))
    return given


def main():
    given = arguments()
    if not ready(given, "collective.py"):
        return 2
    from timing import report
    from training import Training
    revision = "" if given.revision == "r1" else f"-{given.revision}"
    members = "" if given.members == 1 else f"-k{given.members}"
    name = f"collective-{given.preset}{revision}-b{given.batch}{members}"
    fine = report(name, lambda stacked, compiled: Training(given, stacked, compiled), given.modes.split(","), given.device,
                  given.precision, given.seconds, given.compile_seconds)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
