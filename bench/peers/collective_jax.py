#!/usr/bin/env python3
"""The collective (r1) in JAX, as `collective.py --modes jax` runs it: one JSON row on standard output.

    collective_jax.py --device cuda --preset debug --batch 128 --members 64

The step does the work of the other peers: random rows of resident u8 images, normalised, forward, cross-entropy, backward, Adam, and the
running statistics of the norms. In bf16 the operands of products are bf16 and their sums f32.
"""
import argparse
import math
import sys

from command import add_options, parsed
from jax_timing import adam, measured, operand_of, report_jax, steps_of, window_of
from presets import CLASSES, INPUTS, add_shape_options, count_parameters, problem_of, shape_of

IMAGES = 54000


def arguments():
    parser = argparse.ArgumentParser(description="times the collective model in JAX")
    add_options(parser)
    add_shape_options(parser)
    given = parsed(parser)
    if problem := problem_of(given):
        parser.error(problem)
    return given


class Model:
    """Functions of one member. Parameters and running statistics are trees of arrays; equal layers lie along a leading axis."""

    def __init__(self, jax, shape, batch, operand):
        self.jax, self.np, self.batch, self.operand = jax, jax.numpy, batch, operand
        self.experts, self.analysts = shape["experts"], shape["analysts"]
        self.expert, self.analyst = shape["expert"], shape["analyst"]
        self.opinions, self.votes = self.experts * self.expert[-1], self.analysts * self.analyst[-1]
        self.summary = int(self.opinions * shape["compression"])
        self.hidden = max(int(self.votes * shape["hidden_scale"]), 2 * CLASSES)
        self.in_member, self.in_encoder, self.in_head = (rate * shape["dropout"] for rate in shape["rates"])

    def chain(self, key, inputs, widths, normed):
        """Layers one after the other, the first `normed` of them with a norm."""
        layers, statistics = [], []
        for number, width in enumerate(widths):
            key, own = self.jax.random.split(key)
            layer = {"weight": self.jax.random.normal(own, (inputs, width)) * math.sqrt(2 / inputs), "bias": self.np.zeros(width)}
            if number < normed:
                layer.update(gamma=self.np.ones(width), beta=self.np.zeros(width))
                statistics.append({"mean": self.np.zeros(width), "var": self.np.ones(width)})
            layers.append(layer)
            inputs = width
        return layers, statistics

    def initial(self, key):
        keys = self.jax.random.split(key, 4)
        several = lambda key, count, inputs, widths: self.jax.vmap(lambda own: self.chain(own, inputs, widths, len(widths) - 1))(
            self.jax.random.split(key, count))
        parts = {"experts": several(keys[0], self.experts, INPUTS, self.expert),
                 "encoder": self.chain(keys[1], self.opinions, (math.isqrt(self.opinions * self.summary), self.summary), 1),
                 "analysts": several(keys[2], self.analysts, INPUTS + self.summary, self.analyst),
                 "head": self.chain(keys[3], self.votes, (self.hidden, CLASSES), 0)}
        return {name: part[0] for name, part in parts.items()}, {name: part[1] for name, part in parts.items()}

    def linear(self, layer, x):
        product = self.np.dot(x.astype(self.operand), layer["weight"].astype(self.operand), preferred_element_type=self.np.float32)
        return product + layer["bias"]

    def normed(self, layer, old, x):
        """Linear, BatchNorm, ReLU; the running statistics after it."""
        z = self.linear(layer, x)
        mean, var = z.mean(0), z.var(0)
        unbiased = var * (self.batch / (self.batch - 1))
        statistics = {"mean": 0.9 * old["mean"] + 0.1 * mean, "var": 0.9 * old["var"] + 0.1 * unbiased}
        z = (z - mean) * self.jax.lax.rsqrt(var + 1e-5) * layer["gamma"] + layer["beta"]
        return self.jax.nn.relu(z), statistics

    def dropped(self, key, x, rate):
        if rate == 0:
            return x
        return self.np.where(self.jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0)

    def member(self, layers, old, key, x):
        """An expert or an analyst."""
        keys, new = self.jax.random.split(key, len(layers)), []
        for number, layer in enumerate(layers[:-1]):
            x, moved = self.normed(layer, old[number], x if number == 0 else self.dropped(keys[number], x, self.in_member))
            new.append(moved)
        return self.linear(layers[-1], x), new

    def members(self, layers, old, key, count, x):
        keys = self.jax.random.split(key, count)
        y, new = self.jax.vmap(self.member, (0, 0, 0, None))(layers, old, keys, x)
        return y.transpose(1, 0, 2).reshape(self.batch, -1), new

    def loss(self, parameters, statistics, key, data):
        images, labels = data
        keys = self.jax.random.split(key, 5)
        rows = self.jax.random.randint(keys[4], (self.batch,), 0, IMAGES)
        x, labels = (images[rows].astype(self.np.float32) / 255 - 0.286) / 0.353, labels[rows]
        new = {"head": []}
        opinions, new["experts"] = self.members(parameters["experts"], statistics["experts"], keys[0], self.experts, x)
        first, last = parameters["encoder"]
        code, moved = self.normed(first, statistics["encoder"][0], opinions)
        new["encoder"] = [moved]
        seen = self.np.concatenate([x, self.linear(last, self.dropped(keys[1], code, self.in_encoder))], 1)
        votes, new["analysts"] = self.members(parameters["analysts"], statistics["analysts"], keys[2], self.analysts, seen)
        first, last = parameters["head"]
        logits = self.linear(last, self.dropped(keys[3], self.jax.nn.relu(self.linear(first, votes)), self.in_head))
        chosen = self.np.take_along_axis(self.jax.nn.log_softmax(logits), labels[:, None], 1)
        return -chosen.mean(), new

    def update(self, state, gradient):
        return adam(self.jax, state, gradient)


def figures(jax, given):
    shape = shape_of(given)
    parameters = count_parameters(**shape)
    steps = steps_of(given, parameters, given.batch)

    def build(jax):
        images = jax.random.randint(jax.random.key(1), (IMAGES, INPUTS), 0, 256).astype(jax.numpy.uint8)
        labels = jax.random.randint(jax.random.key(2), (IMAGES,), 0, CLASSES)
        model = Model(jax, shape, given.batch, operand_of(jax, given.precision))
        return window_of(jax, model, (images, labels), given.members, steps, parameters)

    return measured(jax, given, build, steps)


def main():
    given = arguments()
    problem = None if given.revision == "r1" else "the JAX model is revision r1"
    return report_jax(given, f"collective-{given.preset}", problem, lambda jax: figures(jax, given))


if __name__ == "__main__":
    sys.exit(main())
