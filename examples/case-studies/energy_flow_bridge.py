"""Case study: text beside the cube (report 2). After each pass over the batch every sample goes through the cube again, alone.

    python3 energy_flow_bridge.py [steps] [cured] [--cpu-dry]

(nothing)   batch + 1 passes through the cube per step: one to learn, and one per sample to see which words its surface decodes to
cured       the words are decoded from the surfaces that the first pass made, as the report proposes
"""
import argparse
import time

import torch
from torch import nn

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("words", nargs="*", help="number of steps; cured")
parser.add_argument("--cpu-dry", action="store_true", help="three tiny steps on the CPU")
given = parser.parse_args()
mode = "cured" if "cured" in given.words else "sick"
counts = [word for word in given.words if word != mode]
if len(counts) > 1 or not all(word.isdigit() and int(word) > 0 for word in counts):
    parser.error("expected a number of steps and 'cured'")
if not given.cpu_dry and not torch.cuda.is_available():
    parser.error("no CUDA GPU here; --cpu-dry checks the program without one")
device = "cpu" if given.cpu_dry else "cuda"
CELLS, HIDDEN, MOVES, BATCH, VOCABULARY = (9, 8, 2, 3, 20) if given.cpu_dry else (2500, 512, 10, 16, 8000)
steps = int(counts[0]) if counts else 3 if given.cpu_dry else {"sick": 300, "cured": 800}[mode]
torch.manual_seed(12)


class Cube(nn.Module):
    """All flows of a batch move together: `energies` [B, CELLS] become the energies that arrive, [B, CELLS]."""

    def __init__(self):
        super().__init__()
        self.surface = nn.Linear(768, CELLS)
        self.neuron = nn.Sequential(nn.Linear(2, 32), nn.GELU(), nn.Linear(32, 64))
        self.cell = nn.GRUCell(64, HIDDEN)
        self.charge, self.stride = nn.Linear(HIDDEN, 1), nn.Linear(HIDDEN, 1)

    def forward(self, vectors):
        energy = torch.tanh(self.surface(vectors)).reshape(-1)
        height, memory = torch.zeros_like(energy), energy.new_zeros(len(energy), HIDDEN)
        for _ in range(MOVES):
            memory = self.cell(self.neuron(torch.stack([height, energy], 1)), memory)
            height = (height + torch.sign(energy) / MOVES + 0.1 * torch.tanh(self.stride(memory)).squeeze(1)).clamp(-1, 1)
            energy = energy + 0.1 * torch.tanh(self.charge(memory)).squeeze(1) * (1 - height.abs())
        return energy.view(len(vectors), CELLS)


class Decoder(nn.Module):
    """Eight words from a surface, in one go."""

    def __init__(self):
        super().__init__()
        self.squeeze, self.speak = nn.Linear(CELLS, 8 * 32), nn.Linear(32, VOCABULARY)

    def forward(self, surface):
        return self.speak(torch.relu(self.squeeze(surface)).view(len(surface), 8, 32)).argmax(-1)


cube, decoder = Cube().to(device), Decoder().to(device)
optimizer = torch.optim.AdamW(cube.parameters(), lr=1e-4)
questions = torch.randn(512, 768, device=device)
targets, references = torch.randn(512, CELLS, device=device) * 0.3, torch.randint(VOCABULARY, (512, 8), device=device)
overlap = torch.zeros((), device=device)


def spoken(inputs, surfaces):
    """The words of every sample, [B, 8]."""
    with torch.no_grad():
        if mode == "cured":
            return decoder(surfaces)
        answers = []
        for sample in inputs.split(1):
            surface = cube(sample)  # <- illness
            answers.append(decoder(surface))
        return torch.cat(answers)


def step_once(step):
    rows = torch.arange(step * BATCH, (step + 1) * BATCH, device=device) % 512
    with torch.autocast(device, torch.bfloat16, enabled=not given.cpu_dry):
        surfaces = cube(questions[rows])
        overlap.add_((spoken(questions[rows], surfaces) == references[rows]).float().mean())
    loss = nn.functional.mse_loss(surfaces.float(), targets[rows])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
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
print(f"loss {loss.item():.4f}, overlap {overlap.item() / (steps + 3):.4f}")
