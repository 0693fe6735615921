"""What the steps of an energy flow forward pass did, read from the trace that `EnergyFlow.forward` fills."""
import torch

COUNTERS = ("used", "spawned", "refused", "arrived_up", "arrived_down", "reflected", "steps")


def counters(cube, trace):
    """Counts after every step, [steps run, 7] in the order of COUNTERS; `reflected` counts coordinates, `arrived_*` flows by plane."""
    rows, spawned, refused, reflected = [], 0, 0, 0
    for t, step in enumerate(trace):
        children = int((step["parent"] >= 0).sum())
        spawned += children
        refused += int(step["wanted"].sum()) - children
        reflected += int((step["raw"][step["alive"], :2].abs() > 1).sum())
        done = ~step["active"] & (torch.arange(cube.rows) < step["used"])
        up = int((done & (step["position"][:, 2] > 0)).sum())
        rows.append([int(step["used"]), spawned, refused, up, int(done.sum()) - up, reflected, t + 1])
    return torch.tensor(rows, dtype=torch.int32)


def clearance(cube, energy, trace):
    """Least distance of any flow from where its fate or a gradient would change: a cell border (in the cube's units and in cells), a wall,
    a plane, a spawn length, at the end the middle plane, and at the start an energy of 0."""
    least = [energy.abs().min()]
    for step in trace:
        alive = step["alive"]
        raw, position = step["raw"][alive], step["position"][alive]
        least += [(raw.abs() - 1).abs().min() if len(raw) else torch.tensor(1.0)]
        for axis, cells in ((0, cube.width - 1), (1, cube.height - 1)):
            place = (position[:, axis] + 1) / 2 * cells
            border = (place - place.round()).abs()
            least.append((border * min(1, 2 / cells)).min() if len(border) else torch.tensor(1.0))
        if cube.rows > cube.first:
            still = step["stride"][alive & (step["raw"][:, 2].abs() < 1)]
            for count in range(1, cube.max_spawn + 1):
                least.append((still - count * cube.spawn_length).abs().min() if len(still) else torch.tensor(1.0))
    last = trace[-1]
    height = last["position"][last["active"], 2].abs()
    return min([float(value) for value in least] + height.tolist())
