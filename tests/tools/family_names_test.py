"""Generic code names no model family: not the folders under src/models/, nor the words of their data and operators."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GENERIC = ("tape", "ops", "nn", "optim", "train", "tune", "cli", "record", "report")
BESIDE = ("flow", "sentence", "garments")
EXEMPT = {"Collective name"}  # a key of PyTorch's profiler


def pattern(word):
    """The word alone, its plural, as a part of a snake_case name, and its CamelCase form."""
    camel = "".join(part.capitalize() for part in word.split("_"))
    return re.compile(rf"(?<![a-z0-9]){word}s?(?![a-z0-9])|{camel}s?(?![a-z0-9])")


def families():
    return sorted(path.name for path in (ROOT / "src/models").iterdir() if path.is_dir() and path.name != "transformer")


def names_in(text, words):
    for part in EXEMPT:
        text = text.replace(part, "")
    return [word for word in words if pattern(word).search(text)]


class FamilyNames(unittest.TestCase):
    def test_generic_folders_name_none(self):
        words = (*families(), *BESIDE)
        self.assertIn("collective", words)
        found = []
        for folder in GENERIC:
            for path in sorted((ROOT / "src" / folder).rglob("*")):
                if path.is_file():
                    for number, line in enumerate(path.read_text().splitlines(), 1):
                        found += [f"{path.relative_to(ROOT)}:{number}: {word}" for word in names_in(line, words)]
        self.assertEqual(found, [])

    def test_no_cast_to_a_family(self):
        casts = []
        for path in sorted((ROOT / "src").rglob("*.cpp")):
            if "models" not in path.relative_to(ROOT / "src").parts:
                casts += [str(path) for target in re.findall(r"dynamic_cast<[^>]*models::(\w+)", path.read_text()) if target != "Model"]
        self.assertEqual(casts, [])

    def test_the_pattern_finds_what_it_should(self):
        for line in ("the collective", "energy_flow_rows", "EnergyFlow model", "two flows", "flow_move", "a sentence"):
            self.assertTrue(names_in(line, ("collective", "energy_flow", *BESIDE)), line)
        for line in ("overflow", "workflow_run", "collectively", "reflow"):
            self.assertEqual(names_in(line, ("collective", *BESIDE)), [], line)


if __name__ == "__main__":
    unittest.main()
