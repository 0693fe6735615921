"""What tools/doctor-check runs and what it keeps: programs, recordings, diagnoses; results and speeds from one call to the next."""
import datetime
import hashlib
import json
import os
import pathlib
import platform
import re
import shutil
import statistics
import sys
import time
import typing

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import doctor_judge as judging  # noqa: E402
import gpu_machine as machine  # noqa: E402
from doctor_ahead import Ahead, Failed, Process  # noqa: E402
from doctor_turns import Turn, in_turns  # noqa: E402

START_UP = 8.0       # seconds that a program takes beside its steps, until they have been measured: most of them for importing the framework
LET_GO = 4.0         # the same for one that has imported it when its turn comes
GET_READY = 12.0     # until a batch of programs has imported it
CALIBRATION = 30     # steps of a first, short run
GUESS = 150          # steps of a first run that is to count, where nobody says how fast the program is
SHORT = 0.3          # seconds of a run whose speed says little
UNRECORDED = 5.0     # seconds outside of windows: `compare` wants seven blocks of half a second
PATIENCE = 180       # seconds after which a run that should have ended counts as hanging
TIMES = dict(start_up=START_UP, let_go=LET_GO, get_ready=GET_READY)
KEPT, SCHEMA = "doctor-check.json", 4
HALF = ".half"       # how the folder of a recording ends that is not whole yet


def say(text=""):
    print(text, flush=True)


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def cupti_left_after(folder):
    """Seconds from the first window's begin until CUPTI left the program, and how many of these its leaving took, by a recording's events; None: it
    stayed."""
    first = {}
    try:
        for line in (folder / "events.jsonl").read_text().splitlines():
            event = json.loads(line)
            first.setdefault(event.get("kind"), event)
        return [(first["cupti_left"]["monotonic_ns"] - first["window_begun"]["monotonic_ns"]) * 1e-9, first["cupti_left"].get("took_ns", 0) * 1e-9]
    except (OSError, ValueError, AttributeError, LookupError):
        return None


def size_of(folder):
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size if file.is_file() else 0
        except OSError:  # just replaced
            pass
    return total


def commit_of(build):
    """Of the programs where a manifest lies beside them or above (tools/gpu-bundle), else of the checkout."""
    for manifest in (build / "manifest.json", build.parent / "manifest.json"):
        if manifest.exists():
            return json.loads(manifest.read_text()).get("commit", "unknown")
    commit = machine.output_of(["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"])
    changed = machine.output_of(["git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no"])
    return "unknown" if not commit else commit + (" with changes" if changed else "")


def facts(millrace, python):
    """Machine and versions for the table. The framework is not imported for that: it takes seconds."""
    gpu = machine.output_of(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"])
    versions = "import platform, importlib.metadata as m; print(m.version('torch'), 'Python', platform.python_version())"
    return dict(commit=commit_of(millrace.parent), version=machine.output_of([str(millrace), "--version"]) or "unknown", gpu=gpu.splitlines()[0] if gpu else "none",
                torch=machine.output_of([python, "-c", versions]) or "unknown", machine=f"{platform.machine()}, {os.cpu_count()} cores")


def print_of(build):
    """Tells one build from another: what was found with one says nothing about the next."""
    digest = hashlib.sha256()
    for name in ("millrace", "libmillrace-probe.so"):
        if (build / name).exists():
            digest.update((build / name).read_bytes())
    return digest.hexdigest()[:16]


def print_of_programs(*folders):
    digest = hashlib.sha256()
    for path in sorted(path for folder in folders for path in folder.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


class Results:
    """Items by name ("cases/healthy"), speeds and start-up times, in one file that is written after every item."""

    def __init__(self, folder, build, *programs):
        self.path = folder / KEPT
        self.data = dict(schema=SCHEMA, build=print_of(build), programs=print_of_programs(*programs), items={}, speeds={}, start_up=[], let_go=[],
                         get_ready=[], runs=dict(ahead=0, others=0))
        if self.path.exists():
            kept = json.loads(self.path.read_text())
            self.data.update({key: kept.get(key, []) for key in TIMES})
            if kept.get("programs") == self.data["programs"]:
                self.data["speeds"] = kept.get("speeds", {})
            if all(kept.get(key) == self.data[key] for key in ("schema", "build", "programs")):
                self.data.update({key: kept[key] for key in ("items", "runs")})
            elif kept.get("items"):
                aside = folder / f"doctor-check-{kept['build']}-{kept['programs']}.json"
                self.path.replace(aside)
                say(f"the results in {folder} are of another build or of other programs: they are now in {aside.name}")

    def get(self, name):
        return self.data["items"].get(name)

    def keep(self, name, item):
        self.data["items"][name] = dict(item, date=now())
        self.save()

    def save(self):
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.data, indent=1) + "\n")
        part.replace(self.path)

    def took(self, key, seconds):
        """What a run took beside its steps: "start_up", or "let_go" where it had been started ahead, its batch "get_ready" in all."""
        self.data[key] = (self.data[key] + [round(max(0.0, seconds), 2)])[-50:]

    def around(self, key):
        return statistics.median(self.data[key][-9:]) if self.data[key] else TIMES[key]


