"""The parts of tools/doctor-check. Each takes a Check (tools/doctor-check) and hands it items: name, seconds it takes, and how to do it."""
import shutil
import statistics
import subprocess
import time

import doctor_bench as bench
import doctor_judge as judging
import doctor_report as report
import doctor_scripts as scripts

# (kind, mode, most per cent): an ordinary job, the worst launch-bound one, one graph per step, one that allocates all the time
OVERHEAD = (("", "", 1.0), ("launch-bound", "", 3.0), ("launch-bound", "cured", 3.0), ("allocator-churn", "", 3.0))
OFTEN = ("host-sync", "allocator-churn")  # kinds whose first program gets ten pairs of recordings, others three
HOUR, DAY = 100e6, 1e9                    # most bytes of a recording
LONGER = 1.15                             # runs vary by a tenth, and none may be too short


def case(check, name):
    """Truth first, then one recording; the cured program is recorded where its being launch-bound would matter."""
    options, runner, kind = check.options, check.bench, check.kinds[name]
    speeds = {"": [], "cured": []}
    for _ in range(options.truths):
        for mode in ("", "cured") if kind else ("",):
            speeds[mode].append(runner.plain(name, runner.steps_for(name, mode, options.case_seconds), mode))
    sick = statistics.median(speeds[""])
    cured = statistics.median(speeds["cured"]) if kind else sick
    run = check.run_folder(f"{name}-sick")
    recorded = runner.record(name, runner.steps_for(name, "", options.record_seconds), "", run)["steps"]
    document = runner.diagnose(run, name, options.out / "reports" / name)
    first, cured_document, cured_run = judging.first_of(document), None, check.run_folder(f"{name}-cured")
    if kind and judging.counts(sick, cured) and first and first["kind"] == "launch-bound" != kind:
        runner.record(name, runner.steps_for(name, "cured", options.record_seconds), "cured", cured_run)
        cured_document = runner.diagnose(cured_run, f"{name} cured")
    check.drop(run, cured_run)
    problems, remark = judging.judge(options.programs / f"{name}.py", kind, sick, cured, document, cured_document)
    total = sum(value or 0 for value in document["breakdown"].values())
    return dict(kind=kind, sick=sick, cured=cured, recorded=recorded, truth_ms=1000 / sick - 1000 / cured, step_ms=document["step_ms"],
                busy=document["busy_share"], unexplained=(document["breakdown"].get("unexplained") or 0) / total if total else None,
                findings=[[finding["kind"], judging.place_of(finding)[1], finding["lost_ms_per_step"]] for finding in document["findings"]],
                window=document.get("window_overhead_share"), remarks=document.get("remarks", []), problems=problems, remark=remark)


def cases(check):
    names = [name for name in check.kinds if check.wanted(name)]
    options = check.options

    def seconds(name):
        modes = ("", "cured") if check.kinds[name] else ("",)
        unknown = sum(not check.bench.known(name, mode) for mode in modes)
        return (len(modes) * options.truths * (options.case_seconds + check.start_up()) + unknown * (2 + check.start_up())
                + options.record_seconds + check.start_up() + 4)
    check.part("cases", [(f"cases/{name}", seconds(name), lambda name=name: case(check, name)) for name in names], report.case_line)


def pairs_of_recordings(check, name, repeats):
    """Pair n is recording n against n - 1 of the sick program, and sick n against cured n. Kept after every pair."""
    options, runner, kind = check.options, check.bench, check.kinds[name]
    item = None if options.again else check.results.get(f"compare/{name}")
    item = item or dict(itself=[], cured=[])
    runs = [check.scratch / f"{name}-{part}" for part in ("before", "after", "cured")]
    both = kind not in ("", "small-batch")  # with larger batches a step is another step
    modes = (("", runs[1]), ("cured", runs[2])) if both else (("", runs[1]),)

    def record(mode, run):
        return runner.record(name, runner.steps_for(name, mode, options.record_seconds), mode, run)
    begun = False
    while len(item["itself"]) < repeats:
        if not check.fits((len(modes) + (not begun)) * (options.record_seconds + check.start_up()) + 4):
            return None
        if not begun:
            record("", runs[0])
            begun = True
        for mode, run in modes:
            record(mode, run)
        item["itself"].append(runner.compare(runs[0], runs[1], name)["verdict"])
        if both:
            item["cured"].append(runner.compare(runs[1], runs[2], name)["verdict"])
        shutil.rmtree(runs[0], ignore_errors=True)
        runs[1].rename(runs[0])
        check.results.keep(f"compare/{name}", dict(item, finished=False))
    for run in runs:
        shutil.rmtree(run, ignore_errors=True)
    truth = check.results.get(f"cases/{name}")
    counting = not truth or judging.counts(truth["sick"], truth["cured"])
    wrong = [f"against itself: {verdict}" for verdict in item["itself"] if verdict != "no difference"]
    wrong += [f"cured against sick: {verdict}" for verdict in item["cured"] if verdict != "better"] if counting else []
    return dict(itself=item["itself"], cured=item["cured"], problems=wrong, remark="" if counting else "the cure gains too little to count")


