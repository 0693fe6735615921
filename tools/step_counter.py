"""Writes down when each training step of a program ended. tools/inject copies it beside the program and inserts one line that calls tick().

STEP_COUNTER_FILE names the file; without it nothing happens. It holds 64-bit numbers: the steps so far, the number of the step at which the gate opened,
then the time of each step (CLOCK_MONOTONIC, nanoseconds). STEP_COUNTER_GATE holds the program back after STEP_COUNTER_WARM steps until a byte comes
through that pipe, and STEP_COUNTER_SECONDS later the program ends: with STEP_COUNTER_EXIT=hard at once, else by SystemExit. STEP_COUNTER_SEEN gets the
functions that the steps before the gate called.
"""
import json
import mmap
import os
import signal
import sys
import time

HEAD, MOST = 2, 1 << 20
_count, _end, _times, _seen = 0, 0, None, {}
_file, _gate = os.environ.get("STEP_COUNTER_FILE"), os.environ.get("STEP_COUNTER_GATE")
_warm, _seconds = int(os.environ.get("STEP_COUNTER_WARM", 8)), float(os.environ.get("STEP_COUNTER_SECONDS", 0))


def _note_call(frame, event, _):
    if event == "call":
        key = frame.f_code.co_filename, frame.f_code.co_firstlineno
        _seen[key] = _seen.get(key, 0) + 1


def _begin():
    global _times
    handle = os.open(_file, os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(handle, 8 * (HEAD + MOST))
    _times = memoryview(mmap.mmap(handle, 8 * (HEAD + MOST))).cast("q")
    os.close(handle)
    if "STEP_COUNTER_SEEN" in os.environ:
        sys.setprofile(_note_call)


def _write_seen():
    """The file is complete once it is there."""
    sys.setprofile(None)
    rows = [[os.path.abspath(name), line, calls] for (name, line), calls in _seen.items() if not name.startswith("<")]
    path = os.environ["STEP_COUNTER_SEEN"]
    with open(path + ".part", "w") as file:
        json.dump(rows, file)
    os.rename(path + ".part", path)


def _wait():
    if "STEP_COUNTER_SEEN" in os.environ:
        _write_seen()
    with open(_gate + ".part", "w") as here:
        here.write(str(os.getpid()))
    os.rename(_gate + ".part", _gate + ".here")
    pipe = os.open(_gate, os.O_RDONLY)
    if not os.read(pipe, 1):  # nobody waits for the program any more
        os._exit(143)
    os.close(pipe)


def _end_workers():
    """Workers of loaders look only every few seconds whether somebody still wants them, and hold the program's output open."""
    if "multiprocessing" in sys.modules:
        try:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # PyTorch's handler would raise here
        except ValueError:  # not the main thread, so nothing is raised in it
            pass
        for child in sys.modules["multiprocessing"].active_children():
            child.kill()


def _leave():
    if os.environ.get("STEP_COUNTER_EXIT") == "hard":
        sys.stdout.flush()
        _end_workers()
        os._exit(0)
    raise SystemExit(0)


def tick(*_):
    """A step ended."""
    global _count, _end
    if not _file:
        return
    if _times is None:
        _begin()
    now = time.monotonic_ns()
    if _count < MOST:
        _times[HEAD + _count] = now
    _count += 1
    _times[0] = _count
    if _gate and _count == _warm:
        _wait()
        _times[1] = _count
        _end = time.monotonic_ns() + int(_seconds * 1e9)
    elif _seconds and not _gate and _count == 1:
        _end = now + int(_seconds * 1e9)
    elif _end and now >= _end:
        _end = 0
        _leave()


def hook():
    """Counts the updates of PyTorch's optimizers, for programs whose loop belongs to a library."""
    from torch.optim.optimizer import register_optimizer_step_post_hook
    register_optimizer_step_post_hook(tick)
