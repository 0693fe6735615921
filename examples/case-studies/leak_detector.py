"""Case study: leaks by their sound (report 4). A small CNN judges spectra of 64 bands; 80 of them come from one recording.

    python3 leak_detector.py [steps] [cured-as-claimed | cured] [--cpu-dry]

(nothing)          batches of 5632 from four workers; for each 128-byte spectrum a worker reads the whole recording it is part of
cured-as-claimed   the report's proposal: batches of 8192, eight workers, twice the prefetch
cured              all spectra lie on the GPU, a batch is a gather; no workers
"""
import argparse
import collections
import itertools
import os
import tempfile
import time

import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BANDS, SPECTRA = 64, 80  # per spectrum, per recording
BLOCK = BANDS * SPECTRA * 2
KEPT = 1024  # recordings that a worker remembers


class Recordings(Dataset):
    """Spectrum i belongs to recording i // SPECTRA. Under a shuffle over all of them a small memory almost never helps."""

    def __init__(self, path, count):
        self.path, self.count, self.file, self.memory = path, count, None, collections.OrderedDict()

    def __len__(self):
        return self.count * SPECTRA

    def recording(self, number):
        if number not in self.memory:
            if self.file is None:
                self.file = os.open(self.path, os.O_RDONLY)
            block = os.pread(self.file, BLOCK, number * BLOCK)
            self.memory[number] = numpy.frombuffer(block, numpy.float16).reshape(SPECTRA, BANDS)
            if len(self.memory) > KEPT:
                self.memory.popitem(last=False)
        self.memory.move_to_end(number)
        return self.memory[number]

    def __getitem__(self, index):
        return torch.from_numpy(self.recording(index // SPECTRA)[index % SPECTRA].copy()), index // SPECTRA % 2


class Shuffled:
    """Batches of random indices, drawn one by one."""

    def __init__(self, spectra, batch, count):
        self.spectra, self.batch, self.count = spectra, batch, count

    def __len__(self):
        return self.count

    def __iter__(self):
        for _ in range(self.count):
            yield torch.randint(self.spectra, (self.batch,)).tolist()


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d((2, 1)),
            nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(), nn.MaxPool2d((2, 1)),
            nn.Flatten(), nn.Dropout(0.25), nn.Linear(2048, 256), nn.ReLU())
        self.kind, self.leak = nn.Linear(256, 2), nn.Linear(256, 1)

    def forward(self, x):
        x = self.body(x.view(-1, 1, BANDS, 1))
        return self.kind(x), self.leak(x).squeeze(1)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="number of steps; cured-as-claimed or cured")
    parser.add_argument("--cpu-dry", action="store_true", help="three tiny steps on the CPU")
    given = parser.parse_args()
    mode = next((word for word in given.words if word in ("cured", "cured-as-claimed")), "sick")
    counts = [word for word in given.words if word != mode]
    if len(counts) > 1 or not all(word.isdigit() and int(word) > 0 for word in counts):
        parser.error("expected a number of steps and 'cured' or 'cured-as-claimed'")
    if not given.cpu_dry and not torch.cuda.is_available():
        parser.error("no CUDA GPU here; --cpu-dry checks the program without one")
    steps = int(counts[0]) if counts else 3 if given.cpu_dry else {"sick": 400, "cured-as-claimed": 400, "cured": 3000}[mode]
    return mode, steps, given.cpu_dry


def main():
    mode, steps, dry = arguments()
    device, count = ("cpu", 30) if dry else ("cuda", 20000)
    batch, workers, prefetch = (8192, 8, 16) if mode == "cured-as-claimed" else (5632, 4, 8)  # <- blamed
    if dry:
        batch, workers = batch // 512, workers // 4
    torch.manual_seed(14)
    spectra = numpy.random.default_rng(14).standard_normal((count, SPECTRA, BANDS), numpy.float32).astype(numpy.float16)
    model = Detector().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **({} if dry else {"fused": True}))
    precision = torch.autocast(device, torch.bfloat16, enabled=not dry)

    def learn(x, y):
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        with precision:
            kind, leak = model(x.float())
        heard = nn.functional.binary_cross_entropy_with_logits(leak.float(), y.float())
        loss = nn.functional.cross_entropy(kind.float(), y) + 0.5 * heard
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def gathered():
        resident = torch.from_numpy(spectra).view(-1, BANDS).to(device)
        for _ in range(steps + 3):
            rows = torch.randint(len(resident), (batch,), device=device)
            yield resident[rows], rows // SPECTRA % 2

    with tempfile.NamedTemporaryFile() as file:
        if mode == "cured":
            batches = gathered()
        else:
            spectra.tofile(file.name)
            order = Shuffled(count * SPECTRA, batch, steps + 3)
            batches = iter(DataLoader(Recordings(file.name, count), batch_sampler=order, num_workers=workers,
                                      prefetch_factor=prefetch, pin_memory=not dry))
        for x, y in itertools.islice(batches, 3):
            learn(x, y)
        if not dry:
            torch.cuda.synchronize()
        begin = time.perf_counter()
        for x, y in batches:  # <- illness
            loss = learn(x, y)
        if not dry:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
    print(f"steps/s {steps / seconds:.2f}")
    print(f"samples/s {steps * batch / seconds:.1f}")
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
