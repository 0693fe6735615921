"""The memory that the probe shares with whoever records (src/record/probe_mapping.h), for tools that take the recorder's place."""
import ctypes
import mmap
import time

STATE = {"magic": (0, 8), "cupti_version": (24, 4), "driver_version": (28, 4), "fault": (32, 4), "fault_code": (36, 4), "mode": (40, 4),
         "epoch": (44, 4), "pulses": (48, 8), "calls": (56, 8), "ended": (64, 4), "own_ns": (72, 8), "python_version": (88, 4),
         "unended": (224, 8), "stale": (232, 8), "sampled": (240, 8), "refusal": (304, 4), "presence": (308, 4)}
CONTROL, LANES, LANE_BYTES, READ = 8512, 8576, 128, 64
MODE, PULSE, FULL_CALLS, SITES_CALLS, EPOCH, KEEPER, LED, DETACH, LEADS = (CONTROL + place for place in (0, 4, 8, 12, 16, 24, 32, 36, 40))
LANE_COUNT, SLOTS, HEADER = 32, 1 << 16, 64 * 1024
OFF, PULSING, FULL, DETACHED = 0, 1, 2, -1  # the last is OFF without CUPTI


class Mapping:
    """The shared mapping, as `millrace record` would use it. Without `keep` records are taken out and forgotten."""

    def __init__(self, path, keep=True):
        with open(path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 0)
        self.taken = [bytearray() for _ in range(LANE_COUNT)] if keep else None
        places = [LANES + lane * LANE_BYTES for lane in range(LANE_COUNT)]
        self.lanes = [(self.word(place, 8), self.word(place + READ, 8)) for place in places]

    def word(self, place, size=4):
        return (ctypes.c_uint64 if size == 8 else ctypes.c_uint32).from_buffer(self.memory, place)

    def state(self, name):
        return self.word(*STATE[name]).value

    def order(self, mode, pulse=0, sites=0, led=0, detach=0, leads=1):
        """Gives control words; is_obeyed() says when they are in force."""
        for place, value in ((MODE, max(mode, OFF)), (PULSE, pulse), (FULL_CALLS, 0), (SITES_CALLS, sites), (LED, led or mode == DETACHED),
                             (DETACH, detach or mode == DETACHED), (LEADS, leads)):
            self.word(place).value = value
        self.word(EPOCH).value += 1

    def is_obeyed(self):
        return self.state("epoch") == self.word(EPOCH).value

    def command(self, *words, **named):
        """The same; waits until they are in force."""
        self.order(*words, **named)
        deadline = time.monotonic() + 20
        while not self.is_obeyed() and time.monotonic() < deadline:
            time.sleep(0.005)
        return self.is_obeyed()

    def drain(self):
        self.word(KEEPER, 8).value = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        for lane, (written_word, read_word) in enumerate(self.lanes):
            written, read = written_word.value, read_word.value
            begin = HEADER + lane * SLOTS * 64
            while self.taken is not None and read < written:
                first = read % SLOTS
                count = min(written - read, SLOTS - first)
                self.taken[lane] += self.memory[begin + first * 64:begin + (first + count) * 64]
                read += count
            read_word.value = written

    def lost(self):
        return sum(self.word(LANES + lane * LANE_BYTES + 8, 8).value for lane in range(LANE_COUNT))
