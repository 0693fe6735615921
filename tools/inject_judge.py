"""Whether a diagnosis finds what was injected: kind, line, rank and cost, by what was measured.

- An illness counts where removing it, measured, gains at least 3 % of speed, with what the turns' spread leaves open taken off: processes of one program
  differ by up to a fifth.
- Findings that the untouched program has, too, are set aside: same kind, and same line of the original or same function. One that names an injected line
  of the right kind never is.
- An illness is found when a finding has one of its kinds and names one of its lines (where, or the first three of `lines`), and only findings of injected
  illnesses that gain as much or more come before it.
- Its cost, less what the same finding costs in the untouched program, is right within 25 % of the measured loss per step; where the turns measured that with a spread above 25 % it is not judged.
- Findings above 5 % of the step that are neither injected nor the untouched program's are false; those of an untouched program are to be verified.
- Steps are right within 2 % of what the program counted. "Cannot tell" is no error, but only two may be.
"""
import pathlib
import statistics
import typing

LEAST_GAIN, COST, FALSE, STEPS = 0.03, 0.25, 0.05, 0.02
SHOWN = 3             # lines of a finding
MOST_UNTOLD = 2
BARS = {"found": 0.85, "line": 0.90, "cost": 0.70}


class Verdict(typing.NamedTuple):
    """Of one illness. `cost` is None where it is not judged."""
    illness: str
    gain: float
    counts: bool
    kind: bool
    line: bool
    ranked: bool
    cost: typing.Optional[bool]
    said_ms: typing.Optional[float]
    truth_ms: float
    told: str

    @property
    def found(self):
        return self.kind and self.line and self.ranked


def named(finding):
    """[(file name, line)] that a finding shows."""
    frames = [finding.get("where") or {}, *(finding.get("lines") or [])[:SHOWN]]
    return [(pathlib.PurePath(frame["file"]).name, frame.get("line")) for frame in frames if frame.get("file")]


def original(place, inserted):
    """(file, line before anything was inserted; None for an inserted line). `inserted` is {path: new lines}."""
    name, line = place
    new = next((lines for path, lines in inserted.items() if pathlib.PurePath(path).name == name), [])
    return (name, None) if line in new or line is None else (name, line - sum(each < line for each in new))


def is_of(finding, illness):
    return finding["kind"] in illness["kinds"]


def is_at(finding, illness):
    right = {(pathlib.PurePath(path).name, line) for path, line in illness["lines"] + illness["also"]}
    return any(place in right for place in named(finding))


def own_findings(document, inserted):
    """Of the untouched program: [(kind, line of the original, function, ms)]."""
    return [(finding["kind"], original((named(finding) or [("", None)])[0], inserted), (finding.get("where") or {}).get("function"), finding.get("lost_ms_per_step") or 0)
            for finding in document["findings"]]


def same_of_own(finding, truth, own):
    """What the untouched program has of a finding: [(line of the original, ms)], of the same kind at the same line or in the same function."""
    place = original((named(finding) or [("", None)])[0], truth["inserted"])
    function = (finding.get("where") or {}).get("function")
    return [(line, lost) for kind, line, said, lost in own if kind == finding["kind"] and (place == line or place[0] == line[0] and function == said)]


def without_own(document, truth, own):
    """The findings that count, in their order."""
    def is_own(finding):
        if any(is_of(finding, illness) and is_at(finding, illness) for illness in truth["illnesses"]):
            return False
        place = original((named(finding) or [("", None)])[0], truth["inserted"])
        return any(place[1] is not None or place == line for line, _ in same_of_own(finding, truth, own))
    return [finding for finding in document["findings"] if not is_own(finding)]


def told(finding):
    name, line = (named(finding) or [("", None)])[0]
    lost = finding.get("lost_ms_per_step")
    return f"{finding['kind']} at {name}:{line}" + (f" ({lost:.2f} ms)" if lost else "")


def step_ms(document):
    return document.get("undisturbed_step_ms") or document.get("mean_step_ms") or document.get("step_ms")


def is_of_injected(finding, illnesses):
    return any(is_of(finding, illness) and is_at(finding, illness) for illness in illnesses)


def sure_gain(illness):
    loss = illness["loss_ms"]
    return illness["gain"] * (1 - illness.get("spread_ms", 0) / loss) if loss > 0 else illness["gain"]


