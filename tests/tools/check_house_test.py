"""tools/check-house finds arrows that point up and accepts those that point down."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check-house"


def check(files):
    """Runs the script on a tree of {path: text}; returns (exit status, output)."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            target = pathlib.Path(root) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        done = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr


class CheckHouse(unittest.TestCase):
    def test_down_is_fine(self):
        status, output = check({
            "src/base/result.h": "#include <string>\n",
            "src/ops/op.h": '#include "base/result.h"\n',
            "src/cli/train.cpp": '#include "ops/op.h"\n',
            "src/cli/arguments.cpp": "#include <CLI/CLI.hpp>\n",
        })
        self.assertEqual(status, 0, output)
        self.assertIn("4 files", output)

    def test_up_is_named_with_file_and_line(self):
        status, output = check({"src/ops/op.h": "", "src/base/log.cpp": '\n#include "ops/op.h"\n'})
        self.assertEqual(status, 1)
        self.assertIn("src/base/log.cpp:2: base/ may not use ops/", output)

    def test_sub_folders_of_the_doctor_have_an_order(self):
        tree = {"src/diagnose/timeline/a.h": "", "src/diagnose/causes/b.h": "", "src/diagnose/diagnose.h": ""}
        for user, used, wrong in (("causes", "timeline/a", 0), ("causes", "causes/b", 0), ("timeline", "causes/b", 1), ("causes", "diagnose", 1), ("new", "timeline/a", 1)):
            status, output = check({**tree, f"src/diagnose/{user}/c.cpp": f'#include "diagnose/{used}.h"\n'})
            self.assertEqual(status, wrong, f"{user} -> {used}: {output}")
        self.assertEqual(check({**tree, "src/diagnose/d.cpp": '#include "diagnose/causes/b.h"\n'})[0], 0)

    def test_engine_and_doctor_do_not_know_each_other(self):
        for user, used in (("train", "diagnose"), ("diagnose", "tape"), ("nn", "optim"), ("models", "train"), ("probe", "sense"), ("io", "record"), ("sense", "io"), ("plot", "io"), ("train", "plot"), ("train", "bench"), ("search", "train")):
            status, output = check({f"src/{used}/a.h": "", f"src/{user}/b.cpp": f'#include "{used}/a.h"\n'})
            self.assertEqual(status, 1, f"{user} -> {used}: {output}")

    def test_heavy_and_cuda_headers_stay_out_of_headers(self):
        for line in ("#include <nlohmann/json.hpp>", "#include <toml++/toml.h>", "#include <CLI/CLI.hpp>", "#include <cuda_runtime.h>"):
            self.assertEqual(check({"src/cli/a.h": line + "\n"})[0], 1, line)
            self.assertEqual(check({"src/cli/a.cpp": line + "\n"})[0], int("CLI" in line), line)
            self.assertEqual(check({"src/cli/arguments.cpp": line + "\n"})[0], 0, line)
        self.assertEqual(check({"src/ops/cuda/a.h": "#include <cuda_runtime.h>\n"})[0], 0)

    def test_files_are_read_through_io_alone(self):
        for header in ("fstream", "fcntl.h", "zlib.h", "zstd.h", "hdf5.h", "libdeflate.h", "sys/mman.h"):
            for room in ("base", "data", "train", "models", "record", "cli"):
                status, output = check({f"src/{room}/a.cpp": f"#include <{header}>\n"})
                self.assertEqual(status, 1, f"{room}: {header}")
                self.assertIn("through io/", output)
            for path in ("io/a.cpp", "sense/a.cpp", "probe/a.cpp", "diagnose/a.cpp", "report/a.cpp", "record/probe_reader.cpp"):
                self.assertEqual(check({f"src/{path}": f"#include <{header}>\n"})[0], 0, f"{path}: {header}")
        call = 'auto* file = std::fopen("a", "rb");\n'
        self.assertEqual(check({"src/train/a.cpp": call})[0], 1)
        self.assertEqual(check({"src/io/a.cpp": call})[0], 0)

    def test_unknown_folder_and_missing_target_are_refused(self):
        self.assertEqual(check({"src/utils/a.h": ""})[0], 1)
        self.assertEqual(check({"src/base/a.h": '#include "base/gone.h"\n'})[0], 1)
        self.assertEqual(check({"src/base/a.h": "", "src/base/b.h": '#include "a.h"\n'})[0], 1)
        self.assertEqual(check({"src/base/a.h": "", "src/base/b.h": '#include "../base/a.h"\n'})[0], 1)

    def test_empty_tree_is_an_error(self):
        self.assertEqual(check({"README.md": ""})[0], 2)


if __name__ == "__main__":
    unittest.main()
