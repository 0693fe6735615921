"""Shapes of the language models: their presets, the options that change them, and how many parameters a model then has."""

VOCABULARY, LENGTH = 10_000, 64
USUAL = dict(vocabulary=VOCABULARY, length=LENGTH, width=128, heads=4, inner=256, depth=4, dropout=0.0)
PRESETS = {"transformer": dict(), "k1": dict(branching=(3, 3), k=5), "k1-deep": dict(branching=(4, 3, 2), k=5)}
TOKENS = 2_051_910  # of the resident stream, or two windows where these are longer


def counts(text):
    """"3,3" as numbers, for argparse; empty: no tree."""
    return tuple(int(word) for word in text.split(",")) if text else ()


def add_shape_options(parser):
    """Named as the keys of Millrace's recipes; what is not given is the preset's."""
    parser.add_argument("--preset", choices=tuple(PRESETS), default="transformer")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--members", type=int, default=1, help="whole models side by side; the mode jax alone has several")
    for name in ("vocabulary", "length", "width", "heads", "inner", "depth"):
        parser.add_argument(f"--{name}", type=int, default=USUAL[name])
    parser.add_argument("--dropout", type=float, default=USUAL["dropout"])
    parser.add_argument("--dropout-scale", type=float, default=1.0, help="factor on --dropout")
    parser.add_argument("--branching", type=counts, help="children of a node by level, with commas")
    parser.add_argument("--k", type=int, help="nodes of a tree that a step updates")


def shape_of(given):
    """The arguments of Language."""
    shape = {name: getattr(given, name) for name in USUAL}
    shape.update(PRESETS[given.preset], dropout=given.dropout * given.dropout_scale)
    if shape.get("branching"):
        shape.update(branching=given.branching or shape["branching"], k=given.k or shape["k"])
    return shape


def problem_of(given):
    """What is wrong with the options, or None."""
    for name in ("batch", "members", "vocabulary", "length", "width", "heads", "inner", "depth"):
        if getattr(given, name) < 1:
            return f"--{name} must be positive"
    if given.width % given.heads:
        return f"--heads {given.heads} do not divide --width {given.width}"
    if not 0 <= given.dropout * given.dropout_scale < 1:
        return "--dropout, times --dropout-scale, is at least 0 and below 1"
    return None


def tokens_of(given):
    return max(TOKENS, 2 * given.length + 2)


def count_parameters(vocabulary, length, width, inner, depth, branching=(), **_):
    """Of a model with such a shape, all layers or nodes."""
    layers, level = (depth, 0) if not branching else (1, 1)
    for children in branching:
        level *= children
        layers += level
    layer = (width + 1) * 3 * width + (width + 1) * width + (width + 1) * inner + (inner + 1) * width + 4 * width
    return (vocabulary + length) * width + layers * layer + 2 * width + (width + 1) * vocabulary
