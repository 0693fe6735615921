"""tools/fetch-text on a made-up dictionary, made-up headers and made-up packages."""
import contextlib
import gzip
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools/fetch-text"
sys.dont_write_bytecode = True
from load_script import load  # noqa: E402

fetch_text = load(SCRIPT, "fetch_text")
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def base64(value):
    return (base64(value // 64) if value >= 64 else "") + DIGITS[value % 64]


@contextlib.contextmanager
def made_up(entries, name="made"):
    """A folder with name.dict.dz and name.index of {headword: text}; equal texts are one entry of several headwords."""
    text, spans, lines = b"", {}, []
    for headword, entry in entries.items():
        if entry not in spans:
            spans[entry] = len(text), len(entry.encode())
            text += entry.encode()
        lines.append(f"{headword}\t{base64(spans[entry][0])}\t{base64(spans[entry][1])}\n")
    with tempfile.TemporaryDirectory() as folder:
        dictd = pathlib.Path(folder, "usr/share/dictd")
        dictd.mkdir(parents=True)
        (dictd / f"{name}.dict.dz").write_bytes(gzip.compress(text))
        (dictd / f"{name}.index").write_text("".join(sorted(lines)))
        yield pathlib.Path(folder)


def entries_of(folder, name="made"):
    return list(fetch_text.dictionary(name)(folder))


class Parsing(unittest.TestCase):
    def test_numbers_have_the_most_significant_digit_first(self):
        for digits, value in (("A", 0), ("B", 1), ("/", 63), ("BA", 64), ("BOM2q", 20499882)):
            self.assertEqual(fetch_text.number_of(digits), value)
            self.assertEqual(base64(value), digits)

    def test_entries_come_once_in_the_order_of_the_file(self):
        with made_up({"zebra": "Zebra\n   an animal\n", "00-database-info": "about this\n", "ant": "Ant\n   small\n", "emmet": "Ant\n   small\n",
                      "00": "the number 00\n"}) as folder:
            self.assertEqual(entries_of(folder), ["Zebra\n   an animal\n", "Ant\n   small\n", "the number 00\n"])

    def test_notes_of_sources_pronunciation_and_links_go(self):
        with made_up({"lay": 'Lay \\Lay\\, v. See {Lie}.\n   [1913 Webster]\n   [Obs.] [WordNet 1.5 +PJC]\n'}) as folder:
            self.assertEqual(fetch_text.words_of(entries_of(folder)[0]), ["Lay", ",", "v", ".", "See", "Lie", ".", "[", "Obs", ".", "]"])

    def test_an_index_that_does_not_fit_is_named_with_its_line(self):
        with made_up({"a": "short"}) as folder:
            index = folder / "usr/share/dictd/made.index"
            for line in ("a\tA\tBA\n", "a\tA\n", "a\t!\tA\n", "\n"):
                index.write_text("a\tA\tB\n" + line)
                with self.assertRaisesRegex(fetch_text.Failure, "made.index:2"):
                    entries_of(folder)

    def test_words_and_marks_stand_apart(self):
        self.assertEqual(fetch_text.words_of("Don't; well-known\nx=3. \ufffd\u00e4"), ["Don't", ";", "well-known", "x", "=", "3", ".", "\u00e4"])

    def test_headers_lose_comments_and_come_once(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("b.h", "int b_c; // end\n/* a\n b */ int d;"), ("a.h", "int a;"), ("sub/a.h", "int a;"), ("c.txt", "no")):
                path = pathlib.Path(folder, name)
                path.parent.mkdir(exist_ok=True)
                path.write_text(text)
            self.assertEqual([fetch_text.words_of(text) for text in fetch_text.header_entries(folder)],
                             [["int", "a", ";"], ["int", "b", "c", ";", "int", "d", ";"]])


class Splitting(unittest.TestCase):
    def test_every_entry_is_in_one_part_by_seed(self):
        entries = [f"entry {i}" for i in range(103)] + ["  "]
        parts = fetch_text.split(entries, 1)
        self.assertEqual([len(parts[name]) for name in ("train", "valid", "test")], [93, 5, 5])
        self.assertEqual(sorted(words for part in parts.values() for words in part), sorted(entry.split() for entry in entries if entry.strip()))
        self.assertEqual(parts, fetch_text.split(entries, 1))
        self.assertNotEqual(parts["valid"], fetch_text.split(entries, 2)["valid"])


@unittest.skipUnless(shutil.which("dpkg-deb"), "needs dpkg-deb")
class Fetching(unittest.TestCase):
    def run_script(self, *arguments):
        done = subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def test_a_package_becomes_three_files_that_are_left_alone_after(self):
        with made_up({f"w{i:03}": f"word{i % 7} is number {i} .\n" for i in range(200)}, "foldoc") as tree, tempfile.TemporaryDirectory() as folder:
            (tree / "DEBIAN").mkdir()
            (tree / "DEBIAN/control").write_text("Package: dict-foldoc\nVersion: 1\nArchitecture: all\nMaintainer: x <x@y.z>\nDescription: made up\n")
            subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, pathlib.Path(folder, "dict-foldoc_1_all.deb")], check=True, capture_output=True)
            out = pathlib.Path(folder, "out")
            status, output = self.run_script(out, "--domains", "foldoc", "--packages", folder)
            self.assertEqual(status, 0, output)
            self.assertIn("train 900 words (0.0 % unknown), valid 50 words", output)
            lines = [(out / f"foldoc/{part}.txt").read_text().splitlines() for part in fetch_text.PARTS]
            self.assertEqual([len(part) for part in lines], [180, 10, 10])
            self.assertEqual(len({line for part in lines for line in part}), 200)
            self.assertEqual([path.name for path in out.iterdir()], ["foldoc"])
            before = (out / "foldoc/train.txt").stat().st_mtime_ns
            self.assertEqual(self.run_script(out, "--domains", "foldoc", "--packages", "/nowhere")[0], 0)
            self.assertEqual((out / "foldoc/train.txt").stat().st_mtime_ns, before)
            (out / "foldoc/test.txt").unlink()
            status, output = self.run_script(out, "--domains", "foldoc", "--packages", folder)
            self.assertEqual((status, "remove it first" in output), (2, True), output)

    def test_a_package_that_is_not_there_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            status, output = self.run_script(pathlib.Path(folder, "out"), "--domains", "gcide", "--packages", folder)
            self.assertEqual((status, "dict-gcide" in output, "Traceback" in output), (2, True, False), output)
            pathlib.Path(folder, "dict-gcide_1_all.deb").write_text("no archive")
            status, output = self.run_script(pathlib.Path(folder, "out"), "--domains", "gcide", "--packages", folder)
            self.assertEqual((status, "cannot be unpacked" in output), (2, True), output)
            self.assertFalse(pathlib.Path(folder, "out").exists())


if __name__ == "__main__":
    unittest.main()
