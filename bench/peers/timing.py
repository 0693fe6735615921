"""Times one training step the ways a PyTorch user can run it, and prints one JSON row per way.

A run has `step()` (gather, forward, loss, backward, update; no host reads). Modes are words joined by '+': `stacked` and `compile`
say how the run is built, `graph` that the whole step is captured and replayed; `eager` is none of them.
"""
import contextlib
import json
import platform
import time

import torch

from command import deadline, turn

LEAST_WINDOWS = 7
WARMUP_SECONDS = 2


def operands(precision):
    """(type, whether it is used) of the operands that autocast gives to products. f16 has no scaled loss: small gradients vanish,
    which costs no time, and a scaler would add work."""
    return {"bf16": (torch.bfloat16, True), "f16": (torch.float16, True)}.get(precision, (torch.bfloat16, False))


def window(step, count, device):
    """Mean milliseconds per step over `count` steps issued back to back."""
    if device == "cpu":
        begin = time.perf_counter()
        for _ in range(count):
            step()
        return 1000 * (time.perf_counter() - begin) / count
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(count):
        step()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / count


def measure(step, device, seconds, warmup=10):
    """Median and quartiles in milliseconds over at least seven windows of about a tenth of a second (20 steps at most)."""
    begin = time.perf_counter()
    for _ in range(warmup):
        window(step, 1, device)
        if time.perf_counter() - begin > WARMUP_SECONDS:
            break
    count = max(1, min(20, int(100 / window(step, 2, device))))
    times, begin = [], time.perf_counter()
    while len(times) < LEAST_WINDOWS or time.perf_counter() - begin < seconds:
        times.append(window(step, count, device))
    times.sort()
    pick = lambda quarter: round(times[quarter * len(times) // 4], 5)
    return dict(ms=pick(2), low=pick(1), high=pick(3), windows=len(times), steps_per_window=count)


def captured(step, warmup=5):
    """The step as one CUDA graph; the warm-up compiles, fills caches and creates the optimizer's state."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(warmup):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def loaded_blas():
    """Name of the BLAS this process has mapped; PyTorch's own build string names only what it was compiled against."""
    try:
        with open("/proc/self/maps") as maps:
            paths = {line.split()[-1] for line in maps if "blas" in line or "libmkl" in line}
    except OSError:
        return "unknown"
    for key, name in (("openblas", "openblas"), ("libmkl", "mkl"), ("blis", "blis"), ("atlas", "atlas"), ("libblas", "reference")):
        if any(key in path for path in paths):
            return name
    return "mkl" if torch.backends.mkl.is_available() else "unknown"


def versions(device):
    found = dict(torch=torch.__version__, python=platform.python_version())
    if device == "cpu":
        found.update(blas=loaded_blas(), threads=torch.get_num_threads(), machine=platform.machine())
    else:
        found.update(cuda=torch.version.cuda, gpu=torch.cuda.get_device_name(), cudnn=torch.backends.cudnn.version())
    return found


def compile_options():
    """Inductor's default mode on fixed shapes; its autotuning modes take minutes for models of this size."""
    return dict(dynamic=False)


def refusal(mode, device):
    """Why a mode cannot run here, or None."""
    words = mode.split("+")
    unknown = [word for word in words if word not in ("eager", "stacked", "compile", "graph")]
    if unknown:
        return f"unknown mode '{mode}': use eager, graph, compile+graph, stacked, stacked+graph or stacked+compile+graph"
    if "graph" in words and device == "cpu":
        return "a CUDA graph needs --device cuda"
    if "compile" in words and not hasattr(torch, "compile"):
        return f"torch {torch.__version__} has no torch.compile"
    return None


def report(name, workload, modes, device, precision, seconds, compile_seconds):
    """Prints a row per mode; a mode that fails gives a row with `error`. True when every mode was timed."""
    fine = True
    for mode in modes:
        row = dict(name=name, peer=mode, precision=precision, device=device)
        begin = time.perf_counter()
        try:
            reason = refusal(mode, device)
            if reason:
                raise ValueError(reason)
            words = mode.split("+")
            with turn(alone=False), deadline(compile_seconds, "building the step"):
                run = workload(stacked="stacked" in words, compiled="compile" in words)
                step = captured(run.step) if "graph" in words else run.step
                step()
                if device == "cuda":
                    torch.cuda.synchronize()
            row["build_seconds"] = round(time.perf_counter() - begin, 2)
            with turn(alone=True):
                row.update(measure(step, device, seconds))
            del run, step
        except Exception as error:  # that a mode cannot be used is a result, too
            row["error"] = f"{type(error).__name__}: {error}"[:300]
            fine = False
        row["versions"] = versions(device)
        print(json.dumps(row), flush=True)
        if device == "cuda":
            with contextlib.suppress(RuntimeError):  # a broken capture shows in the next mode's own row
                torch.cuda.empty_cache()
    return fine