def compare(check):
    often, options = {check.first(kind) for kind in OFTEN}, check.options
    names = [name for name in check.kinds if check.wanted(name)]
    repeats = {name: options.repeats.get(name, options.repeats.get("", 10 if name in often else 3)) for name in names}

    def seconds(name):
        kept = check.kept(f"compare/{name}", "itself", repeats[name])
        return (1 + (2 if check.kinds[name] else 1) * max(0, repeats[name] - kept)) * (options.record_seconds + check.start_up())
    items = [(f"compare/{name}", seconds(name), lambda name=name: pairs_of_recordings(check, name, repeats[name])) for name in names]
    check.part("compare", items, report.compare_line, piecewise=True)


def overhead_pairs(check, name, mode, limit):
    """Alternating pairs, the order changing from pair to pair. Kept after every pair."""
    options, runner = check.options, check.bench
    title, what, run = f"overhead/{name}{'-' + mode if mode else ''}", f"{name} {mode}".strip(), check.scratch / "overhead"
    item = None if options.again else check.results.get(title)
    item = item or dict(pairs=[], seconds=[])
    while len(item["pairs"]) < options.pairs:
        if not check.fits(2 * (LONGER * options.seconds + check.start_up()) + (0 if runner.known(name, mode) else check.start_up())):
            return None
        steps, speeds = runner.steps_for(name, mode, LONGER * options.seconds), {}
        for probed in (False, True) if len(item["pairs"]) % 2 == 0 else (True, False):
            speeds[probed] = runner.record(name, steps, mode, run)["steps"] if probed else runner.plain(name, steps, mode)
        item["pairs"].append([speeds[False], speeds[True]])
        item["seconds"].append(steps / max(speeds.values()))
        item["bytes"] = bench.size_of(run)
        if len(item["pairs"]) == options.pairs:
            document = runner.diagnose(run, what)
            item["window"], item["own"] = document.get("window_overhead_share"), document.get("overhead_share")
        check.results.keep(title, dict(item, finished=False))
    shutil.rmtree(run, ignore_errors=True)
    slower = [100 * (off / on - 1) for off, on in item["pairs"]]
    low, high = judging.interval(slower)
    problems = [f"slow-down up to {high:.2f} %, the limit is {limit:g} %"] if high > limit else []
    if min(item["seconds"]) < options.seconds:
        problems.append(f"a run lasted {min(item['seconds']):.1f} s, not {options.seconds:g}")
    return dict(item, median=statistics.median(slower), low=low, high=high, limit=limit, problems=problems)


def overhead(check):
    items, options = [], check.options
    for kind, mode, limit in OVERHEAD:
        name = check.first(kind)
        if name is None or not check.wanted(name, mode):
            continue
        title = f"overhead/{name}{'-' + mode if mode else ''}"
        kept = check.kept(title, "pairs", options.pairs)
        seconds = max(0, options.pairs - kept) * 2 * (LONGER * options.seconds + check.start_up())
        items.append((title, seconds, lambda name=name, mode=mode, limit=limit: overhead_pairs(check, name, mode, limit)))
    check.part("overhead", items, report.overhead_line, piecewise=True)


def profiled(check, name, mode):
    """Its cost on one program; on a host-sync program also what the doctor says of its trace."""
    runner, wrapper, trace = check.bench, check.scratch / "profiled.py", check.scratch / "trace.json.gz"
    wrapper.write_text(scripts.PROFILED)
    steps = min(300, runner.steps_for(name, mode, 1.5))
    plain = runner.plain(name, steps, mode)
    command = [runner.python, wrapper, check.options.programs / f"{name}.py", trace, steps] + ([mode] if mode else [])
    slowed = runner.rates(command, f"PyTorch's profiler on {name}", steps, patience=2 * bench.PATIENCE)["steps"]
    item = dict(slower=100 * (plain / slowed - 1), steps=steps, bytes=trace.stat().st_size, problems=[])
    if check.kinds[name] == "host-sync":
        first = judging.first_of(runner.diagnose(trace, "a trace"))
        seen = check.results.get(f"cases/{name}")
        right = seen["findings"][0][:2] if seen and seen["findings"] else ["host-sync", judging.marked_line(check.options.programs / f"{name}.py")]
        item["first"] = [first["kind"], judging.place_of(first)[1]] if first else [None, None]
        item["problems"] = [f"its trace leads to {item['first']}, the probe to {right}"] if item["first"] != right else []
    return item


def profiler(check):
    chosen = [(check.first(kind), mode) for kind, mode in (("host-sync", ""),) + tuple(row[:2] for row in OVERHEAD)]
    check.part("profiler", [(f"profiler/{name}{'-' + mode if mode else ''}", 3 * check.start_up() + 30, lambda name=name, mode=mode: profiled(check, name, mode))
                            for name, mode in chosen if name and check.wanted(name, mode)], report.profiler_line)


