"""The shapes that tools/cliffs scans: lines through a base shape of each model, and points drawn from the whole space.

A point is a dict of the model's name and a value on each of its axes. Neighbours on a line are a factor of about 1.4 apart, where whole numbers,
multiples of 16 and divisors allow it.
"""
import random

AXES = ("batch", "width", "heads", "length", "depth", "dropout", "members", "precision")
RATES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
WORDS = 10_000
# Limits of drawn points, so that every peer can run them: rows of the products, FLOP of a step, bytes of weights and moments.
MOST_ROWS, MOST_FLOPS, MOST_BYTES = 65_536, dict(cuda=2e13, cpu=1e9), 16e9
NARROWEST_HEAD = 8


def roots(low, high, multiple=1):
    """Powers of the square root of two from low to high, as multiples of a number."""
    values = [multiple * round(low * 2 ** (k / 2) / multiple) for k in range(64) if low * 2 ** (k / 2) < high * 1.01]
    return sorted(set(values))


class Transformer:
    name, workload = "transformer", "transformer-base"
    base = dict(batch=32, width=128, heads=4, length=64, depth=4, dropout=0.0, members=1)
    values = dict(batch=roots(1, 1024), width=roots(64, 1024, 16), heads=[1, 2, 4, 8, 16], length=roots(16, 1024), depth=[1, 2, 3, 4, 6, 8, 12],
                  dropout=list(RATES), members=roots(1, 64))

    @staticmethod
    def settings(point):
        return [f"data.length={point['length']}", f"model.width={point['width']}", f"model.heads={point['heads']}",
                f"model.inner={2 * point['width']}", f"model.depth={point['depth']}", f"model.dropout={point['dropout']}"]

    @staticmethod
    def parameters(point):
        width = point["width"]
        return point["depth"] * 8 * width * width + (2 * WORDS + point["length"]) * width

    @staticmethod
    def rows(point):
        return point["batch"] * point["length"]

    @staticmethod
    def modes(point, gpu):
        if not gpu:
            return "eager"
        return "compile+graph,jax" if point["members"] == 1 else "jax"

    @staticmethod
    def fits(point):
        return point["width"] % point["heads"] == 0 and point["width"] // point["heads"] >= NARROWEST_HEAD


class Collective:
    name, workload = "collective", "collective-debug"
    base = dict(batch=128, width=128, depth=2, dropout=0.2, members=1)
    values = dict(batch=roots(8, 8192), width=roots(64, 1024, 16), depth=[2, 3, 4, 6, 8], dropout=list(RATES), members=roots(1, 256))

    @staticmethod
    def widths(point):
        """Of an expert and of an analyst: the first hidden layer, the others, the output; halves of each other, at least 16."""
        half = lambda width, times: max(16, 16 * round(width / 2 ** times / 16))
        return [[half(point["width"], part)] + (point["depth"] - 1) * [half(point["width"], part + 1)] + [half(point["width"], part + 2)]
                for part in (0, 1)]

    @classmethod
    def settings(cls, point):
        found = []
        for part, widths in zip(("expert", "analyst"), cls.widths(point)):
            found += [f"model.{part}_hidden={','.join(map(str, widths[:-1]))}", f"model.{part}_output={widths[-1]}"]
        rate = point["dropout"]
        return found + [f"model.member_dropout={rate}", f"model.encoder_dropout={rate / 2}", f"model.head_dropout={rate}"]

    @classmethod
    def parameters(cls, point):
        """Without biases, norms, encoder and head."""
        return sum(count * sum(a * b for a, b in zip([784, *widths], widths)) for count, widths in zip((2, 6), cls.widths(point)))

    @staticmethod
    def rows(point):
        return point["batch"]

    @staticmethod
    def modes(point, gpu):
        plain = "" if point["members"] > 1 else "compile+graph," if gpu else "eager,"
        return plain + ("stacked+compile+graph,jax" if gpu else "stacked")

    @staticmethod
    def fits(point):
        return True


MODELS = {model.name: model for model in (Collective, Transformer)}


def key_of(point):
    """One text for equal points."""
    return " ".join([point["model"], *(f"{axis}={point[axis]}" for axis in AXES if axis in point)])


def line_of_bench(point):
    """A line of the file that `millrace bench --points` reads."""
    precision = ["precision=f32", "train.f32=tf32"] if point["precision"] == "tf32" else [f"precision={point['precision']}"]
    model = MODELS[point["model"]]
    return " ".join([model.workload, f"train.batch={point['batch']}", f"members={point['members']}", *model.settings(point), *precision])


def lines(models, axes, precisions, thin=1):
    """{(model, axis): points}. Points are in the order of the axis; the base is among them."""
    found = {}
    for name in models:
        model = MODELS[name]
        base = dict(model.base, model=name, precision=precisions[0])
        for axis in axes:
            values = precisions if axis == "precision" else model.values.get(axis, [])
            kept = [value for i, value in enumerate(values) if i % thin == 0 or value == base[axis]]
            points = [point for point in (dict(base, **{axis: value}) for value in kept) if model.fits(point)]
            if len(points) > 1:
                found[name, axis] = points
    return found


def work_of(point):
    """FLOP of a step, about."""
    model = MODELS[point["model"]]
    return 6.0 * model.parameters(point) * model.rows(point) * point["members"]


def is_possible(point, device):
    """Whether both sides can be expected to run it."""
    model = MODELS[point["model"]]
    rows, parameters = model.rows(point) * point["members"], model.parameters(point) * point["members"]
    return model.fits(point) and rows <= MOST_ROWS and work_of(point) <= MOST_FLOPS[device] and 16 * parameters <= MOST_BYTES


def draw(seed, count, models, precisions, device):
    """Different points of the whole space, all axes at once. Half of them have one member: all peers can run those."""
    source, found = random.Random(seed), {}
    while len(found) < count:
        name = source.choice(sorted(models))
        point = {axis: source.choice(values) for axis, values in sorted(MODELS[name].values.items())}
        point.update(model=name, precision=source.choice(precisions), members=source.choice((1, point["members"])))
        if is_possible(point, device):
            found[key_of(point)] = point
    return list(found.values())
