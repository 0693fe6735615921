#!/usr/bin/env python3
"""Makes the golden files beside this script, or with --check makes them in memory and compares.

    /usr/bin/python3 tests/goldens/make_goldens.py            # writes *.safetensors
    /usr/bin/python3 tests/goldens/make_goldens.py --check    # exit status 1 when a committed file differs

Needs numpy and PyTorch on a CPU (made with Debian's python3-torch 1.13.1); every random number comes from a seeded numpy stream.
"""
import argparse
import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
SEED = 20  # the collective's cases get seeds SEED, SEED + 1, ... in their order; the energy flow and sentence cases state their own
CHECK_LIMIT = 1e-5  # another PyTorch or BLAS may round the last bits of float64 differently; nothing near this


def everything():
    """Yields (file name, tensors, metadata)."""
    import cases
    import flow_cases
    import language_cases
    import ops
    import text_cases
    yield ("ops.safetensors", *ops.golden(SEED))
    for number, name in enumerate(cases.CASES, 1):
        yield (f"{name}.safetensors", *cases.golden(name, SEED + number))
    for name in flow_cases.CASES:
        yield (f"{name}.safetensors", *flow_cases.golden(name))
    for name in text_cases.CASES:
        yield (f"{name}.safetensors", *text_cases.golden(name))
    for name in language_cases.CASES:
        yield (f"{name}.safetensors", *language_cases.golden(name))


def difference(path, tensors, metadata):
    """What is different between the file at `path` and the given content, or None."""
    import tensor_file
    if not os.path.exists(path):
        return "is missing"
    found, described = tensor_file.read(path)
    measured = "float32_deviation"  # depends on the BLAS
    if {**described, measured: ""} != {**metadata, measured: ""}:
        return "has other metadata"
    if set(found) != set(tensors):
        return f"has other tensors: {sorted(set(found) ^ set(tensors))[:5]}"
    for name, values in tensors.items():
        if found[name].shape != values.shape or found[name].dtype != values.dtype:
            return f"'{name}' has another shape or type"
        if not np.allclose(found[name], values, rtol=CHECK_LIMIT, atol=CHECK_LIMIT):
            return f"'{name}' has other values"
    return None


def main():
    parser = argparse.ArgumentParser(description="makes the parity goldens")
    parser.add_argument("--check", action="store_true", help="compare with the committed files instead of writing them")
    check = parser.parse_args().check
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import tensor_file
    wrong, total = 0, 0
    for file, tensors, metadata in everything():
        path = os.path.join(HERE, file)
        if check:
            reason = difference(path, tensors, metadata)
            wrong += reason is not None
            print(f"{file}: {reason or 'as committed'}")
        else:
            tensor_file.write(path, tensors, metadata)
            total += os.path.getsize(path)
            print(f"{file}: {len(tensors)} tensors, {os.path.getsize(path)} bytes {metadata.get('float32_deviation', '')}")
    if not check:
        print(f"{total} bytes in all")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
