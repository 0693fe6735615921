"""Small programs that tools/doctor-check writes and runs."""
GATE, BEFORE, IMPORTED, UNBUFFERED = "MILLRACE_AHEAD_GATE", "MILLRACE_AHEAD_PYTHONPATH", "MILLRACE_AHEAD_IMPORT", "MILLRACE_AHEAD_UNBUFFERED"

# As sitecustomize.py first in PYTHONPATH: imports the framework, then waits until a byte comes through the gate, before the program's first line.
# The program, and all it starts, then finds everything as if this had not been there. No writer at the gate: nobody waits for the program.
AHEAD = f"""
import os, sys

def wait(gate, imported):
    import importlib, select
    for name in imported.split():
        parent = name.rpartition(".")[0]
        try:
            if not parent or parent in sys.modules:
                importlib.import_module(name)
        except Exception:  # the program will say so itself, if it wants that module at all
            pass
    try:
        with open(gate + ".part", "w") as here:
            here.write(str(os.getpid()))
        os.rename(gate + ".part", gate + ".here")
        pipe = os.open(gate, os.O_RDONLY | os.O_NONBLOCK)
        while True:
            try:
                word = os.read(pipe, 1)
                break
            except BlockingIOError:
                select.select([pipe], [], [])
    except OSError:
        word = b""
    if not word:
        os._exit(143)
    os.close(pipe)

def give_way():
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec
    spec = PathFinder.find_spec(__name__, sys.path)
    if spec is not None and spec.loader is not None:
        sys.modules[__name__] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[__name__])

gate, before, imported = (os.environ.pop(name, None) for name in ("{GATE}", "{BEFORE}", "{IMPORTED}"))
os.environ.pop("PYTHONPATH", None)
if os.environ.pop("{UNBUFFERED}", None):
    os.environ.pop("PYTHONUNBUFFERED", None)
if before is not None:
    os.environ["PYTHONPATH"] = before
sys.path[:] = [path for path in sys.path if path != os.path.dirname(os.path.abspath(__file__))]
try:
    give_way()
finally:
    if gate:
        wait(gate, imported or "")
"""

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
    "forks": ("import warnings\n"
              "warnings.simplefilter('ignore')\n"  # Python 3.12 warns of threads, and names the process
              "pid = os.fork()\n"
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
