"""Stands still with threads deep in code of many shapes and says where they are, so that a reader from outside can be compared.

Prints `runtime ADDRESS VERSION PID`, one `thread NUMBER` line per thread with its frames as `frame LINE FUNCTION FILE` below it,
innermost first, and `ready`; goes on when a line comes in. With the word `collect` one thread stops inside a garbage collection.
"""
import asyncio
import contextlib
import ctypes
import gc
import sys
import threading

still = threading.Event()
entered = []


def wait():
    entered.append(1)
    still.wait()


def in_generator():
    for number in range(3):
        yield (
            number,
            wait(),
        )


def in_comprehension():
    return [
        item
        for item in
        in_generator()
    ]


@contextlib.contextmanager
def scope():
    yield


def over_lines(first, *rest):
    with scope():
        try:
            return first(
                *rest,
                key=lambda: (
                    wait()),
            )
        finally:
            pass


class Größe:
    @property
    def länge(self):
        def inner(*, key):
            return key()
        return over_lines(
            inner)


def far_apart():
    if len(entered) < 0:
        pass
PADDING
    return (lambda: Größe().länge)()


async def in_coroutine():
    async def deeper():
        far_apart()
    await deeper()


def run_coroutine():
    asyncio.run(in_coroutine())


def in_exec():
    exec(compile("\n" * 300 + "def made():\n    wait()\nmade()", "<made 名前>", "exec"), {"wait": wait})


def deep(depth):
    return wait() if depth == 0 else deep(depth - 1)


def collecting():
    gc.callbacks.append(lambda phase, info: wait())
    gc.collect()


shapes = [in_comprehension, far_apart, run_coroutine, in_exec, lambda: deep(200)]
if "collect" in sys.argv:
    shapes.append(collecting)
threads = [threading.Thread(target=shape, daemon=True) for shape in shapes]
for count, thread in enumerate(threads):
    thread.start()
    while len(entered) <= count:
        still.wait(0.001)
# A thread that has entered wait() may not stand in its inner lock yet: go on when two looks agree.
number_of = {thread.ident: thread.native_id for thread in threads}


def look():
    found = []
    for ident, frame in sys._current_frames().items():
        if ident in number_of:
            lines = ["thread %d" % number_of[ident]]
            while frame is not None:
                lines.append("frame %d %s %s" % (frame.f_lineno, frame.f_code.co_name, frame.f_code.co_filename))
                frame = frame.f_back
            found.append("\n".join(lines))
    return "\n".join(sorted(found))


before, now = None, look()
while before != now:
    still.wait(0.02)
    before, now = now, look()
sys.stdout.reconfigure(encoding="utf-8")
runtime = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
print("runtime %d %d %d" % (runtime, sys.hexversion, threading.get_native_id()))
print(now)
print("ready", flush=True)
sys.stdin.readline()