class Shelf:
    """Recordings that parts share, in DIR/BUILD/PROGRAM/NUMBER, oldest first; those of other builds or programs are thrown away. A recording
    counts once it is whole. With `anew` only those that this call makes count."""

    def __init__(self, folder, results, anew=False):
        self.folder = folder / f"{results.data['build']}-{results.data['programs']}"
        for other in folder.glob("*"):
            if other != self.folder:
                shutil.rmtree(other, ignore_errors=True)
        for half in self.folder.glob(f"*/*{HALF}"):
            shutil.rmtree(half, ignore_errors=True)
        self.found = set(self.folder.glob("*/*"))
        self.old = self.found if anew else set()
        self.last = {}

    def of(self, name, mode=""):
        whole = [path for path in (self.folder / titled(name, mode)).glob("*") if path.name.isdigit() and path not in self.old]
        return sorted(whole, key=lambda path: int(path.name))

    def place(self, name, mode=""):
        """Where the next recording goes."""
        folder = self.folder / titled(name, mode)
        taken = [int(path.name) for path in folder.glob("*") if path.name.isdigit()]
        self.last[folder] = max([self.last.get(folder, 0)] + taken) + 1
        return folder / f"{self.last[folder]}{HALF}"

    def add(self, half, most):
        """A recording is whole; of more than `most` the oldest goes. A call leaves no fewer than it found, though: another may need more."""
        whole = half.with_suffix("")
        half.rename(whole)
        most = max(most, sum(path.parent == whole.parent for path in self.found))
        for path in sorted((path for path in whole.parent.glob("*") if path.name.isdigit()), key=lambda path: int(path.name))[:-most]:
            shutil.rmtree(path, ignore_errors=True)
        return whole


def window_steps(speed):
    """Steps until the third window is over (docs/record.md): 50 or three seconds, twice half as many or a second, and what lies between and behind them."""
    return min(50, max(15, 3 * speed)) + 2 * min(25, max(10, speed)) + 2 * min(12, max(8, speed / 4)) + 4


def titled(name, mode=""):
    return f"{name}-{mode}" if mode else name


class Item(typing.NamedTuple):
    """Of a part: its name, seconds that it takes without what its runs take beside their steps, how to do it (None: time was up), and its runs in
    order, as far as they are known before."""
    name: str
    seconds: float
    work: typing.Callable
    runs: typing.Sequence = ()


