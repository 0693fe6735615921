"""Rules of tools/doctor-check: what is wrong with a program, and whether a diagnosis of it is right.

A program's docstring begins with the kind of its illness (`host-sync: ...`, or `healthy: ...`); where it does not, a table of its folder's
README.md has it (| `name.py` | kind |). The line that causes the illness ends in `# <- illness`. `PROGRAM.py STEPS cured` is without it.
"""
import pathlib
import random
import re
import statistics
import typing

MARK = "# <- illness"
LOOP = re.compile(r"^(\s*)with (case\.stopwatch|Clock)\b")
WHOLE_STEP = ("launch-bound", "small-batch")  # kinds that belong to a whole step: the training loop is as good a place as the marked line
NOTES = ("small-batch",)                      # kinds that are told without place and cost: only a measurement can say what the cure gains
LEAST_GAIN = 0.03                             # a case counts where its cure gains that much
SHARE_OF_TRUTH, SHARE_OF_STEP = 0.25, 0.02    # lost_ms_per_step may be off by the larger
SUM_ERROR, MOST_UNEXPLAINED = 0.01, 0.10


def marked_line(path):
    lines = [number for number, line in enumerate(path.read_text().splitlines(), 1) if line.rstrip().endswith(MARK)]
    return lines[0] if lines else None


def loop_lines(path):
    """Line numbers of the timed block: its first line and all that is indented below it."""
    found, indent = set(), None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        head = LOOP.match(line)
        if head and indent is None:
            indent = len(head[1])
            found.add(number)
        elif indent is not None and line.strip():
            if len(line) - len(line.lstrip()) <= indent:
                break
            found.add(number)
    return found


def kinds_of(folder):
    """{program: kind of its illness, "" for a healthy one}; files that are no such program are left out."""
    readme = folder / "README.md"
    table = dict(re.findall(r"`(\w+)\.py`\s*\|\s*([a-z-]+)", readme.read_text())) if readme.exists() else {}
    kinds = {}
    for path in sorted(folder.glob("*.py")):
        said = re.match(r'"""(?:kind: )?([a-z]+(?:-[a-z]+)*):', path.read_text())
        kind = said[1] if said else table.get(path.stem, "healthy" if path.stem == "healthy" else "")
        if kind in ("none", "healthy"):
            kinds[path.stem] = ""
        elif kind and marked_line(path):
            kinds[path.stem] = kind
    return kinds


def speeds_said(folder):
    """{"program": steps per second, "program cured": ...} as far as a table of the folder's README.md has them: a guess, for they are of some machine."""
    readme, said, columns = folder / "README.md", {}, {}
    for line in readme.read_text().splitlines() if readme.exists() else []:
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        program = re.fullmatch(r"`(\w+)\.py`", cells[0])
        if not line.startswith("|"):
            columns = {}
        elif not columns and not program:
            columns = {index: mode for index, cell in enumerate(cells) for mode, words in (("", "steps/s"), (" cured", "cured")) if words in cell}
        for index, mode in columns.items() if program else ():
            if index < len(cells) and re.fullmatch(r"[0-9]*[1-9][0-9]*(\.[0-9]+)?", cells[index]):
                said[program[1] + mode] = float(cells[index])
    return said


def first_of(document):
    return document["findings"][0] if document["findings"] else None


def place_of(finding):
    where = (finding or {}).get("where") or {}
    return pathlib.Path(where.get("file") or "").name, where.get("line")


def at_right_place(finding, path):
    lines = {marked_line(path)} | (loop_lines(path) if finding["kind"] in WHOLE_STEP else set())
    name, line = place_of(finding)
    return name == path.name and line in lines or finding["kind"] in NOTES and not name


def counts(sick, cured):
    return cured / sick - 1 >= LEAST_GAIN


def allowed_error(sick, cured):
    """Milliseconds by which lost_ms_per_step may differ from the truth."""
    return max(SHARE_OF_TRUTH * (1000 / sick - 1000 / cured), SHARE_OF_STEP * 1000 / sick)


def breakdown_problems(document):
    parts = document["breakdown"]
    if not document["steps"] or any(value is None for value in parts.values()):
        return ["no step was found"]
    total, mean, problems = sum(parts.values()), document.get("mean_step_ms"), []
    if mean is None:
        problems.append("it does not say how long a mean step took")
    elif abs(total - mean) > SUM_ERROR * mean:
        problems.append(f"the breakdown sums to {total:.3f} ms, a mean step took {mean:.3f}")
    if parts.get("unexplained", 0.0) >= MOST_UNEXPLAINED * total:
        problems.append(f"{100 * parts['unexplained'] / total:.1f} % unexplained")
    return problems


