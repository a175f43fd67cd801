#!/usr/bin/env bash
#
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Installs what the build and the tests need and is not there yet: packages
# through apt, JAX in the virtual environment .venv, CUDA in .cuda, linters in
# .venv-tools, what the documentation needs in .venv-docs, PyTorch in .venv-torch,
# DeepSpeed beside it in .venv-deepspeed.
# Says what it does. If everything is in place it does nothing, in well under a
# second.

set -euo pipefail

usage() {
  cat <<'USAGE'
usage: scripts/setup.sh [--tools] [--docs] [--torch] [--deepspeed] [--cuda] [--no-apt]
                        [--no-python]

  --tools      also install what `make lint`, `make tidy` and `make sanitize` need:
               clang-format and clang-tidy with apt, linters of Python and of words
               into .venv-tools
  --docs       also install what `make docs` needs, into .venv-docs
  --torch      also install what `make test-torch` needs, into .venv-torch: PyTorch,
               with the libraries of NVIDIA that its wheel needs also on a machine
               without a GPU (5.4 GB)
  --deepspeed  also install DeepSpeed, and trainers that use it, into .venv-deepspeed,
               which sees .venv-torch (0.5 GB)
  --cuda       also install what compiles the CUDA back end: if there is no CUDA
               toolkit of 12.8 or newer or no NCCL, NVIDIA's packages from PyPI go
               into .cuda (300 MB to download); this needs no GPU
  --no-apt     leave the system's packages alone: LLVM/MLIR 22, CMake, Ninja and
               GoogleTest come from elsewhere
  --no-python  make no virtual environment

environment:
  ZPP_PYTHON   the Python (3.11 or newer) that .venv is made from; without it,
               the newest one that works
USAGE
}

tools=no docs=no torch=no deepspeed=no cuda=no apt=yes python=yes
for argument in "$@"; do
  case $argument in
  --tools) tools=yes ;;
  --docs) docs=yes ;;
  --torch) torch=yes ;;
  --deepspeed) torch=yes deepspeed=yes ;;
  --cuda) cuda=yes ;;
  --no-apt) apt=no ;;
  --no-python) python=no ;;
  -h | --help) usage && exit 0 ;;
  *) usage >&2 && exit 2 ;;
  esac
done

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/.venv

