"""The part overhead of tools/doctor-check: what recording costs, by pairs of runs with and without it."""
import shutil
import statistics

import doctor_bench as bench
import doctor_judge as judging
import doctor_report as report
from doctor_bench import Item, Length, Run, titled

# (kind, mode, most per cent): an ordinary job, the worst launch-bound one, one graph per step, one that allocates all the time
OVERHEAD = (("", "", 1.0), ("launch-bound", "", 3.0), ("launch-bound", "cured", 3.0), ("allocator-churn", "", 3.0))
MORE, WELL_BELOW = 2, 0.5  # so many times the pairs where the median is at most this share of the limit, but the interval reaches above
LONGER = 1.15              # runs vary by a tenth, and none may be too short
SLICES = {"launch-bound": 0.25}  # seconds of a turn, by kind, of programs as sick as they are: the GPU does next to nothing for them while they are stopped


OTHERS = 3.0  # most per cent of any other
PRINTED = 1.5  # points that the figure which is printed may be off


def measured(kinds, named=()):
    """[(program, mode, most per cent)] of these programs ({name: kind}): of each kind the first, and others that are `named` as NAME-sick or NAME-cured."""
    first = {kind: name for name, kind in reversed(kinds.items())}
    rows = [(first[kind], mode, limit) for kind, mode, limit in OVERHEAD if kind in first]
    words = (word.rpartition("-") for word in named)
    asked = [(name, "" if mode == "sick" else mode) for name, _, mode in words if name in kinds and mode in ("sick", "cured")]
    return rows + [(*each, OTHERS) for each in dict.fromkeys(asked) if each not in [row[:2] for row in rows]]


