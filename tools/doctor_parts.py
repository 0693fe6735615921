"""The parts of tools/doctor-check. Each takes a Check (tools/doctor-check) and hands it items (doctor_bench.Item): what to do, and how long it takes."""
import itertools
import shutil
import statistics
import time

import doctor_bench as bench
import doctor_judge as judging
import doctor_report as report
import doctor_scripts as scripts
from doctor_ahead import Process
from doctor_bench import Item, Length, Run, titled
from doctor_overhead import OVERHEAD, overhead

HOUR, DAY = 100e6, 1e9                       # most bytes of a recording
PROFILED_STEPS, PROFILED_SECONDS = 300, 1.0  # more would only make a trace that takes long to write


def runs_of_case(check, name):
    """Plain runs and recordings in turn: sick, cured, recorded."""
    options, runner, modes, runs = check.options, check.bench, ("", "cured") if check.kinds[name] else ("",), []
    for turn in range(max(options.truths, options.recordings)):
        if turn < options.truths:
            runs += [runner.plain(name, mode, options.case_seconds) for mode in modes]
        if turn < options.recordings:
            runs.append(Run(runner, name, "", Length(check.record_seconds(name)), check.shelf.place(name)))
    return runs


def diagnosed(check, run, number):
    """What the doctor says of a recording that was just made. The first one's report has the program's name, later ones have a number."""
    kept, last = check.shelved(run), f"-{number}" if number > 1 else ""
    check.keep_copy(kept, f"{run.name}-{run.mode or 'sick'}{last}")
    reports = None if run.mode else check.options.out / "reports" / f"{run.name}{last}"
    return check.bench.diagnose(kept, run.what, reports)


def case_numbers(kind, speeds, recorded, documents):
    sick = statistics.median(speeds[""])
    cured = statistics.median(speeds["cured"]) if kind else sick
    first = documents[0]
    total = sum(value or 0 for value in first["breakdown"].values())
    findings = [[[finding["kind"], judging.place_of(finding)[1], finding["lost_ms_per_step"]] for finding in document["findings"]] for document in documents]
    return dict(kind=kind, sick=sick, cured=cured, recorded=statistics.median(recorded), recorded_speeds=recorded, speeds=speeds,
                truth_ms=1000 / sick - 1000 / cured, truths_ms=[1000 / one - 1000 / other for one, other in zip(speeds[""], speeds["cured"])],
                allowed_ms=judging.allowed_error(sick, cured) if kind else None, step_ms=first["step_ms"], busy=first["busy_share"],
                unexplained=(first["breakdown"].get("unexplained") or 0) / total if total else None, findings=findings[0], later_findings=findings[1:],
                window=first.get("window_overhead_share"), remarks=first.get("remarks", []))


def case(check, name, runs):
    """The cured program is recorded, too, where its being launch-bound would matter."""
    runner, kind = check.bench, check.kinds[name]
    speeds, recorded, documents, cured_document = {"": [], "cured": []}, [], [], None
    for run in runs:
        if run.folder:
            recorded.append(runner.do(run)["steps"])
            documents.append(diagnosed(check, run, len(documents) + 1))
        else:
            speeds[run.mode].append(runner.lasting(run))
    numbers = case_numbers(kind, speeds, recorded, documents)
    sick, cured = numbers["sick"], numbers["cured"]
    if kind and judging.counts(sick, cured) and any((judging.first_of(document) or {}).get("kind") == "launch-bound" != kind for document in documents):
        again = Run(runner, name, "cured", Length(check.record_seconds(name)), check.shelf.place(name, "cured"))
        runner.do(again)
        cured_document = diagnosed(check, again, 1)
    verdict = judging.judge(check.options.programs / f"{name}.py", kind, sick, cured, documents, cured_document)
    return dict(numbers, lost_ms=verdict.lost, losts_ms=verdict.losts, problems=verdict.problems, remark=verdict.remark)


def cases(check):
    options, items = check.options, []
    for name in (name for name in check.kinds if check.wanted(name)):
        kept = check.results.get(f"cases/{name}")
        if kept and (len(kept["speeds"][""]) < options.truths or len(kept["recorded_speeds"]) < options.recordings):
            kept["finished"] = False
        runs = runs_of_case(check, name)
        recordings = [run for run in runs if run.folder]
        seconds = len(recordings) * (check.record_seconds(name) + 4) + (len(runs) - len(recordings)) * options.case_seconds
        items.append(Item(f"cases/{name}", seconds, lambda name=name, runs=runs: case(check, name, runs), runs))
    check.part("cases", items, report.case_line)


def compares_cured(check, name):
    return check.kinds[name] not in ("", "small-batch")  # with larger batches a step is another step


