# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`zpp doctor`: what is here, what works, and what mends the rest.

Imports no framework: a broken one must not keep the others from being shown.
"""

import contextlib
import ctypes
import dataclasses
import importlib.metadata
import importlib.util
import os
import pathlib
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator

import zpp
from zpp._cache import open_cache_folder
from zpp._compiler import find_bundler, find_compiler
from zpp._library import RankDesc, WorldDesc, call, find_library

#: The oldest versions that zpp works with.
OLDEST_JAX = "0.10.2"
OLDEST_TORCH = "2.9"
OLDEST_NCCL = "2.19"
#: The oldest GPUs that the kernels are compiled for.
OLDEST_GPU = (8, 0)
#: The programs that zpp-bundle links with, in its order.
LINKERS = ("ld.lld", "ld.lld-22", "ld", "cc", "clang", "gcc")


#: Requirements of the front ends. The name `zpp` on PyPI is somebody else's.
#: jax.export needs flatbuffers, which JAX does not bring.
_JAX = f"'jax>={OLDEST_JAX}' flatbuffers"
_TORCH = f"'torch>={OLDEST_TORCH}'"


class Missing(Exception):
    """Something is not here. zpp works without, in part."""

    def __init__(self, text: str, remedy: str):
        super().__init__(text)
        self.remedy = remedy


class Broken(Missing):
    """Something is here and does not work, or nothing works without it."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of the answer."""

    name: str
    #: "ok", "none" (not here) or "bad" (broken).
    state: str
    text: str
    #: A command or an advice that mends it; None where all is well.
    remedy: str | None = None

    def __str__(self) -> str:
        line = f"{self.name:<12} {self.state:<5} {self.text}"
        return f"{line}\n{'':<18} mend: {self.remedy}" if self.remedy else line


@dataclasses.dataclass(frozen=True)
class Gpu:
    """A GPU as its driver describes it."""

    name: str
    capability: tuple[int, int]
    bytes: int


@contextlib.contextmanager
def _mended(kind: type[Missing], remedy: str, error: type[Exception], text: str = "{}"
            ) -> Iterator[None]:
    """Makes findings of errors of a kind, with their text."""
    try:
        yield
    except error as found:
        raise kind(text.format(found), remedy) from None


def run() -> int:
    """Prints what is found; returns the exit status: 0 if nothing is broken."""
    findings = list(examine())
    print(*findings, sep="\n")
    well = {finding.name for finding in findings if finding.state == "ok"}
    print()
    for feature, needs in FEATURES.items():
        missing = [name for name in needs if name not in well]
        print(f"{feature:<32} "
              + (f"no: {', '.join(missing)}" if missing else "yes"))
    return int(any(finding.state == "bad" for finding in findings))


_REINSTALL = "pip install --force-reinstall --no-deps FILE, the wheel of zpp"


def _build() -> str:
    """A command that brings programs and libraries of zpp."""
    package = pathlib.Path(zpp.__file__).resolve().parent
    is_source = (package.parent.parent / "pyproject.toml").exists()
    return "make build" if is_source else _REINSTALL


_TARGET_CPU = ("compiler", "bundler", "runtime", "folder")
#: Features, and the findings that each needs.
FEATURES = {
    "zpp rewrite, report and plan": ("compiler", "folder"),
    "zpp.jax, target portable": ("compiler", "folder", "JAX"),
    "zpp.jax, target cpu": (*_TARGET_CPU, "JAX"),
    "zpp.jax, target cuda": (*_TARGET_CPU, "JAX", "GPUs", "NCCL", "back end"),
    "zpp.torch on CPUs": (*_TARGET_CPU, "PyTorch"),
    "zpp.torch on GPUs": (*_TARGET_CPU, "PyTorch", "GPUs", "back end"),
}


def examine() -> Iterator[Finding]:
    """Everything that may be asked of somebody who reports an error."""
    yield Finding("zpp", "ok", f"{zpp.__version__}, Python "
                  f"{platform.python_version()}, {' '.join(platform.libc_ver())}"
                  f", {platform.machine()}, {pathlib.Path(zpp.__file__).parent}")
    for name, check in CHECKS.items():
        try:
            yield Finding(name, "ok", check())
        except Missing as missing:
            yield Finding(name, "bad" if isinstance(missing, Broken) else "none",
                          str(missing), missing.remedy)


# The compiler ----------------------------------------------------------------


def check_compiler() -> str:
    with _mended(Broken, _build(), FileNotFoundError):
        path = find_compiler()
    return f"LLVM {_llvm_version(path)}, {path}"


