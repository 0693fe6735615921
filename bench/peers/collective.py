#!/usr/bin/env python3
"""PyTorch opponents of the collective model: one JSON row per mode on standard output.

    collective.py --device cpu  --preset debug --batch 32 --threads 2
    collective.py --device cuda --preset debug --batch 32 --modes eager,graph,compile+graph,stacked+compile+graph
    collective.py --device cuda --preset debug --batch 32 --members 16 --modes stacked+graph,stacked+compile+graph

The step is the one Millrace runs: random rows of a resident u8 data set, normalised, forward, cross-entropy, backward, Adam.
"""
import argparse
import os
import sys


def arguments():
    parser = argparse.ArgumentParser(description="times the collective model in PyTorch")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--preset", choices=("debug", "phase1"), default="debug")
    parser.add_argument("--revision", choices=("r1", "r2"), default="r1")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--members", type=int, default=1, help="whole models trained side by side, each on its own rows")
    parser.add_argument("--modes", help="comma-separated; default: everything the device can do")
    parser.add_argument("--precision", choices=("bf16", "fp32"), help="default: bf16 on cuda; a CPU runs fp32 alone")
    parser.add_argument("--seconds", type=float, default=1.0, help="least time measured per mode")
    parser.add_argument("--compile-seconds", type=float, default=240.0, help="a mode that needs longer to build is given up")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="CPU threads")
    given = parser.parse_args()
    if given.batch < 2:
        parser.error("--batch must be at least 2: BatchNorm has no variance over one row")
    if given.members < 1 or given.threads < 1 or not given.seconds > 0 or not given.compile_seconds > 0:
        parser.error("--members, --threads, --seconds and --compile-seconds must be positive")
    if given.device == "cpu" and given.precision == "bf16":
        parser.error("--precision bf16 needs --device cuda; on a CPU both sides run fp32")
    given.precision = given.precision or ("bf16" if given.device == "cuda" else "fp32")
    if given.modes is None:
        given.modes = "eager,stacked" if given.device == "cpu" else "eager,graph,compile+graph,stacked+graph,stacked+compile+graph"
        if given.members > 1:
            given.modes = ",".join(mode for mode in given.modes.split(",") if mode.startswith("stacked"))
    return given


def main():
    given = arguments()
    # OpenMP reads these once, when it is loaded: before torch.
    os.environ["OMP_NUM_THREADS"] = str(given.threads)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        import torch
    except ImportError:
        print(f"collective.py: {sys.executable} has no torch; Debian's python3-torch belongs to /usr/bin/python3", file=sys.stderr)
        return 2
    from timing import report
    from training import Training
    torch.set_num_threads(given.threads)
    if given.device == "cuda" and not torch.cuda.is_available():
        print(f"collective.py: --device cuda, but torch {torch.__version__} sees no CUDA device; use --device cpu", file=sys.stderr)
        return 2
    revision = "" if given.revision == "r1" else f"-{given.revision}"
    members = "" if given.members == 1 else f"-k{given.members}"
    name = f"collective-{given.preset}{revision}-b{given.batch}{members}"
    fine = report(name, lambda stacked, compiled: Training(given, stacked, compiled), given.modes.split(","), given.device,
                  given.precision, given.seconds, given.compile_seconds)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