class Pairs:
    """Of one program: what is kept of it (pairs: [plain, recorded] steps per second; seconds: of the shorter run; short: how many did not count;
    fastest: steps per second of those; left: when CUPTI left, seconds after the first window's begin, stops included, and how long that took, None
    where it stayed), and what is missing."""

    def __init__(self, check, name, mode, limit):
        self.check, self.name, self.mode, self.limit, self.title = check, name, mode, limit, f"overhead/{titled(name, mode)}"
        self.usual, self.seconds = (said.get(titled(name, mode), said[""]) for said in (check.options.pairs, check.options.seconds))
        said = check.options.slices.get(titled(name, mode), check.options.slices[""])
        self.slice = said if said is not None else 0.0 if mode else SLICES.get(check.kinds[name], 0.0)
        # What was stopped now and then, or is too short for a restless program, is no recording to compare others with.
        self.aside = bool(self.slice) or check.is_restless(name) and LONGER * self.seconds < check.record_seconds(name)
        kept = None if check.options.again else check.results.get(self.title)
        if kept and kept.get("slice", 0.0) != self.slice:
            kept["finished"], kept = False, None  # another measurement
        self.item = dict(kept) if kept else dict(pairs=[], seconds=[], slice=self.slice)
        lasting = [number for number, seconds in enumerate(self.item["seconds"]) if seconds >= self.seconds]
        self.item.setdefault("left", [None] * len(self.item["seconds"]))
        self.item.update({key: [self.item[key][number] for number in lasting] for key in ("pairs", "seconds", "left")})
        self.due = self.missing()
        if kept and self.due:
            kept["finished"] = False

    def wanted(self):
        """--pairs, and as many again where those leave it open: a median well below the limit, an interval that reaches above. That is decided once,
        by the first --pairs alone: who looks after every pair and stops when he likes what he sees finds what he likes."""
        pairs, usual = self.item["pairs"], self.usual
        if len(pairs) < usual:
            return usual
        slower = judging.slow_downs(pairs[:usual])
        return MORE * usual if judging.interval(slower)[1] > self.limit and statistics.median(slower) <= WELL_BELOW * self.limit else usual

    def missing(self):
        """Pairs as they are to be run, plain first, recorded first, plain first, ...: what changes with time, and what still waits, favours no side."""
        pairs, check, seconds = [], self.check, LONGER * self.seconds
        for number in range(len(self.item["pairs"]), self.wanted()):
            length = Length(seconds, least=int(seconds * self.item.get("fastest", 0)) + 1, recorded=True)
            folder = check.scratch / "aside" / f"{titled(self.name, self.mode)}-{number}" if self.aside else check.shelf.place(self.name, self.mode)
            pair = [Run(check.bench, self.name, self.mode, length), Run(check.bench, self.name, self.mode, length, folder)]
            pairs.append(pair if number % 2 == 0 else pair[::-1])
        return pairs

    def runs(self):
        return [run for pair in self.due for run in pair]

    def as_item(self):
        """Of the part."""
        seconds = len(self.runs()) * LONGER * self.seconds + (0 if self.check.bench.known(self.name, self.mode) else self.check.start_up())
        return Item(self.title, seconds, self.work, self.runs())

    def fits(self, pair):
        unknown = 0 if self.check.bench.known(self.name, self.mode) else self.check.start_up()
        return self.check.fits(2 * LONGER * self.seconds + self.check.beside(pair) + unknown)

    def add(self, pair):
        """Runs a pair and keeps it; False: it was too short. Then it does not count, and all that follow have more steps."""
        item, path, runner = self.item, None, self.check.bench
        found = runner.do_in_turns(pair, self.slice) if self.slice else [runner.do(run)["steps"] for run in pair]
        speeds = {bool(run.folder): speed for run, speed in zip(pair, found)}
        for run in (run for run in pair if run.folder):
            path = run.folder if self.aside else self.check.shelved(run)
        steps, fastest = pair[0].length.steps, max(speeds.values())
        is_long = steps / fastest >= self.seconds
        if is_long:
            item["pairs"].append([speeds[False], speeds[True]])
            item["seconds"].append(steps / fastest)
            item["left"].append(bench.cupti_left_after(path))
        else:
            item.update(fastest=max(fastest, item.get("fastest", 0)), short=item.get("short", 0) + 1)
        item["bytes"] = bench.size_of(path)
        if self.aside:
            shutil.rmtree(path, ignore_errors=True)
        self.check.results.keep(self.title, dict(item, finished=False))
        return is_long

    def plan_anew(self):
        """What is missing now comes next, instead of what was."""
        self.check.ahead.forget(self.runs())
        self.due = self.missing()
        if self.due:
            self.check.ahead.first(self.runs())

    def run_all(self):
        """False: time was up."""
        while self.due:
            if not self.fits(self.due[0]):
                return False
            is_long = self.add(self.due.pop(0))
            if not is_long or not self.due:
                self.plan_anew()
        return True

    def recordings(self):
        """Those to compare others with; one is made where there is none."""
        check = self.check
        if self.aside and not check.shelf.of(self.name, self.mode):
            length = Length(max(self.seconds, check.record_seconds(self.name)), recorded=True)
            run = Run(check.bench, self.name, self.mode, length, check.shelf.place(self.name, self.mode))
            check.bench.do(run)
            check.shelved(run)
        return check.shelf.of(self.name, self.mode)

    def work(self):
        try:
            if not self.run_all():
                return None
        finally:
            self.check.ahead.forget(self.runs())
        item, recordings = self.item, self.recordings()
        if recordings:
            document = self.check.bench.diagnose(recordings[-1], titled(self.name, self.mode))
            item.update(window=document.get("window_overhead_share"), own=document.get("overhead_share"))
        slower = judging.slow_downs(item["pairs"])
        low, high = judging.interval(slower)
        median = statistics.median(slower)
        problems = [f"slow-down up to {high:.2f} %, the limit is {self.limit:g} %"] if high > self.limit else []
        own = item.get("own")
        if own is not None and abs(100 * own - median) > PRINTED:
            problems.append(f"printed are {100 * own:.2f} %, measured {median:.2f} %: {PRINTED:g} points are allowed")
        return dict(item, median=median, low=low, high=high, limit=self.limit, asked=self.usual, problems=problems)


def overhead(check):
    chosen = [Pairs(check, *row) for row in measured(check.kinds, check.options.only) if check.wanted(*row[:2])]
    check.part("overhead", [pairs.as_item() for pairs in chosen], report.overhead_line, piecewise=True)
