"""What tools/flow-curve makes of the losses of two sides: the judgement, its table, a CSV file and a picture."""
import html
import itertools
import math
import statistics

WINDOW = 10  # steps over which a loss is smoothed
MOST_SPREADS = 3.0
LEAST_CHANCE = 0.01
START_ERRORS = 6  # how far a drawn tensor's mean and size may be from PyTorch's, in sampling errors
HEADER = ["step", "ours", "spread", "PyTorch", "spread", "difference", "in spreads", ""]
COLOURS = dict(ours="#c2410c", theirs="#475569")


def smoothed(losses):
    """The mean of the last WINDOW steps at every step; of fewer at the beginning."""
    return [statistics.fmean(losses[max(0, end - WINDOW):end]) for end in range(1, len(losses) + 1)]


def ratio(ours, theirs):
    """(|difference of the medians| over the pooled standard deviation, difference, that deviation) of the values of two groups of runs."""
    difference = statistics.median(ours) - statistics.median(theirs)
    squares = sum(len(group) * statistics.pvariance(group) for group in (ours, theirs))
    spread = math.sqrt(squares / (len(ours) + len(theirs) - 2))
    return abs(difference) / spread if spread else (math.inf if difference else 0.0), difference, spread


def chance(ours, theirs):
    """Share of all ways to label the runs whose largest ratio over the checkpoints is at least the one seen. Rows: runs."""
    runs = ours + theirs
    largest = lambda chosen: max(ratio([run[at] for i, run in enumerate(runs) if i in chosen],
                                       [run[at] for i, run in enumerate(runs) if i not in chosen])[0] for at in range(len(runs[0])))
    seen = largest(set(range(len(ours))))
    ways = [largest(set(chosen)) for chosen in itertools.combinations(range(len(runs)), len(ours))
            if len(ours) != len(theirs) or 0 in chosen]  # with equal groups the other half of the ways says the same
    return sum(way >= seen * (1 - 1e-12) for way in ways) / len(ways)


def judged(ours, theirs, checkpoints):
    """Lines of the table and the chance; ours, theirs: losses of every step, a list per seed."""
    at = [[[smoothed(losses)[step - 1] for step in checkpoints] for losses in side] for side in (ours, theirs)]
    lines = []
    for number, step in enumerate(checkpoints):
        groups = [[run[number] for run in side] for side in at]
        spreads, difference, pooled = ratio(*groups)
        lines.append(dict(step=step, ours=statistics.median(groups[0]), ours_spread=statistics.stdev(groups[0]),
                          theirs=statistics.median(groups[1]), theirs_spread=statistics.stdev(groups[1]), difference=difference,
                          pooled=pooled, spreads=spreads, within=spreads <= MOST_SPREADS))
    return dict(checkpoints=lines, chance=chance(*at))


def odd_starts(tensors):
    """What is unlike PyTorch in the tensors of a new model: {name: [(mean, rms, entries) of ours, of PyTorch's]}."""
    odd = []
    for name, (ours, theirs) in tensors.items():
        if ours is None or theirs is None:
            odd.append(f"{name}: only {'PyTorch' if ours is None else 'ours'} has it")
        elif ours[2] != theirs[2]:
            odd.append(f"{name}: {ours[2]} entries, PyTorch {theirs[2]}")
        else:
            allowed = START_ERRORS / math.sqrt(ours[2])
            size = max(ours[1], theirs[1])
            if min(ours[1], theirs[1]) < size / (1 + allowed) or abs(ours[0] - theirs[0]) > allowed * math.sqrt(2) * size:
                odd.append(f"{name}: mean {ours[0]:.3g}, size {ours[1]:.3g}; PyTorch {theirs[0]:.3g}, {theirs[1]:.3g}")
    return odd


