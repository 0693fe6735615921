"""Studies as the tools write, run and read them."""
import json
import os
import pathlib
import resource
import sqlite3
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SECONDS_EACH = 900  # the longest that a command may take
ACCURACY = dict(metric="validation_accuracy", direction="maximize")


class Failed(Exception):
    """A command that did not end well. status: of the whole program."""

    def __init__(self, text, status=2):
        super().__init__(text)
        self.status = status


def toml(value):
    """A value as TOML writes it; dicts become inline tables."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key if key.isidentifier() else json.dumps(key)} = {toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def study_text(recipe, study, space):
    """A study file. recipe: path; study: the keys of [study]; space: {key: description}."""
    lines = [f"recipe = {toml(str(pathlib.Path(recipe).resolve()))}", "[study]"]
    lines += [f"{key} = {toml(value)}" for key, value in dict(objectives=[ACCURACY], **study).items()]
    lines += ["[space]"] + [f'"{key}" = {toml(description)}' for key, description in space.items()]
    return "\n".join(lines) + "\n"


def call(command, what, environment=None):
    """Standard output of a command, and how long it took in seconds."""
    begin = time.perf_counter()
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=SECONDS_EACH, cwd=ROOT, check=False,
                              env=dict(os.environ, **(environment or {})))
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(f"{what}: {error}") from error
    if done.returncode != 0:
        raise Failed(f"{what} ended with {done.returncode}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return done.stdout, time.perf_counter() - begin


def processor_seconds():
    """Of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Sweeps:
    """Runs `millrace sweep` in a folder."""

    def __init__(self, program, folder, device, settings=()):
        self.program, self.folder, self.device, self.settings = pathlib.Path(program).resolve(), pathlib.Path(folder), device, list(settings)
        if not self.program.exists():
            raise Failed(f"there is no {self.program}; make build makes it, --build names another folder")

    def make_data(self, kind, *options):
        """The folder of a built-in set."""
        path = self.folder / kind
        call([self.program, "data", "make", kind, "--out", path, *options], f"data make {kind}")
        return path

    def write(self, name, recipe, study, space):
        path = self.folder / f"{name}.toml"
        path.write_text(study_text(recipe, dict(name=name, **study), space))
        return path

    def run(self, name, study, *settings, lanes=None, trials=None):
        """The report of a study that ran to its end, with `wall` and `processor` (seconds of the whole process) and `folder` added."""
        out = self.folder / f"run-{name}"
        command = [self.program, "sweep", study, "--out", out, "--device", self.device, "--json", "--quiet"]
        for setting in (*self.settings, *settings):
            command += ["--set", setting]
        command += ["--lanes", lanes] if lanes else []
        command += ["--trials", trials] if trials else []
        before = processor_seconds()
        text, wall = call(command, f"sweep {name}")
        processor = processor_seconds() - before
        try:
            report = json.loads(text)
        except ValueError as error:
            raise Failed(f"sweep {name}: no JSON ({error})") from error
        return dict(report, wall=wall, processor=processor, folder=out)


def complete_values(folder):
    """{trial: first objective} of the complete trials in a run directory."""
    try:
        with sqlite3.connect(f"file:{folder / 'sweep.db'}?mode=ro", uri=True) as database:
            rows = database.execute("SELECT number, value FROM trials JOIN trial_values USING (trial_id) "
                                    "WHERE state = 'COMPLETE' AND objective = 0 ORDER BY number").fetchall()
    except sqlite3.Error as error:
        raise Failed(f"{folder}/sweep.db: {error}") from error
    return dict(rows)


def table(lines):
    """Lines of cells as text, columns aligned."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)
