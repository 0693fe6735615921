"""The corpus: one archive for each recording, CASE.tar.xz with truth.json, recording/ and sources/, also several of them in bundle-N.tar. Judged offline."""
import concurrent.futures
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile

import inject_judge as judge
from inject_programs import Bad

ROOT = pathlib.Path(tempfile.gettempdir()) / "millrace-inject"  # copies of programs lie here when recorded, and their sources when judged again
ENDING, BUNDLE_BYTES, BUNDLES, ALL_BYTES = ".tar.xz", 16 << 20, 6, 60 << 20  # with the report and a log of the call eight files
SCHEMA = 1
NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")


def keep(corpus, truth, recording, sources):
    """`sources` are {path: text} of the copy that was recorded."""
    def member(name, content):
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        return entry, io.BytesIO(content)
    corpus.mkdir(parents=True, exist_ok=True)
    path = corpus / (truth["name"] + ENDING)
    with tarfile.open(f"{path}.part", "w:xz") as archive:
        archive.addfile(*member("truth.json", json.dumps({"schema": SCHEMA, **truth}, indent=1).encode()))
        for name, text in sources.items():
            archive.addfile(*member(f"sources/{name}", text.encode()))
        for file in sorted(recording.iterdir()):
            if file.is_file() and not file.name.startswith("."):
                archive.add(file, f"recording/{file.name}", recursive=False)
    os.replace(f"{path}.part", path)
    return path


def archives(corpus):
    """{name: function that opens the archive}, of single files and of bundles."""
    if not corpus.is_dir():
        raise Bad(f"{corpus}: no folder with recordings (*{ENDING} or bundle-N.tar of tools/inject)")
    found = {}
    for bundle in sorted(corpus.glob("bundle-*.tar")):
        with tarfile.open(bundle) as inside:
            for entry in inside.getnames():
                if entry.endswith(ENDING):
                    found[entry.removesuffix(ENDING)] = lambda bundle=bundle, entry=entry: io.BytesIO(tarfile.open(bundle).extractfile(entry).read())
    for path in sorted(corpus.glob("*" + ENDING)):
        found[path.name.removesuffix(ENDING)] = lambda path=path: open(path, "rb")
    if not found:
        raise Bad(f"{corpus}: holds no recordings (*{ENDING} or bundle-N.tar of tools/inject)")
    return found


def read_truth(opened):
    with opened() as file, tarfile.open(fileobj=file, mode="r:xz") as archive:
        truth = json.loads(archive.extractfile("truth.json").read())
    if truth.get("schema") != SCHEMA or not all(NAME.fullmatch(truth[key]) for key in ("name", "folder")):
        raise Bad(f"{truth.get('name')}: a recording of another tools/inject (schema {truth.get('schema')}, this one reads {SCHEMA})")
    return truth


def extract(opened, folder, truth):
    """The recording; sources go where they lay when it was made."""
    with opened() as file, tarfile.open(fileobj=file, mode="r:xz") as archive:
        members = [entry for entry in archive.getmembers() if entry.isfile() and ".." not in pathlib.PurePath(entry.name).parts and not entry.name.startswith("/")]
        for entry in members:
            kind, _, name = entry.name.partition("/")
            target = {"recording": folder / "recording", "sources": ROOT / truth["name"] / truth["folder"]}.get(kind)
            if target and name:
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                (target / name).write_bytes(archive.extractfile(entry).read())
    return folder / "recording"


