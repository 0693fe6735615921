"""What tools/cliffs makes of its figures: the rules, a table, a picture and a page."""
import html
import math

from cliff_space import AXES, key_of, lines

RISE = 0.25  # of the time per unit of work, from one point of a line to the next
SMALL, BAR_SMALL, BAR_LARGE = 25e6, 1.2, 1.0  # parameters of a model, and what ours has to be against the faster peer
SHOWN = 30  # rows of a table on the page
PANEL, TALL, ACROSS, LEFT, TOP = 280, 170, 3, 44, 60
OURS, PEER, BAD = "#475569", "#94a3b8", "#c2410c"


def cost(axis, row, ms):
    """Milliseconds per sample along batch and members, else per counted FLOP."""
    return ms / (row["samples"] if axis in ("batch", "members") else row["flop"])


def fastest(row):
    return min(row.get("peers", {}).items(), key=lambda peer: peer[1], default=None)


def seeds_text(result):
    return ", ".join(map(str, result["seed"]))


def is_asked(row):
    """Whether peers were tried, or cannot be."""
    return any(name in row for name in ("peers", "peer_errors", "no_peer", "error"))


def steps_of(axis, points, rows):
    """(point before, point, rise of ours, of the faster peer or None) of neighbours that were both measured."""
    known = [(point, rows[key_of(point)]) for point in points if "ms" in rows.get(key_of(point), {})]
    for (a, before), (b, after) in zip(known, known[1:]):
        theirs = fastest(before), fastest(after)
        rise = cost(axis, after, after["ms"]) / cost(axis, before, before["ms"]) - 1
        yield a, b, rise, cost(axis, after, theirs[1][1]) / cost(axis, before, theirs[0][1]) - 1 if all(theirs) else None


def judged(result):
    """(violations, excused steps, drawn rows, points that are missing) of a result."""
    rows, violations, excused = result["rows"], [], []
    scanned = lines(result["models"], result["axes"], result["precisions"], result["thin"])
    for (model, axis), points in scanned.items():
        for a, b, rise, theirs in steps_of(axis, points, rows):
            if rise > RISE:
                step = dict(rule="rise", model=model, where=f"{axis} {a[axis]} to {b[axis]}", points=[a, b],
                            ours=f"{rows[key_of(a)]['ms']:.4g} to {rows[key_of(b)]['ms']:.4g} ms", found=f"+{100 * rise:.0f} %",
                            bar=f"+{100 * RISE:.0f} %", peer="not measured" if theirs is None else f"{100 * theirs:+.0f} %")
                (excused if theirs is not None and theirs > RISE else violations).append(step)
    drawn = [(point, rows.get(key_of(point), {})) for point in result["drawn"]]
    for point, row in drawn:
        best = fastest(row)
        if best and "ms" in row:
            bar, ratio = BAR_SMALL if row["parameters"] <= SMALL else BAR_LARGE, best[1] / row["ms"]
            row.update(bar=bar, ratio=ratio, fastest=best[0])
            if ratio < bar:
                violations.append(dict(rule="ratio", model=point["model"], where=shape_text(point), points=[point], ours=f"{row['ms']:.4g} ms",
                                       found=f"{ratio:.2f}x", bar=f"{bar:g}x", peer=f"{best[0]} {best[1]:.4g} ms"))
    wanted = {key_of(point): point for line in scanned.values() for point in line}
    missing = [point for key, point in wanted.items() if key not in rows] + [point for point, row in drawn if not is_asked(row)]
    for point in dict(wanted, **{key_of(point): point for point in result["drawn"]}).values():
        if "error" in (row := rows.get(key_of(point), {})):
            violations.append(dict(rule="runs", model=point["model"], where=shape_text(point), points=[point], ours="-", found=row["error"][:80],
                                   bar="runs", peer="-"))
    return violations, excused, drawn, missing


def shape_text(point):
    return " ".join(f"{axis} {point[axis]}" for axis in AXES if axis in point)


def table(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def cells(steps):
    return [["rule", "model", "where", "ours", "found", "bar", "peer"]] + [
        [step[name] for name in ("rule", "model", "where", "ours", "found", "bar", "peer")] for step in steps]


def markdown(rows):
    lined = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lined[0], "|" + "---|" * len(rows[0]), *lined[1:]])