def ending(check, name, text):
    runner, script, run = check.bench, check.scratch / f"{name}.py", check.scratch / f"output-{name}"
    script.write_text(text)
    plain = subprocess.run([runner.python, str(script)], capture_output=True, timeout=bench.PATIENCE, check=False)
    probed = subprocess.run([str(runner.millrace), "record", "--quiet", "-o", str(run), "--", runner.python, str(script)], capture_output=True,
                            timeout=2 * bench.PATIENCE, check=False)
    shutil.rmtree(run, ignore_errors=True)
    status = plain.returncode if plain.returncode >= 0 else 128 - plain.returncode
    problems = [f"{what}: {got!r:.300} instead of {right!r:.300}" for what, got, right in
                (("status", probed.returncode, status), ("output", probed.stdout, plain.stdout), ("errors", probed.stderr, plain.stderr)) if got != right]
    expected = scripts.ENDINGS[name][1]
    if status != expected:  # then the program did not get as far as its end, and nothing was shown
        problems.append(f"the plain program ended with {status}, not {expected}: {plain.stderr[-200:]!r}")
    return dict(status=status, problems=problems)


def output(check):
    check.part("output", [(f"output/{name}", 2 * check.start_up() + 4, lambda name=name, text=text: ending(check, name, scripts.PRELUDE + text))
                          for name, (text, _) in scripts.ENDINGS.items()], report.ending_line)


def long_recording(check, name):
    options, runner, run, samples, begin = check.options, check.bench, check.scratch / "long", [], time.monotonic()
    steps = runner.steps_for(name, "cured", options.long_seconds)
    speed = runner.record(name, steps, "cured", run, lambda: samples.append((time.monotonic() - begin, bench.size_of(run))))["steps"]
    samples.append((time.monotonic() - begin, bench.size_of(run)))
    hour, day = judging.growth(samples, samples[-1][0] / 2)
    shutil.rmtree(run, ignore_errors=True)
    problems = [f"{what} would take {got / 1e6:.0f} MB, the limit is {limit / 1e6:.0f}" for what, got, limit in (("an hour", hour, HOUR), ("a day", day, DAY))
                if got >= limit]
    return dict(speed=speed, seconds=samples[-1][0], bytes=samples[-1][1], hour=hour, day=day, problems=problems)


def size(check):
    name = check.first("launch-bound")
    check.part("size", [(f"size/{name}-cured", check.options.long_seconds + 2 * check.start_up(), lambda: long_recording(check, name))]
               if name and check.wanted(name, "cured") else [], report.size_line)


def stressed(check):
    script, run, begin = check.scratch / "stress.py", check.scratch / "stress", time.monotonic()
    script.write_text(scripts.STRESS)
    seconds = check.options.long_seconds
    printed = check.bench.run([check.bench.millrace, "record", "-o", run, "--", check.bench.python, script, seconds], "stress", patience=seconds + bench.PATIENCE)
    shutil.rmtree(run, ignore_errors=True)
    return dict(seconds=time.monotonic() - begin, printed=printed.strip(), problems=[] if "rounds" in printed else ["it did not come to its end"])


def stress(check):
    check.part("stress", [("stress/two-threads", check.options.long_seconds + 2 * check.start_up(), lambda: stressed(check))], report.stress_line)


def study(check, name):
    runner, rows, before, runs = check.studies, [], None, []
    for mode in studied_modes(runner.programs / f"{name}.py"):
        run = check.run_folder(f"study-{name}-{mode or 'sick'}")
        runs.append(run)
        rates = runner.record(name, runner.steps_for(name, mode, check.options.record_seconds, 10), mode, run)
        document = runner.diagnose(run, f"{name} {mode}", check.options.out / "reports" / f"{name}-{mode or 'sick'}")
        first = judging.first_of(document)
        verdict = runner.compare(before, run, name) if before else None
        before = before or run
        rows.append(dict(mode=mode, steps=rates["steps"], samples=rates.get("samples"), busy=document["busy_share"], healthy=document["healthy"],
                         first=[first["kind"], judging.place_of(first)[1], first["lost_ms_per_step"]] if first else None,
                         verdict=verdict and verdict["verdict"], change=verdict and verdict["change"]))
    check.drop(*runs)
    return dict(rows=rows, problems=[])


def studied_modes(path):
    return ("", "cured-as-claimed", "cured") if "cured-as-claimed" in path.read_text() else ("", "cured")


def case_studies(check):
    paths = sorted(path for path in check.options.studies.glob("*.py") if judging.marked_line(path) and check.wanted(path.stem))
    one = check.options.record_seconds + 2 * check.start_up() + 4
    check.part("case-studies", [(f"case-studies/{path.stem}", one * len(studied_modes(path)), lambda path=path: study(check, path.stem)) for path in paths],
               report.study_lines)


PARTS = {"cases": cases, "compare": compare, "output": output, "profiler": profiler, "overhead": overhead, "size": size, "stress": stress,
         "case-studies": case_studies}
