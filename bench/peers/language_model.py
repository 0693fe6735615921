"""Language models in plain PyTorch: causal transformer layers, norms behind the residual, in series or as a tree.

Shapes: ids [B, length] -> logits [B, length, vocabulary]. The peers time it and the goldens are made from it, so there is one definition.
"""
import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.in_proj, self.out_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.in_proj(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        if hasattr(F, "scaled_dot_product_attention"):
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5
            future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            seen = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
        return self.out_proj(seen.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width, heads, inner, dropout):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)
        self.self_attn = Attention(width, heads)
        self.linear1, self.linear2 = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        x = self.norm1(x + self.dropout(self.self_attn(x)))
        return self.norm2(x + self.dropout(self.linear2(F.gelu(self.linear1(x)))))


class Embed(nn.Module):
    def __init__(self, vocabulary, length, width):
        super().__init__()
        self.tokens, self.position = nn.Embedding(vocabulary, width), nn.Embedding(length, width)


class Language(nn.Module):
    """No branching: `depth` layers in series. (3, 3): a tree of 13 nodes, depth first, of which a step updates k."""

    def __init__(self, vocabulary=10000, length=64, width=128, heads=4, inner=256, depth=4, branching=(), topology="tree", k=0,
                 dropout=0.0):
        super().__init__()
        self.embed = Embed(vocabulary, length, width)
        self.branching, self.topology, self.k = branching, topology, k
        count, level = (depth, 0) if not branching else (1, 1)
        for b in branching:
            level *= b
            count += level
        layers = nn.ModuleList(Layer(width, heads, inner, dropout) for _ in range(count))
        self.add_module("nodes" if branching else "layers", layers)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def levels(self):
        """Numbers of the nodes by level, when they are counted depth first."""
        found = [[] for _ in range(len(self.branching) + 1)]

        def visit(level, number):
            found[level].append(number)
            number += 1
            for _ in range(self.branching[level] if level < len(self.branching) else 0):
                number = visit(level + 1, number)
            return number
        visit(0, 0)
        return found

    def subtree(self, x, level, nodes):
        y = next(nodes)(x)
        if level == len(self.branching):
            return y
        return sum(self.subtree(y, level + 1, nodes) for _ in range(self.branching[level])) / self.branching[level]

    def forward(self, ids):
        x = self.embed.tokens(ids) + self.embed.position.weight
        if not self.branching:
            for layer in self.layers:
                x = layer(x)
        elif self.topology == "tree":
            x = self.subtree(x, 0, iter(self.nodes))
        else:
            for level in self.levels():
                x = sum(self.nodes[n](x) for n in level) / len(level)
        return self.head(self.norm(x))

    def choose(self):
        """Zeroes the gradients of all nodes but the k with the largest; gives norms and choice. No host read."""
        size = torch.stack([torch.stack(torch._foreach_norm([p.grad for p in node.parameters()])).norm() for node in self.nodes])
        keep = torch.zeros_like(size).scatter_(0, size.topk(self.k).indices, 1.0)
        for i, node in enumerate(self.nodes):
            torch._foreach_mul_([p.grad for p in node.parameters()], keep[i])
        return size, keep