def told(finding):
    lost = finding["lost_ms_per_step"]
    return f"{finding['kind']} at {place_of(finding)[1]}" + (f" ({lost:.2f} ms)" if lost else "")


def further(document):
    """The second finding, where there is one: what a wrong first one hides."""
    return f", then {told(document['findings'][1])}" if len(document["findings"]) > 1 else ""


def finding_problems(path, kind, document, cured_document):
    """(what is wrong with the first finding, the finding whose cost counts). Where the cured run is itself launch-bound, launch-bound is right
    too; the cost of the illness is then looked for at the finding of its own kind and place, if there is one, for the truth was measured for
    that cure."""
    first, own = first_of(document), None
    if first is None:
        return [f"no finding instead of {kind}"], None
    if first["kind"] == "launch-bound" != kind and cured_document and (first_of(cured_document) or {}).get("kind") == "launch-bound":
        own = next((finding for finding in document["findings"] if finding["kind"] == kind and at_right_place(finding, path)), None)
    elif first["kind"] != kind:
        return [f"first finding is {first['kind']}, not {kind}{further(document)}"], None
    problems = []
    if not at_right_place(first, path):
        name, line = place_of(first)
        problems.append(f"first finding is at {name or 'no file'}:{line}, the illness at {path.name}:{marked_line(path)}{further(document)}")
    return problems, own or first


def median_lost(findings):
    """(median, all) of lost_ms_per_step; a finding that does not say it, or none, has none."""
    lost = [finding["lost_ms_per_step"] for finding in findings if finding and finding["lost_ms_per_step"] is not None]
    return statistics.median(lost) if lost else None, lost


def amount_problems(findings, sick, cured, documents):
    """The median of what the recordings say is held to the truth, which is a median, too."""
    truth, limit, (lost, several) = 1000 / sick - 1000 / cured, allowed_error(sick, cured), median_lost(findings)
    if len(several) == len(findings) and abs(lost - truth) <= limit:
        return []
    if len(several) < len(findings):
        said = "unsaid"
    else:
        said = f"{lost:.2f} ms" + (f" ({min(several):.2f} to {max(several):.2f} in {len(several)} recordings)" if len(several) > 1 else "")
    return [f"lost {said}, the truth is {truth:.2f} +- {limit:.2f}{further(documents[0])}"]


class Verdict(typing.NamedTuple):
    """Of the diagnoses of one program: what is wrong, a remark, and what they say is lost (median, all)."""
    problems: list
    remark: str = ""
    lost: float = None
    losts: typing.Sequence = ()


def judge(path, kind, sick, cured, documents, cured_document=None):
    """Of diagnoses of one program, given the measured speeds; kind "" is a healthy program, which must get a clean bill. All must have the right
    first finding."""
    problems, findings = [], []
    gains = not kind or counts(sick, cured)
    for number, document in enumerate(documents, 1):
        wrong, finding = breakdown_problems(document), None
        if not kind and not document["healthy"]:
            wrong.append(f"no clean bill: {', '.join(map(told, document['findings'])) or 'no finding either'}")
        elif kind and gains:
            more, finding = finding_problems(path, kind, document, cured_document)
            wrong += more
        problems += [f"recording {number}: {problem}" if len(documents) > 1 else problem for problem in wrong]
        findings.append(finding)
    if not kind:
        return Verdict(problems)
    if not gains:
        return Verdict(problems, f"does not count here: the cure gains {100 * (cured / sick - 1):.1f} %")
    if kind in NOTES:
        return Verdict(problems)
    return Verdict(problems + (amount_problems(findings, sick, cured, documents) if all(findings) else []), "", *median_lost(findings))


def slow_downs(pairs):
    """Per cent, of [plain, recorded] steps per second."""
    return [100 * (off / on - 1) for off, on in pairs]


def noise(differences):
    """(mean, its standard error, standard deviation) of at least two."""
    deviation = statistics.stdev(differences)
    return statistics.mean(differences), deviation / len(differences) ** 0.5, deviation


def interval(differences, draws=10000):
    """95 % interval of the median by resampling the pairs."""
    source = random.Random(1)
    medians = sorted(statistics.median(source.choices(differences, k=len(differences))) for _ in range(draws))
    return medians[int(0.025 * draws)], medians[int(0.975 * draws)]


def growth(samples, begin):
    """(bytes after an hour, after a day) of a recording, from (seconds, bytes): what it has, and the pace since `begin` kept up."""
    later = [sample for sample in samples if sample[0] >= begin]
    if len(later) < 2 or later[-1][0] <= later[0][0]:
        raise ValueError("too few looks at the recording's size")
    (first, before), (last, now) = later[0], later[-1]
    pace = max(0.0, (now - before) / (last - first))
    return tuple(now + pace * max(0.0, seconds - last) for seconds in (3600, 86400))
