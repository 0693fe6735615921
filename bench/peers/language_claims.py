#!/usr/bin/env python3
"""What the guessed bottlenecks of a language model's training cost in PyTorch: one JSON row each, the step with and without it.

    language_claims.py --device cuda
    language_claims.py --device cpu --batch 4 --seconds 0.2        to try it out

The step is the tree's of 13 nodes with fp32 logits, as its authors wrote it, eager, autocast to bf16 on a GPU. Each claim changes one thing.
"""
import argparse
import json
import sys

from command import add_options, parsed, ready
from language_shape import LENGTH, PRESETS, VOCABULARY


def arguments():
    parser = argparse.ArgumentParser(description="costs of guessed bottlenecks in PyTorch")
    add_options(parser, ("bf16", "fp32"))
    parser.add_argument("--batch", type=int, default=256)
    given = parsed(parser)
    if given.batch < 1:
        parser.error("--batch must be positive")
    return given


class Step:
    """One training step; every option is a claim."""

    def __init__(self, given, preset="k1", batch=None, read_loss=False, mask=None, choice="device", clip=True, fused=True, head=True):
        import torch
        from language_model import Language
        torch.manual_seed(0)
        self.given, self.read_loss, self.mask, self.choice, self.clip, self.head = given, read_loss, mask, choice, clip, head
        self.batch = batch or given.batch
        self.model = Language(**PRESETS[preset]).to(given.device)
        self.stream = torch.randint(0, VOCABULARY, (2_000_000,), device=given.device)
        self.places = torch.arange(LENGTH + 1, device=given.device)
        options = dict(fused=True) if fused and given.device == "cuda" else dict(foreach=True)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, weight_decay=0.01, **options)

    def forward(self, tokens):
        import torch
        if self.mask == "rebuilt":
            torch.triu(torch.ones(LENGTH, LENGTH, device=tokens.device), diagonal=1).bool()
        with torch.autocast(self.given.device, dtype=torch.bfloat16, enabled=self.given.precision == "bf16"):
            if self.head:
                return self.model(tokens)
            head, self.model.head = self.model.head, torch.nn.Identity()
            try:
                return self.model(tokens)
            finally:
                self.model.head = head

    def host_choice(self):
        """The authors': a host read of every tensor's norm, a sort of Python numbers."""
        size = [sum(p.grad.norm().item() for p in node.parameters()) for node in self.model.nodes]
        keep = set(sorted(range(len(size)), key=lambda i: -size[i])[:self.model.k])
        for i, node in enumerate(self.model.nodes):
            if i not in keep:
                for p in node.parameters():
                    p.grad.zero_()

    def step(self):
        import torch
        from torch.nn import functional as F
        first = torch.randint(0, len(self.stream) - LENGTH - 1, (self.batch, 1), device=self.stream.device)
        window = self.stream[first + self.places]
        out = self.forward(window[:, :-1])
        loss = F.cross_entropy(out.view(-1, VOCABULARY).float(), window[:, 1:].reshape(-1)) if self.head else out.float().square().mean()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if not self.head:
            for p in self.model.head.parameters():
                p.grad = torch.zeros_like(p)
        if self.clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        if self.model.k and self.choice == "device":
            self.model.choose()
        elif self.model.k and self.choice == "host":
            self.host_choice()
        self.optimizer.step()
        if self.read_loss:
            loss.item()


def main():
    given = arguments()
    if not ready(given, "language_claims.py"):
        return 2
    import torch
    from timing import captured, compile_options, measure
    plain = Step(given)
    milliseconds = lambda run: measure(run.step, given.device, given.seconds)["ms"]
    milliseconds(plain)  # the first steps of a process are slower

    def row(claim, what, before, changed, **more):
        print(json.dumps(dict(claim=claim, what=what, ms=round(before, 3), changed_ms=round(changed, 3), ratio=round(changed / before, 3), **more)),
              flush=True)

    def paired(claim, what, **options):
        """The changed step between two measurements of the plain one: eager steps wander by a tenth."""
        run = Step(given, **options)
        before, changed, after = milliseconds(plain), milliseconds(run), milliseconds(plain)
        batch = options.get("batch", given.batch)
        more = dict(windows_per_second=round(1000 * batch / changed), before_windows_per_second=round(2000 * given.batch / (before + after)))
        row(claim, what, (before + after) / 2, changed, spread=round(abs(after - before) / before, 3), **(more if "batch" in options else {}))

    paired(1, "loss.item() in every step", read_loss=True)
    paired(2, "mask built in every forward pass", mask="rebuilt")
    paired(3, "156 host reads of norms and a sort instead of a choice on the device", choice="host")
    paired(4, "no clipping", clip=False)
    run = Step(given)
    with torch.no_grad():
        tokens = run.stream[:256 * LENGTH].view(256, LENGTH)
        small, large = (measure(lambda: run.forward(tokens[:n]), given.device, given.seconds)["ms"] for n in (32, 256))
    row(5, "evaluation in batches of 32 instead of 256, per 256 windows", large, 8 * small)
    torch.backends.cudnn.benchmark = True
    on = milliseconds(plain)
    torch.backends.cudnn.benchmark = False
    row(6, "cudnn.benchmark", milliseconds(plain), on)
    for batch in sorted({32, 128} - {given.batch}):
        paired(7, f"batch {batch} instead of {given.batch}", batch=batch)
    paired(0, "optimizer not fused", fused=False)
    paired(0, "without the vocabulary head and its loss", head=False)
    if given.device == "cuda":
        begin, end, run = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True), Step(given)
        for _ in range(5):
            run.step()
        torch.cuda.synchronize()
        import time
        clock = time.perf_counter()
        begin.record()
        for _ in range(20):
            run.step()
        end.record()
        issued = 1000 * (time.perf_counter() - clock) / 20  # before the device has ended
        end.synchronize()
        row(8, "clock read before the device has ended, per step", begin.elapsed_time(end) / 20, issued)
        eager = milliseconds(plain)
        row(9, "the whole step as one graph", eager, measure(captured(graphed(given).step), given.device, given.seconds)["ms"])
        compiled = graphed(given)
        compiled.model.forward = torch.compile(compiled.model.forward, **compile_options())
        row(9, "compiled, as one graph", eager, measure(captured(compiled.step), given.device, given.seconds)["ms"])
    return 0


def graphed(given):
    """A step that a graph may capture: the optimizer's counts stay on the device."""
    import torch
    run = Step(given)
    run.optimizer = torch.optim.AdamW(run.model.parameters(), lr=1e-3, weight_decay=0.01, fused=True, capturable=True)
    return run


if __name__ == "__main__":
    sys.exit(main())
