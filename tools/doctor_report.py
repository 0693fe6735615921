"""What tools/doctor-check shows of its results: one line per item, and tables in Markdown for docs/performance and docs/case-studies.md."""
import statistics

import doctor_judge as judging


def share(value, digits=1):
    return "-" if value is None else f"{100 * value:.{digits}f} %"


def number(value, digits=2):
    return "-" if value is None else f"{value:.{digits}f}"


def verdict(item):
    return "; ".join(["FAILED: " + problem for problem in item["problems"]] + list(filter(None, [item.get("remark")])))


def tried(pairs, right):
    return f"{sum(pair['verdict'] == right for pair in pairs)} of {len(pairs)}" if pairs else "-"


def pair_text(pair):
    """Of two recordings: verdict, change and how surely, and which they were."""
    told = [f"{100 * pair['change']:+.1f} %" if pair["change"] is not None else None, f"p {pair['p']:.2g}" if pair["p"] is not None else None,
            " to ".join(pair["recordings"])]
    return f"{pair['verdict']} ({', '.join(filter(None, told))})"


def first_text(finding):
    """kind, line, lost ms of [kind, line, lost]."""
    return "none" if not finding else f"{finding[0]}, line {finding[1] or '-'}, {number(finding[2])} ms"


def median_text(median, several):
    """Milliseconds; from least to most where there are several."""
    return number(median) + (f" ({number(min(several))} to {number(max(several))})" if len(several) > 1 else "")


def truth_text(item):
    return median_text(item["truth_ms"], item["truths_ms"])


def lost_text(item):
    """Of the finding that counts; where none does, of the first."""
    return median_text(item["lost_ms"], item["losts_ms"]) if item["losts_ms"] else number(item["findings"][0][2] if item["findings"] else None)


def further_text(item):
    """Second and third findings, and the first ones of later recordings that differ from the first's."""
    first = item["findings"][0][:2] if item["findings"] else None
    others = [f"recording {index}: {first_text(found[0] if found else None)}" for index, found in enumerate(item["later_findings"], 2)
              if (found[0][:2] if found else None) != first]
    return "; ".join([first_text(finding) for finding in item["findings"][1:3]] + others)


def case_line(name, item):
    first = item["findings"][0] if item["findings"] else None
    several = f" (median of {len(item['losts_ms'])}: {lost_text(item)})" if len(item["losts_ms"]) > 1 else ""
    then = f", then {further_text(item)}" if item["problems"] and further_text(item) else ""
    return (f"{name:22} {item['sick']:8.1f} -> {item['cured']:8.1f} steps/s, truth {truth_text(item):>7} ms; {first_text(first)}{several}{then}; "
            f"busy {share(item['busy'])}, unexplained {share(item['unexplained'])}  {verdict(item)}").rstrip()


def compare_line(name, item):
    return f"{name:22} itself no different {tried(item['itself'], 'no difference')}, cured better {tried(item['cured'], 'better')}  {verdict(item)}".rstrip()


def pairs_text(item):
    """How many, and how many had been asked for where it took more."""
    count, asked = len(item["pairs"]), item.get("asked") or len(item["pairs"])
    return f"{asked} + {count - asked}" if count > asked else str(count)


def turns_text(item):
    return f", in turns of {item['slice']:g} s" if item.get("slice") else ""


def noise_text(item):
    """(mean and its standard error, standard deviation) of the paired differences, in per cent."""
    mean, error, deviation = judging.noise(judging.slow_downs(item["pairs"]))
    return f"{mean:+.2f} +- {error:.2f} %", f"{deviation:.2f} %"


def left_text(item):
    """In how many of the recorded runs CUPTI left; nothing where it stayed in all."""
    left = [each for each in item.get("left", ()) if each is not None]
    return f"CUPTI left {len(left)} of {len(item['left'])} in {1e3 * statistics.median(took for _, took in left):.0f} ms, " if left else ""


def overhead_line(name, item):
    mean, deviation = noise_text(item)
    return (f"{name:22} {item['median']:+.2f} % [{item['low']:+.2f}, {item['high']:+.2f}], limit {item['limit']:g} %, {pairs_text(item)} pairs{turns_text(item)}, "
            f"mean {mean}, pairs differ by {deviation}, "
            f"printed {share(item.get('own'), 2)}, inside windows {share(item.get('window'))}, {left_text(item)}{item['bytes'] / 1e6:.1f} MB  {verdict(item)}").rstrip()


def profiler_line(name, item):
    told = f", its trace leads to {item['first'][0]} in line {item['first'][1]}" if "first" in item else ""
    return f"{name:22} {item['slower']:+.1f} % over {item['steps']} steps, {item['bytes'] / 1e6:.1f} MB{told}  {verdict(item)}".rstrip()


def ending_line(name, item):
    return f"{name:22} status {item['status']}, {'the same' if not item['problems'] else 'DIFFERENT'}  {verdict(item)}".rstrip()


def size_line(name, item):
    return (f"{name:22} {item['speed']:.0f} steps/s, {item['bytes'] / 1e6:.1f} MB after {item['seconds']:.0f} s: {item['hour'] / 1e6:.0f} MB an hour, "
            f"{item['day'] / 1e6:.0f} MB a day  {verdict(item)}").rstrip()


def stress_line(name, item):
    return f"{name:22} {item['printed']} in {item['seconds']:.0f} s  {verdict(item)}".rstrip()


