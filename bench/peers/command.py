"""What the commands have in common: the options of a measurement, getting PyTorch ready for it, and starting JAX's process."""
import contextlib
import fcntl
import os
import signal
import subprocess
import sys

PRECISIONS = ("bf16", "f16", "fp32", "tf32")  # operands of products; fp32 is strict, tf32 rounds them to ten bits of mantissa


def add_options(parser, precisions=PRECISIONS):
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--modes", help="comma-separated; default: everything the device can do")
    parser.add_argument("--precision", choices=precisions, help="default: bf16 on cuda; a CPU runs fp32 alone")
    parser.add_argument("--seconds", type=float, default=1.0, help="least time measured per mode")
    parser.add_argument("--compile-seconds", type=float, default=240.0, help="a mode that needs longer to build is given up")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="CPU threads")


def parsed(parser):
    """The options, checked; ends the program with status 2 and a message when one is wrong."""
    given = parser.parse_args()
    if given.threads < 1 or not given.seconds > 0 or not given.compile_seconds > 0:
        parser.error("--threads, --seconds and --compile-seconds must be positive")
    if given.device == "cpu" and given.precision not in (None, "fp32"):
        parser.error(f"--precision {given.precision} needs --device cuda; on a CPU both sides run fp32")
    given.precision = given.precision or ("bf16" if given.device == "cuda" else "fp32")
    return given


def run(given, program, row, workload, jax=None):
    """Prints a row per mode of `workload(stacked, compiled)`, a run whose step() makes one update; the exit status. `jax` is the
    script that has the mode of that name."""
    modes, fine = given.modes.split(","), True
    if os.environ.get("MILLRACE_TURNS") and len(modes) > 1:
        return run_apart(modes)
    torch_modes = [mode for mode in modes if mode != "jax" or jax is None]
    if torch_modes:
        if not ready(given, program):
            return 2
        from timing import report
        fine = report(row, workload, torch_modes, given.device, given.precision, given.seconds, given.compile_seconds)
    if len(torch_modes) < len(modes):
        fine = run_jax(given, jax) and fine
    return 0 if fine else 1


def run_apart(modes):
    """This command once for each mode, all prepared at once; the greatest exit status."""
    children = [subprocess.Popen([sys.executable, *sys.argv, "--modes", mode], stdout=subprocess.PIPE, text=True) for mode in modes]
    for child in children:
        print(child.communicate()[0], end="", flush=True)
    return max(child.returncode for child in children)


def step_of(training, given):
    """A workload of run() from `training(given, compiled)`, a function that makes one update."""
    class Run:
        def __init__(self, stacked, compiled):
            if stacked:
                raise ValueError("the model has no members to stack")
            self.step = training(given, compiled)
    return Run


def run_jax(given, script):
    """The row of JAX, from a process of its own: two libraries' pools of device memory would meet in one. True when it was timed."""
    text = lambda value: ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    options = [f"--{key.replace('_', '-')}={text(value)}" for key, value in vars(given).items() if key != "modes" and value is not None]
    folder = os.path.dirname(os.path.abspath(__file__))
    return subprocess.run([sys.executable, os.path.join(folder, script), *options]).returncode == 0


def ready(given, program):
    """Loads PyTorch with the given threads; False, with a message, when it or the device is missing."""
    # OpenMP reads these once, when it is loaded: before torch.
    os.environ["OMP_NUM_THREADS"] = str(given.threads)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        import torch
    except ImportError:
        print(f"{program}: {sys.executable} has no torch; Debian's python3-torch belongs to /usr/bin/python3", file=sys.stderr)
        return False
    torch.set_num_threads(given.threads)
    precision = getattr(given, "precision", None)  # some peers have no such option
    if precision in ("fp32", "tf32"):  # products, and convolutions, which PyTorch rounds unless told otherwise
        torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
        torch.backends.cudnn.allow_tf32 = precision == "tf32"
    if given.device == "cuda" and not torch.cuda.is_available():
        print(f"{program}: --device cuda, but torch {torch.__version__} sees no CUDA device; use --device cpu", file=sys.stderr)
        return False
    return True


@contextlib.contextmanager
def turn(alone):
    """Where MILLRACE_TURNS names a file, processes that share a device prepare together, and each is timed alone."""
    path = os.environ.get("MILLRACE_TURNS")
    if not path:
        yield
        return
    with open(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # a child of this process may have the file, too


@contextlib.contextmanager
def deadline(seconds, doing):
    """Raises TimeoutError in the body once `seconds` have passed."""
    def late(signum, frame):
        raise TimeoutError(f"{doing} took more than {seconds:g} s")
    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
