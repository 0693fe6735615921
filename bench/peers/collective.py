#!/usr/bin/env python3
"""Opponents of the collective model, in PyTorch and JAX: one JSON row per mode on standard output.

    collective.py --device cpu  --preset debug --batch 32 --threads 2
    collective.py --device cuda --preset debug --batch 32 --modes eager,graph,compile+graph,stacked+compile+graph
    collective.py --device cuda --preset debug --batch 128 --members 16 --modes stacked+graph,stacked+compile+graph,jax

The step is the one Millrace runs: random rows of a resident u8 data set, normalised, forward, cross-entropy, backward, Adam.
"""
import argparse
import sys

from command import add_options, parsed, run
from presets import add_shape_options, problem_of


def arguments():
    parser = argparse.ArgumentParser(description="times the collective model in PyTorch and JAX")
    add_options(parser)
    add_shape_options(parser)
    given = parsed(parser)
    if problem := problem_of(given):
        parser.error(problem)
    if given.modes is None:
        given.modes = "eager,stacked" if given.device == "cpu" else "eager,graph,compile+graph,stacked+graph,stacked+compile+graph"
        if given.members > 1:
            given.modes = ",".join(mode for mode in given.modes.split(",") if mode.startswith("stacked"))
    return given


def main():
    given = arguments()
    revision = "" if given.revision == "r1" else f"-{given.revision}"
    members = "" if given.members == 1 else f"-k{given.members}"

    def workload(stacked, compiled):
        from training import Training
        return Training(given, stacked, compiled)

    return run(given, "collective.py", f"collective-{given.preset}{revision}-b{given.batch}{members}", workload, "collective_jax.py")


if __name__ == "__main__":
    sys.exit(main())
