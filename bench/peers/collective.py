#!/usr/bin/env python3
"""Opponents of the collective model, in PyTorch and JAX: one JSON row per mode on standard output.

    collective.py --device cpu  --preset debug --batch 32 --threads 2
    collective.py --device cuda --preset debug --batch 32 --modes eager,graph,compile+graph,stacked+compile+graph
    collective.py --device cuda --preset debug --batch 128 --members 16 --modes stacked+graph,stacked+compile+graph,jax

The step is the one Millrace runs: random rows of a resident u8 data set, normalised, forward, cross-entropy, backward, Adam.
"""
import argparse
import json
import os
import subprocess
import sys

from command import add_options, parsed, ready


def arguments():
    parser = argparse.ArgumentParser(description="times the collective model in PyTorch and JAX")
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


def run_jax(given, name):
    """The row of JAX, from a process of its own: two libraries' pools of device memory would meet in one. True when it was timed."""
    if given.revision != "r1":
        print(json.dumps(dict(name=name, peer="jax", error="the JAX model is revision r1")), flush=True)
        return False
    options = [f"--{key.replace('_', '-')}={value}" for key, value in vars(given).items() if key not in ("modes", "revision")]
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "collective_jax.py")
    return subprocess.run([sys.executable, script, *options]).returncode == 0


def main():
    given = arguments()
    revision = "" if given.revision == "r1" else f"-{given.revision}"
    members = "" if given.members == 1 else f"-k{given.members}"
    name = f"collective-{given.preset}{revision}-b{given.batch}{members}"
    modes, fine = given.modes.split(","), True
    torch_modes = [mode for mode in modes if mode != "jax"]
    if torch_modes:
        if not ready(given, "collective.py"):
            return 2
        from timing import report
        from training import Training
        fine = report(name, lambda stacked, compiled: Training(given, stacked, compiled), torch_modes, given.device,
                      given.precision, given.seconds, given.compile_seconds)
    if "jax" in modes:
        fine = run_jax(given, name) and fine
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
