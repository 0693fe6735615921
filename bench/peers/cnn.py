#!/usr/bin/env python3
"""PyTorch opponents of the network for images: one JSON row per mode on standard output.

    cnn.py --device cpu  --size 32x32 --colour colour --batch 128 --threads 2
    cnn.py --device cuda --size 128x128 --colour colour --modes graph,compile+graph

The step is the one Millrace runs: random rows of resident images of bytes, convolutions in channels-last order with max pooling, dropout,
two dense layers, cross-entropy, backward, Adam.
"""
import argparse
import sys

from command import add_options, parsed, run, step_of

IMAGES, BYTES, CLASSES = 54000, 512 << 20, 10


def widths(text):
    found = tuple(int(word) for word in text.split(","))
    if min(found) < 1:
        raise ValueError("channels are positive")
    return found


def size(text):
    width, height = (int(word) for word in text.split("x"))
    if min(width, height) < 1:
        raise ValueError("sides are positive")
    return width, height


def arguments():
    parser = argparse.ArgumentParser(description="times the network for images in PyTorch")
    add_options(parser)
    parser.add_argument("--preset", choices=("base", "debug"), default="base")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--members", type=int, default=1, choices=(1,), help="there is no form with several")
    parser.add_argument("--size", type=size, default=(28, 28), help="width x height")
    parser.add_argument("--colour", choices=("auto", "grey", "colour"), default="auto")
    parser.add_argument("--channels", type=widths, help="of the convolutions, with commas; default: the preset's")
    parser.add_argument("--kernel", type=int, default=3)
    parser.add_argument("--pool", type=int, default=2)
    parser.add_argument("--hidden", type=int, help="default: the preset's")
    parser.add_argument("--dropout", type=float, default=0.25)
    given = parsed(parser)
    given.modes = given.modes or ("eager" if given.device == "cpu" else "eager,graph,compile+graph")
    given.channels = given.channels or ((32, 64) if given.preset == "base" else (8, 16))
    given.hidden = given.hidden or (128 if given.preset == "base" else 32)
    if given.batch < 1:
        parser.error("--batch must be positive")
    return given


def network(given, shape):
    """The layers of Millrace's cnn: each convolution is pooled behind its activation, which maxima and ReLU may swap."""
    import torch
    height, width, last = shape
    layers = []
    for channels in given.channels:
        layers += [torch.nn.Conv2d(last, channels, given.kernel, padding=given.kernel // 2), torch.nn.ReLU(), torch.nn.MaxPool2d(given.pool)]
        height, width, last = height // given.pool, width // given.pool, channels
    return torch.nn.Sequential(*layers, torch.nn.Dropout(given.dropout), torch.nn.Flatten(), torch.nn.Linear(last * height * width, given.hidden),
                               torch.nn.ReLU(), torch.nn.Dropout(given.dropout), torch.nn.Linear(given.hidden, CLASSES))


def training(given, compiled):
    """A function that makes one update."""
    import torch
    from timing import compile_options, operands
    torch.manual_seed(0)
    operand, rounded = operands(given.precision)
    width, height = given.size
    shape = (height, width, 3 if given.colour == "colour" else 1)
    count = max(given.batch, min(IMAGES, BYTES // (height * width * shape[2])))
    images = torch.randint(0, 256, (count, *shape), dtype=torch.uint8, device=given.device)
    labels = torch.randint(0, CLASSES, (count,), device=given.device)
    model = network(given, shape).to(given.device, memory_format=torch.channels_last)

    def loss_of(pixels, answers):
        # Permuting rows of pixels gives channels-last maps without a copy.
        x = ((pixels.float() / 255 - 0.286) / 0.353).permute(0, 3, 1, 2)
        with torch.autocast(given.device, dtype=operand, enabled=rounded):
            logits = model(x)
        return torch.nn.functional.cross_entropy(logits.float(), answers)

    objective = torch.compile(loss_of, **compile_options()) if compiled else loss_of
    options = dict(fused=True, capturable=True) if given.device == "cuda" else {}
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, **options)

    def step():
        rows = torch.randint(0, count, (given.batch,), device=given.device)
        loss = objective(images[rows], labels[rows])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


def main():
    given = arguments()
    return run(given, "cnn.py", f"cnn-{given.size[0]}x{given.size[1]}-b{given.batch}", step_of(training, given))


if __name__ == "__main__":
    sys.exit(main())
