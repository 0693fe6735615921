#!/usr/bin/env python3
"""The opponent of `millrace sweep` on a CPU: a study of Optuna whose trials train collective debug in PyTorch, in one process.

    study.py --study STUDY.toml --data data/garments --trials 64 --epochs 3 --batch 128 --threads 2

Sampler random, no pruning, the study in memory. The space is read from the [space] of the study's file. An epoch is one pass over the training
images in a new order, a shorter last batch included, and then validation. `--form fastest` times the forms below for a few steps each and takes
the fastest; that is not in `seconds`, nor are loading PyTorch and the images.

A form is words joined by '+': plain or stacked (members of equal shape stacked by hand), foreach (Adam over lists of tensors), jobs (as many
trials side by side as there are threads, each on one thread: n_jobs of Optuna).
Prints one JSON row. Exit status: 2 where something is missing or wrong.
"""
import argparse
import itertools
import json
import os
import pathlib
import struct
import sys
import threading
import time
import tomllib

from command import ready

FORMS = ["+".join(words) for words in (tuple(filter(None, each)) for each in
                                       itertools.product(("plain", "stacked"), ("", "foreach"), ("", "jobs")))]
KNOWN = ("optim.lr", "optim.weight_decay", "optim.beta1", "optim.beta2", "optim.eps", "optim.clip_norm")
DEFAULTS = {"optim.lr": 1e-3, "optim.weight_decay": 0.0, "optim.beta1": 0.9, "optim.beta2": 0.999, "optim.eps": 1e-8, "optim.clip_norm": 0.0}
OTHER_SHARE = 0.25  # of the trials take the number behind `or`, as in Millrace
SHORT_STEPS, ROUNDS = 10, 3  # with which the forms are compared


class Wrong(Exception):
    """An input that cannot be used, with what would be right."""


def arguments():
    parser = argparse.ArgumentParser(description="a study of Optuna and PyTorch on the CPU")
    parser.add_argument("--study", type=pathlib.Path, required=True, help="file of `millrace sweep`; its [space] is read")
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder with the four IDX files")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--form", choices=("fastest", *FORMS), default="fastest")
    given = parser.parse_args()
    if min(given.trials, given.epochs, given.threads) < 1 or given.batch < 2:
        parser.error("--trials, --epochs and --threads must be positive, --batch at least 2")
    given.device = "cpu"
    return given


def read_space(path):
    """{key: description} as `millrace sweep` reads it; log and uniform ranges, alone or with `or`."""
    try:
        space = tomllib.loads(path.read_text())["space"]
    except (OSError, KeyError, tomllib.TOMLDecodeError) as error:
        raise Wrong(f"{path}: no [space] can be read ({error})") from error
    for key, description in space.items():
        if key not in KNOWN:
            raise Wrong(f"{path}: {key} is not searched here; {', '.join(KNOWN)} are")
        if len({"log", "uniform"} & set(description)) != 1 or set(description) - {"log", "uniform", "or"}:
            raise Wrong(f"{path}: {key} must be a log or uniform range, alone or with `or`")
    return space


def suggested(trial, space):
    """The settings of a trial, all of KNOWN."""
    settings = dict(DEFAULTS)
    for key, description in space.items():
        if "or" in description and trial.suggest_float(f"{key}:or", 0, 1) < OTHER_SHARE:
            settings[key] = float(description["or"])
        else:
            kind = "log" if "log" in description else "uniform"
            settings[key] = trial.suggest_float(key, *description[kind], log=kind == "log")
    return settings


def read_idx(path):
    """An IDX file of bytes as a tensor."""
    import torch
    try:
        content = path.read_bytes()
        extents = struct.unpack_from(f">{content[3]}I", content, 4)
        return torch.frombuffer(bytearray(content[4 + 4 * len(extents):]), dtype=torch.uint8).reshape(extents)
    except (OSError, IndexError, struct.error, ValueError, RuntimeError) as error:
        raise Wrong(f"{path}: no IDX file ({error}); `millrace data make garments` writes them") from error


class Images:
    """Normalised images [N, 784] and labels [N], a tenth set aside for validation as Millrace does it, though not the same ones."""

    def __init__(self, folder, batch):
        import torch
        pixels, labels = read_idx(folder / "train-images-idx3-ubyte"), read_idx(folder / "train-labels-idx1-ubyte")
        try:
            scale = json.loads((folder / "dataset.json").read_text())
            mean, deviation = scale["mean"], scale["std"]
        except (OSError, ValueError, KeyError) as error:
            raise Wrong(f"{folder}/dataset.json: mean and std cannot be read ({error})") from error
        x = (pixels.flatten(1).float() / 255 - mean) / deviation
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(42))
        validating = len(x) // 10
        pick = lambda rows: (x[rows].contiguous(), labels[rows].long())
        self.validation, self.training = pick(order[:validating]), pick(order[validating:])
        rows = len(self.training[0])
        if not validating or rows % batch == 1:
            raise Wrong(f"{len(x)} images give {validating} to validate and batches of {batch} with a last one of {rows % batch}; "
                        "BatchNorm has no variance over one row, so take another number of images")

    def short(self, rows):
        """The same with few rows."""
        few = Images.__new__(Images)
        few.training = tuple(each[:rows] for each in self.training)
        few.validation = tuple(each[:rows] for each in self.validation)
        return few