def missing_recordings(check, name, repeats):
    """Pairs of a program with itself need one more recording than there are pairs. Sick and cured in turn, as far as both are missing."""
    shelf = check.shelf

    def runs(mode, wanted):
        return [Run(check.bench, name, mode, Length(check.record_seconds(name)), shelf.place(name, mode))
                for _ in range(wanted - len(shelf.of(name, mode)))]
    both = itertools.zip_longest(runs("", repeats + 1), runs("cured", repeats) if compares_cured(check, name) else [])
    return [run for pair in both for run in pair if run]


def compared(check, name, pair):
    """What `compare` says of two recordings, with what it takes to understand a wrong verdict."""
    said = check.bench.compare(*pair, name)
    sides = [said.get(side) or {} for side in ("before", "after")]
    return dict(verdict=said["verdict"], change=said.get("change"), low=said.get("change_low"), high=said.get("change_high"), p=said.get("p"),
                speeds=[(side.get("steps_per_second") or {}).get("median") for side in sides], blocks=[side.get("blocks") for side in sides],
                recordings=[f"{path.parent.name}/{path.name}" for path in pair])


def pairs_of_recordings(check, name, repeats, missing):
    """Pair n is recording n against n + 1 of the sick program, and sick n against cured n. Recordings are kept as they are made."""
    for run in missing:
        if not check.fits(check.record_seconds(name) + check.beside([run]) + 4):
            return None
        check.bench.do(run)
        check.shelved(run)
    sick, cured = check.shelf.of(name)[-repeats - 1:], check.shelf.of(name, "cured")[-repeats:] if compares_cured(check, name) else []
    itself = list(check.pool.map(lambda pair: compared(check, name, pair), zip(sick, sick[1:])))
    better = list(check.pool.map(lambda pair: compared(check, name, pair), zip(sick, cured)))
    truth = check.results.get(f"cases/{name}")
    counting = not truth or judging.counts(truth["sick"], truth["cured"])
    wrong = [f"against itself: {report.pair_text(pair)}" for pair in itself if pair["verdict"] != "no difference"]
    wrong += [f"cured against sick: {report.pair_text(pair)}" for pair in better if pair["verdict"] != "better"] if counting else []
    return dict(itself=itself, cured=better, problems=wrong, remark="" if counting else "the cure gains too little to count")


def compare(check):
    items = []
    for name in (name for name in check.kinds if check.wanted(name)):
        repeats = check.repeats(name)
        check.kept(f"compare/{name}", "itself", repeats)
        missing = missing_recordings(check, name, repeats)
        seconds = len(missing) * check.record_seconds(name) + 2 * repeats / check.at_once
        items.append(Item(f"compare/{name}", seconds, lambda name=name, repeats=repeats, missing=missing: pairs_of_recordings(check, name, repeats, missing),
                          missing))
    check.part("compare", items, report.compare_line, piecewise=True)


def profiled(check, name, mode):
    """Its cost on one program; on a host-sync program also what the doctor says of its trace."""
    runner, wrapper, trace = check.bench, check.scratch / "profiled.py", check.scratch / "trace.json"  # packing one takes longer than the run
    wrapper.write_text(scripts.PROFILED)
    if not runner.known(name, mode):
        runner.calibrate(name, mode)
    run = Run(runner, name, mode, Length(PROFILED_SECONDS))
    run.is_ready()
    steps = run.length.steps = min(PROFILED_STEPS, run.length.steps)
    plain = runner.do(run)["steps"]
    command = [runner.python, wrapper, check.options.programs / f"{name}.py", trace, steps] + ([mode] if mode else [])
    what = f"PyTorch's profiler on {name}"
    slowed = runner.rates(runner.run(command, what, patience=2 * bench.PATIENCE), what)["steps"]
    item = dict(slower=100 * (plain / slowed - 1), steps=steps, bytes=trace.stat().st_size, problems=[])
    if check.kinds[name] == "host-sync":
        first = judging.first_of(runner.diagnose(trace, "a trace", where=check.options.programs))
        seen = check.results.get(f"cases/{name}")
        right = seen["findings"][0][:2] if seen and seen["findings"] else ["host-sync", judging.marked_line(check.options.programs / f"{name}.py")]
        item["first"] = [first["kind"], judging.place_of(first)[1]] if first else [None, None]
        item["problems"] = [f"its trace leads to {item['first']}, the probe to {right}"] if item["first"] != right else []
    trace.unlink()
    return item


def profiler(check):
    chosen = [(check.first(kind), mode) for kind, mode in (("host-sync", ""),) + tuple(row[:2] for row in OVERHEAD)]
    check.part("profiler", [Item(f"profiler/{titled(name, mode)}", 2 * check.start_up() + 12, lambda name=name, mode=mode: profiled(check, name, mode))
                            for name, mode in chosen if name and check.wanted(name, mode)], report.profiler_line)


