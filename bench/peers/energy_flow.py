#!/usr/bin/env python3
"""PyTorch opponents of the energy flow model: one JSON row per mode on standard output.

    energy_flow.py --device cpu  --preset debug --threads 2
    energy_flow.py --device cuda --preset experiment-v2 --modes graph,compile+graph --compile-seconds 900

The step is the one Millrace runs: random rows of resident pairs, mapper, every flow through every step, energy laid on the surface,
mean squared distance from the target's surface, backward through time, clip, AdamW.
"""
import argparse
import sys

from command import add_options, parsed, ready


def arguments():
    parser = argparse.ArgumentParser(description="times the energy flow model in PyTorch")
    add_options(parser)
    parser.add_argument("--preset", choices=("debug", "experiment", "experiment-v2", "large-b4"), default="debug")
    given = parsed(parser)
    given.modes = given.modes or ("eager" if given.device == "cpu" else "eager,graph,compile+graph")
    return given


def main():
    given = arguments()
    if not ready(given, "energy_flow.py"):
        return 2
    from flow_model import PRESETS, Cube
    from flow_training import FlowTraining
    from timing import report
    fine = report(f"energy-flow-{given.preset}",
                  lambda stacked, compiled: FlowTraining(Cube(**PRESETS[given.preset]), given.device, given.precision, stacked, compiled),
                  given.modes.split(","), given.device, given.precision, given.seconds, given.compile_seconds)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
