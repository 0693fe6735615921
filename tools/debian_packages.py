"""The project's Debian packages (cmake/packages.txt) for any architecture, unpacked into a folder. The system is left as it is."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

LIST = pathlib.Path(__file__).resolve().parent.parent / "cmake/packages.txt"
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}  # Debian's name: the name in triplets and of platform.machine()
# What every compiler brings, the sources of GoogleTest, and what HDF5 needs beyond its static library in C.
LEFT_OUT = re.compile(r"libc6|libc-dev|libgcc-s1|libstdc\+\+6|googletest|libhdf5-|hdf5-helpers|libcurl|libssl")


def rows(group="build"):
    """(package, header, libraries, loss) of a group; header and libraries are empty for programs."""
    found = []
    for line in LIST.read_text().splitlines():
        words = line.split(maxsplit=4)
        if words and words[0] == group:
            found.append((words[1], words[2].strip("-"), [name for name in words[3].split(",") if name != "-"], words[4]))
    return found


def libraries():
    """Packages with a header: what a build for another machine takes along."""
    return [package for package, header, _, _ in rows() if header]


def apt(folder, architecture, *command):
    """apt-get for an architecture with lists and cache below a folder."""
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    settings = {"APT::Architecture": architecture, "APT::Architectures": architecture, "Dir::State::Lists": folder / "lists",
                "Dir::Cache": folder / "cache", "Dir::State::status": "/dev/null", "APT::Sandbox::User": "root"}
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    subprocess.run(["apt-get", "-qq", *options, *command], cwd=folder, capture_output=True, text=True, check=True)


def dependencies_of(archive):
    """The first choice of each dependency of a .deb, without versions."""
    listed = subprocess.run(["dpkg-deb", "-f", archive, "Depends"], capture_output=True, text=True, check=True).stdout
    return [name for name in (re.split(r"[ :(|]", part.strip())[0] for part in listed.split(",")) if name and not LEFT_OUT.match(name)]


def download(architecture, folder):
    """Fetches the packages with libraries and all they depend on; returns the paths of the .deb files."""
    apt(folder, architecture, "update")
    waiting, seen, archives = libraries(), set(), {}
    while waiting:
        seen.update(waiting)
        apt(folder, architecture, "download", *waiting)
        new = [path for path in folder.glob("*.deb") if path not in archives]
        archives.update((path, dependencies_of(path)) for path in new)
        waiting = sorted({name for path in new for name in archives[path]} - seen)
    return sorted(archives)


def unpack(archives, root):
    """Unpacks headers, libraries, scripts for pages and licences: usr/include, usr/lib/TRIPLET, usr/share/javascript/PACKAGE/*.min.*,
    usr/share/doc/PACKAGE/copyright."""
    with tempfile.TemporaryDirectory() as name:
        whole = pathlib.Path(name)
        for archive in archives:
            subprocess.run(["dpkg-deb", "-x", archive, name], check=True)
        if (whole / "lib").is_dir():
            shutil.copytree(whole / "lib", whole / "usr/lib", symlinks=True, dirs_exist_ok=True)
        shutil.copytree(whole / "usr/include", root / "usr/include", dirs_exist_ok=True)
        kept = ("usr/lib/*-linux-gnu/lib*", "usr/share/javascript/*/*.min.js", "usr/share/javascript/*/*.min.css", "usr/share/doc/*/copyright")
        for path in [found for pattern in kept for found in sorted(whole.glob(pattern))]:
            target = root / path.relative_to(whole)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            if path.is_symlink():
                target.symlink_to(os.path.basename(os.readlink(path)))  # some point to /lib of the system
            elif path.is_file():
                shutil.copy2(path, target)


def fetch(architecture, root):
    """Downloads and unpacks the project's libraries of an architecture ("amd64", "arm64") below root."""
    with tempfile.TemporaryDirectory() as folder:
        unpack(download(architecture, pathlib.Path(folder)), root)
