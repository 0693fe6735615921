"""Made-up programs, a made-up millrace and as much of PyTorch as tools/doctor-check itself needs, for its tests."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools/doctor-check"

# Prints the speed that the folder's `speeds` has for it, in no time. Line 6 is the illness, lines 8 and 9 the loop. It and the made-up
# millrace are started a hundred times, so they import next to nothing.
PROGRAM = '''"""{kind}: made up."""
import os, sys
mode = " ".join(sys.argv[2:])
speeds = eval(open(os.path.join(os.path.dirname(__file__), "speeds")).read())
class Clock: __enter__ = __exit__ = lambda *_: None
speed = speeds[(os.path.basename(__file__)[:-3] + " " + mode).strip()]{mark}
print("starts", flush=True)
with Clock():
    print(f"steps/s {{speed}}")
print(f"samples/s {{speed * 32}}")
'''
# `record` runs the command and keeps its command line; `diagnose` and `compare` answer with what lies in answers/ for that program.
MILLRACE = '''#!{python} -SE
import os, sys
here, given = os.path.dirname(__file__), sys.argv[1:]
with open(here + "/calls", "a") as calls:
    calls.write(" ".join(given) + "\\n")
def who(run):
    if not os.path.isdir(run):
        return "trace"
    words = eval(open(run + "/command").read())
    return (os.path.basename(words[1])[:-3] + " " + " ".join(words[3:])).strip()
def answer(name):
    return open(here + "/answers/" + name + ".json").read()
if given[0] == "--version":
    print("millrace made up")
elif given[0] == "record":
    run, command = given[given.index("-o") + 1], given[given.index("--") + 1:]
    os.makedirs(run)
    open(run + "/command", "w").write(repr(command))
    child = os.posix_spawn(command[0], command, os.environ)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    sys.exit(status if status >= 0 else 128 - status)
elif given[0] == "diagnose":
    for option in ("--html", "--md"):
        if option in given:
            open(given[given.index(option) + 1], "w").write("report")
    print(answer(who(given[1])))
    sys.exit(1)
else:
    before, after = who(given[1]), who(given[2])
    try:
        print(answer(before + " to " + after))
    except FileNotFoundError:
        print('{{"verdict": "%s", "change": 0.2}}' % ("no difference" if before == after else "better"))
'''

# As much of PyTorch as the check's own scripts use.
TORCH = {"__init__.py": """
import contextlib, os
with open(os.path.join(os.path.dirname(__file__), "imported"), "a") as who:
    who.write(f"{os.getpid()}\\n")
class Tensor:
    __matmul__ = __add__ = add_ = lambda self, other: self
    tanh = lambda self: self
    sum = lambda self: 1.5
def randn(*shape, device): return Tensor()
empty = randn
def manual_seed(number): pass
class cuda:
    Stream = object
    stream = staticmethod(lambda which: contextlib.nullcontext())
    empty_cache = staticmethod(lambda: None)
""", "profiler.py": """
class ProfilerActivity: CPU = CUDA = None
class profile:
    def __init__(self, **options): pass
    def __enter__(self): return self
    def __exit__(self, *what): pass
    def export_chrome_trace(self, path): open(path, "w").write("trace")
"""}


def finding(kind, line, lost, file="host_sync.py", severity="warning"):
    return dict(kind=kind, severity=severity, where=dict(file=f"/somewhere/{file}", line=line, function="f"), lost_ms_per_step=lost)


def diagnosis(*findings, compute=10.0, unexplained=0.0, **more):
    document = dict(healthy=not findings, busy_share=0.8, steps=100, step_ms=compute + unexplained, mean_step_ms=compute + unexplained,
                    window_overhead_share=0.1, overhead_share=0.001, breakdown={"compute": compute, "unexplained": unexplained}, findings=list(findings))
    return {**document, **more}


class Folder:
    """Programs, studies, and a build folder with the made-up millrace."""

    def __init__(self, path):
        self.path, self.build, self.out = path, path / "build", path / "out"
        for folder in ("programs", "studies", "build/answers"):
            (path / folder).mkdir(parents=True)
        self.millrace = self.build / "millrace"
        self.millrace.write_text(MILLRACE.format(python=sys.executable))
        self.millrace.chmod(0o755)
        (self.build / "libmillrace-probe.so").write_text("made up")
        self.python = path / "python"
        self.use_python("-S")
        self.speeds = {}
        (path / "modules/torch").mkdir(parents=True)
        for name, text in TORCH.items():
            (path / "modules/torch" / name).write_text(text)

    def use_python(self, *options):
        """With -S it starts faster, and cannot be held back: nothing is started ahead."""
        self.python.write_text(f"#!/bin/sh\nexec {' '.join((sys.executable, *options))} \"$@\"\n")
        self.python.chmod(0o755)

    def program(self, name, kind, sick, cured=None, folder="programs"):
        mark = "" if kind == "healthy" else "  # <- illness"
        (self.path / folder / f"{name}.py").write_text(PROGRAM.format(kind=kind, mark=mark))
        self.speeds.update({name: sick, **({f"{name} cured": cured} if cured else {})})
        for where in ("programs", "studies"):
            (self.path / where / "speeds").write_text(repr(self.speeds))

    def answer(self, name, document):
        (self.build / "answers" / f"{name}.json").write_text(json.dumps(document))

    def begin(self, *given, **environment):
        command = [sys.executable, SCRIPT, "--build", self.build, "--programs", self.path / "programs", "--studies", self.path / "studies", "--out", self.out]
        return subprocess.Popen([*map(str, command), *given], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env={**os.environ, "MILLRACE_PYTHON": str(self.python), "PYTHONPATH": str(self.path / "modules"), **environment})

    def check(self, *given, **environment):
        process = self.begin(*given, **environment)
        said, errors = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, said, errors)

    def kept(self):
        return json.loads((self.out / "doctor-check.json").read_text())

    def said_to(self, word):
        """Command lines of the made-up millrace."""
        path = self.build / "calls"
        return [line for line in path.read_text().splitlines() if line.startswith(word)] if path.exists() else []

    def calls(self, word):
        return len(self.said_to(word))


class Trial(unittest.TestCase):
    """The check in a folder of its own."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Folder(pathlib.Path(holder.name))

    def sick(self, name="host_sync", kind="host-sync", lost=2.5, line=6):
        self.folder.program(name, kind, 80.0, 100.0)
        self.folder.answer(name, diagnosis(finding(kind, line, lost, f"{name}.py")))

    def healthy(self):
        self.folder.program("healthy", "healthy", 50.0)
        self.folder.answer("healthy", diagnosis())

    def expect(self, status, text, *given):
        done = self.folder.check(*given)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.assertIn(text, done.stdout + done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        return done.stdout

    def change_program(self, name, count):
        """`count` may change `speed` by `number`, which counts its runs from 0, and by `mode`."""
        path = self.folder.path / f"programs/{name}.py"
        number = "log = open(__file__ + '.' + mode, 'a+'); log.write('.'); log.seek(0); number = len(log.read()) - 1\n"
        path.write_text(path.read_text().replace("print(\"starts\"", number + count + "\nprint(\"starts\""))

    def change_millrace(self, old, new):
        text = self.folder.millrace.read_text()
        self.assertIn(old, text)
        self.folder.millrace.write_text(text.replace(old, new))


def is_gone(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


def wait_for(condition):
    """However long a loaded machine takes, within reason."""
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it does not come about")