def panel(axis, points, rows, at):
    """One line of a model: time per unit of work over its lowest, both axes logarithmic or by position."""
    known = [(point, rows[key_of(point)]) for point in points if "ms" in rows.get(key_of(point), {})]
    if len(known) < 2:
        return ""
    ours = [cost(axis, row, row["ms"]) for _, row in known]
    theirs = [(i, cost(axis, row, fastest(row)[1])) for i, (_, row) in enumerate(known) if fastest(row)]
    low, high = min(ours), max([*ours, *(value for _, value in theirs), 1.5 * min(ours)])
    x = lambda i: at[0] + LEFT + i * (PANEL - LEFT - 20) / (len(known) - 1)
    y = lambda value: at[1] + TALL - 42 - (TALL - 70) * max(0, math.log(value / low)) / math.log(high / low)
    parts = [f'<text x="{at[0] + LEFT}" y="{at[1] + 14}" class="name">{html.escape(points[0]["model"])}: {axis}</text>',
             f'<text x="{at[0] + LEFT - 6}" y="{y(low) + 4:.1f}" class="tick">1x</text>',
             f'<text x="{at[0] + LEFT - 6}" y="{y(high) + 4:.1f}" class="tick">{high / low:.3g}x</text>']
    every = max(1, math.ceil(len(known) / 6))
    for i, (point, _) in enumerate(known):
        if i % every == 0:
            parts.append(f'<text x="{x(i):.1f}" y="{at[1] + TALL - 24}" class="label">{html.escape(str(point[axis]))}</text>')
    for i, value in theirs:
        parts.append(f'<circle cx="{x(i):.1f}" cy="{y(value):.1f}" r="3" fill="none" stroke="{PEER}" stroke-width="1.5"/>')
    for i in range(1, len(ours)):
        bad = ours[i] > (1 + RISE) * ours[i - 1]
        parts.append(f'<line x1="{x(i - 1):.1f}" y1="{y(ours[i - 1]):.1f}" x2="{x(i):.1f}" y2="{y(ours[i]):.1f}" '
                     f'stroke="{BAD if bad else OURS}" stroke-width="{2.5 if bad else 1.5}"/>')
    parts += [f'<circle cx="{x(i):.1f}" cy="{y(value):.1f}" r="2" fill="{OURS}"/>' for i, value in enumerate(ours)]
    return "\n".join(parts)


def draw_picture(result):
    scanned = lines(result["models"], result["axes"], result["precisions"], result["thin"])
    panels = []
    for (_, axis), points in scanned.items():
        text = panel(axis, points, result["rows"], (len(panels) % ACROSS * PANEL, TOP + len(panels) // ACROSS * TALL))
        if text:
            panels.append(text)
    width, height = ACROSS * PANEL, TOP + max(1, math.ceil(len(panels) / ACROSS)) * TALL
    note = "Time per unit of work over the line's lowest, logarithmic; red: rises by more than a quarter; rings: the faster peer, where measured"
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="system-ui, sans-serif">
<style>.name{{font-size:12px;font-weight:600;fill:#0f172a}}.label{{font-size:10px;text-anchor:middle;fill:#334155}}.tick{{font-size:10px;text-anchor:end;fill:#334155}}
.title{{font-size:15px;font-weight:600;fill:#0f172a}}.note{{font-size:11px;fill:#334155}}</style>
<rect width="100%" height="100%" fill="white"/>
<text x="12" y="22" class="title">{html.escape(result.get("machine", ""))}</text>
<text x="12" y="40" class="note">{note}</text>
{chr(10).join(panels)}
</svg>
"""


def page(result, picture):
    violations, excused, drawn, missing = judged(result)
    limited = lambda rows: markdown(rows[:SHOWN + 1]) + (f"\n\n{len(rows) - SHOWN - 1} more are in the JSON." if len(rows) > SHOWN + 1 else "")
    verdict = f"{len(violations)} places break a rule." if violations else "No place breaks a rule."
    if missing:
        verdict += f" {len(missing)} points are not measured yet."
    text = [f"""# Shapes beside the presets
`tools/cliffs` steps along one hyper-parameter at a time and draws shapes from the whole space. {result.get("machine", "")}; peers: {result.get("peers", "none")};
seed {seeds_text(result)}. {verdict}

![Time per unit of work along each line]({picture})

Along a line, time per sample (batch, members) or per counted FLOP rises by no more than {100 * RISE:.0f} % from one point to the next, unless the faster
peer's does. At drawn points ours is {BAR_SMALL}x the faster peer up to {SMALL / 1e6:.0f} million parameters of a model, {BAR_LARGE}x above."""]
    if violations:
        text += ["\n## Broken rules", limited(cells(violations))]
    if excused:
        text += ["\n## Rises that the faster peer has, too", limited(cells(excused))]
    rows = [["model", "shape", "parameters", "ours ms", "faster peer", "ratio", "bar"]]
    for point, row in drawn:
        if "ratio" in row:
            rows.append([point["model"], shape_text(point), f"{row['parameters'] / 1e6:.2f} M", f"{row['ms']:.4g}",
                         f"{row['fastest']} {row['peers'][row['fastest']]:.4g}", f"{row['ratio']:.2f}x", f"{row['bar']:g}x"])
        elif row:
            rows.append([point["model"], shape_text(point), "-", f"{row['ms']:.4g}" if "ms" in row else "-", row.get("no_peer", "none"), "-", "-"])
    if len(rows) > 1:
        text += ["\n## Drawn points", limited(rows)]
    return "\n".join(text) + "\n"