def study_table(rows):
    lines = ["| | steps/s | samples/s | GPU busy | first finding (kind, line, lost ms per step) | `compare` with as it was |", "|---|---|---|---|---|---|"]
    for row in rows:
        against = "" if row["verdict"] is None else row["verdict"] + ("" if row["change"] is None else f" ({100 * row['change']:+.0f} % steps/s)")
        first = f"`{row['first'][0]}`, {row['first'][1] or '-'}, {number(row['first'][2])}" if row["first"] else "none: a clean bill" if row["healthy"] else "none"
        lines.append(f"| {row['mode'] or 'as it was'} | {number(row['steps'], 1)} | {number(row['samples'], 0)} | {share(row['busy'], 0)} | {first} | {against} |")
    return lines


def study_lines(name, item):
    return f"{name}\n" + "\n".join(study_table(item["rows"]))


def items_of(data, part):
    """[(name, item)] of what is finished in a part."""
    return [(key.split("/", 1)[1], item) for key, item in data["items"].items() if key.startswith(part + "/") and item.get("finished")]


def table(head, rows):
    return ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"] + ["| " + " | ".join(row) + " |" for row in rows]


def cases_section(data):
    rows = []
    for name, item in items_of(data, "cases"):
        first = item["findings"][0] if item["findings"] else [None, None, None]
        rows.append([f"`{name}`", item["kind"] or "none", number(item["sick"], 1), number(item["cured"], 1) if item["kind"] else "", truth_text(item),
                     number(item.get("allowed_ms")), first[0] or "none", str(first[1] or "-"), lost_text(item),
                     further_text(item), share(item["busy"], 0), share(item["unexplained"]),
                     number(item["recorded"], 1), "; ".join(item["problems"]) or item["remark"] or "right"])
    return ["## Programs with one known illness", ""] + table(
        ["program", "illness", "steps/s", "cured", "truth, ms", "may be off by", "first finding", "line", "lost ms", "further findings", "GPU at work", "unexplained", "steps/s recorded", ""], rows)


def short_text(data):
    few = [f"{item['short']} of `{name}`" for name, item in items_of(data, "overhead") if item.get("short")]
    return f" ({', '.join(few)})" if few else ""


def overhead_section(data):
    beside, rows = dict(items_of(data, "profiler")), []
    for name, item in items_of(data, "overhead"):
        rows.append([f"`{name}`", f"{pairs_text(item)} of {min(item['seconds']):.0f} s{turns_text(item)}", f"{item['median']:+.2f} %", f"{item['low']:+.2f} to {item['high']:+.2f} %",
                     *noise_text(item), f"{item['limit']:g} %", share(item.get("window")), f"{beside[name]['slower']:+.0f} %" if name in beside else "-",
                     "; ".join(item["problems"]) or "holds"])
    return ["## What recording costs", ""] + table(
        ["program", "pairs", "slower by, median", "95 % interval", "mean and its standard error", "standard deviation of pairs", "limit", "inside a window", "PyTorch's profiler", ""], rows) + [
            "", "Number of pairs, by a rule fixed beforehand: those asked for; where their median is at most half the limit and their interval reaches above "
            "it, as many again, once. All count but those with a run that was too short, which are done again with more steps" + short_text(data) + "."]


def rest_sections(data):
    lines = []
    if items_of(data, "compare"):
        lines += ["", "## Pairs of recordings", ""] + table(
            ["program", "against itself no different", "cured better", ""],
            [[f"`{name}`", tried(item["itself"], "no difference"), tried(item["cured"], "better"), "; ".join(item["problems"]) or item["remark"] or "right"]
             for name, item in items_of(data, "compare")])
    for part, title, shown in (("output", "The same output", ending_line), ("profiler", "Traces of PyTorch's profiler", profiler_line),
                               ("size", "Size", size_line), ("stress", "Two threads that allocate and free", stress_line)):
        if items_of(data, part):
            lines += ["", f"## {title}", ""] + ["- " + " ".join(shown(name, item).split()) for name, item in items_of(data, part)]
    for name, item in items_of(data, "case-studies"):
        lines += ["", f"## Case study: {name}", ""] + study_table(item["rows"])
    return lines


def markdown(data):
    facts, dates = data.get("facts", {}), sorted(item["date"] for item in data["items"].values() if "date" in item)
    lines = ["# Doctor check", ""]
    if dates:
        lines.append(f"- date: {dates[0]}" + (f" to {dates[-1]}" if dates[-1] != dates[0] else ""))
    lines += [f"- {label}: {facts[key]}" for key, label in (("commit", "commit"), ("version", "version"), ("gpu", "GPU, driver"), ("machine", "machine"),
                                                           ("torch", "PyTorch")) if facts.get(key)]
    runs = data.get("runs") or {}
    if runs.get("ahead"):
        lines.append(f"- runs: {runs['ahead']} of {sum(runs.values())} were started ahead, several at once: the program imported PyTorch before the first of them was "
                     "timed, and waited for its turn before its own first line, without touching the GPU; with and without the probe alike")
    for part, section in (("cases", cases_section), ("overhead", overhead_section)):
        if items_of(data, part):
            lines += [""] + section(data)
    unfinished = [key for key, item in data["items"].items() if not item.get("finished")]
    return "\n".join(lines + rest_sections(data) + (["", f"Begun, not finished: {', '.join(unfinished)}."] if unfinished else [])) + "\n"
