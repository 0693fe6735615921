#!/usr/bin/env python3
"""Makes a set of pairs (pairs.safetensors, pairs.jsonl, dataset.json) from your own pairs of texts.

  embed_pairs.py TEXTS --out FOLDER --teacher MODEL     MODEL: a Hugging Face sentence encoder, by name or folder
  embed_pairs.py TEXTS --out FOLDER --teacher hashed    the built-in teacher, no model needed

TEXTS has one pair per line, UTF-8: *.jsonl with {"input": "...", "target": "..."}, anything else two texts with a tab between.
A model needs `sentence-transformers`, or `transformers` and `torch` (then the vector is the mean over the last layer's tokens).
Vectors have length 1. The format is described in docs/training.md.
"""
import argparse
import json
import math
import os
import struct
import sys

try:
    import numpy
except ImportError:
    sys.exit("embed_pairs: numpy is needed; `apt install python3-numpy` or `pip install numpy` would be right")

LINE_CAP = 64 << 10
MOST_DIMENSIONS = 16384
FILES = ("pairs.safetensors", "pairs.jsonl", "dataset.json")


class Bad(Exception):
    pass


# The hashed teacher: the twin of src/data/pairs/teacher.h, which has the formula.
MASK = (1 << 64) - 1
POSITIONS, WORD_WEIGHT, PAIR_WEIGHT = 8, 2, 1


def words_of(text):
    words, word = [], bytearray()
    for byte in text.encode():
        if 65 <= byte <= 90:
            word.append(byte + 32)
        elif 97 <= byte <= 122 or 48 <= byte <= 57 or byte >= 128:
            word.append(byte)
        elif byte != 39 and word:
            words.append(bytes(word))
            word = bytearray()
    if word:
        words.append(bytes(word))
    return words


def positions_of(feature, dimensions):
    """(entry, sign) of each position of a feature."""
    value = 14695981039346656037 ^ 0x6D696C6C72616365
    for byte in feature:
        value = (value ^ byte) * 1099511628211 & MASK
    for j in range(1, POSITIONS + 1):
        z = value + j * 0x9E3779B97F4A7C15 & MASK
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
        z ^= z >> 31
        yield (z >> 32) * dimensions >> 32, -1 if z & 1 else 1


def teach(text, dimensions):
    words = words_of(text)
    if not words:
        raise Bad("the text has no words: there is nothing to embed")
    features = [(word, WORD_WEIGHT) for word in set(words)]
    features += [(pair, PAIR_WEIGHT) for pair in {a + b" " + b for a, b in zip(words, words[1:])}]
    sums = [0] * dimensions
    for feature, weight in features:
        for entry, sign in positions_of(feature, dimensions):
            sums[entry] += sign * weight
    squares = sum(value * value for value in sums)
    if squares == 0:
        raise Bad(f"the features of the text cancel out in {dimensions} dimensions; more would be right")
    return numpy.array(sums, numpy.float64) / math.sqrt(squares)


def embed_hashed(pairs, dimensions, path):
    vectors = []
    for number, pair in enumerate(pairs, 1):
        try:
            vectors += [teach(text, dimensions) for text in pair]
        except Bad as problem:
            raise Bad(f"{path}:{number}: {problem}") from None
    return numpy.array(vectors)


# Models.
def embed_with_sentence_transformers(texts, name, batch, device):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(name, device=device)
    return numpy.asarray(model.encode(texts, batch_size=batch, convert_to_numpy=True, show_progress_bar=sys.stderr.isatty()))


def embed_with_transformers(texts, name, batch, device):
    import torch
    from transformers import AutoModel, AutoTokenizer

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = AutoTokenizer.from_pretrained(name)
    model = AutoModel.from_pretrained(name).to(device).eval()
    vectors = []
    with torch.no_grad():
        for start in range(0, len(texts), batch):
            tokens = tokenizer(texts[start:start + batch], padding=True, truncation=True, return_tensors="pt").to(device)
            states = model(**tokens).last_hidden_state.float()
            mask = tokens["attention_mask"].unsqueeze(-1).float()
            vectors.append(((states * mask).sum(1) / mask.sum(1).clamp(min=1)).cpu().numpy())
    return numpy.concatenate(vectors)


def has(module):
    try:
        __import__(module)
        return True
    except ImportError:
        return False


def embed_with_model(pairs, name, batch, device):
    texts = [text for pair in pairs for text in pair]
    if has("sentence_transformers"):
        embed = embed_with_sentence_transformers
    elif has("transformers") and has("torch"):
        embed = embed_with_transformers
    else:
        raise Bad(f"the teacher {name} needs `pip install sentence-transformers`, or transformers and torch; "
                  "--teacher hashed needs neither")
    try:
        return embed(texts, name, batch, device)
    except (OSError, ValueError, RuntimeError) as problem:
        raise Bad(f"the teacher {name} failed: {problem}") from None


