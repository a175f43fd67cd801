#!/usr/bin/env bash
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Runs the tests of the JAX front end with other versions of Python and JAX than
# that of .venv, which `make test-all` runs:
#
#   scripts/test_versions.sh [PYTHON:JAX ...] [-- PYTEST OPTIONS]
#
# PYTHON is a version, of which `python3.12` is in PATH or known to pyenv or uv.
# Each pair has a virtual environment in .venv-versions. The compiler is that of
# build/, or ZPP_OPT.
set -euo pipefail
cd "$(dirname "$0")/.."

pairs=() options=()
while (($#)); do
  [[ $1 != -- ]] || { shift; options=("$@"); break; }
  pairs+=("$1")
  shift
done
((${#pairs[@]})) || pairs=(3.11:0.10.2 3.12:0.11.2 3.13:0.12.0.1 3.14:0.12.0.1)
((${#options[@]})) || options=(test_jit.py test_partition.py test_libraries.py
                                test_delta.py test_assembly.py)

find_python() {
  local found
  for found in "$(command -v "python$1")" "$(uv python find "$1" 2>/dev/null)" \
      "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/"python$1"; do
    # pyenv's shims are there for versions that are not installed.
    if [[ -n $found ]] && "$found" -c "" 2>/dev/null; then
      echo "$found"
      return
    fi
  done
}

root=$PWD failed=()
export ZPP_OPT=${ZPP_OPT:-$root/build/bin/zpp-opt}
export ZPP_XLA=${ZPP_XLA:-$root/build/lib/libzpp_xla.so}
for pair in "${pairs[@]}"; do
  venv=$root/.venv-versions/${pair/:/-}
  if [[ ! -e $venv/complete ]]; then
    python=$(find_python "${pair%:*}") || true
    if [[ -z $python ]]; then
      echo "Python ${pair%:*}, JAX ${pair#*:}: skipped; expected" \
        "python${pair%:*} in PATH, but found none"
      continue
    fi
    "$python" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
      "jax==${pair#*:}" flatbuffers pytest equinox flax optax
    touch "$venv/complete"
  fi
  echo "Python ${pair%:*}, JAX ${pair#*:}"
  (cd test/python && PYTHONPATH=$root/python "$venv/bin/python" -m pytest -q \
    "${options[@]}") || failed+=("$pair")
done
((${#failed[@]} == 0)) || { echo "failed: ${failed[*]}"; exit 1; }
