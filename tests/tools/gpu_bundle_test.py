"""tools/gpu-bundle packs the sources and what they need, and no library of CUDA."""
import importlib.machinery
import importlib.util
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools/gpu-bundle"
sys.dont_write_bytecode = True


class Bundle(unittest.TestCase):
    def pack(self, *given):
        return subprocess.run([sys.executable, SCRIPT, *given], capture_output=True, text=True, check=False)

    @unittest.skipUnless((ROOT / ".git").exists(), "packing needs the repository")
    @unittest.skipUnless(pathlib.Path("/usr/src/googletest").exists(), "packing needs the Debian package googletest")
    def test_sources_and_dependencies_are_inside(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.pack("--no-programs", "--out", folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            with tarfile.open(pathlib.Path(folder) / "gpu-bundle.tar.gz") as tar:
                names = set(tar.getnames())
                manifest = json.load(tar.extractfile("gpu-bundle/manifest.json"))
        for name in ("CMakeLists.txt", "tools/gpu-check", "bench/peers/collective.py", "tests/goldens/ops.safetensors", "recipes",
                     "bundled/include/toml++/toml.h", "bundled/include/fmt/format-inl.h", "bundled/googletest/src/gtest-all.cc"):
            self.assertIn("gpu-bundle/" + name, names)
        self.assertEqual((manifest["architecture"], manifest["cuda"], manifest["programs"]), ("none", "none", []))
        self.assertRegex(manifest["commit"], "^[0-9a-f]{12}")

    @unittest.skipUnless((ROOT / ".git").exists(), "packing needs the repository")
    def test_absent_programs_are_named(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.pack("--build", folder, "--out", folder + "/out")
        self.assertEqual(done.returncode, 1)
        self.assertIn("millrace, step_profile, own_model", done.stderr)

    def test_libraries_of_cuda_and_the_c_library_stay_out(self):
        loader = importlib.machinery.SourceFileLoader("gpu_bundle", str(SCRIPT))
        bundle = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_bundle", loader))
        loader.exec_module(bundle)
        for name in ("libcublasLt.so.13", "libcupti.so.13", "libcudart.so.13", "libcuda.so.1", "libnvrtc.so.13", "libc.so.6", "libm.so.6",
                     "ld-linux-x86-64.so.2", "linux-vdso.so.1"):
            self.assertTrue(bundle.LEFT_OUT.match(name), name)
        for name in ("libfmt.so.9", "libzstd.so.1", "libgomp.so.1", "libstdc++.so.6", "libgcc_s.so.1", "libdnnl.so.3"):
            self.assertFalse(bundle.LEFT_OUT.match(name), name)


if __name__ == "__main__":
    unittest.main()
