#!/usr/bin/env python3
"""Trains a language model in PyTorch on a text, from given weights; one JSON row per weights file on standard output.

    language_curve.py --device cuda --text data/gcide --weights a/model.safetensors,b/model.safetensors --steps 5000 --batch 256

The text is read as docs/text.md says (words). An epoch takes every window once, shifted anew; windows that fill no batch are left out.
AdamW with lr 1e-3 after 100 steps of warm-up, gradients clipped to norm 1. The perplexity is that of the last weights over
all of valid.txt.
"""
import argparse
import collections
import json
import math
import pathlib
import sys

from command import add_options, parsed, ready
from language_shape import LENGTH, PRESETS, VOCABULARY

UNKNOWN, SPECIAL = 1, 4  # of the words' numbers: <unk>, and how many are no words
NAMES = (b"<pad>", b"<unk>", b"<bos>", b"<eos>")


def words(path):
    """bytes.lower() and split() touch ASCII alone, as the words do."""
    return path.read_bytes().lower().split()


def numbers(folder, vocabulary=VOCABULARY):
    """(training, validation) lists of word numbers."""
    train, valid = words(folder / "train.txt"), words(folder / "valid.txt")
    counted = collections.Counter(word for word in train if word not in NAMES)  # keeps the order of first occurrence
    known = {word: SPECIAL + i for i, (word, _) in enumerate(counted.most_common(vocabulary - SPECIAL))}
    return tuple([known.get(word, UNKNOWN) for word in part] for part in (train, valid))


def arguments():
    parser = argparse.ArgumentParser(description="trains a language model in PyTorch from given weights")
    add_options(parser, ("bf16", "fp32"))
    parser.add_argument("--text", type=pathlib.Path, required=True, help="folder with train.txt and valid.txt")
    parser.add_argument("--weights", required=True, help="safetensors files to start from, comma-separated")
    parser.add_argument("--preset", choices=tuple(PRESETS), default="transformer")
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--batch", type=int, default=256)
    given = parsed(parser)
    if given.steps < 1 or given.batch < 1:
        parser.error("--steps and --batch must be positive")
    return given


def rate(step, warmup=100, base=1e-3):
    """Of step 1, 2, ...: as ops/step does."""
    return base * min(1, step / warmup)


class Training:
    """One model, one captured step; `start` puts it back to given weights."""

    def __init__(self, given):
        import torch
        from language_model import Language
        from timing import captured, compile_options
        self.given = given
        self.model = Language(**PRESETS[given.preset]).to(given.device)
        cuda = given.device == "cuda"
        self.forward = torch.compile(self.model, **compile_options()) if cuda else self.model
        self.rate = torch.tensor(1e-3, device=given.device)
        options = dict(fused=True, capturable=True, lr=self.rate) if cuda else dict(lr=1e-3)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), weight_decay=0.01, **options)
        self.window = torch.zeros((given.batch, LENGTH + 1), dtype=torch.long, device=given.device)
        self.loss = torch.zeros((), device=given.device)
        self.step = captured(self.update) if cuda else self.update

    def logits(self, tokens, forward):
        import torch
        with torch.autocast(self.given.device, dtype=torch.bfloat16, enabled=self.given.precision == "bf16"):
            return forward(tokens).float()

    def update(self):
        import torch
        from torch.nn import functional as F
        logits = self.logits(self.window[:, :-1], self.forward)
        loss = F.cross_entropy(logits.view(-1, VOCABULARY), self.window[:, 1:].reshape(-1))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        if self.model.k:
            self.model.choose()
        self.optimizer.step()
        self.loss.copy_(loss.detach())

    def start(self, weights):
        import torch
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(weights[name])
        for state in self.optimizer.state.values():
            for value in state.values():
                value.zero_()

    def train(self, stream, steps):
        """Mean loss of the last hundred steps."""
        import torch
        batch, places = self.given.batch, torch.arange(LENGTH + 1, device=stream.device)
        order, late = torch.empty(0, dtype=torch.long, device=stream.device), []
        for step in range(1, steps + 1):
            if len(order) < batch:
                shift = torch.randint(0, LENGTH, ()).item()
                order = torch.randperm((len(stream) - 1 - shift) // LENGTH, device=stream.device) * LENGTH + shift
            first, order = order[:batch], order[batch:]
            self.window.copy_(stream[first[:, None] + places])
            if self.given.device == "cuda":
                self.rate.fill_(rate(step))
            else:
                self.optimizer.param_groups[0]["lr"] = rate(step)
            self.step()
            if step > steps - 100:
                late.append(self.loss.clone())
        return torch.stack(late).mean().item()

    def score(self, stream):
        """Mean loss over every token but the first."""
        import torch
        from torch.nn import functional as F
        total = 0.0
        with torch.no_grad():
            full = (len(stream) - 1) // LENGTH
            for begin in range(0, full, 256):
                first = torch.arange(begin, min(full, begin + 256), device=stream.device)[:, None] * LENGTH
                window = stream[first + torch.arange(LENGTH + 1, device=stream.device)]
                logits = self.logits(window[:, :-1], self.model)
                total += F.cross_entropy(logits.view(-1, VOCABULARY), window[:, 1:].reshape(-1), reduction="sum").item()
            rest = stream[full * LENGTH:]
            if len(rest) > 1:  # positions behind the end see it and change nothing before it
                padded = F.pad(rest[:-1], (0, LENGTH + 1 - len(rest)))
                logits = self.logits(padded[None], self.model)[0, :len(rest) - 1]
                total += F.cross_entropy(logits, rest[1:], reduction="sum").item()
        return total / (len(stream) - 1)


def main():
    given = arguments()
    if not ready(given, "language_curve.py"):
        return 2
    import torch
    from pair_files import tensors
    train, valid = (torch.tensor(part, device=given.device) for part in numbers(given.text))
    if len(train) < given.batch * LENGTH + 2 * LENGTH:
        print(f"language_curve.py: {len(train)} words do not fill a batch of {given.batch} windows of {LENGTH}", file=sys.stderr)
        return 2
    training = Training(given)
    for number, path in enumerate(given.weights.split(",")):
        torch.manual_seed(number)
        training.start(tensors(path))
        loss = training.train(train, given.steps)
        validation = training.score(valid)
        print(json.dumps(dict(weights=path, train_loss=loss, validation_loss=validation, perplexity=math.exp(validation), tokens=len(train),
                              validation_tokens=len(valid), unknown=(valid == UNKNOWN).double().mean().item(), torch=torch.__version__)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
