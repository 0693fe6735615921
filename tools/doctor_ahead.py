"""Programs that tools/doctor-check starts, and those it starts before their turn: several at once, which import the framework and wait."""
import os
import pathlib
import signal
import subprocess
import time

import doctor_scripts as scripts

# What programs import, and what PyTorch itself imports at the first step of an optimizer, which takes seconds.
FRAMEWORK = ("torch", "torch.optim", "torch.utils.data", "torch._dynamo")
GRACE = 2.0      # seconds that a program has to end by itself
GATHER = 60.0    # seconds that a batch has to come to its gates
GLANCE = 0.02    # seconds from one look at the gates to the next
HERE = ".here"


class Failed(Exception):
    """A run did not do what it should; the item fails and is tried again in the next call."""


class Gate:
    """Holds one program back before its first line. When this process ends, however it ends, the pipe has no writer any more: the program
    sees that and ends, too."""

    def __init__(self, folder, path, framework=FRAMEWORK):
        self.path, self.framework = path, framework
        os.mkfifo(path)
        self.pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)  # with a reader of our own opening does not block, and nothing is lost
        before = os.environ.get("PYTHONPATH")
        # What it prints is seen when it is printed.
        unbuffered = {} if "PYTHONUNBUFFERED" in os.environ else {"PYTHONUNBUFFERED": "1", scripts.UNBUFFERED: "1"}
        self.environment = {**os.environ, **unbuffered, "PYTHONPATH": f"{folder}{os.pathsep}{before}" if before else str(folder), scripts.GATE: str(path),
                            scripts.IMPORTED: " ".join(framework), **({} if before is None else {scripts.BEFORE: before})}

    def is_reached(self):
        return os.path.exists(f"{self.path}{HERE}")

    def pid(self):
        """Of the program that waits."""
        return int(pathlib.Path(f"{self.path}{HERE}").read_text())

    def open(self):
        os.write(self.pipe, b"!")

    def close(self):
        os.close(self.pipe)
        for path in (self.path, pathlib.Path(f"{self.path}{HERE}")):
            path.unlink(missing_ok=True)


class Process:
    """A program in a session of its own, so that it can be ended with all it started."""
    alive, none_more = set(), False

    def __init__(self, command, where=None, gate=None):
        if Process.none_more:
            raise Failed("the check ends")
        self.gate, self.finishing = gate, False
        self.process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=where,
                                        env=gate.environment if gate else None, start_new_session=True)
        Process.alive.add(self)

    @property
    def status(self):
        return self.process.returncode

    def finish(self, what, patience, watch=None):
        """(standard output, standard error) once it has ended. One that hangs is ended. `watch` is called every half second."""
        begin, self.finishing = time.monotonic(), True
        try:
            while True:
                try:
                    output = self.process.communicate(timeout=0.5 if watch else patience)
                    break
                except subprocess.TimeoutExpired:
                    if watch:
                        watch()
                    if time.monotonic() - begin >= patience:
                        raise Failed(f"{what}: no end after {patience:.0f} s") from None
        except BaseException:
            self.kill()
            raise
        self.close()
        return output

    def signal(self, number):
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def kill(self):
        self.signal(signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            stream.close()
        self.close()

    def end(self):
        """From whatever it does, with a moment to do so by itself: a recorder then leaves nothing behind."""
        self.signal(signal.SIGTERM)
        try:
            self.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
        if not self.finishing:  # else another thread reads what it says
            self.kill()

    def is_settled(self):
        """Whether it stands at its gate, or has ended: no more comes of waiting for it."""
        return self.process.poll() is not None or self.gate is not None and self.gate.is_reached()

    def let_go(self):
        if self.gate:
            self.gate.open()

    def close(self):
        Process.alive.discard(self)
        if self.gate:
            self.gate.close()
            self.gate = None


def end_all():
    """Whatever still runs or waits; nothing begins any more."""
    Process.none_more = True
    for process in list(Process.alive):
        process.end()


class Ahead:
    """Starts the runs that are due in batches of up to `most`. They import the framework, touch no GPU, and wait to be let go. A run is let go when its
    whole batch stands at the gates: nothing gets ready while a run is timed."""

    def __init__(self, scratch, python, most):
        self.folder, self.gates, self.number = scratch / "ahead", scratch / "gates", 0
        self.due, self.waiting = [], {}
        self.most, self.reason = most, ""
        if most:
            for folder in (self.folder, self.gates):
                folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "sitecustomize.py").write_text(scripts.AHEAD)
            if not self.works(python):
                self.most, self.reason = 0, f"{python} cannot be held back before a program's first line: nothing is started ahead"

    def gate(self, framework=FRAMEWORK):
        self.number += 1
        return Gate(self.folder, self.gates / str(self.number), framework)

    def works(self, python):
        """Whether the interpreter stops at a gate; with -S, -E or -I, for example, it would just run on."""
        gate = self.gate(framework=())
        gate.open()
        trial = Process([python, "-c", f"print(__import__('os').path.exists({f'{gate.path}{HERE}'!r}))"], gate=gate)
        return trial.finish("an interpreter", 60)[0] == b"True\n"

    def plan(self, runs):
        """What comes next, in this order."""
        self.forget(list(self.waiting))
        self.due = list(runs)

    def first(self, runs):
        """These come before all that is due. What waits for a later turn would be in their way: it begins anew when it is due."""
        waiting = list(self.waiting)
        self.forget(waiting)
        self.due = list(runs) + waiting + self.due

    def forget(self, runs):
        """These will not be done."""
        self.due = [run for run in self.due if run not in runs]
        for run in [run for run in self.waiting if run in runs]:
            self.waiting.pop(run).end()

    def take(self, run):
        """The program of a run whose turn it is, if it was started ahead."""
        self.due = [other for other in self.due if other is not run]
        return self.waiting.pop(run, None)

    def get_ready(self, run):
        """Starts a batch where it is this run's turn and nobody waits any more. A run whose length is not known yet, and all after it, are left for a
        later batch. Returns whether one was started."""
        if self.waiting or not self.most or not self.due or self.due[0] is not run:
            return False
        while len(self.waiting) < self.most and self.due and self.due[0].is_ready():
            other = self.due.pop(0)
            self.waiting[other] = other.start(self.gate())
        self.gather()
        return True

    def gather(self):
        """Waits until everybody is at the gate. Who has ended says why at its turn; who does not come in time is ended, and begins anew at its turn."""
        until = time.monotonic() + GATHER
        while late := [run for run, process in self.waiting.items() if not process.is_settled()]:
            if time.monotonic() >= until:
                self.forget(late)
                return
            time.sleep(GLANCE)

    def batches(self, runs):
        """How many will be started for these runs, as far as one can tell before."""
        count, room, learned = 0, 0, set()
        for run in (run for run in runs if run not in self.waiting):
            is_new = not run.is_known() and run.what not in learned
            if is_new or not room:
                count, room = count + 1, self.most
            learned |= {run.what} if is_new else set()
            room -= 1
        return count
