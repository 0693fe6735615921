#!/usr/bin/env python3
"""Trains the energy flow model in PyTorch on a folder of pairs; one JSON row per seed on standard output: the loss of every step.

    flow_curve.py --device cuda --data data/pairs --preset experiment --steps 200 --seeds 1,2,3
    flow_curve.py --data data/pairs --weights runs/new/checkpoints/last/model.safetensors     how tensors begin, beside those of a file

Noise and early stop are off. A seed decides the weights, the target map and the order of the pairs; an epoch's last pairs that fill no
batch are left out.
"""
import argparse
import json
import sys

from command import add_options, parsed, ready


def arguments():
    parser = argparse.ArgumentParser(description="loss curves of the energy flow model in PyTorch")
    add_options(parser, ("bf16", "fp32"))
    parser.add_argument("--data", required=True, help="folder of pairs")
    parser.add_argument("--preset", default="debug")
    parser.add_argument("--shape", type=json.loads, default={}, help="JSON object: other sizes than the preset's")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", default="1", help="comma-separated")
    parser.add_argument("--weights", help="safetensors of a model that was not trained: compare how tensors begin, train nothing")
    given = parsed(parser)
    given.seeds = [int(seed) for seed in given.seeds.split(",")]
    return given


def moments(values):
    """(mean, root mean square, entries)"""
    values = values.double()
    return values.mean().item(), values.square().mean().sqrt().item(), values.numel()


def main():
    given = arguments()
    if not ready(given, "flow_curve.py"):
        return 2
    import torch
    from flow_model import PRESETS, Cube
    from flow_training import FlowTraining
    from pair_files import tensors, training_pairs

    class Shuffled(FlowTraining):
        """Takes the pairs in an order of its own, every one once an epoch."""
        order = torch.empty(0, dtype=torch.long)

        def pairs(self):
            if len(self.order) < self.batch:
                self.order = torch.randperm(len(self.inputs))
            rows, self.order = self.order[:self.batch].to(self.inputs.device), self.order[self.batch:]
            return self.inputs[rows], self.targets[rows]

    inputs, targets = training_pairs(given.data)
    cube = Cube(**{**PRESETS[given.preset], **given.shape, "noise": 0.0, "embedding": inputs.shape[1]})
    if cube.batch > len(inputs):
        print(f"flow_curve.py: {len(inputs)} pairs do not fill a batch of {cube.batch}", file=sys.stderr)
        return 2
    make = lambda seed: Shuffled(cube, given.device, given.precision, seed=seed, pairs=(inputs, targets))
    if given.weights:
        theirs, ours = make(given.seeds[0]).model.state_dict(), tensors(given.weights)
        print(json.dumps({name: [moments(found[name]) if name in found else None for found in (ours, theirs)]
                          for name in sorted({*ours, *theirs})}))
        return 0
    for seed in given.seeds:
        run = make(seed)
        losses = torch.stack([run.step().detach() for _ in range(given.steps)])
        print(json.dumps(dict(seed=seed, losses=losses.double().tolist(), pairs=len(inputs), torch=torch.__version__)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
