"""Runs of program copies: several get ready at once and wait behind their first steps; one at a time goes on and is timed by its own counter."""
import array
import json
import os
import pathlib
import re
import statistics
import time

import step_counter
from doctor_ahead import Failed, Process

READY = 120.0     # seconds that copies have to come to their gates
GLANCE = 0.02
SETTLED = 0.3     # of a run behind its gate does not count: queues are full, the GPU is empty
LEAST = 6         # steps that make a pace
BLOCKS, BLOCK_STEPS = 12, 8  # batches of several workers come in bursts: a block is longer than those
PAUSE = 5.0       # an interval of as many median ones is a pause: an evaluation, a checkpoint
WARM = 8          # steps before the gate


class StepGate:
    """For doctor_ahead.Process: holds a program back behind its first steps."""

    def __init__(self, path, **environment):
        self.path = path
        os.mkfifo(path)
        self.pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self.environment = {**os.environ, **environment, "STEP_COUNTER_GATE": str(path)}

    def is_reached(self):
        return os.path.exists(f"{self.path}.here")

    def open(self):
        os.write(self.pipe, b"!")

    def close(self):
        os.close(self.pipe)
        for path in (self.path, pathlib.Path(f"{self.path}.here")):
            path.unlink(missing_ok=True)


class Times:
    """What a counter wrote."""

    def __init__(self, path):
        numbers = array.array("q")
        with open(path, "rb") as file:
            numbers.frombytes(file.read(8 * step_counter.HEAD))
            self.steps, self.gate = numbers
            numbers.frombytes(file.read(8 * min(self.steps, step_counter.MOST)))
        self.times = numbers[step_counter.HEAD:]

    def timed(self):
        """Those behind the gate, without what comes before it has settled."""
        behind = self.times[self.gate:]
        if len(behind) < LEAST:
            return behind
        settled = behind[0] + SETTLED * (behind[-1] - behind[0])
        return array.array("q", (each for each in behind if each >= settled))


def pace(times):
    """Milliseconds per step of the median block: evaluations and other pauses leave it as it is. The mean where there are no three blocks; None: too few
    steps."""
    if len(times) < LEAST:
        return None
    size = max(BLOCK_STEPS, (len(times) - 1) // BLOCKS)
    if len(times) <= 3 * size:
        return (times[-1] - times[0]) * 1e-6 / (len(times) - 1)
    return statistics.median((times[at + size] - times[at]) * 1e-6 / size for at in range(0, len(times) - size, size))


def whole_pace(times):
    """Milliseconds per step with what lies between steps, from the end of the first pause to the end of the last. None: no two pauses."""
    gaps = [after - before for before, after in zip(times, times[1:])]
    if len(gaps) < LEAST:
        return None
    pauses = [at for at, gap in enumerate(gaps) if gap > PAUSE * statistics.median(gaps)]
    if len(pauses) < 2:
        return None
    return (times[pauses[-1] + 1] - times[pauses[0] + 1]) * 1e-6 / (pauses[-1] - pauses[0])


class Run:
    """One run of a copy; recorded where it has a folder."""

    def __init__(self, what, program, place, seconds, folder=None, look=False):
        self.what, self.program, self.place, self.seconds, self.folder, self.look = what, program, place, seconds, folder, look
        self.process = self.times = self.summary = None

    def start(self, bench):
        bench.number += 1
        self.file, self.seen = bench.scratch / f"steps-{bench.number}", bench.scratch / f"seen-{bench.number}"
        environment = {**self.program.environment, "STEP_COUNTER_FILE": str(self.file), "STEP_COUNTER_SECONDS": str(self.seconds), "STEP_COUNTER_WARM": str(WARM),
                       **({"STEP_COUNTER_SEEN": str(self.seen)} if self.look else {})}
        command, where = self.program.words, self.program.where(self.place)
        if self.folder:
            gate = bench.ahead.gate(self.program.imports) if bench.ahead.most else None
            command = [bench.millrace, "record", "-o", self.folder, "--", *command]
            if gate:
                gate.environment.update(environment)
            else:
                command = ["env", *(f"{key}={value}" for key, value in environment.items()), *command]
        else:
            gate = StepGate(bench.scratch / f"gate-{bench.number}", **environment, STEP_COUNTER_EXIT="hard")
        self.process = Process(command, where, gate)

    def finish(self, patience):
        """Lets it go, and reads what it counted."""
        process = self.process
        if process.gate and not process.is_settled():
            process.kill()
            raise Failed(f"{self.what}: not ready after {READY:.0f} s")
        if process.gate and process.process.poll() is None:
            process.let_go()
        output, errors = (text.decode(errors="replace") for text in process.finish(self.what, patience))
        process.signal(9)  # workers it left behind
        if process.status != 0 or not self.file.exists():
            last = (errors.strip() or output.strip()).splitlines()[-3:]
            raise Failed(f"{self.what}: status {process.status}, {'no step' if not self.file.exists() else 'steps'} counted: {' | '.join(last)}")
        self.times = Times(self.file)
        self.file.unlink()
        self.summary = next((line.strip() for line in errors.splitlines() if re.match(r"  (about \d+ steps|no step|it ended|nothing of a GPU)", line)), "")
        return self

    def calls(self, inserted):
        """{(path, line of the original): calls in a step} of functions of the program, as far as it was looked at. `inserted` are {path: lines} of the copy."""
        if not self.look or not self.seen.exists():
            return None
        root, found = os.path.realpath(self.program.where(self.place)), {}
        for name, line, calls in json.loads(self.seen.read_text()):
            path = os.path.relpath(os.path.realpath(name), root)
            if path in inserted:
                found[(path, line - sum(each < line for each in inserted[path]))] = calls / (WARM - 1)
        return found


def ready(runs, bench):
    """Starts all of them and waits until each stands at its gate, or has ended."""
    for run in runs:
        run.start(bench)
    until = time.monotonic() + READY
    while time.monotonic() < until and any(run.process.gate and not run.process.is_settled() for run in runs):
        time.sleep(GLANCE)


def said_steps(summary):
    """What `millrace record` says: a number, or None where it cannot tell."""
    found = re.match(r"about (\d+) steps", summary or "")
    return int(found[1]) if found else None
