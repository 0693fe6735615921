"""A model outside of the tree: install into an empty prefix, find_package(millrace), and every command works on it."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MILLRACE_BUILD", ROOT / "build"))
EXAMPLE = ROOT / "examples" / "own-model"


@unittest.skipUnless((BUILD / "millrace").exists() and shutil.which("cmake"), "needs a build and cmake")
class OwnModel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        shutil.copytree(EXAMPLE, cls.folder / "source")
        cls.do("cmake", "--install", BUILD, "--prefix", cls.folder / "prefix")
        cls.do("cmake", "-S", "source", "-B", "built", f"-DCMAKE_PREFIX_PATH={cls.folder / 'prefix'}", "-DCMAKE_BUILD_TYPE=Release")
        cls.do("cmake", "--build", "built")
        cls.program = cls.folder / "built" / "own_model"
        cls.do(cls.program, "data", "make", "garments", "--train", "1200", "--test", "60", "--out", "data/garments")

    @classmethod
    def do(cls, *command):
        done = subprocess.run([str(word) for word in command], cwd=cls.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def train(self, out, *more):
        return [str(self.program), "train", "source/recipe.toml", "--set", "device=cpu", "--set", "train.epochs=40", "--out", out, *more]

    def test_it_has_at_most_sixty_lines(self):
        self.assertLessEqual(len((EXAMPLE / "own_model.cpp").read_text().splitlines()), 60)

    def test_models_lists_it_beside_the_built_in_ones(self):
        names = {entry["model"] for entry in json.loads(self.do(self.program, "models", "--json"))}
        self.assertLessEqual({"two_layers", "collective"}, names)

    def test_a_killed_run_goes_on_to_the_same_weights(self):
        self.do(*self.train("runs/whole"))
        killed = subprocess.Popen(self.train("runs/killed"), cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        last = self.folder / "runs/killed/checkpoints/last"
        for _ in range(3000):
            if last.exists() or killed.poll() is not None:
                break
            time.sleep(0.01)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        self.assertTrue(last.exists())
        self.do(*self.train("runs/killed", "--resume"))
        weights = [(self.folder / run / "checkpoints/last/model.safetensors").read_bytes() for run in ("runs/whole", "runs/killed")]
        self.assertEqual(weights[0], weights[1])
        scored = json.loads(self.do(self.program, "eval", "runs/killed", "--json"))
        self.assertEqual(scored["model"], "two_layers")
        self.assertGreater(scored["accuracy"], 0.3)  # ten classes

    def test_bench_times_it(self):
        rows = json.loads(self.do(self.program, "bench", "two_layers-small", "--device", "cpu", "--no-peers", "--no-ceiling", "--json", "--seconds", "0.1"))
        self.assertGreater(rows[0]["ours_ms"], 0)

    def test_cublas_is_not_linked(self):
        needed = subprocess.run(["readelf", "-d", str(BUILD / "millrace")], capture_output=True, text=True, check=True).stdout
        self.assertNotIn("cublas", needed)


if __name__ == "__main__":
    unittest.main()
