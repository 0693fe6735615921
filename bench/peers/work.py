#!/usr/bin/env python3
"""Counts the work of one training step of the collective from its shapes: `work.py` prints the table of docs/performance/method.md."""
import math

from model import PRESETS, Collective, collective_code


def products(preset, revision="r1", inputs=784, classes=10):
    """Rows (part, count, in, out, in columns whose gradient is needed) of every Linear, in forward order."""
    shape = PRESETS[preset]
    experts, analysts, expert, analyst = shape["experts"], shape["analysts"], shape["expert"], shape["analyst"]
    opinions, votes = experts * expert[-1], analysts * analyst[-1]
    summary = opinions // 4
    rows = []

    def chain(part, count, first, needed, widths):
        for width in widths:
            rows.append((part, count, first, width, first if needed is None else needed))
            first, needed = width, None

    chain("experts", experts, inputs, 0, expert)
    chain("encoder", 1, opinions, None, (math.isqrt(opinions * summary), summary))
    chain("analysts", analysts, inputs + summary, summary, analyst)
    if revision == "r2":
        code = collective_code(analysts, analyst[-1])
        chain("analyst_encoder", 1, votes, None, (math.isqrt(votes * code), code))
        votes = code
    chain("head", 1, votes, None, (max(votes, 2 * classes), classes))
    return rows


def work(preset, batch, revision="r1"):
    """Multiply-adds and FLOPs per sample and step, and bytes per step, by the rules stated in docs/performance/method.md."""
    rows = products(preset, revision)
    model = Collective(**PRESETS[preset], revision=revision)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    forward = sum(count * fan_in * out for _, count, fan_in, out, _ in rows)
    data_gradient = sum(count * needed * out for _, count, _, out, needed in rows)
    by_autograd = sum(count * (fan_in if needed else 0) * out for _, count, fan_in, out, needed in rows)
    features = sum(count * out for _, count, _, out, _ in rows)
    return dict(parameters=parameters, forward_macs=forward, flop_sample=2 * (2 * forward + data_gradient),
                flop_sample_autograd=2 * (2 * forward + by_autograd), flop_step=batch * 2 * (2 * forward + data_gradient),
                adam_bytes=28 * parameters, state_bytes=16 * parameters, activation_bytes=4 * features * batch, features=features)


if __name__ == "__main__":
    for preset, batch in (("debug", 32), ("debug", 128), ("phase1", 256)):
        for revision in ("r1", "r2"):
            print(preset, revision, batch, work(preset, batch, revision))
