"""The list of Debian packages, and unpacking them without installing."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools"))
import debian_packages  # noqa: E402


class List(unittest.TestCase):
    def test_rows_have_five_columns_and_no_package_twice(self):
        lines = [line.split() for line in debian_packages.LIST.read_text().splitlines() if not line.startswith("#")]
        for words in lines:
            self.assertGreaterEqual(len(words), 5, words)
        self.assertEqual(len({words[1] for words in lines}), len(lines))

    def test_libraries_are_the_packages_with_a_header(self):
        self.assertLessEqual({"libzstd-dev", "zlib1g-dev", "libsentencepiece-dev", "libhdf5-dev", "libdeflate-dev", "libfmt-dev", "libgtest-dev", "libjs-dygraphs"}, set(debian_packages.libraries()))
        self.assertNotIn("cmake", debian_packages.libraries())
        self.assertIn(("libsentencepiece-dev", "sentencepiece_processor.h", ["sentencepiece", "sentencepiece_train"], "no text bridge"),
                      debian_packages.rows())

    def test_setup_refuses_what_is_no_group(self):
        for given in ("--build", "--zstd", "lint"):
            done = subprocess.run([ROOT / "tools/setup", given], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, given in done.stderr), (2, True), given)


@unittest.skipUnless(shutil.which("dpkg-deb"), "needs dpkg-deb")
class Unpacking(unittest.TestCase):
    def package(self, folder, depends, files):
        tree = pathlib.Path(folder, "tree")
        for name, content in files.items():
            path = tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(content[3:]) if content.startswith("-> ") else path.write_text(content)
        (tree / "DEBIAN").mkdir()
        (tree / "DEBIAN/control").write_text(f"Package: libmade-dev\nVersion: 1\nArchitecture: all\nMaintainer: x <x@y.z>\nDepends: {depends}\nDescription: made up\n")
        archive = pathlib.Path(folder, "made.deb")
        subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, archive], check=True, capture_output=True)
        return archive

    def test_libraries_of_lib_join_those_of_usr_and_links_stay_inside(self):
        triplet = "x86_64-linux-gnu"
        with tempfile.TemporaryDirectory() as folder:
            archive = self.package(folder, "libmade1 (= 1), libc6-dev | libc-dev, libother:any | libthird", {
                f"lib/{triplet}/libmade.so.1.2": "the library", f"usr/lib/{triplet}/libmade.so": f"-> /lib/{triplet}/libmade.so.1.2",
                f"usr/include/{triplet}/made.h": "header", "usr/share/doc/libmade-dev/copyright": "licence", "usr/share/man/made.3": "left out",
                "usr/share/javascript/made/made.min.js": "script", "usr/share/javascript/made/made.min.js.map": "left out"})
            self.assertEqual(debian_packages.dependencies_of(archive), ["libmade1", "libother"])
            root = pathlib.Path(folder, "root")
            for _ in range(2):  # another architecture's package brings the same headers again
                debian_packages.unpack([archive], root)
            self.assertEqual((root / f"usr/lib/{triplet}/libmade.so").read_text(), "the library")
            self.assertEqual((root / f"usr/include/{triplet}/made.h").read_text(), "header")
            self.assertTrue((root / "usr/share/doc/libmade-dev/copyright").exists())
            self.assertFalse((root / "usr/share/man").exists())
            self.assertEqual([path.name for path in (root / "usr/share/javascript/made").iterdir()], ["made.min.js"])


if __name__ == "__main__":
    unittest.main()
