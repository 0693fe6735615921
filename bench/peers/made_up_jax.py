"""Stands in for JAX where it is not installed, so that the JAX peers run and are compared: the few functions that they call, made of PyTorch.

Nothing is compiled: a scan is a loop, vmap calls the function for one member after the other. Keys are seeds.
"""
import math
import types

import torch
from torch.nn import functional as F

torch.Tensor.astype = lambda self, kind: self.to(kind)
torch.Tensor.block_until_ready = lambda self: self
two_axes, unbiased = torch.Tensor.transpose, torch.Tensor.var
torch.Tensor.transpose = lambda self, *axes: self.permute(axes) if len(axes) == 3 else two_axes(self, *axes)
torch.Tensor.var = lambda self, axis: unbiased(self, axis, unbiased=False)


def leaves(tree):
    if isinstance(tree, dict):
        return [leaf for name in sorted(tree) for leaf in leaves(tree[name])]
    if isinstance(tree, (list, tuple)):
        return [leaf for part in tree for leaf in leaves(part)]
    return [tree]


def tree_map(function, tree, *others):
    if isinstance(tree, dict):
        if any(set(other) != set(tree) for other in others):
            raise ValueError(f"trees differ: {sorted(tree)}")
        return {name: tree_map(function, tree[name], *(other[name] for other in others)) for name in tree}
    if isinstance(tree, (list, tuple)):
        return type(tree)(tree_map(function, part, *(other[i] for other in others)) for i, part in enumerate(tree))
    return function(tree, *others)


def signature(tree):
    return [(tuple(leaf.shape), leaf.dtype) for leaf in leaves(tree)]


def scan(body, state, _, length):
    losses = []
    for _ in range(length):
        before = signature(state)
        state, loss = body(state, None)
        if signature(state) != before:
            raise TypeError("scan: the state changes its shapes or types")
        losses.append(loss)
    return state, torch.stack(losses)


def vmap(function, axes=0):
    def mapped(*arguments):
        which = axes if isinstance(axes, tuple) else (axes,) * len(arguments)
        count = next(len(leaves(argument)[0]) for argument, axis in zip(arguments, which) if axis == 0)
        results = [function(*(tree_map(lambda leaf: leaf[k], argument) if axis == 0 else argument for argument, axis in zip(arguments, which)))
                   for k in range(count)]
        return tree_map(lambda *parts: torch.stack(parts), results[0], *results[1:])
    return mapped


def value_and_grad(function, has_aux):
    def both(parameters, *others):
        own = tree_map(lambda leaf: leaf.detach().requires_grad_(), parameters)
        loss, aux = function(own, *others)
        loss.backward()
        return (loss.detach(), tree_map(lambda leaf: leaf.detach(), aux)), tree_map(lambda leaf: leaf.grad, own)
    return both


def generator(key):
    return torch.Generator().manual_seed(int(key))


def split(key, count=2):
    return torch.randint(0, 2 ** 62, (count,), generator=generator(key))


def dot_product_attention(query, key, value, is_causal, implementation):
    """[B, positions, heads, columns]"""
    scores = torch.einsum("bqhc,bkhc->bhqk", query, key) / math.sqrt(query.shape[-1])
    future = torch.ones(query.shape[1], query.shape[1], dtype=torch.bool).triu(1)
    assert is_causal and implementation == "xla"
    return torch.einsum("bhqk,bkhc->bqhc", scores.masked_fill(future, -math.inf).softmax(-1), value)


def dot(x, weight, preferred_element_type=None):
    return (x @ weight).to(preferred_element_type or x.dtype)


numpy = types.SimpleNamespace(
    float32=torch.float32, bfloat16=torch.bfloat16, float16=torch.float16, uint8=torch.uint8, zeros=torch.zeros, ones=torch.ones, sqrt=torch.sqrt,
    square=torch.square, sum=torch.sum, zeros_like=torch.zeros_like, arange=torch.arange, isfinite=torch.isfinite, dot=dot,
    minimum=lambda low, x: torch.clamp(x, max=low), where=lambda mask, x, other: torch.where(mask, x, torch.tensor(other, dtype=x.dtype)),
    split=lambda x, parts, axis: x.chunk(parts, axis), concatenate=torch.cat, take_along_axis=lambda x, at, axis: x.gather(axis, at))
random = types.SimpleNamespace(
    key=lambda seed: torch.tensor(seed), split=split,
    normal=lambda key, shape: torch.randn(shape, generator=generator(key)),
    randint=lambda key, shape, low, high: torch.randint(low, high, shape, generator=generator(key)),
    bernoulli=lambda key, rate, shape: torch.rand(shape, generator=generator(key)) < rate)
nn = types.SimpleNamespace(relu=F.relu, gelu=lambda x, approximate: F.gelu(x), logsumexp=torch.logsumexp, log_softmax=lambda x: F.log_softmax(x, -1),
                           dot_product_attention=dot_product_attention)
lax = types.SimpleNamespace(rsqrt=torch.rsqrt, scan=scan)
tree_util = types.SimpleNamespace(tree_map=tree_map, tree_leaves=leaves)
config = types.SimpleNamespace(update=lambda name, value: None)
jit = lambda function, donate_argnums: function
__version__ = "made up"
