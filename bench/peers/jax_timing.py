"""Times a training step written in JAX: a window of steps in one scan, K members by vmap, compiled as one program.

A model has functions of one member: `initial(key)`, the trees of its parameters and running statistics; `loss(parameters, statistics, key,
data)`, that of a random batch, and the statistics after it; `update(state, gradient)`, what adam() gives. Random numbers come from the generator
that XLA has built in (rbg), which is faster than JAX's default.
"""
import json
import math
import os
import sys
import time

from command import deadline, turn

LEAST_WINDOWS = 7
MOST_STEPS, LEAST_STEPS, WINDOW_FLOPS = 200, 10, 1e13  # of a window: at least a tenth of a second of a large product


def operand_of(jax, precision):
    """The type of products' operands."""
    return {"bf16": jax.numpy.bfloat16, "f16": jax.numpy.float16}.get(precision, jax.numpy.float32)


def adam(jax, state, gradient, decay=0.0):
    """Parameters and moments after a step of Adam with a rate of 1e-3; `decay` is AdamW's."""
    each, count = jax.tree_util.tree_map, state["count"] + 1
    first = each(lambda m, g: 0.9 * m + 0.1 * g, state["first"], gradient)
    second = each(lambda v, g: 0.999 * v + 0.001 * g * g, state["second"], gradient)
    to_first, to_second = 1 / (1 - 0.9 ** count), 1 / (1 - 0.999 ** count)
    parameters = each(lambda p, m, v: p * (1 - 1e-3 * decay) - 1e-3 * (m * to_first) / (jax.numpy.sqrt(v * to_second) + 1e-8),
                      state["parameters"], first, second)
    return dict(parameters=parameters, first=first, second=second, count=count)


def steps_of(given, parameters, rows):
    """How many steps make a window: of members that have so many parameters, each over so many rows."""
    flops = 6.0 * parameters * rows * given.members
    return LEAST_STEPS if given.device == "cpu" else max(LEAST_STEPS, min(MOST_STEPS, int(WINDOW_FLOPS / flops)))


def window_of(jax, model, data, members, steps, parameters_expected):
    """A compiled function of the members' state that makes `steps` steps, and the first state. `data`: arrays that all members read."""
    def step(data, state):
        key, own = jax.random.split(state["key"])
        (loss, statistics), gradient = jax.value_and_grad(model.loss, has_aux=True)(state["parameters"], state["statistics"], own, data)
        return dict(model.update(state, gradient), key=key, statistics=statistics), loss

    def window(data, state):
        one = lambda state: step(data, state)
        return jax.lax.scan(lambda state, _: (jax.vmap(one) if members > 1 else one)(state), state, None, length=steps)

    def start(key):
        parameters, statistics = model.initial(key)
        zeros = lambda: jax.tree_util.tree_map(jax.numpy.zeros_like, parameters)
        return dict(key=key, parameters=parameters, statistics=statistics, first=zeros(), second=zeros(), count=jax.numpy.zeros(()))

    key = jax.random.key(0)
    state = jax.vmap(start)(jax.random.split(key, members)) if members > 1 else start(key)
    count = sum(math.prod(leaf.shape) for leaf in jax.tree_util.tree_leaves(state["parameters"])) // members
    if count != parameters_expected:
        raise ValueError(f"the model has {count} parameters instead of {parameters_expected}")
    run = jax.jit(window, donate_argnums=1)
    return lambda state: run(data, state), state


def measured(jax, given, build, steps):
    """The figures of a row; build(jax) gives the window and the first state."""
    begin = time.perf_counter()
    with turn(alone=False), deadline(given.compile_seconds, "building the step"):
        window, state = build(jax)
        state, losses = window(state)
        losses.block_until_ready()
    built, times = time.perf_counter() - begin, []
    with turn(alone=True):
        begin = time.perf_counter()
        while len(times) < LEAST_WINDOWS or time.perf_counter() - begin < given.seconds:
            start = time.perf_counter()
            state, losses = window(state)
            losses.block_until_ready()
            times.append(1000 * (time.perf_counter() - start) / steps)
    if not bool(jax.numpy.isfinite(losses).all()):
        raise ValueError("a loss is not finite")
    times.sort()
    pick = lambda quarter: round(times[quarter * len(times) // 4], 5)
    return dict(build_seconds=round(built, 2), ms=pick(2), low=pick(1), high=pick(3), windows=len(times), steps_per_window=steps)


def ready_jax(given):
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ["JAX_PLATFORMS"] = given.device
    try:
        import jax
    except ImportError:
        raise ImportError(f"{sys.executable} has no jax; install jax[cuda12] (on a CPU: jax) for it") from None
    jax.config.update("jax_default_prng_impl", "rbg")
    if given.precision in ("fp32", "tf32"):
        jax.config.update("jax_default_matmul_precision", "highest" if given.precision == "fp32" else "tensorfloat32")
    return jax


def report_jax(given, name, problem, figures):
    """Prints the row of `figures(jax)`, or why there is none, `problem` first; the exit status."""
    members = "" if given.members == 1 else f"-k{given.members}"
    row = dict(name=f"{name}-b{given.batch}{members}", peer="jax", precision=given.precision, device=given.device)
    try:
        if problem:
            raise ValueError(problem)
        jax = ready_jax(given)
        row["versions"] = dict(jax=jax.__version__)
        row.update(figures(jax))
    except Exception as error:  # that it cannot be used is a result, too
        row["error"] = f"{type(error).__name__}: {error}"[:300]
    print(json.dumps(row), flush=True)
    return 1 if "error" in row else 0