say() { printf 'setup: %s\n' "$*"; }
die() {
  printf 'setup: error: %s\n' "$1" >&2
  shift
  (($# == 0)) || printf '  %s\n' "$@" >&2
  exit 1
}

#===------------------------------------------------------------------------===#
# Python
#===------------------------------------------------------------------------===#

# Prints "3.12" if $1 is a Python that can make a virtual environment. Runs it,
# because version managers leave launchers in PATH that fail when called.
python_version() {
  "$1" -c '
import ensurepip, sys, venv
if sys.version_info < (3, 11):
    sys.exit(1)
print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}

find_python() {
  local candidate
  if [[ -n ${ZPP_PYTHON:-} ]]; then
    echo "$ZPP_PYTHON"
    return
  fi
  # The newest for which the pinned jaxlib has a wheel comes first.
  for candidate in python3.14 python3.13 python3.12 python3.11 \
    /usr/bin/python3 python3; do
    if python_version "$candidate" >/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}

[[ -z ${ZPP_PYTHON:-} ]] || python_version "$ZPP_PYTHON" >/dev/null ||
  die "expected ZPP_PYTHON to be Python 3.11 or newer with venv, but got '$ZPP_PYTHON'"

#===------------------------------------------------------------------------===#
# Packages
#===------------------------------------------------------------------------===#

packages=(
  libmlir-22-dev mlir-22-tools # MLIR: headers, dylib, mlir-tblgen, mlir-opt
  llvm-22-dev llvm-22-tools    # LLVM's CMake package, lit, FileCheck
  clang-22 lld-22              # compiler and linker
  cmake ninja-build
  libgtest-dev # unit tests
)
[[ $tools == no ]] ||
  packages+=(clang-format-22 clang-tidy-22 libclang-rt-22-dev)
# nvcc's host compiler.
[[ $cuda == no ]] || packages+=(g++)

is_installed() {
  [[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

has_candidate() {
  [[ $(apt-cache policy "$1" 2>/dev/null) =~ Candidate:\ ([^[:space:]]+) ]] &&
    [[ ${BASH_REMATCH[1]} != "(none)" ]]
}

# Installs those of the given packages that are missing.
install_packages() {
  local missing=() package as_root=()
  for package in "$@"; do
    is_installed "$package" || missing+=("$package")
  done
  ((${#missing[@]})) || return 0

  if ((EUID != 0)); then
    command -v sudo >/dev/null ||
      die "expected root or sudo to install packages, but got neither" \
        "run as root: apt-get update && apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing with apt: ${missing[*]}"
  # Minimal images ship without package lists, and stale lists name files that
  # the mirrors have dropped.
  "${as_root[@]}" apt-get -q -o DPkg::Lock::Timeout=300 update ||
    say "apt-get update failed in part; going on with the lists at hand"
  for package in "${missing[@]}"; do
    has_candidate "$package" ||
      die "expected apt to know $package, but got no candidate" \
        "Debian 12 has LLVM 22 in its security suite (bookworm-security);" \
        "for Ubuntu see README.md, 'Other systems'"
  done
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -q -o DPkg::Lock::Timeout=300 install -y --no-install-recommends \
    "${missing[@]}"
}

if [[ $apt == yes ]]; then
  { command -v apt-get && command -v dpkg-query; } >/dev/null ||
    die "expected Debian or Ubuntu with apt, but got neither" \
      "install LLVM/MLIR 22, CMake 3.20, Ninja and GoogleTest yourself, then" \
      "run make with APT=no (and MLIR_DIR=.../lib/cmake/mlir if CMake needs it)"
  [[ $python == no ]] || find_python >/dev/null ||
    packages+=(python3 python3-venv)
  install_packages "${packages[@]}"
fi

#===------------------------------------------------------------------------===#
# Virtual environment
#===------------------------------------------------------------------------===#

# Makes the virtual environment $1 with the requirements in $2. A stamp in it says
# from which Python and which requirements it was made.
setup_venv() {
  local venv=$1 requirements=$2 digest base stamp=$1/.zpp-stamp version wanted
  digest=$(sha256sum <"$requirements" | cut -d' ' -f1)
  if [[ -f $stamp && -z ${ZPP_PYTHON:-} ]]; then
    # Keep the environment's own Python, whatever newer one has appeared since.
    version=$(python_version "$venv/bin/python" || true)
    [[ -z $version || $(<"$stamp") != "$version $digest" ]] || return 0
  fi

  base=$(find_python) ||
    die "expected Python 3.11 or newer with venv, but got none" \
      "install one (and its -venv package), or set ZPP_PYTHON=/path/to/python3"
  version=$(python_version "$base")
  wanted="$version $digest"
  [[ ! -f $stamp || $(<"$stamp") != "$wanted" ]] || return 0

  if [[ $(python_version "$venv/bin/python" || true) != "$version" ]]; then
    say "creating ${venv##*/} from $base (Python $version)"
    "$base" -m venv --clear "$venv"
  fi
  say "installing ${requirements#"$root/"} into ${venv##*/}"
  rm -f "$stamp"
  # What is imported is compiled then: a small part of all.
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile \
    -r "$requirements"
  echo "$wanted" >"$stamp"
  say "done"
}

[[ $python == no ]] || setup_venv "$venv" "$root/python/requirements.txt"
[[ $tools == no ]] ||
  setup_venv "$root/.venv-tools" "$root/scripts/requirements-tools.txt"
[[ $docs == no ]] || setup_venv "$root/.venv-docs" "$root/docs/requirements.txt"
[[ $torch == no ]] || setup_venv "$root/.venv-torch" "$root/test/torch/requirements.txt"

# Packages beside those of .venv-torch, which are too large to have them twice.
setup_deepspeed() {
  local venv=$root/.venv-deepspeed torch=$root/.venv-torch stamp wanted packages
  local requirements=$root/test/deepspeed/requirements.txt
  stamp=$venv/.zpp-stamp
  wanted="$(<"$torch/.zpp-stamp") $(sha256sum <"$requirements" | cut -d' ' -f1)"
  [[ ! -f $stamp || $(<"$stamp") != "$wanted" ]] || return 0
  say "creating ${venv##*/} beside ${torch##*/}"
  "$torch/bin/python" -m venv --clear "$venv"
  packages='import site; print(site.getsitepackages()[0])'
  "$torch/bin/python" -c "$packages" >"$("$venv/bin/python" -c "$packages")/torch.pth"
  say "installing ${requirements#"$root/"} into ${venv##*/}"
  # It compiles its kernels, of which the tests need none, with the PyTorch that is there.
  # The setuptools of an older Python's environments makes no wheels by itself.
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check 'setuptools>=70.1'
  DS_BUILD_OPS=0 "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    --no-compile --no-build-isolation -r "$requirements"
  echo "$wanted" >"$stamp"
  say "done"
}

[[ $deepspeed == no ]] || setup_deepspeed

#===------------------------------------------------------------------------===#
# CUDA
#===------------------------------------------------------------------------===#

# A folder of its own, so that what frameworks pin in .venv does not matter.
setup_cuda() {
  local folder=$root/.cuda pins=$root/scripts/requirements-cuda.txt
  local missing pip=python3 stamp wanted
  stamp=$folder/.zpp-stamp
  wanted=$(sha256sum <"$pins" | cut -d' ' -f1)
  if [[ -f $stamp ]]; then
    [[ $(<"$stamp") != "$wanted" ]] || return 0
  else
    missing=$(cmake -P "$root/cmake/CudaToolkit.cmake" | paste -sd' ')
    [[ -n $missing ]] || return 0
    say "no CUDA toolkit of 12.8 or newer, or no NCCL (missing: $missing)"
  fi

  [[ ! -x $venv/bin/python ]] || pip=$venv/bin/python
  "$pip" -m pip --version >/dev/null 2>&1 ||
    die "expected pip in $pip to install CUDA, but got none" \
      "run without --no-python, or install a CUDA toolkit and NCCL yourself"
  say "installing scripts/requirements-cuda.txt into .cuda (300 MB to download)"
  rm -rf "$folder"
  "$pip" -m pip install --quiet --disable-pip-version-check --no-deps \
    --target "$folder" -r "$pins" ||
    die "expected NVIDIA's packages from PyPI, but got the errors above" \
      "without CUDA: make CUDA=no; with a toolkit of your own: set CUDACXX"
  echo "$wanted" >"$stamp"
  say "done"
}

[[ $cuda == no ]] || setup_cuda
