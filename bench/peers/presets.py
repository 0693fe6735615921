"""Shapes of the collective: its presets, the options that change them, and how many parameters a model then has. Needs no library."""
import math

PRESETS = {
    "debug": dict(experts=2, analysts=6, expert=(128, 64, 32), analyst=(64, 32, 16)),
    "phase1": dict(experts=2, analysts=6, expert=(512, 256, 128), analyst=(256, 128, 64)),
}
PARAMETERS = {("debug", "r1"): 559738, ("phase1", "r1"): 2884042, ("debug", "r2"): 567044, ("phase1", "r2"): 2969887}
INPUTS, CLASSES = 784, 10


def widths(text):
    """"128,64" as numbers, for argparse."""
    found = tuple(int(word) for word in text.split(","))
    if min(found) < 1:
        raise ValueError("widths are positive")
    return found


def add_shape_options(parser):
    """Named as the keys of Millrace's recipes; what is not given is the preset's."""
    parser.add_argument("--preset", choices=tuple(PRESETS), default="debug")
    parser.add_argument("--revision", choices=("r1", "r2"), default="r1")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--members", type=int, default=1, help="whole models trained side by side, each on its own rows")
    parser.add_argument("--n-total", type=int, default=8, help="experts and analysts together")
    parser.add_argument("--expert-ratio", type=float, default=0.2, help="share of them that are experts")
    parser.add_argument("--n-experts", type=int, default=0, help="0: by --expert-ratio")
    for part in ("expert", "analyst"):
        parser.add_argument(f"--{part}-hidden", type=widths, help="widths of the hidden layers, with commas")
        parser.add_argument(f"--{part}-output", type=int)
    parser.add_argument("--expert-compression", type=float, default=0.25)
    parser.add_argument("--code", type=int, default=0, help="r2: width of the encoded votes; 0: by rule")
    parser.add_argument("--hidden-scale", type=float, default=1.0)
    parser.add_argument("--member-dropout", type=float, default=0.2)
    parser.add_argument("--encoder-dropout", type=float, default=0.1)
    parser.add_argument("--head-dropout", type=float, default=0.2)
    parser.add_argument("--dropout-scale", type=float, default=1.0, help="factor on all three rates")


def shape_of(given):
    """The arguments of Collective."""
    preset = PRESETS[given.preset]
    least = 2 if given.revision == "r2" else 1
    experts = given.n_experts or min(max(round(given.n_total * given.expert_ratio), least), given.n_total - 1)
    shape = dict(experts=experts, analysts=given.n_total - experts, compression=given.expert_compression, hidden_scale=given.hidden_scale,
                 revision=given.revision, code=given.code or None, dropout=given.dropout_scale,
                 rates=(given.member_dropout, given.encoder_dropout, given.head_dropout))
    for part in ("expert", "analyst"):
        shape[part] = ((getattr(given, f"{part}_hidden") or preset[part][:-1]) + (getattr(given, f"{part}_output") or preset[part][-1],))
    return shape


def problem_of(given):
    """What is wrong with the options, or None."""
    if given.batch < 2:
        return "--batch must be at least 2: BatchNorm has no variance over one row"
    if given.members < 1:
        return "--members must be positive"
    shape = shape_of(given)
    if shape["experts"] < 1 or shape["analysts"] < 1:
        return f"{shape['experts']} experts leave {shape['analysts']} analysts"
    if not all(0 <= rate * shape["dropout"] < 1 for rate in shape["rates"]):
        return "rates of dropout, times --dropout-scale, are at least 0 and below 1"
    return None


def collective_code(analysts, width, factor=1.0):
    """Width that the r2 analyst encoder compresses the votes of `analysts` members of `width` outputs to."""
    return int(min(2048, max(64, int(width * (1 + math.log2(analysts))))) * factor)


def count_parameters(experts, analysts, expert, analyst, compression=0.25, hidden_scale=1.0, revision="r1", code=None, **_):
    """Of a model with such a shape: weights and biases of every Linear, two vectors of every norm."""
    def chain(inputs, outputs, normed):
        ends = (inputs, *outputs)
        return sum(a * b + b for a, b in zip(ends, ends[1:])) + 2 * sum(outputs[:normed])
    encoder = lambda inputs, outputs: chain(inputs, (math.isqrt(inputs * outputs), outputs), 1)
    opinions, votes = experts * expert[-1], analysts * analyst[-1]
    summary = int(opinions * compression)
    total = experts * chain(INPUTS, expert, len(expert) - 1) + encoder(opinions, summary)
    total += analysts * chain(INPUTS + summary, analyst, len(analyst) - 1)
    if revision == "r2":
        code = code or collective_code(analysts, analyst[-1])
        total, votes = total + encoder(votes, code), code
    return total + chain(votes, (max(int(votes * hidden_scale), 2 * CLASSES), CLASSES), 0)
