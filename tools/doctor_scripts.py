"""Small PyTorch programs that tools/doctor-check writes and runs."""

# A script of somebody's, from beginning to end under PyTorch's profiler: SCRIPT TRACE ARGUMENT...
PROFILED = """
import pathlib, runpy, sys
from torch.profiler import profile, ProfilerActivity
script, out = sys.argv[1], sys.argv[2]
sys.argv = sys.argv[1:2] + sys.argv[3:]
sys.path[0] = str(pathlib.Path(script).parent)
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], with_stack=True) as observer:
    runpy.run_path(script, run_name="__main__")
observer.export_chrome_trace(out)
"""

PRELUDE = """
import os, signal, sys, torch
torch.manual_seed(1)
x = torch.randn(512, 512, device="cuda")
for _ in range(300):
    x = (x @ x).tanh()
print(float(x.sum()), flush=True)
"""

# name: (how the program goes on after the prelude, its exit status; 128 + n for signal n)
ENDINGS = {
    "ends": ("print('end')", 0),
    "crashes": ("raise RuntimeError('on purpose')", 1),
    "killed": ("os.kill(os.getpid(), signal.SIGKILL)", 137),
    "aborts": ("os.abort()", 134),
    "exits": ("os._exit(7)", 7),
    "forks": ("pid = os.fork()\n"
              "if pid == 0:\n"
              "    print('child', flush=True)\n"
              "    os._exit(3)\n"
              "print(os.WEXITSTATUS(os.waitpid(pid, 0)[1]))", 0),
    "execs": ("os.execv(sys.executable, [sys.executable, '-c', 'print(\"another program\")'])", 0),
}

# Two threads that allocate and free on the device for so many seconds, through the allocator's cache and past it.
STRESS = """
import random, sys, threading, time, torch
end, rounds = time.monotonic() + float(sys.argv[1]), [0, 0]

def churn(which):
    choose = random.Random(which)
    with torch.cuda.stream(torch.cuda.Stream()):
        while time.monotonic() < end:
            held = [torch.empty(choose.randint(1, 1 << 22), device="cuda") for _ in range(choose.randint(1, 16))]
            held[0].add_(1)
            del held
            if choose.random() < 0.3:
                torch.cuda.empty_cache()
            rounds[which] += 1

threads = [threading.Thread(target=churn, args=(which,)) for which in (0, 1)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(f"rounds {rounds[0]} {rounds[1]}")
"""
