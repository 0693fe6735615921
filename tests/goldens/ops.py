"""The operator goldens: forward value, and the gradients for a given upstream gradient, at odd sizes. Computed in float64."""
import numpy as np
import torch
from torch.nn import functional as F

from cases import diversity

ACTIVATIONS = dict(relu=torch.relu, gelu=F.gelu, tanh=torch.tanh, sigmoid=torch.sigmoid)


class Recorder:
    """Collects `<op>/<case>/<tensor>` entries; inputs are rounded to float32 before anything is computed from them."""

    def __init__(self, seed):
        self.random = np.random.RandomState(seed)
        self.tensors = {}

    def draw(self, *shape, shift=0.0, scale=1.0):
        return (shift + scale * self.random.standard_normal(shape)).astype(np.float32)

    def record(self, case, function, inputs, constants=None, scalar=False):
        """Calls function(*inputs) on leaves and stores inputs, y, upstream dy (not for a scalar) and d<input> of each."""
        leaves = {name: torch.from_numpy(value).double().requires_grad_(True) for name, value in inputs.items()}
        y = function(*leaves.values())
        upstream = torch.tensor(1.0).double() if scalar else torch.from_numpy(self.draw(*y.shape)).double()
        y.backward(upstream)
        found = dict(inputs, **(constants or {}), y=y.detach().numpy().astype(np.float32))
        if not scalar:
            found["dy"] = upstream.numpy().astype(np.float32)
        found.update({f"d{name}": leaf.grad.numpy().astype(np.float32) for name, leaf in leaves.items()})
        self.tensors.update({f"{case}/{name}": value for name, value in found.items()})


def batch_norm(recorder, rows, width):
    mean, variance = recorder.draw(width), np.abs(recorder.draw(width, shift=1.0, scale=0.2))
    given = dict(x=recorder.draw(rows, width, shift=0.7, scale=1.5), weight=recorder.draw(width, shift=1.0, scale=0.3),
                 bias=recorder.draw(width))
    for training, word in ((True, "train"), (False, "eval")):
        running = [torch.from_numpy(value).double() for value in (mean, variance)]
        case = f"batch_norm_{word}/{rows}x{width}"
        recorder.record(case, lambda x, weight, bias: F.batch_norm(x, *running, weight, bias, training, 0.1, 1e-5), given,
                        dict(running_mean=mean, running_var=variance))
        if training:
            for name, value in zip(("running_mean_after", "running_var_after"), running):
                recorder.tensors[f"{case}/{name}"] = value.numpy().astype(np.float32)


def golden(seed):
    """(tensors, metadata) of all operators."""
    recorder = Recorder(seed)
    for name, function in ACTIVATIONS.items():
        recorder.record(f"{name}/7x13", function, dict(x=recorder.draw(7, 13, scale=2.0)))
        edges = np.array([0, -0.0, 1e-6, -1e-6, 0.5, -0.5, 3, -3, 10, -10, 40, -40], np.float32)
        recorder.record(f"{name}/edges", function, dict(x=edges))
    for rows, width in ((7, 13), (5, 1), (3, 64), (1, 37)):
        recorder.record(f"layer_norm/{rows}x{width}", lambda x, weight, bias: F.layer_norm(x, (x.shape[1],), weight, bias, 1e-5),
                        dict(x=recorder.draw(rows, width, shift=0.5, scale=2.0), weight=recorder.draw(width, shift=1.0, scale=0.3),
                             bias=recorder.draw(width)))
    for rows, width in ((9, 5), (3, 17), (31, 1)):
        batch_norm(recorder, rows, width)
    for rows, inputs, outputs in ((7, 13, 5), (1, 3, 11), (17, 1, 1)):
        recorder.record(f"linear/{rows}x{inputs}x{outputs}", F.linear,
                        dict(x=recorder.draw(rows, inputs), weight=recorder.draw(outputs, inputs), bias=recorder.draw(outputs)))
    indices = recorder.random.randint(0, 6, 17).astype(np.int32)  # rows 6 to 10 are never read, others several times
    recorder.record("embedding/17of11x5", lambda weight: F.embedding(torch.from_numpy(indices).long(), weight),
                    dict(weight=recorder.draw(11, 5)), dict(indices=indices))
    for rows, width in ((7, 3), (1, 1), (13, 11)):
        recorder.record(f"mse/{rows}x{width}", F.mse_loss, dict(x=recorder.draw(rows, width), target=recorder.draw(rows, width)),
                        scalar=True)
    for case, rows, classes, scale in (("7x10", 7, 10, 1.0), ("1x3", 1, 3, 1.0), ("5x13large", 5, 13, 60.0)):
        labels = recorder.random.randint(0, classes, rows).astype(np.int32)
        recorder.record(f"cross_entropy/{case}", lambda x: F.cross_entropy(x, torch.from_numpy(labels).long()),
                        dict(x=recorder.draw(rows, classes, scale=scale)), dict(labels=labels), scalar=True)
    for members, rows, width in ((3, 7, 5), (2, 1, 3), (6, 11, 16)):
        recorder.record(f"diversity/{members}x{rows}x{width}", lambda x: diversity(list(x), 0.5),
                        dict(x=recorder.draw(members, rows, width, shift=0.3)), scalar=True)
    metadata = dict(case="ops", seed=str(seed), epsilon="1e-05", momentum="0.1", diversity_temperature="0.5",
                    zero_gradient="[]", note="mse and cross_entropy are means; gelu is the exact one (erf)")
    return recorder.tensors, metadata
