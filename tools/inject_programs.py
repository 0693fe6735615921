"""Other people's programs as a folder's programs.json describes them, and copies of them: well, which only counts its steps, and sick.

    {"programs": {"NAME": {"folder": "where its files are, below the folder of programs.json",
                           "command": "python3 train.py --max-steps {steps}",
                           "setup": "shell command run once in a copy: makes data", "steps": 1000000, "batch": 64, "workers": 0,
                           "imports": "torch torch._dynamo", "files": ["train.py"], "inject": true, "environment": {"NAME": "value"}, "seconds": 2.5, "record_seconds": 8}}}

Only folder and command are needed. A program runs in a copy of its folder, which lies in a folder of its own, so data may be put beside it (`../data`).
Its steps should be far more than a minute's: the counter ends it. `files` are its sources, else the script and what it imports from its folder.
"inject": false has its steps counted and nothing injected. In `setup`, $PYTHON is the interpreter and $PROGRAMS the folder of programs.json.
"""
import ast
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import typing

import inject_sites as sites
from inject_source import Source, edited

DESCRIPTION = "programs.json"
KEYS = {"folder": str, "command": str, "setup": str, "steps": int, "batch": int, "workers": int, "imports": str, "files": list, "inject": bool, "environment": dict,
        "seconds": (int, float), "record_seconds": (int, float)}
COUNTER = pathlib.Path(__file__).resolve().parent / "step_counter.py"


class Bad(Exception):
    """What is wrong with what was given, and what would be right."""


class Program:
    def __init__(self, name, said, folder, python):
        self.name, self.python, self.origin = name, python, folder / said["folder"]
        self.words = [word.replace("{steps}", str(said.get("steps", 1000000))) for word in shlex.split(said["command"])]
        if self.words and self.words[0] in ("python", "python3"):
            self.words[0] = python
        self.setup, self.programs = said.get("setup", ""), folder
        self.batch, self.workers = said.get("batch", 64), said.get("workers", 0)
        self.imports = tuple(said.get("imports", "torch torch.optim torch.utils.data torch._dynamo").split())
        self.environment = {name: str(value) for name, value in said.get("environment", {}).items()}
        self.injected = said.get("inject", True)
        self.seconds, self.record_seconds = said.get("seconds"), said.get("record_seconds")
        self.script = next((word for word in self.words if word.endswith(".py")), None)
        if self.script is None or not (self.origin / self.script).is_file():
            raise Bad(f"{folder / DESCRIPTION}: the command of {name} has to name a script in {self.origin}, it says: {said['command']}")
        self.files = said.get("files") or imported(self.origin, self.script)

    def sources(self):
        """The script first."""
        try:
            return [Source(name, (self.origin / name).read_text()) for name in self.files]
        except (OSError, SyntaxError) as error:
            raise Bad(f"{self.name}: {error}") from None

    def is_jax(self, sources):
        return sources[0].imports("jax") is not None and sources[0].imports("torch") is None

    def prepare(self, scratch):
        """Its own copy with data; runs `setup`."""
        self.ready = scratch / "prepared" / self.name
        shutil.rmtree(self.ready, ignore_errors=True)
        shutil.copytree(self.origin, self.ready / self.origin.name)
        for path in [self.ready, *self.ready.rglob("*")]:
            path.chmod(path.stat().st_mode | 0o200)
        if self.setup:
            done = subprocess.run(["sh", "-ec", self.setup], cwd=self.ready / self.origin.name, capture_output=True, text=True,
                                  env={**os.environ, "PYTHON": self.python, "PROGRAMS": str(self.programs)})
            if done.returncode:
                raise Bad(f"{self.name}: its setup ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")

    def copy(self, place, sources, illnesses=()):
        """A copy at `place` with its counter and these illnesses. Data are shared with all other copies (hard links). Returns the edits of each file."""
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.ready, place, copy_function=link)
        work = place / self.origin.name
        results = changed(sources, illnesses)
        for source in sources:
            path = work / source.path
            path.unlink()
            path.write_text(results[source.path].text)
        (work / pathlib.Path(self.script).parent / COUNTER.name).write_text(COUNTER.read_text())
        return results

    def where(self, place):
        return place / self.origin.name


def link(source, target):
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def imported(folder, script):
    """The script and the modules beside it that it imports, and they import."""
    found, todo = [], [script]
    while todo:
        name = todo.pop(0)
        if name in found or not (folder / name).is_file():
            continue
        found.append(name)
        for node in ast.walk(ast.parse((folder / name).read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            for module in modules:
                beside = pathlib.Path(name).parent / (module.replace(".", "/") + ".py")
                todo.append(str(beside))
    return found


def changed(sources, illnesses=()):
    """{path: Edited} of a program with its counter and these illnesses."""
    counters = sites.counters(sources, sources[0])
    return {source.path: edited(source.text, counters.get(source.path, []) + [edit for illness in illnesses for edit in illness.edits.get(source.path, [])])
            for source in sources}


def lines_of(illness, illnesses, sources, results):
    """([path, line] of the illness itself, of other places that are right, too), in the copy that has all of `illnesses`."""
    counters, own = sites.counters(sources, sources[0]), []
    for path, edits in illness.edits.items():
        before = len(counters.get(path, [])) + sum(len(other.edits.get(path, [])) for other in illnesses[:illnesses.index(illness)])
        own += [[path, line] for marked in results[path].marked[before:before + len(edits)] for line in marked]
    return own, [[path, results[path].lines[line]] for path, line in illness.also]


def described(folder, python):
    """{name: Program} of a folder."""
    path = folder / DESCRIPTION
    try:
        said = json.loads(path.read_text())["programs"]
    except OSError as error:
        raise Bad(f"{path}: {error.strerror}; it describes the programs (tools/inject_programs.py says how)") from None
    except (ValueError, KeyError, TypeError) as error:
        raise Bad(f"{path}: expected an object with the key programs: {error}") from None
    programs = {}
    for name, entry in said.items():
        for key in ("folder", "command"):
            if key not in entry:
                raise Bad(f"{path}: {name} has no {key}")
        for key, value in entry.items():
            if key not in KEYS or not isinstance(value, KEYS[key]):
                raise Bad(f"{path}: {name}: {key} is " + (f"no {getattr(KEYS[key], '__name__', 'number')}" if key in KEYS else f"none of {', '.join(KEYS)}"))
        programs[name] = Program(name, entry, folder, python)
    return programs
