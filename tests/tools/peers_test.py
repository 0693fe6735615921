"""bench/peers: every script parses, and the commands take what `millrace bench` hands them. Neither PyTorch nor JAX is needed."""
import ast
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MILLRACE_BUILD", ROOT / "build")).resolve()
PEERS = ROOT / "bench/peers"
sys.dont_write_bytecode = True
from load_script import load  # noqa: E402


class Scripts(unittest.TestCase):
    def test_all_of_them_parse(self):
        for path in PEERS.glob("*.py"):
            ast.parse(path.read_text(), str(path))


@unittest.skipUnless((BUILD / "millrace").exists(), f"no millrace in {BUILD}")
class Handed(unittest.TestCase):
    """What the program hands to a peer, read by the peer's own parser."""

    def setUp(self):
        sys.path.insert(0, str(PEERS))
        self.addCleanup(sys.path.remove, str(PEERS))

    def given(self, row, *settings):
        with tempfile.TemporaryDirectory() as folder:
            python, words = pathlib.Path(folder, "python"), pathlib.Path(folder, "words")
            python.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {words}\n')
            python.chmod(0o755)
            command = [BUILD / "millrace", "bench", row, "--device", "cpu", "--seconds", "0.01", "--no-ceiling"]
            done = subprocess.run([*command, *(word for setting in settings for word in ("--set", setting))], capture_output=True, text=True,
                                  check=False, env=dict(os.environ, MILLRACE_PYTHON=str(python), MILLRACE_PEERS=str(PEERS)))
            self.assertEqual(done.returncode, 0, done.stderr)
            script, *arguments = words.read_text().splitlines()
        module = load(script, pathlib.Path(script).stem)
        with mock.patch.object(sys, "argv", [script, *arguments]):
            return module.arguments()

    def test_the_collective(self):
        import presets
        given = self.given("collective-debug-r2", "train.batch=6", "members=2", "model.expert_hidden=9,8,7", "model.head_dropout=0",
                           "train.dropout_scale=0.5", "model.n_total=5")
        shape = presets.shape_of(given)
        self.assertEqual((given.batch, given.members, shape["revision"], shape["expert"], shape["analyst"]), (6, 2, "r2", (9, 8, 7, 32), (64, 32, 16)))
        self.assertEqual((shape["experts"], shape["analysts"], shape["dropout"], shape["rates"]), (2, 3, 0.5, (0.2, 0.1, 0)))

    def test_the_language_models(self):
        import language_shape
        given = self.given("transformer-debug", "train.batch=2", "data.length=9", "data.vocabulary=40", "model.dropout=0.2", "model.heads=2")
        wanted = dict(vocabulary=40, length=9, width=32, heads=2, inner=64, depth=2, dropout=0.2)
        self.assertEqual((given.batch, language_shape.shape_of(given)), (2, wanted))
        given = self.given("k1-debug", "train.batch=2", "data.length=9", "data.vocabulary=40", "model.branching=2")
        self.assertEqual((given.preset, given.branching, given.k), ("k1", (2,), 3))

    def test_the_others(self):
        self.assertEqual(self.given("energy_flow-tiny", "train.batch=3").batch, 3)
        self.assertEqual(self.given("leak_cnn-b512", "train.batch=8").batch, 8)

    def test_the_network_for_images(self):
        given = self.given("cnn-32x32-b128", "train.batch=2", "data.size=9x6", "model.channels=3,5", "model.hidden=7", "model.dropout=0")
        self.assertEqual((given.batch, given.size, given.colour, given.channels, given.hidden, given.dropout), (2, (9, 6), "colour", (3, 5), 7, 0))


if __name__ == "__main__":
    unittest.main()
