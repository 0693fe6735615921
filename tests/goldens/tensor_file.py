"""Reads and writes safetensors files with numpy alone: u64 length, JSON header padded with spaces, raw little-endian data."""
import json
import struct

import numpy as np

TYPES = {"F32": np.dtype("<f4"), "I32": np.dtype("<i4"), "I64": np.dtype("<i8")}
NAMES = {dtype: name for name, dtype in TYPES.items()}
ALIGNMENT = 64


def write(path, tensors, metadata):
    """Wider types come first, so every tensor lies on a multiple of its element size; the data starts on a 64-byte boundary."""
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    header, offset = {"__metadata__": metadata}, 0
    for name, values in ordered:
        header[name] = dict(dtype=NAMES[values.dtype.newbyteorder("<")], shape=list(values.shape),
                            data_offsets=[offset, offset + values.nbytes])
        offset += values.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _, values in ordered:
            out.write(np.ascontiguousarray(values).tobytes())


def read(path):
    """(tensors, metadata) of a file that `write` made."""
    with open(path, "rb") as source:
        content = source.read()
    length, = struct.unpack_from("<Q", content)
    header = json.loads(content[8:8 + length])
    metadata = header.pop("__metadata__")
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        tensors[name] = np.frombuffer(content[begin:end], TYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors, metadata