# Files.
def parse_line(line, is_json):
    if is_json:
        try:
            entry = json.loads(line)
        except ValueError as problem:
            raise Bad(f"is not JSON: {problem}") from None
        if not isinstance(entry, dict) or not isinstance(entry.get("input"), str) or not isinstance(entry.get("target"), str):
            raise Bad('is not an object {"input": "...", "target": "..."}')
        pair = entry["input"], entry["target"]
    else:
        pair = tuple(line.split("\t"))
        if len(pair) != 2:
            raise Bad(f"has {len(pair)} texts; two with a tab between would be right")
    if not pair[0].strip() or not pair[1].strip():
        raise Bad("has an empty text")
    try:
        size = len(text_line(pair))
    except UnicodeEncodeError:
        raise Bad("has a text that is not Unicode (half of a surrogate pair)") from None
    if size > LINE_CAP:
        raise Bad(f"is too long: {size} bytes; at most {LINE_CAP} are allowed")
    return pair


def read_pairs(path):
    pairs = []
    with open(path, "rb") as file:
        for number, raw in enumerate(file, 1):
            try:
                pairs.append(parse_line(raw.rstrip(b"\r\n").decode(), path.endswith(".jsonl")))
            except UnicodeDecodeError:
                raise Bad(f"{path}:{number}: is not UTF-8") from None
            except Bad as problem:
                raise Bad(f"{path}:{number}: {problem}") from None
    if not pairs:
        raise Bad(f"{path}: holds no pairs")
    return pairs


def text_line(pair):
    return json.dumps({"input": pair[0], "target": pair[1]}, ensure_ascii=False).encode()


def unit_rows(vectors, path):
    vectors = numpy.asarray(vectors, numpy.float64)
    if vectors.ndim != 2 or not 1 <= vectors.shape[1] <= MOST_DIMENSIONS:
        raise Bad(f"the teacher gave vectors of shape {vectors.shape[1:]}; 1 to {MOST_DIMENSIONS} numbers would be right")
    lengths = numpy.sqrt((vectors * vectors).sum(1, keepdims=True))
    bad = numpy.flatnonzero(~(numpy.isfinite(lengths[:, 0]) & (lengths[:, 0] > 0)))
    if bad.size:
        raise Bad(f"{path}:{bad[0] // 2 + 1}: the teacher gave a vector that is zero or not finite")
    return (vectors / lengths).astype("<f4")


def safetensors_bytes(tensors):
    """Eight bytes of header length, the header in JSON padded to 64 bytes, then the tensors back to back."""
    header, offset = {}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [offset, offset + tensor.nbytes]}
        offset += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % 64)
    return struct.pack("<Q", len(text)) + text + b"".join(tensor.tobytes() for tensor in tensors.values())


def write_atomically(path, data):
    temporary = path + ".tmp"
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def write_set(folder, name, teacher, pairs, vectors, source):
    os.makedirs(folder, exist_ok=True)
    tensors = {"input_embeddings": numpy.ascontiguousarray(vectors[0::2]),
               "target_embeddings": numpy.ascontiguousarray(vectors[1::2])}
    about = {"name": name, "teacher": teacher, "dimensions": int(vectors.shape[1]),
             "made": {"generator": "embed_pairs-1", "texts": os.path.basename(source), "count": len(pairs)}}
    contents = (safetensors_bytes(tensors), b"".join(text_line(pair) + b"\n" for pair in pairs),
                (json.dumps(about, indent=2, ensure_ascii=False) + "\n").encode())
    for file, content in zip(FILES, contents):
        write_atomically(os.path.join(folder, file), content)


def main(arguments):
    parser = argparse.ArgumentParser(prog="embed_pairs.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", metavar="TEXTS", help="the pairs")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="folder to write; must not hold a set already")
    parser.add_argument("--teacher", required=True, help="`hashed`, or a sentence encoder")
    parser.add_argument("--dimensions", type=int, metavar="D", help="width of the hashed teacher's vectors (768)")
    parser.add_argument("--name", help="what the set is called (the folder's name)")
    parser.add_argument("--batch", type=int, default=64, help="texts a model embeds at once (64)")
    parser.add_argument("--device", help="where the model runs, as torch names it")
    given = parser.parse_args(arguments)
    hashed = given.teacher == "hashed"
    dimensions = 768 if given.dimensions is None else given.dimensions
    try:
        if given.dimensions is not None and not hashed:
            raise Bad("--dimensions belongs to --teacher hashed; a model has its own")
        if not 1 <= dimensions <= MOST_DIMENSIONS or given.batch < 1:
            raise Bad(f"--dimensions must be 1 to {MOST_DIMENSIONS} and --batch at least 1")
        for file in FILES:
            if os.path.exists(os.path.join(given.out, file)):
                raise Bad(f"{os.path.join(given.out, file)}: is there already; give another --out, or remove it first")
        pairs = read_pairs(given.texts)
        vectors = (embed_hashed(pairs, dimensions, given.texts) if hashed else
                   embed_with_model(pairs, given.teacher, given.batch, given.device))
        vectors = unit_rows(vectors, given.texts)
        name = given.name or os.path.basename(os.path.normpath(given.out))
        write_set(given.out, name, given.teacher, pairs, vectors, given.texts)
    except (Bad, OSError) as problem:
        print(f"embed_pairs: {problem}", file=sys.stderr)
        return 2
    print(f"{given.out} written: {len(pairs)} pairs, vectors of {vectors.shape[1]} dimensions, teacher {given.teacher}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
