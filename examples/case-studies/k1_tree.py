"""Case study: a tree of transformer blocks (report 5). Of its 13 nodes only the five with the largest gradients learn in a step.

    python3 k1_tree.py [steps] [cured-as-claimed | cured] [--batch N] [--cpu-dry]

(nothing)          batches of 32; in every step the mask is made anew, the loss is read, and 156 norms are read to sort 13 nodes
cured-as-claimed   the report's fixes: loss summed on the GPU, mask kept, batches of 256, a heap instead of the sort, clipping,
                   cuDNN's autotuner; the norms are still read one by one
cured              batches of 256; the nodes are chosen on the GPU and the step is one CUDA graph
"""
import argparse
import heapq
import time

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("words", nargs="*", help="number of steps; cured-as-claimed or cured")
parser.add_argument("--batch", type=int, help="sequences per step (32; 256 when cured)")
parser.add_argument("--cpu-dry", action="store_true", help="three tiny steps on the CPU")
given = parser.parse_args()
mode = next((word for word in given.words if word in ("cured", "cured-as-claimed")), "sick")
counts = [word for word in given.words if word != mode]
if len(counts) > 1 or not all(word.isdigit() and int(word) > 0 for word in counts):
    parser.error("expected a number of steps and 'cured' or 'cured-as-claimed'")
if not given.cpu_dry and not torch.cuda.is_available():
    parser.error("no CUDA GPU here; --cpu-dry checks the program without one")
device = "cpu" if given.cpu_dry else "cuda"
WIDTH, HEADS, LENGTH, VOCABULARY = (16, 2, 8, 50) if given.cpu_dry else (128, 4, 64, 10000)
BATCH = given.batch or (2 if given.cpu_dry else 32 if mode == "sick" else 256)
CHOSEN = 5
torch.backends.cudnn.benchmark = mode == "cured-as-claimed"
steps = int(counts[0]) if counts else 3 if given.cpu_dry else {"sick": 500, "cured-as-claimed": 500, "cured": 1200}[mode]
torch.manual_seed(15)


class Node(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.mix, self.join = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.widen, self.narrow = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.children_nodes = nn.ModuleList(Node(depth - 1) for _ in range(3 if depth > 1 else 0))

    def own(self):
        """The node's parameters without its children's: 12 tensors."""
        return [parameter for name, parameter in self.named_parameters() if not name.startswith("children_nodes")]

    def forward(self, x, future):
        heads = self.mix(x).view(len(x), LENGTH, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        likeness = heads[0] @ heads[1].transpose(-1, -2) * (WIDTH // HEADS) ** -0.5
        mixed = likeness.masked_fill(future, float("-inf")).softmax(-1) @ heads[2]
        x = self.first(x + self.join(mixed.transpose(1, 2).reshape(x.shape)))
        x = self.second(x + self.narrow(functional.gelu(self.widen(x))))
        if not self.children_nodes:
            return x
        return torch.stack([child(x, future) for child in self.children_nodes]).mean(0)


def look_ahead():
    return torch.ones(LENGTH, LENGTH, device=device).triu(1).bool()


class Tree(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        self.root, self.norm, self.answer = Node(3), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)
        self.register_buffer("future", look_ahead())

    def forward(self, tokens):
        future = look_ahead() if mode == "sick" else self.future
        return self.answer(self.norm(self.root(self.words(tokens) + self.places, future)))


model = Tree().to(device)
nodes = [module.own() for module in model.modules() if isinstance(module, Node)]
graph_wants = {"fused": True, "capturable": True} if mode == "cured" and not given.cpu_dry else {}
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **graph_wants)
text = torch.randint(VOCABULARY, (2000 if given.cpu_dry else 2_000_000,), device=device)
window = torch.arange(LENGTH + 1, device=device)
total = torch.zeros((), device=device)


def backward():
    tokens = text[torch.randint(len(text) - LENGTH, (BATCH, 1), device=device) + window]
    with torch.autocast(device, torch.bfloat16, enabled=not given.cpu_dry):
        guess = model(tokens[:, :-1])
    loss = functional.cross_entropy(guess.float().flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    if mode != "sick":
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return loss.detach()


def keep_largest_by_host():
    norms = {number: sum(parameter.grad.norm().item() for parameter in own) for number, own in enumerate(nodes)}
    largest = sorted(norms, key=norms.get)[-CHOSEN:] if mode == "sick" else heapq.nlargest(CHOSEN, norms, key=norms.get)
    for number in set(norms) - set(largest):
        for parameter in nodes[number]:
            parameter.grad.zero_()


def keep_largest_on_device():
    norms = torch.stack([torch.stack([parameter.grad.norm() for parameter in own]).sum() for own in nodes])
    keep = torch.zeros_like(norms).scatter_(0, norms.topk(CHOSEN).indices, 1.0)
    for own, factor in zip(nodes, keep.unbind()):
        for parameter in own:
            parameter.grad.mul_(factor)


def step_once():
    loss = backward()
    (keep_largest_on_device if mode == "cured" else keep_largest_by_host)()
    optimizer.step()
    total.add_(loss.item() if mode == "sick" else loss)  # <- blamed


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


advance = captured(step_once) if mode == "cured" and not given.cpu_dry else step_once
for _ in range(3):
    advance()
total.zero_()
begin = now()
for _ in range(steps):
    advance()  # <- illness
seconds = now() - begin
print(f"steps/s {steps / seconds:.2f}")
print(f"samples/s {steps * BATCH / seconds:.1f}")
print(f"loss {total.item() / steps:.4f}")
