"""Programs that tools/doctor-check runs in turn: a slice of time each, while the others are stopped. The pace of a program that does nothing but launch is
that of a core, which changes by a tenth from one ten seconds to the next; in slices both runs of a pair have the same share of every such change."""
import os
import pathlib
import re
import signal
import threading
import time

from doctor_ahead import Failed

SETTLED = 2.0    # seconds in which a program that was told to stop has stopped
GLANCE = 0.0005
SPEED = re.compile(rb"^steps/s ([0-9.]+)$")


def active_seconds(steps, rate, said, pauses):
    """Seconds that `steps` took at `rate` per second by the program's own clock, which runs on in pauses [(begin, end)]; it told the rate at `said`."""
    begin = said - steps / rate
    return steps / rate - sum(max(0.0, min(end, said) - max(start, begin)) for start, end in pauses)


class Turn:
    """One program, stopped and let go together with the recorder that it may run under: that would look on, and take its share of the machine."""

    def __init__(self, process, what):
        self.process, self.what, self.pid = process, what, process.gate.pid()
        self.recorder = process.process.pid if process.process.pid != self.pid else None
        self.pauses, self.lines, self.stopped_at, self.begun = [], [], None, False
        self.outputs = [bytearray(), bytearray()]
        streams = (process.process.stdout, process.process.stderr)
        self.readers = [threading.Thread(target=self.read, args=(stream, place)) for place, stream in enumerate(streams)]
        for reader in self.readers:
            reader.start()

    def read(self, stream, place):
        for line in stream:
            if place == 0:
                self.lines.append((time.monotonic(), line))
            self.outputs[place] += line

    @staticmethod
    def is_stopped(pid):
        try:
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "TtZX"
        except OSError:
            return True

    def has_ended(self):
        return self.process.process.poll() is not None

    def go_on(self):
        if not self.begun:
            self.begun = True
            return self.process.let_go()
        self.pauses.append((self.stopped_at, time.monotonic()))
        self.tell(signal.SIGCONT)

    def stop(self):
        """The pause begins when the program itself stands still: with a recorder to wait for, a recorded run would be charged for longer ends of slices."""
        self.tell(signal.SIGSTOP)
        self.await_stop(self.pid)
        self.stopped_at = time.monotonic()
        self.await_stop(self.recorder)

    def await_stop(self, pid):
        until = time.monotonic() + SETTLED
        while pid and not self.is_stopped(pid):
            if time.monotonic() > until:
                raise Failed(f"{self.what}: it does not stop")
            time.sleep(GLANCE)

    def tell(self, number):
        for pid in filter(None, (self.pid, self.recorder)):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def run(self, seconds):
        """A slice, or less where it ends before; True: it has ended."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.has_ended():
            time.sleep(min(0.01, max(0.0, until - time.monotonic())))
        return self.has_ended()

    def close(self):
        """When it has ended."""
        self.process.process.wait()
        for reader in self.readers:
            reader.join()
        for stream in (self.process.process.stdout, self.process.process.stderr):
            stream.close()
        self.process.close()

    def kill(self):
        self.tell(signal.SIGKILL)
        self.process.signal(signal.SIGKILL)
        self.close()

    def finish(self):
        self.close()
        if self.process.status != 0:
            last = bytes(self.outputs[1] or self.outputs[0]).decode(errors="replace").strip().splitlines()[-4:]
            raise Failed(f"{self.what}: status {self.process.status}: {' | '.join(last)}")

    def rate(self, steps):
        """Steps per second of its own time."""
        for said, line in self.lines:
            if found := SPEED.match(line.strip()):
                return steps / active_seconds(steps, float(found[1]), said, self.pauses)
        raise Failed(f"{self.what}: it printed no steps/s")


def in_turns(turns, seconds, patience):
    """Runs all of them to their ends, `seconds` at a time; the last one that is left runs on."""
    until, left = time.monotonic() + patience, list(turns)
    try:
        while left:
            for turn in list(left):
                turn.go_on()
                if turn.run(seconds if len(left) > 1 else patience):
                    left.remove(turn)
                elif time.monotonic() > until:
                    raise Failed(f"{turn.what}: no end after {patience:.0f} s")
                else:
                    turn.stop()
        for turn in turns:
            turn.finish()
    except BaseException:
        for turn in turns:
            turn.kill()
        raise
