"""tools/count-judging: what it takes for judging, and what for a threshold."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools" / "count-judging"


def write(root, files):
    for path, text in files.items():
        target = pathlib.Path(root) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def count(root, *arguments):
    """Runs the script on a tree; returns ({file or sum: numbers}, exit status)."""
    done = subprocess.run([sys.executable, SCRIPT, "--root", root, *arguments], capture_output=True, text=True, check=False)
    rows = {}
    for line in done.stdout.splitlines()[1:]:
        words = line.replace(" thresholds", "").split()
        numbers = [int(word) for word in words if word.isdigit()]
        rows[" ".join(word for word in words if not word.isdigit())] = numbers
    return rows, done.returncode


def thresholds(text, name="src/diagnose/rule.cpp"):
    """(named, bare) of one file."""
    with tempfile.TemporaryDirectory() as root:
        write(root, {name: text})
        rows, status = count(root)
        assert status == 0
        return tuple(rows[name][1:])


class CountJudging(unittest.TestCase):
    def test_readers_are_left_out_and_the_recorders_steps_are_not(self):
        with tempfile.TemporaryDirectory() as root:
            write(root, {
                "src/diagnose/causes.cpp": "\n" * 10,
                "src/diagnose/edits/table.cpp": "\n" * 20,
                "src/diagnose/trace_reader.cpp": "\n" * 100,
                "src/diagnose/reading/anything.cpp": "\n" * 100,
                "src/record/step_watch.cpp": "\n" * 3,
                "src/record/period_starts.cpp": "\n" * 4,
                "src/record/sink.cpp": "\n" * 1000,
                "src/report/text.cpp": "\n" * 1000,
                "src/models/big.cpp": "\n" * 9999,
            })
            rows, status = count(root)
        self.assertEqual(status, 0)
        self.assertEqual(rows["judging together"][0], 37)
        self.assertEqual(rows["diagnose report record probe together"], [2237])

    def test_named_constants_count_once_each(self):
        self.assertEqual(thresholds("constexpr double kFew = 0.3, kMany = 12;\nconstexpr Time kLong = 100'000;\n"), (3, 0))
        self.assertEqual(thresholds("constexpr nanoseconds kGap = std::chrono::milliseconds{250};\n"), (1, 0))
        self.assertEqual(thresholds("    static constexpr int kEvery = 5;  // 7 > 6\n"), (1, 0))

    def test_what_is_no_threshold(self):
        self.assertEqual(thresholds("constexpr std::uint32_t kNone = 0;\nconstexpr const char* kText = \"a > 5, 0.7\";\n"), (0, 0))
        self.assertEqual(thresholds("constexpr std::array<std::string_view, 4> kNames{\"a\", \"b\"};\n"), (0, 0))
        self.assertEqual(thresholds("constexpr std::uint64_t kBase = 0x9e3779b97f4a7c15;\n"), (0, 0))
        self.assertEqual(thresholds("const double ms = time * 1e-6;  // 0.3 of it\nif (count > 0 && place[2] == 1) go();\n"), (0, 0))
        self.assertEqual(thresholds("std::vector<std::array<int, 4>> all;\nstream << 25;\nat->second = 5;\n"), (0, 0))

    def test_bare_numbers(self):
        self.assertEqual(thresholds("if (share < 0.5) go();\n"), (0, 1))
        self.assertEqual(thresholds("confidence *= 0.9;\n"), (0, 1))
        self.assertEqual(thresholds("if (tally.total < 5 || 10 * inside < 9 * all) go();\n"), (0, 3))

    def test_each_number_of_the_policy_counts(self):
        policy = "struct Policy {\n    Band sync{0.02, 0.15};\n    double idle = 2;  ///< of 7\n    std::size_t gap =\n        300'000;\n};\n"
        self.assertEqual(thresholds(policy, "src/diagnose/policy.h"), (4, 0))

    def test_of_a_commit(self):
        environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        with tempfile.TemporaryDirectory() as root:
            def git(*arguments):
                subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=root, env=environment, check=True,
                               capture_output=True)
            write(root, {f"src/{room}/a.cpp": "\n" for room in ("diagnose", "report", "record", "probe")})
            git("init", "-q")
            git("add", ".")
            git("commit", "-qm", "first")
            write(root, {"src/diagnose/a.cpp": "constexpr int kFew = 3;\n\n\n"})
            self.assertEqual(count(root, "HEAD")[0]["judging together"], [1, 0, 0, 0])
            self.assertEqual(count(root)[0]["judging together"], [3, 1, 0, 1])
            self.assertEqual(count(root, "no-such-commit")[1], 1)

    def test_a_tree_without_sources_is_an_error(self):
        with tempfile.TemporaryDirectory() as root:
            self.assertEqual(count(root)[1], 2)


if __name__ == "__main__":
    unittest.main()