def diagnose(millrace, opened, truth):
    """The JSON of a recording by the current build."""
    with tempfile.TemporaryDirectory(prefix="millrace-judge-") as scratch:
        try:
            run, where = extract(opened, pathlib.Path(scratch), truth), ROOT / truth["name"] / truth["folder"]
            where.mkdir(parents=True, exist_ok=True)
            done = subprocess.run([str(millrace), "diagnose", str(run), "--json"], cwd=where, capture_output=True, text=True)
        finally:
            shutil.rmtree(ROOT / truth["name"], ignore_errors=True)
    if done.returncode not in (0, 1, 4):
        raise Bad(f"diagnose of {truth['name']}: status {done.returncode}: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout)


def judged(corpus, millrace, at_once, only=()):
    """[(truth, document, verdicts, false findings, steps verdict)] of all recordings, in the order of their names. An untouched program is judged by
    itself, and lends its findings to the cases that name it."""
    found = archives(corpus)
    truths = {name: read_truth(opened) for name, opened in found.items()}
    chosen = [name for name in truths if not only or truths[name]["program"] in only or name in only]
    needed = set(chosen) | {truths[name].get("baseline") for name in chosen} & set(truths)
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        documents = dict(zip(needed, pool.map(lambda name: diagnose(millrace, found[name], truths[name]), needed)))
    results = []
    for name in chosen:
        truth, baseline = truths[name], truths.get(truths[name].get("baseline"))
        own = judge.own_findings(documents[baseline["name"]], baseline["inserted"]) if baseline and baseline is not truth else ()
        document = documents[name]
        results.append((truth, document, judge.judged(truth, document, own), judge.false_findings(truth, document, own), judge.steps_verdict(truth, document)))
    return results


def row(truth, verdicts, wrong, steps):
    """Text lines of one recording."""
    said, true, right = steps
    counted = f"steps {said if said is not None else 'not told'} of {true}" + ("" if right is not False else " WRONG")
    lines = [f"{truth['name']}: {'untouched' if not truth['illnesses'] else ''}{', '.join(f'{one.illness} gains {100 * one.gain:.1f} %' for one in verdicts)}; {counted}"]
    for verdict, illness in zip(verdicts, truth["illnesses"]):
        if not verdict.counts:
            lines.append(f"    {verdict.illness}: does not count, told: {verdict.told}")
            continue
        missing = [word for word, right in (("kind", verdict.kind), ("line", verdict.line), ("rank", verdict.ranked), ("cost", verdict.cost is not False)) if not right]
        place = ", ".join(f"{path}:{line}" for path, line in illness["lines"])
        said = f"{verdict.said_ms:.2f}" if verdict.said_ms is not None else "unsaid"
        lines.append(f"    {verdict.illness} ({illness['strength']}) at {place}: {'right' if not missing else 'WRONG ' + ', '.join(missing)}; "
                     f"{said} of {verdict.truth_ms:.2f} ms; told: {verdict.told}")
    lines += [f"    {'to be verified' if not truth['illnesses'] else 'false'}: {each}" for each in wrong]
    return lines


def report(results):
    """(text, whether all bars hold)"""
    lines = [line for truth, _, verdicts, wrong, steps in results for line in row(truth, verdicts, wrong, steps)]
    table, fine = judge.bars([(truth, verdicts, wrong, steps) for truth, _, verdicts, wrong, steps in results])
    return "\n".join([*lines, "", *table]), fine


def pack(corpus, folder, text):
    """Bundles of at most 16 MiB, and the report. Untouched programs first: cases need theirs. Returns names that found no room."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.txt").write_text(text + "\n")
    paths = sorted(corpus.glob("*" + ENDING), key=lambda path: (not path.name.endswith("-well" + ENDING), path.stat().st_size))
    bundles, left = [], []
    for path in paths:
        size = path.stat().st_size + 2048
        room = next((bundle for bundle in bundles if bundle[0] + size <= BUNDLE_BYTES - 20480), None)
        if room is None and len(bundles) < BUNDLES and size <= BUNDLE_BYTES - 20480:
            room = [0, []]
            bundles.append(room)
        if room is None or sum(bundle[0] for bundle in bundles) + size > ALL_BYTES:
            left.append(path.name)
            continue
        room[0] += size
        room[1].append(path)
    for number, (_, members) in enumerate(bundles):
        with tarfile.open(folder / f"bundle-{number}.tar", "w") as archive:
            for path in members:
                archive.add(path, path.name)
    return left