class Length:
    """Of runs: seconds, but at least so many steps, or exactly so many. Steps are chosen once, so that runs that share a length do the same number;
    where one of those is `recorded`, whichever comes first, they are enough for a recording. Where the speed is not known, `guess` steps are tried."""

    def __init__(self, seconds=None, steps=None, guess=None, least=0, recorded=False):
        self.seconds, self.steps, self.guess, self.least, self.recorded = seconds, steps, guess, least, recorded


class Run:
    """One run of a program; recorded where it has a folder."""

    def __init__(self, bench, name, mode, length, folder=None):
        self.bench, self.name, self.mode, self.length, self.folder = bench, name, mode, length, folder
        self.what = f"{name} {mode}".strip()

    def is_known(self):
        """Whether it could be started: its steps are chosen, or could be."""
        return self.length.steps is not None or self.length.guess is not None or self.what in self.bench.results.data["speeds"]

    def is_ready(self):
        """Whether it can be started: its steps are chosen, or can be."""
        speed = self.bench.results.data["speeds"].get(self.what)
        if self.length.steps is None and speed is not None:
            seconds = max(self.length.seconds, window_steps(speed) / speed + UNRECORDED) if self.folder or self.length.recorded else self.length.seconds
            self.length.steps = max(self.bench.first_steps, self.length.least, int(seconds * speed) + 1)
        elif self.length.steps is None:
            self.length.steps = self.length.guess
        return self.length.steps is not None

    def start(self, gate=None):
        bench = self.bench
        command = [bench.python, bench.programs / f"{self.name}.py", self.length.steps] + ([self.mode] if self.mode else [])
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            command = [bench.millrace, "record", "-o", self.folder, "--"] + command
        return Process(command, bench.programs, gate)


