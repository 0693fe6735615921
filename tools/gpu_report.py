"""Tables of tools/gpu-check: our steps against the peers', for the terminal and for Markdown."""

BESIDE = "compile+graph"  # the form of PyTorch that most users would call fast


def peer_names(rows):
    """All peers, in the order in which they first appear."""
    names = []
    for row in rows:
        names += [name for name in list(row.get("peers", {})) + list(row.get("peer_errors", {})) if name not in names]
    return names


def is_beside(name):
    return name.removeprefix("torch ") == BESIDE


def cells_of(row, names):
    """The texts of one line: workload, precision, ours, spread, the peers, ratio to the fastest, ratio to compile+graph."""
    if "error" in row:
        return [row["name"], "", "not measured" if row.get("error", "").startswith("not measured") else "failed", ""] + ["" for _ in names] + ["", ""]
    ours, peers = row["ours_ms"], row.get("peers", {})
    cells = [row["name"], row.get("precision", ""), f"{ours:.4f}", f"{100 * row.get('spread', 0):.1f} %"]
    cells += [f"{peers[name]:.4f}" if name in peers else "failed" if name in row.get("peer_errors", {}) else "-" for name in names]
    cells.append(f"{min(peers.values()) / ours:.2f}x" if peers else "-")
    beside = [peers[name] for name in peers if is_beside(name)]
    cells.append(f"{beside[0] / ours:.2f}x" if beside else "-")
    return cells


def share(value, form="{:.0f} %"):
    return form.format(value) if value is not None else "-"


def rate(work, key, of_ceiling):
    """TFLOP/s, with the share of a large product's."""
    if work.get(key) is None:
        return "-"
    text = f"{work[key]:.0f}" if work[key] >= 10 else f"{work[key]:.3f}"
    return text + (f" ({100 * work[of_ceiling]:.0f} %)" if work.get(of_ceiling) is not None else "")


MORE = ("bar", "TFLOP/s", "counted", "idle", "SM", "tensor")


def more_cells(row):
    """The texts in the columns of MORE."""
    if "error" in row:
        return [""] * len(MORE)
    work, idle = row.get("work", {}), row.get("idle")
    return [f"{row['bar']:g}x" if row.get("bar") else "-", rate(work, "tflops", "of_gemm"), rate(work, "counted_tflops", "counted_of_gemm"),
            share(None if idle is None else 100 * idle, "{:.2f} %"), share(row.get("sm_active")), share(row.get("tensor_active"))]


def lines_of(rows):
    """Header and lines; of the columns of MORE those in which some row has something."""
    names = peer_names(rows)
    more = [more_cells(row) for row in rows]
    shown = [column for column in range(len(MORE)) if any(cells[column] not in ("", "-") for cells in more)]
    lines = [["workload", "", "ours ms", "spread"] + names + ["to fastest", "to " + BESIDE] + [MORE[column] for column in shown]]
    return lines + [cells_of(row, names) + [cells[column] for column in shown] for row, cells in zip(rows, more)]


def legend(rows):
    text = "milliseconds per training step, median; spread: quartiles over the median; ratios: the peer's time over ours"
    ceilings = {row["precision"]: row["gemm_tflops"] for row in rows if row.get("gemm_tflops")}
    if ceilings:
        text += "\nTFLOP/s of the products of all rows, counted: of the flow-steps the device counted (share of a large product: "
        text += ", ".join(f"{precision} {tflops:.4g}" for precision, tflops in ceilings.items()) + ")"
    if any("idle" in row for row in rows):
        text += "\nidle: share of a step between two launches; SM, tensor: % active by the chip's counters"
    return text


def text_table(rows):
    lines = lines_of(rows)
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    shown = []
    for line in lines:
        shown.append("  ".join(cell.ljust(width) if column == 0 else cell.rjust(width)
                               for column, (cell, width) in enumerate(zip(line, widths))).rstrip())
    return "\n".join(shown)


def markdown_table(rows):
    lines = lines_of(rows)
    rule = ["---"] + ["---:"] * (len(lines[0]) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in [lines[0], rule] + lines[1:])


def notes(rows):
    """What a table has no room for: failures, absent peers, rows that were left out."""
    said = []
    for row in rows:
        if "error" in row:
            said.append(f"{row['name']}: {row['error']}")
        if row.get("no_peer") and row["no_peer"] != "--no-peers":
            said.append(f"{row['name']}: no peer: {row['no_peer']}")
        said += [f"{row['name']}, {peer}: {why}" for peer, why in row.get("peer_errors", {}).items()]
    return said


def markdown(result):
    """The whole report."""
    lines = ["# GPU check", ""]
    lines += [f"- {key}: {result[key]}" for key in ("date", "commit", "version", "machine", "gpu", "driver", "cuda", "peers") if result.get(key)]
    lines += [f"- {library['name']}: {library['version']}, {library['path']}" for library in result["libraries"] if library["path"]]
    tests = result.get("tests")
    if tests:
        lines += ["", "## Tests", "", "| program | passed | failed | skipped | on the GPU | seconds |", "|---|---:|---:|---:|---:|---:|"]
        lines += [f"| {t['name']} | {t['passed']} | {len(t['failed'])} | {len(t['skipped'])} | {t['gpu']} | {t['seconds']:.1f} |" for t in tests]
    if result.get("bench"):
        lines += ["", "## Milliseconds per training step", "", markdown_table(result["bench"]), "",
                  ". ".join(line[0].upper() + line[1:] for line in legend(result["bench"]).splitlines()) + ".", ""]
        lines += [f"- {note}" for note in notes(result["bench"])]
    if result.get("problems"):
        lines += ["", "## Problems", ""] + [f"- {problem}" for problem in result["problems"]]
    return "\n".join(lines) + "\n"
