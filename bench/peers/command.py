"""What the commands have in common: the options of a measurement, and getting PyTorch ready for it."""
import contextlib
import os
import signal
import sys


def add_options(parser):
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--modes", help="comma-separated; default: everything the device can do")
    parser.add_argument("--precision", choices=("bf16", "fp32"), help="default: bf16 on cuda; a CPU runs fp32 alone")
    parser.add_argument("--seconds", type=float, default=1.0, help="least time measured per mode")
    parser.add_argument("--compile-seconds", type=float, default=240.0, help="a mode that needs longer to build is given up")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="CPU threads")


def parsed(parser):
    """The options, checked; ends the program with status 2 and a message when one is wrong."""
    given = parser.parse_args()
    if given.threads < 1 or not given.seconds > 0 or not given.compile_seconds > 0:
        parser.error("--threads, --seconds and --compile-seconds must be positive")
    if given.device == "cpu" and given.precision == "bf16":
        parser.error("--precision bf16 needs --device cuda; on a CPU both sides run fp32")
    given.precision = given.precision or ("bf16" if given.device == "cuda" else "fp32")
    return given


def run(given, program, row, training):
    """Prints a row per mode of `training(given, compiled)`, a function that makes one update; the exit status."""
    if not ready(given, program):
        return 2
    from timing import report

    class Run:
        def __init__(self, stacked, compiled):
            self.step = training(given, compiled)
    fine = report(row, Run, given.modes.split(","), given.device, given.precision, given.seconds, given.compile_seconds)
    return 0 if fine else 1


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
    if given.device == "cuda" and not torch.cuda.is_available():
        print(f"{program}: --device cuda, but torch {torch.__version__} sees no CUDA device; use --device cpu", file=sys.stderr)
        return False
    return True


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
