"""Tables of tools/flow-claims: what was hoped for beside what was measured, for the terminal and for Markdown."""

HEADER = ["claim", "hoped for", "measured", "without", "with", "effect", ""]


def figure(label, milliseconds):
    return f"{milliseconds:.4g} ms ({label})"


def effect(line):
    """The ratio; in brackets when the spread of the two figures is larger than what it says."""
    ratio = line["effect"]
    return f"{ratio:.2f}x" if max(ratio, 1 / ratio) - 1 > line["spread"] else f"({ratio:.2f}x)"


def lines_of(claims):
    """Header and one line per measurement; a claim's name and hope stand on its first line alone."""
    lines = [HEADER]
    for claim in claims:
        rows = [[line["measure"], figure(line["off"], line["off_ms"]), figure(line["on"], line["on_ms"]), effect(line), line["note"]]
                for line in claim["lines"]]
        if claim["absent"]:
            rows.append(["not measured" if not rows else "the rest is not measured", "-", "-", "-", claim["absent"]])
        for number, row in enumerate(rows):
            lines.append(([claim["claim"], claim["hoped"]] if number == 0 else ["", ""]) + row)
    return lines


def text_table(result):
    lines = lines_of(result["claims"])
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADER))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)


def markdown(result):
    cell = lambda text: text.replace("|", "\\|")
    lines = ["# The reports' claims, measured", "", f"- profile: {result['profile']}", f"- machine: {result['machine']}", f"- seconds: {result['seconds']}", ""]
    table = lines_of(result["claims"])
    rule = ["---"] * 5 + ["---:", "---"]
    lines += ["| " + " | ".join(map(cell, line)) + " |" for line in [table[0], rule] + table[1:]]
    lines += ["", "An effect above 1: a step is that much faster with the remedy. Median milliseconds of a training step; brackets: no more than the spread."]
    lines += [f"- problem: {failure}" for failure in result["failed"]]
    return "\n".join(lines) + "\n"