def ending(check, name, text):
    runner, script, run = check.bench, check.scratch / f"{name}.py", check.scratch / f"output-{name}"
    script.write_text(text)
    sides = []
    for before in ([], [runner.millrace, "record", "--quiet", "-o", run, "--"]):
        process = Process(before + [runner.python, script])
        printed, errors = process.finish(f"output of {name}", 2 * bench.PATIENCE)
        sides.append((process.status if process.status >= 0 else 128 - process.status, printed, errors))
    shutil.rmtree(run, ignore_errors=True)
    (status, _, errors), probed = sides
    problems = [f"{what}: {got!r:.300} instead of {right!r:.300}" for what, got, right in zip(("status", "output", "errors"), probed, sides[0]) if got != right]
    expected = scripts.ENDINGS[name][1]
    if status != expected:  # then the program did not get as far as its end, and nothing was shown
        problems.append(f"the plain program ended with {status}, not {expected}: {errors[-200:]!r}")
    return dict(status=status, problems=problems)


def output(check):
    """Nothing is timed: all at once, and `stress` beside them."""
    if "stress" in check.options.parts:
        check.begin_beside(stress_item(check))
    check.part("output", [Item(f"output/{name}", 2 * check.start_up() + 4, lambda name=name, text=text: ending(check, name, scripts.PRELUDE + text))
                          for name, (text, _) in scripts.ENDINGS.items()], report.ending_line, at_once=check.at_once)


def long_recording(check, name):
    runner, samples, path = check.bench, [], check.scratch / "long"
    run = Run(runner, name, "cured", Length(check.options.long_seconds), path)
    if not run.is_ready():
        runner.calibrate(name, "cured")
    begin = time.monotonic()
    speed = runner.do(run, lambda: samples.append((time.monotonic() - begin, bench.size_of(path))))["steps"]
    samples.append((time.monotonic() - begin, bench.size_of(path)))
    hour, day = judging.growth(samples, samples[-1][0] / 2)
    shutil.rmtree(path, ignore_errors=True)
    problems = [f"{what} would take {got / 1e6:.0f} MB, the limit is {limit / 1e6:.0f}" for what, got, limit in (("an hour", hour, HOUR), ("a day", day, DAY))
                if got >= limit]
    return dict(speed=speed, seconds=samples[-1][0], bytes=samples[-1][1], hour=hour, day=day, problems=problems)


def size(check):
    name = check.first("launch-bound")
    check.part("size", [Item(f"size/{name}-cured", check.options.long_seconds + 2 * check.start_up(), lambda: long_recording(check, name))]
               if name and check.wanted(name, "cured") else [], report.size_line)


def stressed(check):
    script, run, begin = check.scratch / "stress.py", check.scratch / "stress", time.monotonic()
    script.write_text(scripts.STRESS)
    seconds = check.options.long_seconds
    printed = check.bench.run([check.bench.millrace, "record", "-o", run, "--", check.bench.python, script, seconds], "stress", patience=seconds + bench.PATIENCE)
    shutil.rmtree(run, ignore_errors=True)
    return dict(seconds=time.monotonic() - begin, printed=printed.strip(), problems=[] if "rounds" in printed else ["it did not come to its end"])


def stress_item(check):
    return Item("stress/two-threads", check.options.long_seconds + 2 * check.start_up(), lambda: stressed(check))


def stress(check):
    check.part("stress", [stress_item(check)], report.stress_line)


def study(check, name, runs):
    runner, rows, before = check.studies, [], None
    for run in runs:
        rates = runner.do(run)
        document = runner.diagnose(run.folder, run.what, check.options.out / "reports" / f"{name}-{run.mode or 'sick'}")
        first = judging.first_of(document)
        verdict = runner.compare(before, run.folder, name) if before else None
        before = before or run.folder
        rows.append(dict(mode=run.mode, steps=rates["steps"], samples=rates.get("samples"), busy=document["busy_share"], healthy=document["healthy"],
                         first=[first["kind"], judging.place_of(first)[1], first["lost_ms_per_step"]] if first else None,
                         verdict=verdict and verdict["verdict"], change=verdict and verdict["change"]))
    check.drop(*(run.folder for run in runs))
    return dict(rows=rows, problems=[])


def studied_modes(path):
    return ("", "cured-as-claimed", "cured") if "cured-as-claimed" in path.read_text() else ("", "cured")


def case_studies(check):
    items = []
    for path in sorted(path for path in check.options.studies.glob("*.py") if judging.marked_line(path) and check.wanted(path.stem)):
        name = path.stem
        runs = [Run(check.studies, name, mode, Length(check.record_seconds(name)), check.run_folder(f"study-{name}-{mode or 'sick'}"))
                for mode in studied_modes(path)]
        seconds = (check.record_seconds(name) + 4) * len(runs) + check.start_up() * sum(not run.is_known() for run in runs)
        items.append(Item(f"case-studies/{name}", seconds, lambda name=name, runs=runs: study(check, name, runs), runs))
    check.part("case-studies", items, report.study_lines)


PARTS = {"cases": cases, "overhead": overhead, "compare": compare, "output": output, "stress": stress, "profiler": profiler, "size": size,
         "case-studies": case_studies}
