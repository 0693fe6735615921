"""The energy flow model in plain PyTorch: recurrent flows carry energy through a cube and lay it on the cube's surface.

B = samples, S = width * height cells of the surface (row-major), N = rows of flows. Row b * S + y * width + x starts at cell (x, y)
of sample b with z = 0; rows from B * S on are spare, spawning fills them. Positions are in [-1, 1]^3. All shapes are fixed: rows that
have arrived or are not used yet run along and are masked. The peers time it and the goldens are made from it, so there is one
definition. Everything but the products runs in the type of the buffers: float32, or float64 after `.double()`.
"""
import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

PRESETS = {
    "tiny": dict(width=5, height=4, depth=8, batch=2, hidden=16, layers=2),  # to try out what measures
    "debug": dict(width=20, height=20, depth=10, batch=8, hidden=256, layers=2),
    "experiment": dict(width=50, height=50, depth=20, batch=16, hidden=512, layers=2),
    "experiment-v2": dict(width=28, height=28, depth=40, batch=16, hidden=512, layers=3),
    "large-b4": dict(width=80, height=80, depth=60, batch=4, hidden=1024, layers=3, steps=10),
}
FEATURES = 64  # what the neuron tells the carrier, besides the energy


@dataclass
class Cube:
    """Lengths are in units of the cube (an edge is 2); only `noise` counts cells. `arrive` is the share of the steps that a flow needs
    when nothing is learned yet. 0 steps or min_steps: derived from depth and from `arrive`."""
    width: int
    height: int
    depth: int
    batch: int
    hidden: int
    layers: int
    steps: int = 0
    embedding: int = 768
    arrive: float = 0.6
    noise: float = 0.1
    surface_scale: float = 0.3
    headroom: float = 0.0  # spare rows, as a share of B * S
    spawn_length: float = 0.5
    max_spawn: int = 1
    early_stop: bool = False
    min_steps: int = 0
    stop_at: float = 0.95
    patience: int = 3

    def __post_init__(self):
        self.cells = self.width * self.height
        self.first = self.batch * self.cells
        self.rows = int(self.first * (1 + self.headroom))
        self.steps = self.steps or self.depth // 2
        self.min_steps = self.min_steps or math.ceil(self.arrive * self.steps)
        self.drift = 1 / (self.arrive * self.steps - 0.5)  # arrives in the middle of a step: rounding decides nothing


class Neuron(nn.Module):
    """What a place in the cube says to a flow: position [N, 3], energy [N] -> [N, 64]."""

    def __init__(self):
        super().__init__()
        self.place = nn.Linear(3, 3)
        self.net = nn.Sequential(nn.Linear(4, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 32), nn.LayerNorm(32), nn.GELU(),
                                 nn.Linear(32, FEATURES))

    def forward(self, position, energy):
        return self.net(torch.cat([self.place(position), energy.unsqueeze(1)], 1))


