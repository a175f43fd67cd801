#!/usr/bin/env bash
# Builds the kernels on a machine with a GPU, nvcc and CMake, and runs all that
# needs the GPU: tests, compute-sanitizer, benchmark with its targets. Prints
# PASS, or what failed.
#
#   runtime-kernels/run_gpu_suite.sh [build directory]
#
# ZPP_SKIP_SANITIZER=1 and ZPP_SKIP_BENCH=1 leave those parts out.
set -uo pipefail

source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build_dir=${1:-$source_dir/../build-kernels}
failed=()

run() {
  local name=$1
  shift
  echo "=== $name"
  "$@" || failed+=("$name")
}

finish() {
  if ((${#failed[@]})); then
    printf 'FAILED: %s\n' "${failed[@]}"
    exit 1
  fi
  echo PASS
  exit 0
}

configure() {
  cmake -S "$source_dir" -B "$build_dir" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_CUDA_ARCHITECTURES="${CUDA_ARCHITECTURES:-native}" >/dev/null
}
run configure configure
run build cmake --build "$build_dir" -j "$(nproc)"
((${#failed[@]})) && finish

test_program=$build_dir/test/zpp-kernels-test
run tests "$test_program"
# Needs 60 GB of device memory.
if (($(nvidia-smi --query-gpu=memory.free --format=csv,noheader,nounits |
  head -1) > 60000)); then
  run "tests of large tensors" "$test_program" --large
else
  echo "=== tests of large tensors skipped: less than 60 GB of device memory"
fi
if [[ -z ${ZPP_SKIP_SANITIZER:-} ]]; then
  if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
      run "$tool" compute-sanitizer --tool "$tool" --error-exitcode 1 \
        "$test_program" --quick
    done
  else
    failed+=("compute-sanitizer not found")
  fi
fi
if [[ -z ${ZPP_SKIP_BENCH:-} ]]; then
  run bench "$build_dir/bench/zpp-kernels-bench" --check
fi
finish