def check_bundler() -> str:
    with _mended(Missing, _build(), FileNotFoundError):
        path = find_bundler()
    _llvm_version(path)
    linker = next(filter(None, map(shutil.which, LINKERS)), None)
    if not linker:
        raise Missing(f"expected a linker in PATH, one of {', '.join(LINKERS)}, "
                      "but got none", "apt-get install binutils")
    return f"{path}, with {linker}"


def _llvm_version(program: str) -> str:
    """The version of the LLVM that a program is made of. The program must run."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True,
                              text=True, timeout=60, check=False)
        found = re.search(r"LLVM version (\S+)", done.stdout)
        problem = done.stderr.strip() or f"exit status {done.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        found, problem = None, str(error)
    if not found:
        raise Broken(f"expected {program} to run, but got: {problem}",
                     _REINSTALL)
    return found[1]


def check_folder() -> str:
    """The folder of temporary files, from which libraries are loaded."""
    folder, remedy = tempfile.gettempdir(), "export TMPDIR=... names another folder"
    with _mended(Broken, remedy, OSError,
                 "expected a folder for temporary files, but got: {}"):
        tempfile.TemporaryFile().close()
        flags = os.statvfs(folder)
    if flags.f_flag & os.ST_NOEXEC:
        raise Broken(f"expected {folder} to let libraries be loaded, but got a "
                     "noexec mount", remedy)
    return f"{folder}, {flags.f_bavail * flags.f_frsize / 1e9:.1f} GB free"


def check_cache() -> str:
    """The folder in which what is compiled and measured is kept, and JAX's."""
    with _mended(Broken, "export XDG_CACHE_HOME=... names a folder that can be written to",
                 OSError, "{}; each run compiles again"):
        folder = open_cache_folder()
    cache = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    return f"{folder}; " + (f"JAX's cache {cache}" if cache else
                            "JAX_COMPILATION_CACHE_DIR is not set")


# The runtime -----------------------------------------------------------------


def check_runtime() -> str:
    with _mended(Missing, _build(), FileNotFoundError):
        paths = [find_library("zpp_rt"), find_library("zpp_xla")]
    with _mended(Broken, _REINSTALL, OSError, "expected the runtime to load, but got: {}"):
        library, _ = map(ctypes.CDLL, paths)
    major, minor = divmod(library.zpp_rt_version(), 1000)
    return f"interface {major}.{minor}, {', '.join(paths)}"


def check_back_end() -> str:
    """Whether the runtime's kernels work on the first GPU."""
    with _mended(Missing, _build(), OSError):
        library = ctypes.CDLL(find_library("zpp_rt"))
    world, rank = ctypes.c_void_p(), ctypes.c_void_p()
    desc = WorldDesc(backend=b"cuda", mesh=b"gpu:1")
    with _mended(Missing, "make build CUDA=yes", RuntimeError):
        call(library, "zpp_rt_world_create", ctypes.byref(desc), ctypes.byref(world))
    try:
        call(library, "zpp_rt_rank_create", world, ctypes.byref(RankDesc()),
             ctypes.byref(rank))
        library.zpp_rt_rank_destroy(rank)
    except RuntimeError as error:
        try:
            check_gpus()
        except Missing as missing:
            raise Missing("cuda, not tried without a GPU",
                          missing.remedy) from None
        raise Broken(str(error), "install the driver and the NCCL of CUDA 13, "
                     "or build for what is here: make build CUDA=yes") from None
    finally:
        library.zpp_rt_world_destroy(world)
    return "cuda, runs on GPU 0"


# GPUs ------------------------------------------------------------------------


def check_driver() -> str:
    version = ctypes.c_int()
    _driver().cuDriverGetVersion(ctypes.byref(version))
    return f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"


def _driver() -> ctypes.CDLL:
    with _mended(Missing, "install the driver: nvidia-smi must list the GPUs", OSError,
                 "no NVIDIA driver (libcuda.so.1): targets portable and cpu need none"):
        return ctypes.CDLL("libcuda.so.1")


