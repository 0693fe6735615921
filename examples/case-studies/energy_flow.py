"""Case study: flows through a cube (report 1). A sentence vector becomes energies on a surface; each cell sends off a flow.

    python3 energy_flow.py [steps] [cured-as-claimed | cured] [--cpu-dry]

(nothing)          one Python object per flow; whether a flow has arrived is read from the GPU, flow by flow; the allocator's
                   cache is emptied after every step
cured-as-claimed   the report's first phase: no emptied cache, twice the batch, bf16
cured              flows are rows of arrays and arrival is a mask: nothing is read
"""
import argparse
import contextlib
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
EDGE, HIDDEN, MOVES, BATCH = (3, 8, 2, 2) if given.cpu_dry else (8, 256, 5, 2)  # EDGE x EDGE cells and flows per sample
if mode == "cured-as-claimed":
    BATCH *= 2
CELLS = EDGE * EDGE
steps = int(counts[0]) if counts else 3 if given.cpu_dry else {"sick": 400, "cured-as-claimed": 200, "cured": 2000}[mode]
torch.manual_seed(11)


class Carrier(nn.Module):
    """Shared by all flows: place and energy in, a new place and a new energy out; each flow keeps a memory of its own."""

    def __init__(self):
        super().__init__()
        self.surface = nn.Linear(768, CELLS)
        self.neuron = nn.Sequential(nn.Linear(4, 32), nn.GELU(), nn.Linear(32, 64))
        self.cell = nn.GRUCell(65, HIDDEN)
        self.charge, self.stride = nn.Linear(HIDDEN, 1), nn.Linear(HIDDEN, 3)

    def move(self, place, energy, memory):  # [N, 3], [N], [N, HIDDEN]
        seen = self.neuron(torch.cat([place, energy[:, None]], 1))
        memory = self.cell(torch.cat([seen, energy[:, None]], 1), memory)
        drift = torch.stack([torch.zeros_like(energy), torch.zeros_like(energy), torch.sign(energy) / MOVES], 1)
        place = (place + drift + 0.1 * torch.tanh(self.stride(memory))).clamp(-1, 1)
        return place, energy + 0.1 * torch.tanh(self.charge(memory)).squeeze(1), memory


class Flow:
    def __init__(self, place, energy, memory):
        self.place, self.energy, self.memory, self.arrived = place, energy, memory, False


def start(energies):
    axis = torch.linspace(-1, 1, EDGE, device=device)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    grid = torch.stack([x.flatten(), y.flatten(), torch.zeros(CELLS, device=device)], 1)
    return grid.repeat(BATCH, 1), energies.flatten(), torch.zeros(BATCH * CELLS, HIDDEN, device=device)


def walk_one_by_one(carrier, energies):
    flows = [Flow(*parts) for parts in zip(*(tensor.unbind() for tensor in start(energies)))]
    for _ in range(MOVES):
        active = [flow for flow in flows if not flow.arrived]
        if not active:
            break
        moved = carrier.move(*(torch.stack([getattr(flow, part) for flow in active]) for part in ("place", "energy", "memory")))
        for flow, place, energy, memory in zip(active, *(tensor.float().unbind() for tensor in moved)):
            flow.place, flow.energy, flow.memory = place, energy, memory
            flow.arrived = abs(place[2].item()) >= 1.0 or abs(energy.item()) < 1e-6  # <- illness
    return torch.stack([flow.place for flow in flows]), torch.stack([flow.energy for flow in flows])


def walk_together(carrier, energies):
    place, energy, memory = start(energies)
    arrived = torch.zeros_like(energy, dtype=torch.bool)
    for _ in range(MOVES):
        moved = carrier.move(place, energy, memory)
        place, memory = (torch.where(arrived[:, None], old, new) for old, new in ((place, moved[0]), (memory, moved[2])))
        energy = torch.where(arrived, energy, moved[1])
        arrived = arrived | (place[:, 2].abs() >= 1.0) | (energy.abs() < 1e-6)
    return place, energy


def lay_down(place, energy):
    """Every flow adds its energy to the cell it is nearest to."""
    column, line = ((place[:, axis] + 1) / 2 * (EDGE - 1) for axis in (0, 1))
    sample = torch.arange(BATCH, device=device).repeat_interleave(CELLS)
    index = sample * CELLS + line.round().long() * EDGE + column.round().long()
    return torch.zeros(BATCH * CELLS, device=device).index_add(0, index, energy).view(BATCH, CELLS)


carrier = Carrier().to(device)
optimizer = torch.optim.AdamW(carrier.parameters(), lr=1e-4)
questions, targets = torch.randn(512, 768, device=device), torch.randn(512, CELLS, device=device) * 0.3
half = torch.autocast("cuda", torch.bfloat16) if mode == "cured-as-claimed" and device == "cuda" else contextlib.nullcontext()


def step_once(step):
    rows = torch.arange(step * BATCH, (step + 1) * BATCH, device=device) % 512
    with half:
        energies = torch.tanh(carrier.surface(questions[rows])).float()
        place, energy = (walk_together if mode == "cured" else walk_one_by_one)(carrier, energies)
    loss = nn.functional.mse_loss(lay_down(place, energy), targets[rows])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if mode == "sick":
        torch.cuda.empty_cache()  # <- blamed
    return loss.detach()


def now():
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


for step in range(3):
    step_once(step)
begin = now()
for step in range(steps):
    loss = step_once(step)
seconds = now() - begin
print(f"steps/s {steps / seconds:.2f}")
print(f"samples/s {steps * BATCH / seconds:.1f}")
print(f"loss {loss.item():.4f}")
