"""What tools/gpu-check has to know of a machine: its GPU, the CUDA libraries and where they are, the tools to build with."""
import glob
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys

ELF_MACHINES = {62: "x86_64", 183: "aarch64"}

# Asked in a process of its own: a library of the wrong version may end it.
DRIVER_PROGRAM = """
import ctypes, json, sys
cuda = ctypes.CDLL(sys.argv[1])
version, count, found = ctypes.c_int(), ctypes.c_int(), []
code = cuda.cuInit(0)
cuda.cuDriverGetVersion(ctypes.byref(version))
if code == 0:
    cuda.cuDeviceGetCount(ctypes.byref(count))
for index in range(count.value):
    device, name, major, minor = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_int(), ctypes.c_int()
    cuda.cuDeviceGet(ctypes.byref(device), index)
    cuda.cuDeviceGetName(name, 256, device)
    cuda.cuDeviceGetAttribute(ctypes.byref(major), 75, device)
    cuda.cuDeviceGetAttribute(ctypes.byref(minor), 76, device)
    found.append(dict(name=name.value.decode(), capability=f"{major.value}.{minor.value}"))
print(json.dumps(dict(code=code, cuda=f"{version.value // 1000}.{version.value % 1000 // 10}", devices=found)))
"""
VERSION_PROGRAM = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
if "cublasLt" in sys.argv[1]:
    library.cublasLtGetVersion.restype = ctypes.c_size_t
    v = library.cublasLtGetVersion()
    print(f"{v // 10000}.{v // 100 % 100}.{v % 100}" if v >= 100000 else v)
else:
    v = ctypes.c_uint32()
    library.cuptiGetVersion(ctypes.byref(v))
    print(f"API {v.value}")
"""


def output_of(command, timeout=60):
    """Standard output of a command, stripped; None when it cannot run or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def elf_machine(path):
    """Architecture of a program or library, as platform.machine() spells it; None for other files."""
    try:
        with open(path, "rb") as file:
            head = file.read(20)
    except OSError:
        return None
    if head[:4] != b"\x7fELF" or len(head) < 20:
        return None
    return ELF_MACHINES.get(int.from_bytes(head[18:20], "little"), "unknown")


def package_folders():
    """Where the interpreter of the peers keeps packages; torch itself is not imported."""
    python = os.environ.get("MILLRACE_PYTHON", "python3")
    listed = output_of([python, "-c", "import json, sys; print(json.dumps(sys.path))"])
    return [folder for folder in json.loads(listed or "[]") if folder and os.path.isdir(folder)]


def library_folders(nvcc=None):
    """(where it comes from, folder) in the order of preference."""
    roots = [(name, os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    if nvcc:
        roots.append(("nvcc", str(pathlib.Path(nvcc).resolve().parent.parent)))
    roots += [("toolkit", folder) for folder in sorted(glob.glob("/usr/local/cuda*"), key=len)]
    folders = []
    for origin, root in roots:
        for below in ("lib64", "lib", "targets/*/lib", "extras/CUPTI/lib64"):
            folders += [(origin, folder) for folder in sorted(glob.glob(os.path.join(root, below)))]
    folders += [("LD_LIBRARY_PATH", folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    for package_folder in package_folders():
        for below in ("nvidia/*/lib", "torch/lib"):
            folders += [("PyTorch", folder) for folder in sorted(glob.glob(os.path.join(package_folder, below)))]
    return folders


def loader_cache():
    """{soname: path} of the libraries for this architecture that the loader knows."""
    ldconfig = shutil.which("ldconfig") or "/sbin/ldconfig"
    known = {}
    for line in (output_of([ldconfig, "-p"]) or "").splitlines():
        name, arrow, path = line.strip().partition(" => ")
        if arrow and elf_machine(path) == platform.machine():
            known.setdefault(name.split()[0], path)
    return known


def find_library(soname, folders, cache):
    """(path, where it was found), or (None, None)."""
    def usable(path):
        return elf_machine(path) == platform.machine()
    preferred = [item for item in folders if item[0] in ("CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH")]
    for origin, folder in preferred:
        if usable(os.path.join(folder, soname)):
            return os.path.join(folder, soname), origin
    if soname in cache:
        return cache[soname], "the loader's cache"
    for origin, folder in folders:
        if usable(os.path.join(folder, soname)):
            return os.path.join(folder, soname), origin
    return None, None


def library_version(path):
    return output_of([sys.executable, "-c", VERSION_PROGRAM, path]) or "version unknown"


def read_gpu(libcuda):
    """{'devices': [...], 'cuda': '13.0', 'driver': '580.1', 'code': 0} as the driver says; None when it does not answer."""
    answer = output_of([sys.executable, "-c", DRIVER_PROGRAM, libcuda or "libcuda.so.1"])
    if answer is None:
        return None
    gpu = json.loads(answer)
    smi = output_of(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    gpu["driver"] = smi.splitlines()[0] if smi else "unknown"
    return gpu


def find_nvcc():
    for root in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")):
        if root and os.access(os.path.join(root, "bin", "nvcc"), os.X_OK):
            return os.path.join(root, "bin", "nvcc")
    if shutil.which("nvcc"):
        return shutil.which("nvcc")
    standing = "/usr/local/cuda/bin/nvcc"
    return standing if os.access(standing, os.X_OK) else None


def nvcc_version(nvcc):
    """'13.0' or None."""
    for word in (output_of([nvcc, "--version"]) or "").replace(",", " ").split():
        if word.startswith("V") and word[1:2].isdigit():
            return ".".join(word[1:].split(".")[:2])
    return None


def missing_build_tools(nvcc):
    """Names of what a build from sources lacks here."""
    missing = [] if nvcc else ["nvcc (the CUDA toolkit; CUDA_HOME may name its folder)"]
    if not shutil.which("cmake"):
        missing.append("cmake 3.25 or newer")
    if not (shutil.which("ninja") or shutil.which("make")):
        missing.append("ninja or make")
    if not (shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++") or shutil.which("clang++")):
        missing.append("a C++20 compiler (g++ 12 or newer)")
    return missing