class Counts:
    """What was done, over all threads."""

    def __init__(self):
        self.trials = self.epochs = self.steps = 0
        self.lock = threading.Lock()

    def add(self, trials=0, epochs=0, steps=0):
        with self.lock:
            self.trials, self.epochs, self.steps = self.trials + trials, self.epochs + epochs, self.steps + steps


def train(images, words, settings, batch, epochs, counts, report=lambda value, epoch: None):
    """The validation accuracy after the last epoch of one model."""
    import torch
    from torch.nn import functional as F
    from model import PRESETS, Collective
    from stacked import StackedCollective
    plain = Collective(**PRESETS["debug"])
    stacked = StackedCollective([plain]) if "stacked" in words else None
    model = stacked or plain
    forward = (lambda x: stacked(x.unsqueeze(0)).squeeze(0)) if stacked else plain
    parameters = list(model.parameters())
    optimizer = torch.optim.Adam(parameters, lr=settings["optim.lr"], betas=(settings["optim.beta1"], settings["optim.beta2"]),
                                 eps=settings["optim.eps"], weight_decay=settings["optim.weight_decay"], foreach="foreach" in words)
    accuracy = 0.0
    for epoch in range(1, epochs + 1):
        model.train()
        x, labels = images.training
        rows = torch.randperm(len(x)).split(batch)
        for each in rows:
            loss = F.cross_entropy(forward(x[each]), labels[each])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            if settings["optim.clip_norm"] > 0:
                torch.nn.utils.clip_grad_norm_(parameters, settings["optim.clip_norm"])
            optimizer.step()
        model.eval()
        x, labels = images.validation
        with torch.no_grad():
            right = sum(int((forward(part).argmax(1) == truth).sum()) for part, truth in zip(x.split(500), labels.split(500)))
        accuracy = right / len(x)
        counts.add(epochs=1, steps=len(rows))
        report(accuracy, epoch)
    return accuracy


def run_study(images, space, form, trials, epochs, given, counts):
    """Seconds of the study, seconds of the processors in it, and its best value."""
    import optuna
    import torch
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    words = form.split("+")
    jobs = given.threads if "jobs" in words else 1
    torch.manual_seed(given.seed)

    def objective(trial):
        torch.set_num_threads(max(1, given.threads // jobs))  # of the thread that this job has
        value = train(images, words, suggested(trial, space), given.batch, epochs, counts, trial.report)
        counts.add(trials=1)
        return value
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=given.seed))
    begin, used = time.perf_counter(), time.process_time()
    study.optimize(objective, n_trials=trials, n_jobs=jobs)
    return time.perf_counter() - begin, time.process_time() - used, study.best_value


def milliseconds_by_form(images, space, given):
    """{form: milliseconds per step}, the best of ROUNDS short studies each, in turns."""
    short, found = images.short(SHORT_STEPS * given.batch), {}
    for _ in range(ROUNDS):
        for form in FORMS if given.threads > 1 else [form for form in FORMS if "jobs" not in form]:
            counts = Counts()
            seconds, _, _ = run_study(short, space, form, given.threads, 1, given, counts)
            found[form] = min(found.get(form, float("inf")), 1000 * seconds / counts.steps)
    return found


def main():
    given = arguments()
    if not ready(given, "study.py"):
        return 2
    try:
        import optuna
    except ImportError:
        print(f"study.py: {sys.executable} has no optuna; Debian's python3-optuna belongs to /usr/bin/python3", file=sys.stderr)
        return 2
    from timing import versions
    try:
        space, images = read_space(given.study), Images(given.data, given.batch)
    except Wrong as error:
        print(f"study.py: {error}", file=sys.stderr)
        return 2
    tried = milliseconds_by_form(images, space, given) if given.form == "fastest" else {}
    form = min(tried, key=tried.get) if tried else given.form
    counts = Counts()
    seconds, used, best = run_study(images, space, form, given.trials, given.epochs, given, counts)
    print(json.dumps(dict(trials=counts.trials, epochs=counts.epochs, steps=counts.steps, seconds=seconds, processor_seconds=used, best=best, form=form,
                          ms_by_form={each: round(ms, 3) for each, ms in tried.items()},
                          versions=dict(versions("cpu"), optuna=optuna.__version__, threads=given.threads))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
