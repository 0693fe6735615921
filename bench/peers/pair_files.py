"""Reads a folder of pairs as Millrace does (docs/training.md): the vectors, and which of them are set aside. No packages but torch."""
import json
import math
import pathlib

WORD = 0xFFFFFFFF


def philox(counter, key):
    """The four words of src/base/philox.h: ten rounds over four counter words with two key words."""
    a, b, c, d = counter
    low, high = key
    for _ in range(10):
        first, second = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (second >> 32) ^ b ^ low, second & WORD, (first >> 32) ^ d ^ high, first & WORD
        low, high = (low + 0x9E3779B9) & WORD, (high + 0xBB67AE85) & WORD
    return a, b, c, d


def shuffled(seed, count):
    """The order of `count` (from 2) elements in epoch 0, as base::make_shuffle and shuffled_index give it."""
    bits = 1
    while bits < 16 and 1 << (2 * bits) < count:
        bits += 1
    keys = [word for part in range(2) for word in philox((part, 0, 0x73687566, 0x666C6531), (seed & WORD, seed >> 32))]
    mask = (1 << bits) - 1

    def moved(value):
        left, right = value >> bits, value & mask
        for key in keys:
            mixed = ((right + 1) * 0x9E3779B1 & WORD) ^ key
            mixed = (mixed ^ (mixed >> 16)) * 0x85EBCA6B & WORD
            mixed = (mixed ^ (mixed >> 13)) * 0xC2B2AE35 & WORD
            left, right = right, left ^ ((mixed ^ (mixed >> 16)) & mask)
        return left << bits | right

    order = []
    for position in range(count):
        value = moved(position)
        while value >= count:
            value = moved(value)
        order.append(value)
    return order


def training_positions(count, validation=0.1, seed=42):
    """What data::split_validation leaves to train on."""
    return shuffled(seed, count)[math.floor(count * validation):]


def tensors(path):
    """{name: f32 tensor} of a safetensors file; tensors of other types are left out."""
    import torch
    data = pathlib.Path(path).read_bytes()
    size = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8:8 + size]), bytearray(data[8 + size:])
    found = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = entry["data_offsets"]
            found[name] = torch.frombuffer(body, dtype=torch.float32, count=(end - begin) // 4, offset=begin).reshape(entry["shape"])
    return found


def training_pairs(folder):
    """(inputs, targets) [n, d] to train on."""
    found = tensors(pathlib.Path(folder) / "pairs.safetensors")
    inputs, targets = found["input_embeddings"], found["target_embeddings"]
    rows = training_positions(len(inputs))
    return inputs[rows], targets[rows]
