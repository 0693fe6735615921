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

DATA = ("resident", "host", "loader")


def arguments():
    parser = argparse.ArgumentParser(description="times the energy flow model in PyTorch")
    add_options(parser)
    parser.add_argument("--preset", choices=("debug", "experiment", "experiment-v2", "large-b4", "tiny"), default="debug")
    parser.add_argument("--batch", type=int, help="default: the preset's")
    parser.add_argument("--members", type=int, default=1, choices=(1,), help="there is no form with several")
    parser.add_argument("--data", choices=DATA, default="resident", help="where pairs lie before a step: on the device; in the host's "
                        "memory, copied in each step; behind a DataLoader that takes them one by one")
    parser.add_argument("--clear-cache", action="store_true", help="give cached memory back to the driver after every step")
    given = parsed(parser)
    given.modes = given.modes or ("eager" if given.device == "cpu" else "eager,graph,compile+graph")
    if given.batch is not None and given.batch < 1:
        parser.error("--batch must be positive")
    if "graph" in given.modes and (given.data != "resident" or given.clear_cache):
        parser.error("--data and --clear-cache need the host in every step: use --modes eager")
    return given


def main():
    given = arguments()
    if not ready(given, "energy_flow.py"):
        return 2
    from flow_model import PRESETS, Cube
    from flow_training import FlowTraining
    from timing import report
    shape = dict(PRESETS[given.preset])
    if given.batch:
        shape["batch"] = given.batch

    def workload(stacked, compiled):
        return FlowTraining(Cube(**shape), given.device, given.precision, stacked, compiled, given.data, given.clear_cache)

    fine = report(f"energy-flow-{given.preset}", workload, given.modes.split(","), given.device, given.precision, given.seconds,
                  given.compile_seconds)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