def judged(truth, document, own=()):
    """[Verdict], one for each illness of a case."""
    rest, verdicts = without_own(document, truth, own), []
    for illness in truth["illnesses"]:
        of_kind = [finding for finding in rest if is_of(finding, illness)]
        hit = next((finding for finding in of_kind if is_at(finding, illness)), None)
        stronger = [other for other in truth["illnesses"] if other is not illness
                    and other["loss_ms"] + other.get("spread_ms", 0) >= illness["loss_ms"] - illness.get("spread_ms", 0)]
        ranked = hit is not None and all(is_of_injected(finding, stronger) for finding in rest[:rest.index(hit)])
        finding = hit or next(iter(of_kind), None)
        said, loss = (finding or {}).get("lost_ms_per_step"), illness["loss_ms"]
        if said is not None:
            said -= max((lost for _, lost in same_of_own(finding, truth, own)), default=0)
        is_certain = illness.get("spread_ms", 0) <= COST * abs(loss)
        cost = None if not is_certain else said is not None and abs(said - loss) <= COST * loss
        verdicts.append(Verdict(illness["name"], illness["gain"], sure_gain(illness) >= LEAST_GAIN, bool(of_kind), hit is not None, ranked, cost, said, loss,
                                ", ".join(map(told, rest[:3])) or "no finding"))
    return verdicts


def false_findings(truth, document, own=()):
    """Above 5 % of a step, and neither injected nor the untouched program's own; of an untouched program all above 5 %."""
    whole = step_ms(document)
    rest = without_own(document, truth, own) if truth["illnesses"] else document["findings"]
    return [told(finding) for finding in rest if whole and (finding.get("lost_ms_per_step") or 0) > FALSE * whole
            and not any(is_of(finding, illness) for illness in truth["illnesses"])]


def steps_verdict(truth, document):
    """(said, true, right: None where it cannot tell). A diagnosis that counts the steps of the whole run has `run_steps`; else what was printed after recording."""
    said = document["run_steps"] if "run_steps" in document else truth.get("said_steps")
    return said, truth["steps"], None if said is None else abs(said - truth["steps"]) <= STEPS * truth["steps"]


def measured(paces, count):
    """[(loss in ms, spread, gain)] of each of `count` illnesses from {variant: [ms per step, one for each turn]}: sick has all, without-N all but one."""
    sick, losses = paces["sick"], []
    for number in range(count):
        less = paces["well"] if count == 1 else paces[f"without-{number}"]
        one, other = statistics.median(sick), statistics.median(less)
        each = [with_it - without for with_it, without in zip(sick, less)]
        losses.append((one - other, (max(each) - min(each)) / 2, one / other - 1))
    return losses


def share(rows):
    rows = [row for row in rows if row is not None]
    return f"{sum(rows)}/{len(rows)}" + (f" ({100 * sum(rows) / len(rows):.0f} %)" if rows else "")


def holds(rows, least):
    rows = [row for row in rows if row is not None]
    return not rows or sum(rows) >= least * len(rows)


def bars(results):
    """(text lines, whether all hold) of [(truth, [Verdict], false findings, steps verdict)]."""
    counted = [verdict for _, verdicts, _, _ in results for verdict in verdicts if verdict.counts]
    drawn = sum(len(verdicts) for _, verdicts, _, _ in results)
    found, line, cost = ([getattr(verdict, key) for verdict in counted] for key in ("found", "line", "cost"))
    steps = [right for _, _, _, (_, _, right) in results]
    untold = sum(right is None for right in steps)
    untouched = [(truth, wrong) for truth, _, wrong, _ in results if not truth["illnesses"]]
    fine = [holds(found, BARS["found"]), holds(line, BARS["line"]), holds(cost, BARS["cost"]), not steps.count(False) and untold <= MOST_UNTOLD]
    rows = [("illnesses that surely gain 3 % or more, of those drawn", f"{len(counted)}/{drawn}", ""),
            ("kind", share([verdict.kind for verdict in counted]), ""),
            ("kind and line, ranked as their gain", share(found), "85 %"),
            ("line among those shown", share(line), "90 %"),
            ("cost within 25 %", share(cost) + (f", {cost.count(None)} not certain" if None in cost else ""), "70 %"),
            ("sick programs without a false finding above 5 %", share([not wrong for truth, _, wrong, _ in results if truth["illnesses"]]), ""),
            ("untouched programs without a finding above 5 % (others: to be verified)", share([not wrong for _, wrong in untouched]), ""),
            ("steps within 2 %", share(steps) + (f", {untold} cannot tell" if untold else ""), "all, 2 may not tell")]
    width = max(len(name) for name, _, _ in rows)
    return [f"{name:{width}}  {value}" + (f"  (bar: {bar})" if bar else "") for name, value, bar in rows], all(fine)
