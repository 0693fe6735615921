"""tools/gpu-bundle packs the sources and what they need, and no library of CUDA."""
import argparse
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools/gpu-bundle"
sys.dont_write_bytecode = True
from load_script import load  # noqa: E402


class Bundle(unittest.TestCase):
    def pack(self, *given):
        return subprocess.run([sys.executable, SCRIPT, *given], capture_output=True, text=True, check=False)

    @unittest.skipUnless((ROOT / ".git").exists(), "packing needs the repository")
    def test_sources_and_dependencies_are_inside(self):
        bundle, fetched = self.script(), []

        def fetch(architecture, root):
            fetched.append(architecture)
            (root / "usr/lib").mkdir(parents=True, exist_ok=True)
            (root / "usr/lib" / architecture).touch()

        # Without the network, and on a system without apt, too.
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(bundle.debian_packages, "fetch", fetch), \
                unittest.mock.patch.object(bundle.shutil, "which", lambda name: name), \
                unittest.mock.patch.object(bundle, "COMPRESSION", [{"id": bundle.lzma.FILTER_LZMA2, "preset": 0}]):
            bundle.pack(argparse.Namespace(build=pathlib.Path(folder), out=pathlib.Path(folder), no_programs=True, target=None))
            with tarfile.open(pathlib.Path(folder) / "gpu-bundle.tar.xz") as tar:
                names = set(tar.getnames())
                manifest = json.load(tar.extractfile("gpu-bundle/manifest.json"))
        self.assertEqual(sorted(fetched), ["amd64", "arm64"])
        for name in ("CMakeLists.txt", "tools/gpu-check", "tools/doctor-check", "tools/probe-leaves", "tests/probe/leaving/leaving_loop.cu",
                     "examples/sick/healthy.py", "examples/case-studies/collective.py", "cmake/x86_64-linux-gnu.cmake", "cmake/packages.txt",
                     "bench/peers/collective.py", "tests/goldens/ops.safetensors", "recipes", "bundled/usr/lib/amd64"):
            self.assertTrue("gpu-bundle/" + name in names, name)
        self.assertEqual((manifest["architecture"], manifest["cuda"], manifest["programs"]), ("none", "none", []))
        self.assertRegex(manifest["commit"], "^[0-9a-f]{12}")

    def test_programs_with_the_same_code_take_the_room_of_one(self):
        bundle = self.script()
        code = bytes(i * i * 2654435761 >> 7 & 255 for i in range(1 << 18))
        gap = bytes(12 << 20)  # as far apart as programs are, more than xz looks back by itself
        compressor = bundle.lzma.LZMACompressor(filters=bundle.COMPRESSION)
        size = len(compressor.compress(code + gap + code) + compressor.flush())
        self.assertLess(size, 1.1 * len(bundle.lzma.compress(code, preset=1)) + len(gap) // 1000)

    @unittest.skipUnless((ROOT / ".git").exists(), "packing needs the repository")
    def test_absent_programs_are_named(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.pack("--build", folder, "--out", folder + "/out")
        self.assertEqual(done.returncode, 1)
        self.assertIn("millrace, own_model", done.stderr)

    @staticmethod
    def script():
        return load(SCRIPT, "gpu_bundle")

    def test_libraries_of_cuda_and_the_c_library_stay_out(self):
        bundle = self.script()
        for name in ("libcublasLt.so.13", "libcupti.so.13", "libcudart.so.13", "libcuda.so.1", "libnvrtc.so.13", "libc.so.6", "libm.so.6",
                     "ld-linux-x86-64.so.2", "linux-vdso.so.1"):
            self.assertTrue(bundle.LEFT_OUT.match(name), name)
        for name in ("libfmt.so.9", "libzstd.so.1", "libstdc++.so.6", "libgcc_s.so.1"):
            self.assertFalse(bundle.LEFT_OUT.match(name), name)

    def made_up_build(self, folder, *left_out):
        build = pathlib.Path(folder, "build")
        (build / "mock_cuda").mkdir(parents=True)
        for name in ("millrace", "own_model", "test_probe", "libmillrace-probe.so", "libmock_cupti.so", "mock_cuda/libcuda.so.1",
                     "probe_mock_program", "libmillrace_core.a", "libmillrace-mpi.so", "comm_rank_program"):
            if name not in left_out:
                (build / name).write_text("made up")
        return build

    def test_the_probe_lies_beside_the_program_and_stand_ins_beside_the_tests(self):
        bundle = self.script()
        loads = {"millrace": "libfmt.so.9", "libmillrace-mpi.so": "libmpi.so.40"}
        bundle.libraries_of = lambda program: {loads[program.name]: str(SCRIPT)} if program.name in loads else {}
        bundle.copy_built.__globals__["output_of"] = lambda *command: ""  # nothing here can be stripped
        with tempfile.TemporaryDirectory() as folder:
            programs, libraries = bundle.copy_programs(self.made_up_build(folder), pathlib.Path(folder, "bundle"))
            packed = sorted(str(path.relative_to(folder)) for path in pathlib.Path(folder, "bundle").rglob("*") if path.is_file())
        self.assertEqual((programs, libraries), (["millrace", "own_model", "test_probe"], ["libfmt.so.9"]))
        self.assertEqual(packed, ["bundle/bin/" + name for name in (
            "comm_rank_program", "lib/libfmt.so.9", "libmillrace-mpi.so", "libmillrace-probe.so", "libmock_cupti.so", "millrace", "mock_cuda/libcuda.so.1", "own_model", "probe_mock_program",
            "test_probe")])

    def test_an_absent_probe_is_named(self):
        bundle = self.script()
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(bundle.Missing, "lacks libmillrace-probe.so;"):
                bundle.copy_programs(self.made_up_build(folder, "libmillrace-probe.so"), pathlib.Path(folder, "bundle"))

    def test_libraries_of_another_architecture_come_from_its_own_tables(self):
        bundle, needs = self.script(), {"millrace": ["libzstd.so.1", "libc.so.6"], "libzstd.so.1": ["libdeep.so.2", "libzstd.so.1"], "libdeep.so.2": []}
        lines = " 0x0000000000000001 (NEEDED)             Shared library: [{}]"
        bundle.output_of = lambda tool, flag, path: "\n".join(lines.format(name) for name in needs[pathlib.Path(path).name])
        with tempfile.TemporaryDirectory() as folder:
            for name in ("libzstd.so.1", "libdeep.so.2"):
                pathlib.Path(folder, name).touch()
            found = bundle.foreign_libraries_of(pathlib.Path("millrace"), "x86_64-linux-gnu", [folder])
            self.assertEqual(sorted(found), ["libdeep.so.2", "libzstd.so.1"])
            pathlib.Path(folder, "libdeep.so.2").unlink()
            with self.assertRaisesRegex(bundle.Missing, "millrace needs libdeep.so.2"):
                bundle.foreign_libraries_of(pathlib.Path("millrace"), "x86_64-linux-gnu", [folder])

    def test_an_absent_cross_compiler_is_named_with_its_package(self):
        bundle = self.script()
        bundle.shutil = type("Without", (), {"which": staticmethod(lambda name: None)})
        with self.assertRaisesRegex(bundle.Missing, "package g\\+\\+-x86-64-linux-gnu"):
            bundle.cross_compile("x86_64", pathlib.Path("/nowhere"))

    def test_a_target_and_no_programs_exclude_one_another(self):
        self.assertEqual(self.pack("--target", "x86_64", "--no-programs").returncode, 2)
        self.assertEqual(self.pack("--target", "vax").returncode, 2)


if __name__ == "__main__":
    unittest.main()
