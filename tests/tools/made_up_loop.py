"""A loop for tools/probe-leaves on the stand-ins for CUDA and CUPTI (MILLRACE_BUILD has them): `made_up_loop.py END THREADS UNLED`.

END is what becomes of it once CUPTI has gone: "well", or "crash", "wrong" (checksum), "status", "complain", "hang" (when its input has ended).
"""
import ctypes
import os
import pathlib
import select
import signal
import sys
import threading
import time

BUILD = pathlib.Path(os.environ["MILLRACE_BUILD"])
END, THREADS, UNLED = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
cuda = ctypes.CDLL(str(BUILD / "mock_cuda/libcuda.so.1"))
framework = ctypes.CDLL(str(BUILD / "libmock_framework.so"))
weights, over, steps = ctypes.c_void_p(), threading.Event(), [0] * THREADS


def is_gone():
    return ctypes.CDLL(os.environ["MILLRACE_CUPTI"]).mock_cupti_finalised() > 0


def work(which):
    while not over.is_set():
        if which < THREADS - UNLED:
            steps[which] += framework.mock_framework_step(weights, 4) == 0
        else:
            steps[which] += cuda.mock_driver_launch((ctypes.c_void_p * 2)(ctypes.addressof(weights), ctypes.addressof(weights))) == 0
        time.sleep(0.001 if which < THREADS - UNLED else 0.01)
        if which == 0 and (select.select([sys.stdin], [], [], 0)[0] or (END == "crash" and is_gone())):
            over.set()


cuda.cuInit(0)
cuda.cudaMalloc(ctypes.byref(weights), ctypes.c_size_t(4096))
print("ready", flush=True)
others = [threading.Thread(target=work, args=(which,)) for which in range(1, THREADS)]
for thread in others:
    thread.start()
work(0)
for thread in others:
    thread.join()
if END == "crash" and is_gone():
    os.kill(os.getpid(), signal.SIGSEGV)
while END == "hang":
    time.sleep(1)
if END == "complain":
    print("malloc(): unsorted double linked list corrupted", file=sys.stderr)
print("checksum", sum(steps) + (END == "wrong"), sum(steps), flush=True)
sys.exit(7 if END == "status" else 0)
