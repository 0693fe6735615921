"""loader-wait: a single worker computes spectra more slowly than the GPU learns from them."""
import itertools

import numpy
import torch
from torch.utils.data import DataLoader, Dataset
from patient import CLASSES, Case, Training, network

WINDOW = 1024
FEATURES = WINDOW // 2


class Spectra(Dataset):
    """Item i is a whole batch: stretches of a long signal, windowed, transformed, on a logarithmic scale."""

    def __init__(self, rows, batches):
        self.rows, self.batches = rows, batches
        self.signal = numpy.random.default_rng(3).standard_normal(1 << 20).astype(numpy.float32)

    def __len__(self):
        return self.batches

    def __getitem__(self, index):
        generator = numpy.random.default_rng(index)
        begins = generator.integers(len(self.signal) - WINDOW, size=(self.rows, 1))
        stretches = self.signal[begins + numpy.arange(WINDOW)] * numpy.hanning(WINDOW).astype(numpy.float32)
        loudness = numpy.log1p(numpy.abs(numpy.fft.rfft(stretches))[:, :FEATURES])
        return torch.from_numpy(loudness.astype(numpy.float32)), torch.from_numpy(generator.integers(CLASSES, size=self.rows))


def main():
    case = Case(rows=1536, width=4096, blocks=5)
    torch.set_num_threads(1)  # the workers' work is numpy's; more threads would only get in their way
    training = Training(case, network(case, features=FEATURES))
    workers = 1 if not case.cured else 2 if case.dry else 10
    loader = DataLoader(Spectra(case.rows, case.steps + 3), batch_size=None, num_workers=workers, pin_memory=not case.dry)
    batches = iter(loader)

    def learn(x, y):
        return training.step(x.to(case.device, non_blocking=True), y.to(case.device, non_blocking=True))

    for x, y in itertools.islice(batches, 3):
        learn(x, y)
    with case.stopwatch():
        for x, y in batches:  # <- illness
            loss = learn(x, y)
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
