#!/usr/bin/env python3
"""The transformer in JAX, as `language.py --modes jax` runs it: one JSON row on standard output.

    language_jax.py --device cuda --batch 32 --members 8

The step does the work of the other peers: random windows of a resident stream of tokens, forward, mean cross-entropy over all positions, backward,
clip, AdamW. As under PyTorch's autocast, operands and results of products have the precision's type; norms, residuals and the loss are f32.
Attention is cuDNN's where that can run, else XLA's.
"""
import argparse
import sys

from command import add_options, parsed
from jax_timing import adam, measured, operand_of, report_jax, steps_of, window_of
from language_shape import add_shape_options, count_parameters, problem_of, shape_of, tokens_of

SHORTEST_FLASH = 128  # positions; below, one plain product is faster


def arguments():
    parser = argparse.ArgumentParser(description="times the transformer in JAX")
    add_options(parser)
    add_shape_options(parser)
    given = parsed(parser)
    if problem := problem_of(given):
        parser.error(problem)
    return given


class Model:
    """Functions of one member; parameters are trees of arrays."""

    def __init__(self, jax, shape, batch, operand, attention):
        self.jax, self.np, self.batch, self.operand, self.attention = jax, jax.numpy, batch, operand, attention
        self.vocabulary, self.length, self.depth = shape["vocabulary"], shape["length"], shape["depth"]
        self.width, self.heads, self.inner, self.rate = shape["width"], shape["heads"], shape["inner"], shape["dropout"]

    def linear(self, key, inputs, outputs):
        return {"weight": 0.02 * self.jax.random.normal(key, (inputs, outputs)), "bias": self.np.zeros(outputs)}

    def norm(self):
        return {"gamma": self.np.ones(self.width), "beta": self.np.zeros(self.width)}

    def layer(self, key):
        keys = self.jax.random.split(key, 4)
        return {"in": self.linear(keys[0], self.width, 3 * self.width), "out": self.linear(keys[1], self.width, self.width),
                "up": self.linear(keys[2], self.width, self.inner), "down": self.linear(keys[3], self.inner, self.width),
                "norm1": self.norm(), "norm2": self.norm()}

    def initial(self, key):
        """Parameters; there are no running statistics."""
        keys = self.jax.random.split(key, self.depth + 3)
        table = lambda key, rows: 0.02 * self.jax.random.normal(key, (rows, self.width))
        return {"tokens": table(keys[0], self.vocabulary), "positions": table(keys[1], self.length), "norm": self.norm(),
                "head": self.linear(keys[2], self.width, self.vocabulary),
                "layers": [self.layer(keys[3 + number]) for number in range(self.depth)]}, {}

    def apply(self, linear, x):
        return self.np.dot(x.astype(self.operand), linear["weight"].astype(self.operand)) + linear["bias"].astype(self.operand)

    def normed(self, norm, x):
        mean = x.mean(-1, keepdims=True)
        var = self.np.square(x - mean).mean(-1, keepdims=True)
        return (x - mean) * self.jax.lax.rsqrt(var + 1e-5) * norm["gamma"] + norm["beta"]

    def dropped(self, key, x):
        if self.rate == 0:
            return x
        return self.np.where(self.jax.random.bernoulli(key, 1 - self.rate, x.shape), x / (1 - self.rate), 0)

    def attend(self, layer, x):
        split = lambda part: part.reshape(self.batch, self.length, self.heads, self.width // self.heads)
        query, key, value = (split(part) for part in self.np.split(self.apply(layer["in"], x), 3, -1))
        seen = self.jax.nn.dot_product_attention(query, key, value, is_causal=True, implementation=self.attention)
        return self.apply(layer["out"], seen.reshape(self.batch, self.length, self.width))

    def logits(self, parameters, key, ids):
        """ids [B, length] -> [B, length, vocabulary]"""
        x = parameters["tokens"][ids] + parameters["positions"]
        for layer, own in zip(parameters["layers"], self.jax.random.split(key, self.depth)):
            first, second = self.jax.random.split(own)
            x = self.normed(layer["norm1"], x + self.dropped(first, self.attend(layer, x)))
            inner = self.jax.nn.gelu(self.apply(layer["up"], x), approximate=False)
            x = self.normed(layer["norm2"], x + self.dropped(second, self.apply(layer["down"], inner)))
        return self.apply(parameters["head"], self.normed(parameters["norm"], x))

    def loss(self, parameters, statistics, key, stream):
        rows_key, own = self.jax.random.split(key)
        first = self.jax.random.randint(rows_key, (self.batch, 1), 0, stream.shape[0] - self.length - 1)
        window = stream[first + self.np.arange(self.length + 1)]
        logits = self.logits(parameters, own, window[:, :-1]).astype(self.np.float32)
        chosen = self.np.take_along_axis(logits, window[:, 1:, None], -1)[..., 0]
        return (self.jax.nn.logsumexp(logits, -1) - chosen).mean(), statistics

    def update(self, state, gradient):
        """Clips the norm of all gradients to 1, then AdamW."""
        squares = sum(self.np.sum(self.np.square(leaf)) for leaf in self.jax.tree_util.tree_leaves(gradient))
        scale = self.np.minimum(1.0, 1 / (self.np.sqrt(squares) + 1e-6))
        return adam(self.jax, state, self.jax.tree_util.tree_map(lambda leaf: leaf * scale, gradient), decay=0.01)


def forms_of(given):
    """Attention's implementations to try, the fastest first. cuDNN's takes 16-bit operands, and one member: vmap gives it no batch."""
    head = given.width // given.heads
    flash = given.device == "cuda" and given.precision in ("bf16", "f16") and given.members == 1
    return ["cudnn", "xla"] if flash and given.length >= SHORTEST_FLASH and head % 8 == 0 and head <= 128 else ["xla"]


def figures(jax, given):
    shape = shape_of(given)
    parameters = count_parameters(**shape)
    steps = steps_of(given, parameters, given.batch * given.length)

    def build(jax, form):
        stream = jax.random.randint(jax.random.key(1), (tokens_of(given),), 0, given.vocabulary)
        model = Model(jax, shape, given.batch, operand_of(jax, given.precision), form)
        return window_of(jax, model, stream, given.members, steps, parameters)

    forms = forms_of(given)
    for form in forms:
        try:
            return dict(measured(jax, given, lambda jax: build(jax, form), steps), attention=form)
        except Exception as error:  # a cuDNN that lacks this shape
            if form == forms[-1] or isinstance(error, TimeoutError):
                raise


def main():
    given = arguments()
    problem = None if given.preset == "transformer" else "the JAX model has layers in series, no tree"
    return report_jax(given, given.preset, problem, lambda jax: figures(jax, given))


if __name__ == "__main__":
    sys.exit(main())