def find_gpus() -> list[Gpu]:
    """The GPUs that the driver lets this process see."""
    driver = _driver()
    count, device, major, minor = (ctypes.c_int() for _ in range(4))
    size, name = ctypes.c_size_t(), ctypes.create_string_buffer(256)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return []
    gpus = []
    for index in range(count.value):
        driver.cuDeviceGet(ctypes.byref(device), index)
        driver.cuDeviceGetName(name, len(name), device)
        driver.cuDeviceTotalMem_v2(ctypes.byref(size), device)
        # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR.
        driver.cuDeviceGetAttribute(ctypes.byref(major), 75, device)
        driver.cuDeviceGetAttribute(ctypes.byref(minor), 76, device)
        gpus.append(Gpu(name.value.decode(errors="replace"),
                        (major.value, minor.value), size.value))
    return gpus


def check_gpus() -> str:
    try:
        gpus = find_gpus()
    except Missing as missing:
        raise Missing("none without a driver", missing.remedy) from None
    if not gpus:
        raise Missing("no GPU", "unset CUDA_VISIBLE_DEVICES; nvidia-smi must "
                      "list the GPUs")
    for gpu in gpus:
        if gpu.capability < OLDEST_GPU:
            raise Broken(f"expected GPUs of sm_80 or newer, but got {gpu.name} "
                         f"(sm_{gpu.capability[0]}{gpu.capability[1]})",
                         "CUDA_VISIBLE_DEVICES=... leaves out GPUs")
    return ", ".join(
        f"{gpus.count(gpu)} x {gpu.name} (sm_{gpu.capability[0]}"
        f"{gpu.capability[1]}, {gpu.bytes / 2**30:.0f} GiB)"
        for gpu in dict.fromkeys(gpus))


def check_nccl() -> str:
    """NCCL as the runtime finds it: named by the user, of the framework's
    packages, which the framework loads first, or of the system."""
    named = os.environ.get("ZPP_NCCL_LIBRARY")
    places = [named] if named else [*_packaged_nccl(), "libnccl.so.2"]
    errors, version = [], ctypes.c_int()
    for place in places:
        try:
            ctypes.CDLL(place).ncclGetVersion(ctypes.byref(version))
        except (OSError, AttributeError) as error:
            errors.append(str(error))
            continue
        major, rest = divmod(version.value, 10000)
        found = f"{major}.{rest // 100}.{rest % 100}"
        _check_version("NCCL", found, OLDEST_NCCL, "nvidia-nccl-cu13")
        return f"{found}, {place}"
    state = Broken if named else Missing
    raise state(f"no NCCL: {'; '.join(errors)}", "unset ZPP_NCCL_LIBRARY" if named
                else "pip install nvidia-nccl-cu13")


def _packaged_nccl() -> list[str]:
    try:
        spec = importlib.util.find_spec("nvidia.nccl")
    except ImportError:
        return []
    folders = spec.submodule_search_locations if spec else None
    return [str(path) for folder in folders or ()
            for path in pathlib.Path(folder).glob("lib/libnccl.so.2")]


# Front ends ------------------------------------------------------------------


def check_jax() -> str:
    version = _version("jax", _JAX)
    jaxlib = _version("jaxlib", _JAX)
    _check_version("jaxlib", jaxlib, OLDEST_JAX, _JAX)
    _version("flatbuffers", "flatbuffers")
    plugins = []
    for name in ("jax-cuda12-plugin", "jax-cuda13-plugin"):
        with contextlib.suppress(Missing):
            plugins.append(f"{name} {_version(name, name)}")
    return ", ".join([version, f"jaxlib {jaxlib}",
                      *(plugins or ["without GPUs: pip install 'jax[cuda13]'"])])


def check_torch() -> str:
    version = _version("torch", _TORCH)
    _check_version("PyTorch", version, OLDEST_TORCH, _TORCH)
    return version


def _version(package: str, requirement: str) -> str:
    with _mended(Missing, f"pip install {requirement}",
                 importlib.metadata.PackageNotFoundError, f"no {package}"):
        return importlib.metadata.version(package)


def _check_version(name: str, found: str, oldest: str, requirement: str) -> None:
    def numbers(version: str) -> list[int]:
        return [int(number) for number in
                re.match(r"[\d.]*", version)[0].strip(".").split(".") if number]
    if numbers(found) < numbers(oldest):
        raise Broken(f"expected {name} {oldest} or newer, but got {found}",
                     f"pip install --upgrade {requirement}")


CHECKS: dict[str, Callable[[], str]] = {
    "compiler": check_compiler,
    "bundler": check_bundler,
    "folder": check_folder,
    "cache": check_cache,
    "runtime": check_runtime,
    "JAX": check_jax,
    "PyTorch": check_torch,
    "CUDA driver": check_driver,
    "GPUs": check_gpus,
    "NCCL": check_nccl,
    "back end": check_back_end,
}
