"""The documents: links resolve, pictures are used, pages keep their length, and commits and dates stand in docs/performance alone."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("docs", "examples", "bench", "tests/goldens")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
COMMIT = re.compile(r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{7,12}\b")
DATE = re.compile(r"\b20\d\d-\d\d-\d\d\b(?!T)")


def documents():
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md"))]


def anchor_of(heading):
    """As GitHub makes it: lower case, marks dropped, spaces to hyphens."""
    return re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", heading).strip().lower()).replace(" ", "-")


def anchors(text):
    return {anchor_of(heading) for heading in re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.M)}


def broken_links(path, text):
    """The relative links of `text` that lead nowhere."""
    for link in LINK.findall(FENCE.sub("", text)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.exists():
            yield link
        elif anchor and anchor not in anchors(text if target == path else target.read_text()):
            yield link


class Documents(unittest.TestCase):
    def test_links_resolve(self):
        for path in documents():
            with self.subTest(path.relative_to(ROOT)):
                self.assertEqual(list(broken_links(path, path.read_text())), [])

    def test_a_broken_link_is_found(self):
        text = "# One thing: `two`\n[a](gone.md) [b](#one-thing-two) [c](#three) [d](CONTRIBUTING.md#style) [e](CONTRIBUTING.md#gone) [f](https://a.b/c)\n"
        self.assertEqual(list(broken_links(ROOT / "README.md", text)), ["gone.md", "#three", "CONTRIBUTING.md#gone"])

    def test_pictures_are_used(self):
        text = "".join(path.read_text() for path in documents())
        for picture in (*(ROOT / "docs").rglob("*.svg"), *(ROOT / "docs").rglob("*.png")):
            self.assertIn(f"{picture.name})", text)

    def test_pages_keep_their_length(self):
        self.assertLessEqual(len((ROOT / "README.md").read_text().splitlines()), 100)
        for path in (ROOT / "docs" / "performance").glob("*.md"):
            self.assertLessEqual(len(path.read_text().splitlines()), 150, path.name)

    def test_the_doctor_is_short_and_begins_with_what_to_do(self):
        names = ("doctor.md", "doctor-reports.md", "probe.md", "record.md", "profiler-traces.md")
        self.assertLessEqual(sum(len((ROOT / "docs" / name).read_text().split()) for name in names), 5000)
        self.assertEqual((ROOT / "docs" / "doctor.md").read_text().splitlines()[1], "## I got this finding, what now?")

    def test_every_finding_has_its_row(self):
        text, names = (ROOT / "docs" / "doctor.md").read_text(), (ROOT / "src" / "diagnose" / "answer" / "diagnosis.cpp").read_text()
        kinds = re.search(r"kKindNames\{(.*?)\}", names, re.S).group(1)
        for kind in re.findall(r'"([a-z-]+)"', kinds):
            self.assertRegex(text, rf"(?m)^\| `{kind}` ")

    def test_commits_and_dates_are_of_performance_alone(self):
        for path in documents():
            if path.parent.name != "performance":
                with self.subTest(path.relative_to(ROOT)):
                    text = path.read_text()
                    self.assertEqual(COMMIT.findall(text) + DATE.findall(text), [])


if __name__ == "__main__":
    unittest.main()
