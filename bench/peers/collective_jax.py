#!/usr/bin/env python3
"""The collective (r1) in JAX, as `collective.py --modes jax` runs it: one JSON row on standard output.

    collective_jax.py --device cuda --preset debug --batch 128 --members 64

One member's step is a plain function; vmap makes K members of it and scan a window of steps, compiled as one program. The step does
the work of the other peers: random rows of resident u8 images, normalised, forward, cross-entropy, backward, Adam, and the running
statistics of the norms. In bf16 the operands of products are bf16 and their sums f32. Random numbers come from the generator that
XLA has built in (rbg), which is faster than JAX's default.
"""
import argparse
import json
import math
import os
import sys
import time

from command import add_options, deadline, parsed
from presets import PARAMETERS, PRESETS

IMAGES, INPUTS, CLASSES = 54000, 784, 10
STEPS = 200  # of a window
LEAST_WINDOWS = 7


def arguments():
    parser = argparse.ArgumentParser(description="times the collective model in JAX")
    add_options(parser)
    parser.add_argument("--preset", choices=tuple(PRESETS), default="debug")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--members", type=int, default=1)
    given = parsed(parser)
    if given.batch < 2 or given.members < 1:
        parser.error("--batch must be at least 2 and --members positive")
    return given


class Model:
    """Functions of one member. Parameters and running statistics are trees of arrays; equal layers lie along a leading axis."""

    def __init__(self, jax, preset, batch, bf16):
        self.jax, self.np, self.batch = jax, jax.numpy, batch
        self.operand = jax.numpy.bfloat16 if bf16 else jax.numpy.float32
        shape = PRESETS[preset]
        self.experts, self.analysts = shape["experts"], shape["analysts"]
        self.expert, self.analyst = shape["expert"], shape["analyst"]
        self.opinions, self.votes = self.experts * self.expert[-1], self.analysts * self.analyst[-1]
        self.summary = self.opinions // 4

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
        several = lambda key, count, inputs, widths: self.jax.vmap(lambda own: self.chain(own, inputs, widths, 2))(
            self.jax.random.split(key, count))
        parts = {"experts": several(keys[0], self.experts, INPUTS, self.expert),
                 "encoder": self.chain(keys[1], self.opinions, (math.isqrt(self.opinions * self.summary), self.summary), 1),
                 "analysts": several(keys[2], self.analysts, INPUTS + self.summary, self.analyst),
                 "head": self.chain(keys[3], self.votes, (max(self.votes, 2 * CLASSES), CLASSES), 0)}
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
        return self.np.where(self.jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0)

    def member(self, layers, old, key, x):
        """An expert or an analyst."""
        x, first = self.normed(layers[0], old[0], x)
        x, second = self.normed(layers[1], old[1], self.dropped(key, x, 0.2))
        return self.linear(layers[2], x), [first, second]

    def members(self, layers, old, key, count, x):
        keys = self.jax.random.split(key, count)
        y, new = self.jax.vmap(self.member, (0, 0, 0, None))(layers, old, keys, x)
        return y.transpose(1, 0, 2).reshape(self.batch, -1), new

    def loss(self, parameters, statistics, key, x, labels):
        keys = self.jax.random.split(key, 4)
        new = {"head": []}
        opinions, new["experts"] = self.members(parameters["experts"], statistics["experts"], keys[0], self.experts, x)
        first, last = parameters["encoder"]
        code, moved = self.normed(first, statistics["encoder"][0], opinions)
        new["encoder"] = [moved]
        seen = self.np.concatenate([x, self.linear(last, self.dropped(keys[1], code, 0.1))], 1)
        votes, new["analysts"] = self.members(parameters["analysts"], statistics["analysts"], keys[2], self.analysts, seen)
        first, last = parameters["head"]
        logits = self.linear(last, self.dropped(keys[3], self.jax.nn.relu(self.linear(first, votes)), 0.2))
        chosen = self.np.take_along_axis(self.jax.nn.log_softmax(logits), labels[:, None], 1)
        return -chosen.mean(), new

    def step(self, images, labels, state):
        """One update of one member by Adam."""
        key, rows_key, loss_key = self.jax.random.split(state["key"], 3)
        rows = self.jax.random.randint(rows_key, (self.batch,), 0, IMAGES)
        x = (images[rows].astype(self.np.float32) / 255 - 0.286) / 0.353
        (loss, statistics), gradient = self.jax.value_and_grad(self.loss, has_aux=True)(
            state["parameters"], state["statistics"], loss_key, x, labels[rows])
        map_trees = self.jax.tree_util.tree_map
        count = state["count"] + 1
        first = map_trees(lambda m, g: 0.9 * m + 0.1 * g, state["first"], gradient)
        second = map_trees(lambda v, g: 0.999 * v + 0.001 * g * g, state["second"], gradient)
        to_first, to_second = 1 / (1 - 0.9 ** count), 1 / (1 - 0.999 ** count)
        parameters = map_trees(lambda p, m, v: p - 1e-3 * (m * to_first) / (self.np.sqrt(v * to_second) + 1e-8),
                               state["parameters"], first, second)
        return dict(state, key=key, parameters=parameters, statistics=statistics, first=first, second=second, count=count), loss