class Carrier(nn.Module):
    """GRU cells on top of each other, and two heads on the last: what a step adds to a flow's energy [N] and to its way [N, 3]."""

    def __init__(self, hidden, layers):
        super().__init__()
        self.cells = nn.ModuleList([nn.GRUCell(hidden if layer else FEATURES + 1, hidden) for layer in range(layers)])
        self.energy = nn.Sequential(nn.Linear(hidden, hidden // 2), nn.GELU(), nn.Linear(hidden // 2, 1))
        self.move = nn.Sequential(nn.Linear(hidden, 64), nn.GELU(), nn.Linear(64, 3))

    def forward(self, x, states):
        after = []
        for cell, state in zip(self.cells, states):
            x = cell(x, state)
            after.append(x)
        return torch.tanh(self.energy(x)).squeeze(1) / 2, torch.tanh(self.move(x)) / 2, after


class EnergyFlow(nn.Module):
    def __init__(self, cube):
        super().__init__()
        self.cube = cube
        self.mapper = nn.Linear(cube.embedding, cube.cells)
        self.neuron = Neuron()
        self.carrier = Carrier(cube.hidden, cube.layers)
        self.register_buffer("target_map", isometry(cube))
        x, y = torch.linspace(-1, 1, cube.width), torch.linspace(-1, 1, cube.height)
        grid = torch.stack([x.repeat(cube.height), y.repeat_interleave(cube.width), torch.zeros(cube.cells)], 1)
        start, owner = torch.zeros(cube.rows, 3), torch.zeros(cube.rows, dtype=torch.long)
        start[:cube.first] = grid.repeat(cube.batch, 1)
        owner[:cube.first] = torch.arange(cube.batch).repeat_interleave(cube.cells)
        pitch = torch.tensor([2 / (cube.width - 1), 2 / (cube.height - 1), 0.0])
        for name, value in dict(start=start, owner=owner, pitch=pitch, row=torch.arange(cube.rows)).items():
            self.register_buffer(name, value, persistent=False)
        initialise(self)

    def forward(self, inputs, trace=None):
        """inputs [B, embedding] -> surface [B, S]. A list given as `trace` gets one dict per step (see flow_trace.py)."""
        cube, real = self.cube, self.start.dtype
        energy = F.pad(self.mapped(inputs).flatten(), (0, cube.rows - cube.first))
        heading = torch.where(energy.detach() < 0, -1.0, 1.0).to(real)
        position, owner, active = self.start, self.owner, self.row < cube.first
        states = [self.start.new_zeros(cube.rows, cube.hidden) for _ in range(cube.layers)]
        used = torch.full_like(self.row[0], cube.first)
        wanted, parent = torch.zeros_like(self.row), torch.full_like(self.row, -1)
        rule = StopRule(cube) if cube.early_stop else None
        for t in range(cube.steps):
            before, alive = position, active
            gain, move, after = self.carrier(torch.cat([self.neuron(position, energy), energy.unsqueeze(1)], 1), states)
            raw = position + move.to(real) + F.pad((heading * cube.drift).unsqueeze(1), (2, 0))
            if self.training and cube.noise:
                raw = raw + cube.noise * self.pitch * torch.randn_like(raw)
            landed = torch.cat([mirrored(raw[:, :2]), raw[:, 2:].clamp(-1, 1)], 1)
            stride = (landed - position).norm(dim=1)
            position = torch.where(alive.unsqueeze(1), landed, position)
            energy = torch.where(alive, energy + gain.to(real), energy)
            states = [torch.where(alive.unsqueeze(1), new.to(real), old) for new, old in zip(after, states)]
            active = alive & (raw[:, 2].abs() < 1)
            if cube.rows > cube.first:
                long = active & (stride > cube.spawn_length)
                wanted = torch.where(long, (stride / cube.spawn_length).long(), 0).clamp(max=cube.max_spawn)
                admitted, parent = self.admit(wanted, used)
                born, source = parent >= 0, parent.clamp(min=0)
                energy = energy / (1 + admitted)  # shared among the parent and its children
                energy = torch.where(born, energy[source], energy)
                position = torch.where(born.unsqueeze(1), before[source], position)
                states = [torch.where(born.unsqueeze(1), state[source], state) for state in states]
                owner, heading = torch.where(born, owner[source], owner), torch.where(born, heading[source], heading)
                active, used = active | born, used + admitted.sum()
            if trace is not None:
                trace.append(dict(alive=alive, raw=raw, stride=stride, wanted=wanted, position=position, energy=energy, active=active,
                                  heading=heading, owner=owner, parent=parent, used=used, state=torch.stack(states)))
            if rule and rule.fires(t, used, active):
                break
        return self.laid(position, energy, active, owner)

    def mapped(self, inputs):
        """The mapper's surface [B, S]: the energies that the flows start with."""
        return torch.tanh(self.mapper(inputs)).to(self.start.dtype)

    def admit(self, wanted, used):
        """Gives out spare rows in row order: (children admitted per row, for every row the parent of the flow born there or -1)."""
        begin = used + wanted.cumsum(0) - wanted
        admitted = torch.minimum(wanted, (self.cube.rows - begin).clamp(min=0))
        end = used + admitted.cumsum(0)
        parent = torch.searchsorted(end, self.row, right=True)  # the first row whose children end behind this slot
        return admitted, torch.where((self.row >= used) & (self.row < end[-1]), parent, -1)

    def laid(self, position, energy, active, owner):
        """Every flow's energy on the four cells around it [B, S]; one still under way has kept only the share |z| of its energy."""
        cube = self.cube
        load = energy * torch.where(active, position[:, 2].abs(), 1.0)
        column, line = (position[:, 0] + 1) / 2 * (cube.width - 1), (position[:, 1] + 1) / 2 * (cube.height - 1)
        left = column.detach().floor().clamp(0, cube.width - 2)
        top = line.detach().floor().clamp(0, cube.height - 2)
        across, down = column - left, line - top
        corner = owner * cube.cells + (top * cube.width + left).long()
        cells = torch.cat([corner, corner + 1, corner + cube.width, corner + cube.width + 1])
        shares = torch.cat([(1 - across) * (1 - down), across * (1 - down), (1 - across) * down, across * down])
        surface = torch.zeros_like(self.start[:, 0])[:cube.first]
        return surface.scatter_add(0, cells, load.repeat(4) * shares).view(cube.batch, cube.cells)

    def target(self, vectors):
        """Surface [B, S] that stands for the teacher's vectors [B, embedding]."""
        return vectors @ self.target_map.T

    def read(self, surface):
        """Unit vectors [B, embedding] that a surface stands for; exact when there are at least as many cells as entries."""
        return F.normalize(surface @ self.target_map, dim=1)


class StopRule:
    """Ends the steps once enough flows have arrived, or none for a while. Reads the device: it decides what happens, not how fast."""

    def __init__(self, cube):
        self.cube, self.most, self.waited = cube, 0, 0

    def fires(self, t, used, active):
        used = int(used)
        done = used - int(active.sum())
        if done > self.most:
            self.most, self.waited = done, 0
        elif self.most > 0:  # patience counts from the first arrival on
            self.waited += 1
        enough = done >= self.cube.stop_at * used or self.waited >= self.cube.patience
        return t + 1 >= self.cube.min_steps and enough


def mirrored(v):
    """v reflected at -1 and 1 until it is inside, however far it overshot; what is inside keeps every bit."""
    return torch.where(v.abs() <= 1, v, 1 - ((v + 1).remainder(4) - 2).abs())


def isometry(cube):
    """[S, embedding] with orthonormal columns (rows when S < embedding), scaled so that a unit vector gives cells of size surface_scale."""
    tall = torch.randn(max(cube.cells, cube.embedding), min(cube.cells, cube.embedding))
    basis = torch.linalg.qr(tall)[0]
    return (basis if cube.cells >= cube.embedding else basis.T.contiguous()) * (cube.surface_scale * math.sqrt(cube.cells))


def initialise(model):
    """A new model carries the mapper's energy straight to the surface: the heads end in zeros, the GRU's update gate leans open."""
    nn.init.normal_(model.mapper.weight, std=0.02)
    nn.init.zeros_(model.mapper.bias)
    hidden = model.cube.hidden
    for cell in model.carrier.cells:
        nn.init.xavier_uniform_(cell.weight_ih)
        nn.init.orthogonal_(cell.weight_hh)
        for bias in (cell.bias_ih, cell.bias_hh):
            nn.init.zeros_(bias)
            nn.init.ones_(bias[hidden:2 * hidden])
    for head in (model.carrier.energy, model.carrier.move):
        nn.init.zeros_(head[-1].weight)
        nn.init.zeros_(head[-1].bias)