class Bench:
    """Runs things. `folder` is for recordings and reports."""

    def __init__(self, build, programs, folder, results, ahead=None, first_steps=CALIBRATION):
        self.millrace, self.programs, self.folder, self.results, self.first_steps = build / "millrace", programs, folder, results, first_steps
        self.python = os.environ.get("MILLRACE_PYTHON", "python3")
        self.ahead = ahead or Ahead(folder, self.python, 0)
        self.speeds_said = judging.speeds_said(programs)

    def run(self, command, what, statuses=(0,), patience=PATIENCE, where=None):
        """Standard output of something that is no run of a program."""
        return self.said(Process(command, where or self.programs), what, statuses, patience)

    def said(self, process, what, statuses=(0,), patience=PATIENCE, watch=None):
        output = [text.decode(errors="replace") for text in process.finish(what, patience, watch)]
        if process.status not in statuses:
            last = (output[1].strip() or output[0].strip()).splitlines()[-4:]
            raise Failed(f"{what}: status {process.status}: {' | '.join(last)}")
        return output[0]

    def rates(self, printed, what):
        """{"steps": ..., "samples": ...} per second as a program prints them."""
        found = {key: float(value) for key, value in re.findall(r"^(steps|samples)/s ([0-9.]+)$", printed, re.M)}
        if not found.get("steps"):
            raise Failed(f"{what}: it printed no steps/s")
        return found

    def do(self, run, watch=None):
        """Rates of a run. Where it is the first of a batch, the whole batch gets ready before."""
        what = f"record {run.what}" if run.folder else run.what
        if not run.is_ready():
            self.calibrate(run.name, run.mode)
            run.is_ready()
        begin = time.monotonic()
        if self.ahead.get_ready(run):
            self.results.took("get_ready", time.monotonic() - begin)
        process = self.ahead.take(run)
        began_ahead, begin = process is not None, time.monotonic()
        process = process or run.start()
        process.let_go()
        steps = run.length.steps
        patience = PATIENCE + 4 * steps / self.results.data["speeds"].get(run.what, 1.0)
        found = self.rates(self.said(process, what, patience=patience, watch=watch), what)
        self.results.took("let_go" if began_ahead else "start_up", time.monotonic() - begin - steps / found["steps"])
        self.results.data["runs"]["ahead" if began_ahead else "others"] += 1
        if not run.folder:
            self.results.data["speeds"][run.what] = found["steps"]
        return found

    def ready(self, run):
        """The program of a run, at its gate."""
        begin = time.monotonic()
        if self.ahead.get_ready(run):
            self.results.took("get_ready", time.monotonic() - begin)
        process = self.ahead.take(run)
        if process is None:
            process = run.start(self.ahead.gate())
            until = begin + PATIENCE
            while not process.is_settled() and time.monotonic() < until:
                time.sleep(0.02)
        if process.process.poll() is not None or not process.gate.is_reached():
            self.said(process, run.what)  # says why
            raise Failed(f"{run.what}: it ended before its turn")
        return process

    def do_in_turns(self, runs, seconds):
        """Steps per second of runs, each in its own time, that take turns of so many seconds; they have the same number of steps."""
        if not self.ahead.most:
            return [self.do(run)["steps"] for run in runs]
        if not runs[0].is_ready():
            self.calibrate(runs[0].name, runs[0].mode)
        for run in runs:
            run.is_ready()
        steps = runs[0].length.steps
        turns = [Turn(self.ready(run), f"record {run.what}" if run.folder else run.what) for run in runs]
        begin = time.monotonic()
        in_turns(turns, seconds, PATIENCE + 4 * len(runs) * steps / self.results.data["speeds"].get(runs[0].what, 1.0))
        taken, speeds = time.monotonic() - begin, [turn.rate(steps) for turn in turns]
        for _ in runs:
            self.results.took("let_go", (taken - sum(steps / speed for speed in speeds)) / len(runs))
        self.results.data["runs"]["ahead"] += len(runs)
        for run, speed in zip(runs, speeds):
            if not run.folder:
                self.results.data["speeds"][run.what] = speed
        return speeds

    def plain(self, name, mode, seconds):
        """A run that is long enough by what is known of the program, or by a guess: `lasting` does it."""
        said = self.speeds_said.get(f"{name} {mode}".strip())
        return Run(self, name, mode, Length(seconds, guess=int(seconds * said) + 1 if said else GUESS))

    def lasting(self, run):
        """Steps per second of a plain run; once more where it lasted less than half the time it should have."""
        speed = self.do(run)["steps"]
        if run.length.steps / speed >= run.length.seconds / 2:
            return speed
        return self.do(Run(self, run.name, run.mode, Length(run.length.seconds)))["steps"]

    def calibrate(self, name, mode):
        """The speed of a program that never ran: from a short run, which also warms caches up."""
        speed = self.do(Run(self, name, mode, Length(steps=self.first_steps)))["steps"]
        if self.first_steps / speed < SHORT:  # its first steps, which are slow, count too much
            self.do(Run(self, name, mode, Length(steps=int(3 * SHORT * speed))))

    def known(self, name, mode=""):
        return f"{name} {mode}".strip() in self.results.data["speeds"]

    def diagnose(self, run, what, reports=None, where=None):
        """The JSON; with `reports` also NAME.html, NAME.md and NAME.json. Sources with relative names are looked for in `where`."""
        command = [self.millrace, "diagnose", run, "--json"]
        if reports:
            reports.parent.mkdir(parents=True, exist_ok=True)
            command += ["--html", f"{reports}.html", "--md", f"{reports}.md"]
        printed = self.run(command, f"diagnose {what}", (0, 1, 4), where=where or self.folder)
        try:
            document = json.loads(printed)
        except ValueError:
            raise Failed(f"diagnose {what}: its output is no JSON") from None
        if reports:
            pathlib.Path(f"{reports}.json").write_text(printed)
        return document

    def compare(self, before, after, what):
        try:
            return json.loads(self.run([self.millrace, "compare", before, after, "--json"], f"compare {what}", (0, 1, 4), where=self.folder))
        except ValueError:
            raise Failed(f"compare {what}: its output is no JSON") from None
