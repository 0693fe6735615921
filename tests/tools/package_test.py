"""What is installed beside the program: the package's contents, manual pages, completion, the container file."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MILLRACE_BUILD", ROOT / "build"))
PROGRAM = BUILD / "millrace"
NEEDS_BUILD = unittest.skipUnless(PROGRAM.exists(), "needs a build")
# Sets COMPREPLY for the words behind the script, the last being under the cursor, and prints what compopt was told and the replies.
BASH = """source /dev/stdin <<< "$("$1" completion bash)"
compopt() { echo "compopt $*"; }
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_millrace "$1"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def output_of(*command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, f"{command} ended with {done.returncode}: {done.stderr}"
    return done.stdout


def section(text, heading):
    """The lines of a help's section."""
    found = re.search(rf"^{heading}:\n((?:  .*\n)+)", text, re.M)
    return found[1].splitlines() if found else []


def commands(*words):
    """The words of every command, by the help, with the options that it lists and the names of its commands."""
    text = output_of(PROGRAM, *words, "--help")
    names = [line.split()[0] for line in section(text, "Subcommands")]
    heads = [line for line in section(text, "Options") if re.match(r"  -", line)]
    options = [name for line in heads for name in re.match(r"  (\S+)", line)[1].split(",")]
    yield words, options, names
    for name in names:
        yield from commands(*words, name)


def offered(*words, folder=ROOT):
    """What the program offers for the last of these words."""
    return [line.split("\t")[0] for line in output_of(PROGRAM, "completion", "--", *words, cwd=folder).splitlines()]


@NEEDS_BUILD
class Manual(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        output_of(PROGRAM, "man", "--out", cls.folder / "man1")
        cls.pages = sorted((cls.folder / "man1").iterdir())

    def test_every_command_has_a_page_with_its_options_and_commands(self):
        listed = list(commands())
        self.assertGreater(len(listed), 15)
        self.assertEqual([page.name for page in self.pages], sorted("-".join(["millrace", *words]) + ".1" for words, _, _ in listed))
        for words, options, names in listed:
            page = (self.folder / "man1" / ("-".join(["millrace", *words]) + ".1")).read_text().replace("\\-", "-")
            self.assertEqual(page, output_of(PROGRAM, "man", *words).replace("\\-", "-"))
            self.assertIn("--help", options)
            for option in options:
                self.assertRegex(page, rf"(?m)^(\\fB.*, )?\\fB{re.escape(option)}\\fR", words)
            for name in names:
                self.assertIn("-".join(["\\fBmillrace", *words, name]) + "\\fR(1)", page)

    @unittest.skipUnless(shutil.which("groff") and shutil.which("lexgrog"), "needs groff and man-db")
    def test_pages_parse_without_a_warning(self):
        for page in self.pages:
            done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", page], capture_output=True, text=True, check=True)
            self.assertEqual(done.stderr, "", page.name)
            self.assertIn(page.stem, done.stdout.split("\nSYNOPSIS")[0].replace("‐", "-"))
            self.assertIn(f'"{page.stem} - ', output_of("lexgrog", page))

    @unittest.skipUnless(shutil.which("groff"), "needs groff")
    def test_words_appear_as_they_are_typed(self):
        shown = output_of("groff", "-man", "-Tascii", "-P-cbou", self.folder / "man1/millrace-sweep.1")
        self.assertIn("millrace sweep recipes/study-NAME.toml --trials 1000 --time 30m --out runs/night\n", shown)
        for heading in ("NAME", "SYNOPSIS", "ARGUMENTS", "OPTIONS", "EXAMPLES"):
            self.assertRegex(shown, rf"(?m)^{heading}$")

    def test_a_command_that_there_is_not_is_refused(self):
        done = subprocess.run([PROGRAM, "man", "data", "lunch"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("'lunch'", done.stderr)


@NEEDS_BUILD
class Completion(unittest.TestCase):
    def test_every_command_and_option_is_offered(self):
        for words, options, names in commands():
            self.assertLessEqual(set(options), set(offered(*words, "-")), words)
            self.assertLessEqual(set(names), set(offered(*words, "")), words)

    def test_values_files_and_keys(self):
        for given, wanted in ((("tr",), ["train"]),
                              (("train", "--device", ""), ["auto", "cpu", "cuda"]),
                              (("train", "--device=c"), ["--device=cpu", "--device=cuda"]),
                              (("train", ""), [":"]),
                              (("train", "--out", "r"), [":"]),
                              (("sweep", "--trials", ""), []),
                              (("data", "make", "g"), ["garments"]),
                              (("data", "make", "garments", "--out", "x", "--see"), ["--seed"]),
                              (("watch", "--", "--s"), [":"]),
                              (("train", "recipes/cnn-base.toml", "--set", "optim.l"), ["optim.lr="]),
                              (("train", "recipes/cnn-base.toml", "--set=train.shu"), []),
                              (("train", "recipes/cnn-base.toml", "--set", "precision=b"), ["precision=bf16"]),
                              (("train", "recipes/cnn-base.toml", "--set", "checkpoint.compress="), ["checkpoint.compress=true", "checkpoint.compress=false"]),
                              (("train", "absent.toml", "--set", "optim."), []),
                              (("lunch", "tr"), [])):
            self.assertEqual(offered(*given), wanted, given)
        self.assertEqual(output_of(PROGRAM, "completion", "--"), "")
        self.assertIn("--help", offered("models", "show", "recipes/cnn-base.toml", ""))

    def bash(self, *words):
        return output_of("bash", "-c", BASH, "bash", PROGRAM, *words, cwd=ROOT).splitlines()

    def test_bash(self):
        self.assertEqual(self.bash("comp"), ["compare", "completion"])
        self.assertEqual(self.bash("train", "--device", "c"), ["cpu", "cuda"])
        self.assertEqual(self.bash("train", "--device", "=", "c"), ["cpu", "cuda"])
        self.assertEqual(self.bash("train", "--device", "="), ["auto", "cpu", "cuda"])
        self.assertEqual(self.bash("train", "--out", "")[0], "compopt -o default")
        self.assertEqual(self.bash("train", "recipes/cnn-base.toml", "--set", "optim.l"), ["compopt -o nospace", "optim.lr="])
        self.assertEqual(self.bash("train", "recipes/cnn-base.toml", "--set", "precision", "=", "b"), ["bf16"])

    @unittest.skipUnless(shutil.which("zsh"), "needs zsh")
    def test_zsh(self):
        script = """compadd() { shift $@[(i)--]; (( ! $# )) || print -l -- $@; }; _files() { print files; }; compset() { :; }
            source <($1 completion zsh); words=("$@"); CURRENT=$#words; PREFIX=$words[-1]; _millrace"""
        for words, wanted in ((["comp"], "compare\ncompletion\n"), (["train", "--out", ""], "files\n"),
                              (["train", "--device=c"], "--device=cpu\n--device=cuda\n"), (["sweep", "--trials", ""], "")):
            self.assertEqual(output_of("zsh", "-f", "-c", script, "zsh", PROGRAM, *words, cwd=ROOT), wanted)

    @unittest.skipUnless(shutil.which("fish"), "needs fish")
    def test_fish(self):
        folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        (folder / "millrace").symlink_to(PROGRAM)
        script = "millrace completion fish | source; complete -C $argv[1]"
        for line, wanted in (("millrace comp", ["compare", "completion"]), ("millrace train --device ", ["auto", "cpu", "cuda"]),
                             ("millrace train --device=c", ["--device=cpu", "--device=cuda"]), ("millrace train --init CMakeL", ["CMakeLists.txt"])):
            said = output_of("fish", "-N", "-c", script, line, cwd=ROOT, env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder)})
            self.assertEqual([row.split("\t")[0] for row in said.splitlines()], wanted, line)


@unittest.skipUnless((BUILD / "CPackConfig.cmake").exists() and PROGRAM.exists() and shutil.which("dpkg-shlibdeps"), "needs a build and dpkg-dev")
class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        output_of("cpack", "--config", BUILD / "CPackConfig.cmake", "-B", cls.folder, "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=zstd", cwd=cls.folder)
        cls.deb, = cls.folder.glob("millrace_*.deb")
        output_of("dpkg-deb", "-x", cls.deb, cls.folder / "root")
        cls.usr = cls.folder / "root/usr"

    def field(self, name):
        return output_of("dpkg-deb", "-f", self.deb, name).strip()

    def test_it_says_what_it_is(self):
        version = output_of(PROGRAM, "--version").split()[1]
        self.assertEqual([self.field(name) for name in ("Package", "Version", "Section", "Maintainer")], ["millrace", version, "science", "The Millrace authors"])
        self.assertEqual(self.deb.name, f"millrace_{version}_{output_of('dpkg', '--print-architecture').strip()}.deb")
        depends, suggests = self.field("Depends"), self.field("Suggests")
        self.assertRegex(depends, r"\blibc6 \(>=")
        self.assertRegex(depends, r"\blibfmt")
        self.assertNotIn("openmpi", depends)
        self.assertIn("libfmt-dev", suggests)
        if (self.usr / "lib/millrace/libmillrace-mpi.so").exists():
            self.assertRegex(suggests, r"\blibopenmpi\d")

    def test_it_holds_all_parts_readable_by_everybody(self):
        listed = {line.split()[-1].removeprefix("."): line for line in output_of("dpkg-deb", "-c", self.deb).splitlines()}
        for path in ("bin/millrace", "lib/libmillrace_core.a", "lib/cmake/millrace/millrace-config.cmake", "lib/millrace/libmillrace-probe.so",
                     "include/millrace/models/model.h", "share/doc/millrace/copyright", "share/doc/millrace/own-data.md", "share/man/man1/millrace.1.gz",
                     "share/man/man1/millrace-data-make.1.gz", "share/bash-completion/completions/millrace", "share/zsh/vendor-completions/_millrace",
                     "share/fish/vendor_completions.d/millrace.fish", *(f"share/millrace/recipes/{path.name}" for path in (ROOT / "recipes").iterdir())):
            self.assertIn(f"/usr/{path}", listed)
        for path, line in listed.items():
            self.assertRegex(line, r"^(drwxr-xr-x|-rwxr-xr-x|-rw-r--r--) root/root", path)
        self.assertEqual([path for path in listed if path.startswith("/") and not path.startswith("/usr") and path != "/"], [])
        self.assertIn("Apache", (self.usr / "share/doc/millrace/copyright").read_text())

    def test_the_installed_program_finds_its_recipes_anywhere(self):
        program = self.usr / "bin/millrace"
        self.assertIn("model.text_bridge.enabled", output_of(program, "train", "--keys", "recipes/energy_flow-debug.toml", cwd=self.folder))
        (self.folder / "recipes").mkdir()
        (self.folder / "recipes/energy_flow-debug.toml").write_text("[model]\nname = \"cnn\"\npreset = \"base\"\n")
        self.addCleanup(shutil.rmtree, self.folder / "recipes")
        self.assertNotIn("text_bridge", output_of(program, "train", "--keys", "recipes/energy_flow-debug.toml", cwd=self.folder))
        absent = subprocess.run([program, "train", "recipes/absent.toml"], cwd=self.folder, capture_output=True, text=True, check=False)
        self.assertEqual((absent.returncode, "recipes/absent.toml" in absent.stderr), (2, True), absent.stderr)


class Container(unittest.TestCase):
    def test_what_it_runs_are_targets_of_make_and_its_stages_exist(self):
        text = (ROOT / "Containerfile").read_text()
        targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.M)
        self.assertTrue(re.findall(r"\bmake ([a-z-]+)", text))
        for target in re.findall(r"^RUN.*\bmake ([a-z-]+)$", text, re.M):
            self.assertIn(target, targets)
        stages = re.findall(r"^FROM \S+ AS (\S+)$", text, re.M)
        for variant in ("cpu", "cuda"):
            for used in re.findall(r"^FROM (\S*\$\{VARIANT\})", text, re.M):
                self.assertIn(used.replace("${VARIANT}", variant), stages)
        for image in re.findall(r"^FROM (\S+)", text, re.M):
            self.assertNotRegex(image, r"^[^/]*\.[^/]*/", "names no host")


if __name__ == "__main__":
    unittest.main()
