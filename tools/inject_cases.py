"""Cases of tools/inject: what is drawn, in which order copies run, and what is written down as truth."""
import concurrent.futures
import random
import shutil

import doctor_ahead as ahead
import inject_corpus as corpus
import inject_illnesses as illnesses
import inject_judge as judge
import inject_programs as programs
import inject_runs as runs
from doctor_bench import say
from inject_runs import Run

GET_READY, AROUND_RUN, AROUND_RECORD = 25.0, 1.5, 7.0  # seconds, guesses for what fits
JUDGING = 45.0                                         # seconds at the end: packing and diagnosing, all cores at once
ENOUGH = 32                                            # steps of the untouched program that a timed run lasts at least
LONGER = 3                                             # times as long where an evaluation is sick: several have to come
PATIENCE = 120.0


class Copy:
    """A copy of a program: `variant` is well, sick, or without-N."""

    def __init__(self, case, variant, drawn):
        self.variant, self.place = variant, case.folder / variant
        self.results = case.program.copy(self.place, case.sources, drawn)


class Case:
    """What was drawn for one program. `drawn` is empty for an untouched one."""

    def __init__(self, bench, name, program, sources, drawn, baseline="", step_ms=0.0):
        self.step_ms, self.bench, self.name, self.program, self.sources, self.drawn, self.baseline = step_ms, bench, name, program, sources, drawn, baseline
        self.folder = corpus.ROOT / name
        variants = {"well": []}
        if drawn:
            variants["sick"] = drawn
        for number in range(len(drawn) if len(drawn) > 1 else 0):
            variants[f"without-{number}"] = drawn[:number] + drawn[number + 1:]
        self.copies = {variant: Copy(self, variant, some) for variant, some in variants.items()}
        self.recorded = self.copies["sick" if drawn else "well"]
        # The recorded one lies where its sources are put again when it is judged: directly in its folder.
        shutil.copytree(self.recorded.place, self.folder, copy_function=programs.link, dirs_exist_ok=True)
        self.is_of_whole = any(one.name == "tiny-evaluation" for one in drawn)
        self.problem = ""

    def lengths(self):
        """Seconds of a timed and of a recorded run."""
        options, program, longer = self.bench.options, self.program, LONGER if self.is_of_whole else 1
        return longer * max(program.seconds or options.seconds, ENOUGH * self.step_ms / 1000), longer * (program.record_seconds or options.record_seconds)

    def runs(self, turns, look=False):
        program, (seconds, length) = self.program, self.lengths()
        self.plain = {variant: [Run(f"{self.name} {variant}", program, copy.place, seconds, look=look) for _ in range(turns)] for variant, copy in self.copies.items()}
        self.record = Run(f"record {self.name}", program, self.folder, length, self.bench.scratch / "runs" / self.name)
        return [run for turn in zip(*self.plain.values()) for run in turn] + [self.record]

    def seconds(self, turns):
        seconds, length = self.lengths()
        return len(self.copies) * turns * (seconds + AROUND_RUN) + length + AROUND_RECORD

    def paces(self):
        of = runs.whole_pace if self.is_of_whole else runs.pace
        found = {variant: [of(run.times.timed()) for run in several] for variant, several in self.plain.items()}
        few = [variant for variant, several in found.items() if None in several]
        if few:
            raise ahead.Failed(f"{self.name}: too few steps{' or evaluations' if self.is_of_whole else ''} in a run of {', '.join(few)}; programs.json may give it more seconds")
        return found

    def truth(self):
        paces, times, results = self.paces(), self.record.times, self.recorded.results
        rows = []
        for one, (loss, spread, gain) in zip(self.drawn, judge.measured(paces, len(self.drawn)) if self.drawn else []):
            lines, also = programs.lines_of(one, self.drawn, self.sources, results)
            rows.append(dict(name=one.name, kinds=list(one.kinds), strength=one.strength, lines=lines, also=also, loss_ms=loss, spread_ms=spread, gain=gain))
        return dict(name=self.name, program=self.program.name, seed=f"{self.bench.seed:x}", folder=self.program.origin.name, command=self.program.words,
                    baseline=self.baseline, illnesses=rows, inserted={path: each.inserted for path, each in results.items()}, paces=paces, steps=times.steps,
                    recorded_ms=runs.pace(times.times[len(times.times) // 5:]), said_steps=runs.said_steps(self.record.summary), summary=self.record.summary,
                    facts=self.bench.facts)

    def keep(self, truth):
        corpus.keep(self.bench.options.out, truth, self.record.folder, {path: each.text for path, each in self.recorded.results.items()})

    def drop(self):
        shutil.rmtree(self.folder, ignore_errors=True)


class Collection:
    """All that one call does. `view` makes an inject_illnesses.View of a program."""

    def __init__(self, bench, view):
        self.bench, self.view = bench, view
        self.known = {}  # {program: what its cases are drawn by}

    def do(self, cases, look=False):
        """Copies of several cases get ready at once, then run one at a time; recordings come last, when nothing else waits."""
        turns = 1 if look else self.bench.options.turns
        order = [(case, run) for case in cases for run in case.runs(turns, look)]
        runs.ready([run for _, run in order], self.bench)
        for case, run in sorted(order, key=lambda each: each[1].folder is not None):
            if case.problem:
                run.process.kill()
                continue
            try:
                run.finish(PATIENCE + run.seconds)
            except ahead.Failed as error:
                case.problem = str(error)
        done = []
        for case in cases:
            try:
                if case.problem:
                    raise ahead.Failed(case.problem)
                truth = case.truth()
                done.append((case, truth))
                say(f"  {case.name}: " + (", ".join(f"{row['name']} ({row['strength']}): {row['loss_ms']:+.2f} ms, {100 * row['gain']:+.1f} %" for row in truth["illnesses"])
                                          or f"untouched, {truth['paces']['well'][0]:.2f} ms a step") + f"; {truth['steps']} steps recorded, {case.record.summary}")
            except ahead.Failed as error:
                case.drop()
                say(f"  left out: {error}")
        return done

    def save(self, done):
        with concurrent.futures.ThreadPoolExecutor(self.bench.options.ahead) as pool:
            list(pool.map(lambda pair: pair[0].keep(pair[1]), done))
        for case, _ in done:
            case.drop()

    def groups(self, cases, turns):
        """As many at once as copies may wait."""
        group, size = [], 0
        for case in cases:
            count = len(case.copies) * turns + 1
            if group and size + count > self.bench.options.ahead:
                yield group
                group, size = [], 0
            group, size = group + [case], size + count
        if group:
            yield group

    def baselines(self):
        """Each program as it is: its pace, what its steps call, and what is found in it."""
        bench = self.bench
        untouched = [Case(bench, f"{name}-{bench.seed:x}-well", program, program.sources(), []) for name, program in bench.programs.items()]
        say(f"== {len(untouched)} programs as they are")
        for group in self.groups(untouched, 1):
            if bench.left() < GET_READY + JUDGING + sum(case.seconds(1) for case in group):
                say("time is up before " + ", ".join(case.program.name for case in group))
                break
            done = self.do(group, look=True)
            self.save(done)
            for case, truth in done:
                busy = self.busy(case.name) if bench.has_gpu else None
                self.known[case.program.name] = dict(step_ms=truth["paces"]["well"][0], seen=case.plain["well"][0].calls(truth["inserted"]), busy=busy)
        for case in untouched:
            case.drop()

    def busy(self, name):
        found = corpus.archives(self.bench.options.out)[name]
        return corpus.diagnose(self.bench.millrace, found, corpus.read_truth(found)).get("busy_share")

    def healthy_in(self, number):
        """How many of so many draws have no illness: with the programs as they are, each recorded once, a third of all."""
        programs = len(self.known)
        return max(0, -(-(programs + number) // 3) - programs)

    def draw(self, number, names):
        bench, name = self.bench, names[number % len(names)]
        program, rng = bench.programs[name], random.Random(f"{bench.seed:x}-{number}")
        sources = program.sources()
        ill = self.healthy_in(number + 1) == self.healthy_in(number)
        drawn = illnesses.drawn(self.view(bench, program, sources, **self.known[name]), rng) if ill else []
        return Case(bench, f"{name}-{bench.seed:x}-{number}", program, sources, drawn, f"{name}-{bench.seed:x}-well", self.known[name]["step_ms"])

    def all(self):
        bench = self.bench
        self.baselines()
        names = [name for name, program in bench.programs.items() if program.injected]
        random.Random(f"{bench.seed:x}").shuffle(names)
        names = [name for name in names if name in self.known]
        say(f"== cases of {', '.join(names) or 'no program'}")
        number = 0
        while names and number < bench.options.cases:
            group, size, seconds = [], 0, GET_READY + JUDGING
            while number < bench.options.cases:
                case = self.draw(number, names)
                count = len(case.copies) * bench.options.turns + 1
                seconds += case.seconds(bench.options.turns)
                if group and size + count > bench.options.ahead or seconds > bench.left():
                    case.drop()
                    break
                group, size, number = group + [case], size + count, number + 1
            if not group:
                break
            self.save(self.do(group))
