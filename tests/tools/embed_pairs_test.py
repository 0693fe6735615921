"""tools/embed_pairs.py makes the files `millrace data make pairs` makes, and refuses what it cannot read."""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy
except ImportError:
    print("embed_pairs_test: skipped, numpy is missing")
    sys.exit(0)

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools" / "embed_pairs.py"
MILLRACE = pathlib.Path(os.environ.get("MILLRACE_BUILD", SCRIPT.parents[1] / "build")) / "millrace"


def run(*words, env=None):
    done = subprocess.run([sys.executable, SCRIPT, *map(str, words)], capture_output=True, text=True, check=False,
                          env={**os.environ, **(env or {})})
    return done.returncode, done.stdout + done.stderr


def read_tensors(path):
    raw = path.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + size])
    tensors = {}
    for name, about in header.items():
        begin, end = about["data_offsets"]
        tensors[name] = numpy.frombuffer(raw[8 + size + begin:8 + size + end], "<f4").reshape(about["shape"])
    return tensors


class EmbedPairs(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    @unittest.skipUnless(MILLRACE.exists(), "millrace is not built")
    def test_hashed_vectors_are_those_of_the_built_in_set(self):
        ours, made = self.folder / "ours", self.folder / "made"
        for dimensions in (768, 101):
            subprocess.run([MILLRACE, "data", "make", "pairs", "--out", f"{ours}{dimensions}", "--count", "40", "--seed", "11",
                            "--dimensions", str(dimensions)], check=True, capture_output=True)
            original = pathlib.Path(f"{ours}{dimensions}")
            status, output = run(original / "pairs.jsonl", "--out", f"{made}{dimensions}", "--teacher", "hashed", "--dimensions",
                                 dimensions)
            self.assertEqual(status, 0, output)
            copy = pathlib.Path(f"{made}{dimensions}")
            wanted, found = read_tensors(original / "pairs.safetensors"), read_tensors(copy / "pairs.safetensors")
            self.assertEqual(list(found), ["input_embeddings", "target_embeddings"])
            for name, tensor in wanted.items():
                self.assertEqual(found[name].shape, (40, dimensions))
                self.assertLess(abs(found[name] - tensor).max(), 1e-6)
            lines = [[json.loads(line) for line in (folder / "pairs.jsonl").read_text().splitlines()] for folder in (original, copy)]
            self.assertEqual(lines[0], lines[1])
            about = json.loads((copy / "dataset.json").read_text())
            self.assertEqual((about["teacher"], about["dimensions"]), ("hashed", dimensions))

    def test_tabs_and_other_scripts(self):
        texts = self.write("texts.tsv", "Es schneit.\tDie Straße ist weiß.\r\nDON'T stop!\tdont stop\n")
        out = self.folder / "set"
        status, output = run(texts, "--out", out, "--teacher", "hashed", "--dimensions", 64)
        self.assertEqual(status, 0, output)
        lines = [json.loads(line) for line in (out / "pairs.jsonl").read_text(encoding="utf-8").splitlines()]
        self.assertEqual(lines[0], {"input": "Es schneit.", "target": "Die Straße ist weiß."})
        vectors = read_tensors(out / "pairs.safetensors")
        self.assertTrue((vectors["input_embeddings"][1] == vectors["target_embeddings"][1]).all())
        self.assertFalse((vectors["input_embeddings"][0] == vectors["target_embeddings"][0]).all())
        self.assertLess(abs((vectors["input_embeddings"] ** 2).sum(1) - 1).max(), 1e-6)

    def test_bad_lines_are_named(self):
        for name, content, word in (
                ("a.tsv", "one\ttwo\nthree\n", "a.tsv:2: has 1 texts"),
                ("b.tsv", "one\ttwo\tthree\n", "b.tsv:1: has 3 texts"),
                ("c.tsv", "one\t \n", "c.tsv:1: has an empty text"),
                ("d.tsv", b"one\t\xff\n", "d.tsv:1: is not UTF-8"),
                ("e.tsv", "", "holds no pairs"),
                ("f.tsv", "one\t...\n", "f.tsv:1: the text has no words"),
                ("g.tsv", "one\t" + "x" * 70000 + "\n", "g.tsv:1: is too long"),
                ("h.jsonl", '{"input": "a"}\n', "h.jsonl:1"),
                ("i.jsonl", '{"input": "a", "target": "b"}\n{"input"\n', "i.jsonl:2: is not JSON"),
                ("j.jsonl", '{"input": "\\ud800", "target": "b"}\n', "j.jsonl:1")):
            status, output = run(self.write(name, content), "--out", self.folder / "out", "--teacher", "hashed")
            self.assertEqual(status, 2, output)
            self.assertIn(word, output)
            self.assertNotIn("Traceback", output)
            self.assertFalse((self.folder / "out").exists())

    def test_sets_are_not_overwritten(self):
        texts = self.write("texts.tsv", "one\ttwo\n")
        self.assertEqual(run(texts, "--out", self.folder / "set", "--teacher", "hashed")[0], 0)
        status, output = run(texts, "--out", self.folder / "set", "--teacher", "hashed")
        self.assertEqual(status, 2)
        self.assertIn("there already", output)

    def test_options_are_checked(self):
        texts = self.write("texts.tsv", "one\ttwo\n")
        for words in (["--teacher", "hashed", "--dimensions", "0"], ["--teacher", "hashed", "--dimensions", "16385"],
                      ["--teacher", "some/model", "--dimensions", "5"]):
            status, output = run(texts, "--out", self.folder / "set", *words)
            self.assertEqual(status, 2, output)
            self.assertIn("--dimensions", output)
        self.assertEqual(run(self.folder / "nowhere.tsv", "--out", self.folder / "set", "--teacher", "hashed")[0], 2)

    def test_a_missing_library_is_named(self):
        for module in ("sentence_transformers", "transformers", "torch"):
            self.write(module + ".py", "raise ImportError('not here')\n")
        texts = self.write("texts.tsv", "one\ttwo\n")
        status, output = run(texts, "--out", self.folder / "set", "--teacher", "some/model", env={"PYTHONPATH": str(self.folder)})
        self.assertEqual(status, 2, output)
        self.assertIn("sentence-transformers", output)

    def test_a_model_is_asked_for_every_text(self):
        self.write("sentence_transformers.py", """
import numpy
class SentenceTransformer:
    def __init__(self, name, device=None):
        assert name == "some/model"
    def encode(self, texts, batch_size, convert_to_numpy, show_progress_bar):
        return numpy.array([[len(text), 0, 4] for text in texts], numpy.float32)
""")
        texts = self.write("texts.tsv", "abc\tabcdefgh\n")
        out = self.folder / "set"
        status, output = run(texts, "--out", out, "--teacher", "some/model", env={"PYTHONPATH": str(self.folder)})
        self.assertEqual(status, 0, output)
        vectors = read_tensors(out / "pairs.safetensors")
        self.assertTrue(numpy.allclose(vectors["input_embeddings"], [[0.6, 0, 0.8]]))
        self.assertTrue(numpy.allclose(vectors["target_embeddings"], [[8 / 80 ** 0.5, 0, 4 / 80 ** 0.5]]))
        self.assertEqual(json.loads((out / "dataset.json").read_text())["teacher"], "some/model")


if __name__ == "__main__":
    unittest.main()
