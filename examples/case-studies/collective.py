"""Case study: a collective of small networks (report 3). Experts, an encoder, analysts that also see the picture, and a head.

    python3 collective.py [steps] [cured-as-claimed | cured] [--cpu-dry]

(nothing)          batches of 32; some hundred kernels of a few microseconds, and five figures read on the host in every step
cured-as-claimed   the report's proposal: batches of 128, nothing else changed
cured              batches of 32 as before; the step is one CUDA graph, and the figures are added up on the GPU
"""
import argparse
import time

import torch
from torch import nn

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
device = "cpu" if given.cpu_dry else "cuda"
BATCH = 128 if mode == "cured-as-claimed" else 32  # <- blamed
IMAGES = 256 if given.cpu_dry else 54000
steps = int(counts[0]) if counts else 3 if given.cpu_dry else {"sick": 1500, "cured-as-claimed": 1500, "cured": 12000}[mode]
torch.manual_seed(13)


def member(inputs, first, second, outputs):
    return nn.Sequential(nn.Linear(inputs, first), nn.BatchNorm1d(first), nn.ReLU(), nn.Dropout(0.2),
                         nn.Linear(first, second), nn.BatchNorm1d(second), nn.ReLU(), nn.Linear(second, outputs))


class Collective(nn.Module):
    """559,738 parameters, as in the report's debug setting."""

    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(member(784, 128, 64, 32) for _ in range(2))
        self.encoder = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 16))
        self.analysts = nn.ModuleList(member(800, 64, 32, 16) for _ in range(6))
        self.head = nn.Sequential(nn.Linear(96, 96), nn.ReLU(), nn.Dropout(0.2), nn.Linear(96, 10))

    def forward(self, x):
        opinions = self.encoder(torch.cat([expert(x) for expert in self.experts], 1))
        view = torch.cat([x, opinions], 1)
        return self.head(torch.cat([analyst(view) for analyst in self.analysts], 1))


model = Collective().to(device)
assert sum(parameter.numel() for parameter in model.parameters()) == 559738
graph_wants = {"fused": True, "capturable": True} if mode == "cured" and not given.cpu_dry else {}
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, **graph_wants)
images = torch.randint(256, (IMAGES, 784), dtype=torch.uint8, device=device)
labels = torch.randint(10, (IMAGES,), device=device)
totals = torch.zeros(5, device=device)
history = [0.0] * 5


def learn():
    """One step; what the program likes to know of it, on the device: loss, its three parts, the share of right answers."""
    rows = torch.randint(IMAGES, (BATCH,), device=device)
    x, y = (images[rows].float() / 255 - 0.286) / 0.353, labels[rows]
    guess = model(x)
    prediction = nn.functional.cross_entropy(guess, y)
    experts_alike, analysts_alike = torch.zeros_like(prediction), torch.zeros_like(prediction)  # off in the report's setting
    loss = prediction + 0.01 * experts_alike + 0.01 * analysts_alike
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    right = (guess.argmax(1) == y).float().mean()
    return torch.stack([loss.detach(), prediction.detach(), experts_alike, analysts_alike, right])


def read_each_step():
    figures = learn()  # <- illness
    for position in range(5):
        history[position] += figures[position].item()


def add_on_device():
    totals.add_(learn())


def captured(function):
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(5):
            function()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph.replay


def now():
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


step_once = read_each_step if mode != "cured" else add_on_device if given.cpu_dry else captured(add_on_device)
for _ in range(3):
    step_once()
history[:] = [0.0] * 5
totals.zero_()
begin = now()
for _ in range(steps):
    step_once()
seconds = now() - begin
if mode == "cured":
    history[:] = totals.tolist()
print(f"steps/s {steps / seconds:.2f}")
print(f"samples/s {steps * BATCH / seconds:.1f}")
print(f"loss {history[0] / steps:.4f}, {100 * history[4] / steps:.1f} % right")