def window_of(jax, given):
    """A compiled function of the members' state that makes STEPS steps, and the first state."""
    model = Model(jax, given.preset, given.batch, given.precision == "bf16")
    images = jax.random.randint(jax.random.key(1), (IMAGES, INPUTS), 0, 256).astype(jax.numpy.uint8)
    labels = jax.random.randint(jax.random.key(2), (IMAGES,), 0, CLASSES)

    def window(images, labels, state):
        step = jax.vmap(lambda one: model.step(images, labels, one))
        return jax.lax.scan(lambda state, _: step(state), state, None, length=STEPS)

    keys = jax.random.split(jax.random.key(0), given.members)
    parameters, statistics = jax.vmap(model.initial)(keys)
    zeros = lambda: jax.tree_util.tree_map(jax.numpy.zeros_like, parameters)
    state = dict(key=keys, parameters=parameters, statistics=statistics, first=zeros(), second=zeros(),
                 count=jax.numpy.zeros(given.members))
    count = sum(leaf.size for leaf in jax.tree_util.tree_leaves(parameters)) // given.members
    if count != PARAMETERS[given.preset, "r1"]:
        raise ValueError(f"the model has {count} parameters instead of {PARAMETERS[given.preset, 'r1']}")
    run = jax.jit(window, donate_argnums=2)
    return lambda state: run(images, labels, state), state


def measured(jax, given):
    begin = time.perf_counter()
    with deadline(given.compile_seconds, "building the step"):
        window, state = window_of(jax, given)
        state, losses = window(state)
        losses.block_until_ready()
    built, times, begin = time.perf_counter() - begin, [], time.perf_counter()
    while len(times) < LEAST_WINDOWS or time.perf_counter() - begin < given.seconds:
        start = time.perf_counter()
        state, losses = window(state)
        losses.block_until_ready()
        times.append(1000 * (time.perf_counter() - start) / STEPS)
    if not bool(jax.numpy.isfinite(losses).all()):
        raise ValueError("a loss is not finite")
    times.sort()
    pick = lambda quarter: round(times[quarter * len(times) // 4], 5)
    return dict(build_seconds=round(built, 2), ms=pick(2), low=pick(1), high=pick(3), windows=len(times), steps_per_window=STEPS)


def main():
    given = arguments()
    members = "" if given.members == 1 else f"-k{given.members}"
    row = dict(name=f"collective-{given.preset}-b{given.batch}{members}", peer="jax", precision=given.precision, device=given.device)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ["JAX_PLATFORMS"] = given.device
    try:
        try:
            import jax
        except ImportError:
            raise ImportError(f"{sys.executable} has no jax; install jax[cuda12] (on a CPU: jax) for it") from None
        jax.config.update("jax_default_prng_impl", "rbg")
        if given.precision == "fp32":
            jax.config.update("jax_default_matmul_precision", "highest")
        row["versions"] = dict(jax=jax.__version__)
        row.update(measured(jax, given))
    except Exception as error:  # that it cannot be used is a result, too
        row["error"] = f"{type(error).__name__}: {error}"[:300]
    print(json.dumps(row), flush=True)
    return 1 if "error" in row else 0


if __name__ == "__main__":
    sys.exit(main())