def problems(result):
    """Why the curves do not agree; empty when they do."""
    found = [f"a new model begins otherwise: {odd}" for odd in result["odd_starts"]]
    found += [f"step {line['step']}: the medians differ by {line['spreads']:.1f} spreads, more than {MOST_SPREADS:g}"
              for line in result["checkpoints"] if not line["within"]]
    if result["chance"] < LEAST_CHANCE:
        found.append(f"the two sides can be told apart: p = {result['chance']:.4f}, below {LEAST_CHANCE:g}")
    first, last = result["checkpoints"][0], result["checkpoints"][-1]
    if len(result["checkpoints"]) > 1 and not last["ours"] < first["ours"]:
        found.append(f"our loss does not fall: {first['ours']:.4g} at step {first['step']}, {last['ours']:.4g} at step {last['step']}")
    return found


def lines_of(result):
    return [HEADER] + [[str(line["step"]), f"{line['ours']:.5f}", f"{line['ours_spread']:.5f}", f"{line['theirs']:.5f}", f"{line['theirs_spread']:.5f}",
                        f"{line['difference']:+.5f}", f"{line['spreads']:.2f}", "" if line["within"] else "outside"] for line in result["checkpoints"]]


def text_table(result):
    lines = lines_of(result)
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADER))]
    table = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]
    return "\n".join(table + [f"medians and standard deviations of {result['seeds']} seeds a side, loss of {WINDOW} steps; p = {result['chance']:.3f}; "
                              f"{result['tensors'] - len(result['odd_starts'])} of {result['tensors']} tensors begin like PyTorch's"])


def csv(result):
    """A line per step: the smoothed losses of every seed."""
    curves = {f"{side}_{seed}": smoothed(losses) for side in ("ours", "theirs") for seed, losses in enumerate(result[side], 1)}
    rows = [["step", *curves]] + [[step + 1, *(f"{curve[step]:.6g}" for curve in curves.values())] for step in range(result["steps"])]
    return "".join(",".join(map(str, row)) + "\n" for row in rows)


def svg(result, width=760, height=420):
    """Both sides' seeds as thin lines, their medians as thick ones."""
    left, right, top, bottom = 64, 16, 44, 40
    sides = {side: [smoothed(losses) for losses in result[side]] for side in COLOURS}
    highest = max(max(curve) for curves in sides.values() for curve in curves) * 1.05
    x = lambda step: left + (width - left - right) * step / result["steps"]
    y = lambda loss: height - bottom - (height - top - bottom) * loss / highest
    points = lambda curve: " ".join(f"{x(step):.1f},{y(loss):.1f}" for step, loss in enumerate(curve, 1))
    parts = []
    for mark in range(5):
        loss, step = highest * mark / 4, result["steps"] * mark // 4
        parts += [f'<line x1="{left}" x2="{width - right}" y1="{y(loss):.1f}" y2="{y(loss):.1f}" stroke="#e2e8f0"/>',
                  f'<text x="{left - 8}" y="{y(loss) + 4:.1f}" text-anchor="end">{loss:.3f}</text>',
                  f'<text x="{x(step):.1f}" y="{height - bottom + 18}" text-anchor="middle">{step}</text>']
    for side, curves in reversed(list(sides.items())):
        parts += [f'<polyline points="{points(curve)}" fill="none" stroke="{COLOURS[side]}" stroke-width="0.7" opacity="0.45"/>' for curve in curves]
        middle = [statistics.median(values) for values in zip(*curves)]
        parts.append(f'<polyline points="{points(middle)}" fill="none" stroke="{COLOURS[side]}" stroke-width="2"/>')
    title = html.escape(f"Loss of energy flow {result['profile']} on {result['device']}, noise off, {result['seeds']} seeds a side")
    parts += [f'<text x="{left}" y="24" font-size="14" font-weight="600">{title}</text>',
              f'<text x="{width - right}" y="{top + 14}" text-anchor="end" fill="{COLOURS["ours"]}">Millrace</text>',
              f'<text x="{width - right}" y="{top + 30}" text-anchor="end" fill="{COLOURS["theirs"]}">PyTorch</text>',
              f'<text x="{(left + width) / 2:.0f}" y="{height - 6}" text-anchor="middle">step</text>']
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            'font-family="system-ui, sans-serif" font-size="11">\n<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n")
