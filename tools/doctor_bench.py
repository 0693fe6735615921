"""What tools/doctor-check runs and what it keeps: programs, recordings, diagnoses; results and speeds from one call to the next."""
import datetime
import hashlib
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import gpu_machine as machine  # noqa: E402

START_UP = 8.0       # seconds that importing the framework takes, until it has been measured
CALIBRATION = 30     # steps of a first, short run
SHORT = 0.3          # seconds of a run whose speed says little
PATIENCE = 180       # seconds after which a run that should have ended counts as hanging
KEPT = "doctor-check.json"


class Failed(Exception):
    """A run did not do what it should; the item fails and is tried again in the next call."""


def say(text=""):
    print(text, flush=True)


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


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
        self.data = dict(schema=1, build=print_of(build), programs=print_of_programs(*programs), items={}, speeds={}, start_up=[])
        if self.path.exists():
            kept = json.loads(self.path.read_text())
            self.data["start_up"] = kept.get("start_up", [])
            if kept.get("programs") == self.data["programs"]:
                self.data["speeds"] = kept.get("speeds", {})
            if all(kept.get(key) == self.data[key] for key in ("schema", "build", "programs")):
                self.data["items"] = kept["items"]
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

    def start_up(self):
        return statistics.median(self.data["start_up"][-9:]) if self.data["start_up"] else START_UP


class Bench:
    """Runs things. `folder` is for recordings and reports."""

    def __init__(self, build, programs, folder, results):
        self.millrace, self.programs, self.folder, self.results = build / "millrace", programs, folder, results
        self.python = os.environ.get("MILLRACE_PYTHON", "python3")

    def run(self, command, what, statuses=(0,), patience=PATIENCE, watch=None, where=None):
        """Standard output. A run that hangs is ended with all it started. `watch` is called every half second."""
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                                   cwd=where or self.programs, start_new_session=True)
        begin, output = time.monotonic(), None
        while output is None:
            try:
                output = process.communicate(timeout=0.5 if watch else patience)
            except subprocess.TimeoutExpired:
                if watch:
                    watch()
                if time.monotonic() - begin >= patience:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.communicate()
                    raise Failed(f"{what}: no end after {patience:.0f} s") from None
        if process.returncode not in statuses:
            last = (output[1].strip() or output[0].strip()).splitlines()[-4:]
            raise Failed(f"{what}: status {process.returncode}: {' | '.join(last)}")
        return output[0]

    def program(self, name, steps, mode=""):
        return [self.python, self.programs / f"{name}.py", steps] + ([mode] if mode else [])

    def rates(self, command, what, steps, patience=PATIENCE, watch=None):
        """{"steps": ..., "samples": ...} per second as the program prints them."""
        begin = time.monotonic()
        printed = self.run(command, what, patience=patience, watch=watch)
        found = {key: float(value) for key, value in re.findall(r"^(steps|samples)/s ([0-9.]+)$", printed, re.M)}
        if not found.get("steps"):
            raise Failed(f"{what}: it printed no steps/s")
        around = time.monotonic() - begin - steps / found["steps"]
        self.results.data["start_up"] = (self.results.data["start_up"] + [round(max(0.0, around), 2)])[-50:]
        return found

    def plain(self, name, steps, mode=""):
        what = f"{name} {mode}".strip()
        speed = self.rates(self.program(name, steps, mode), what, steps, PATIENCE + 4 * self.seconds_of(what, steps))["steps"]
        self.results.data["speeds"][what] = speed
        return speed

    def record(self, name, steps, mode, run, watch=None):
        shutil.rmtree(run, ignore_errors=True)
        what = f"{name} {mode}".strip()
        return self.rates([self.millrace, "record", "-o", run, "--"] + self.program(name, steps, mode), f"record {what}", steps,
                          PATIENCE + 4 * self.seconds_of(what, steps), watch)

    def seconds_of(self, what, steps):
        return steps / self.results.data["speeds"].get(what, 1.0)

    def steps_for(self, name, mode, seconds, calibration=CALIBRATION):
        """Steps that take about so long, by the speed that was last seen; a short run, which also warms caches up, where there is none."""
        what = f"{name} {mode}".strip()
        if what not in self.results.data["speeds"]:
            speed = self.plain(name, calibration, mode)
            if calibration / speed < SHORT:  # its first steps, which are slow, count too much
                self.plain(name, int(3 * SHORT * speed), mode)
        return max(CALIBRATION, int(seconds * self.results.data["speeds"][what]) + 1)

    def known(self, name, mode=""):
        return f"{name} {mode}".strip() in self.results.data["speeds"]

    def diagnose(self, run, what, reports=None):
        """The JSON; with `reports` also NAME.html, NAME.md and NAME.json."""
        command = [self.millrace, "diagnose", run, "--json"]
        if reports:
            reports.parent.mkdir(parents=True, exist_ok=True)
            command += ["--html", f"{reports}.html", "--md", f"{reports}.md"]
        printed = self.run(command, f"diagnose {what}", (0, 1, 4), where=self.folder)
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
