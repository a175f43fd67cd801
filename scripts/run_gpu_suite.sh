#!/usr/bin/env bash
#
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Builds runtime and kernels on a machine with GPUs and runs what needs them.
# Downloads nothing. The last line is PASS, or what failed.

set -uo pipefail

usage() {
  cat <<'USAGE'
usage: scripts/run_gpu_suite.sh [--build DIR] [STEP...]

Steps; without any, all in this order. Each says how long it took: name some of
them where the time is limited.
  kernels   the kernels' tests, bit for bit against the CPU
  sanitize  a part of them under compute-sanitizer: memcheck and racecheck
  runtime   the unit tests of runtime and arithmetic (ctest), and the suites of
            the back ends on the GPUs
  jax       rewritten steps under JAX, in one process and in one per GPU, of
            which one is lost in the end; needs --steps
  bench     the kernels' benchmark, against its targets, and collectives beside
            NCCL's own

  --steps DIR  steps for as many GPUs as there are, compiled elsewhere:
               test/gpu/check_steps.py --export DIR --devices N
  --build DIR  the build directory; default: build-gpu

Needs a CUDA toolkit, NCCL, CMake, a C++ compiler, and GoogleTest: the library,
or its sources in third_party/googletest (Debian: those of /usr/src/googletest).

environment:
  CUDA_ARCHITECTURES  what to compile for; default: this machine's GPUs
  CMAKE_ARGS          more options for CMake, such as -DNCCL_ROOT=...
USAGE
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build-gpu
all_steps=(kernels sanitize runtime jax bench)
steps=()
exported=
while (($#)); do
  case $1 in
  --build)
    build=${2:?expected a directory after --build}
    shift
    ;;
  --steps)
    exported=$(realpath "${2:?expected a directory after --steps}")
    shift
    ;;
  kernels | sanitize | runtime | jax | bench) steps+=("$1") ;;
  -h | --help) usage && exit 0 ;;
  *) usage >&2 && exit 2 ;;
  esac
  shift
done
if [[ " ${steps[*]} " == *" jax "* && -z $exported ]]; then
  echo "expected --steps for jax, but got none" >&2
  exit 2
fi
((${#steps[@]})) || steps=("${all_steps[@]}")

failed=()

run() {
  local name=$1 start=$SECONDS status=0
  shift
  printf '=== %s\n' "$name"
  "$@" || status=$?
  printf '=== %s: %s s\n' "$name" $((SECONDS - start))
  ((status == 0)) && return
  failed+=("$name")
  return 1
}

configure() {
  local generator=() arguments=()
  # The generator of an existing build directory stays.
  [[ -f $build/CMakeCache.txt ]] || ! command -v ninja >/dev/null ||
    generator=(-G Ninja)
  read -ra arguments <<<"${CMAKE_ARGS:-}"
  cmake -S "$root" -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release \
    -DZPP_BUILD_COMPILER=OFF -DZPP_ENABLE_CUDA=ON \
    -DCMAKE_CUDA_ARCHITECTURES="${CUDA_ARCHITECTURES:-native}" \
    "${arguments[@]}"
}

step_kernels() {
  run "kernels" "$build/bin/zpp-kernels-test"
  # Needs 60 GB of device memory.
  local free
  free=$(nvidia-smi --query-gpu=memory.free --format=csv,noheader,nounits |
    head -1)
  if ((free > 60000)); then
    run "kernels: large tensors" "$build/bin/zpp-kernels-test" --large
  else
    echo "=== kernels: large tensors: skipped, less than 60 GB of device memory"
  fi
}

step_sanitize() {
  local tool
  for tool in memcheck racecheck; do
    run "sanitize: $tool" compute-sanitizer --tool "$tool" --error-exitcode 1 \
      "$build/bin/zpp-kernels-test" --quick
  done
}

step_runtime() {
  run "runtime" ctest --test-dir "$build" --output-on-failure
  # The same suites on the GPUs: operations need one, collectives two or more,
  # faults four.
  run "runtime: GPUs" env ZPP_TEST_BACKENDS=cuda ZPP_TEST_GPUS="$gpus" \
    "$build/unittests/Runtime/ZppRuntimeTests" --gtest_filter='*cuda*'
  ((gpus >= 4)) || echo "=== runtime: faults skipped, fewer than 4 GPUs"
}

step_jax() {
  if [[ -z $exported ]]; then
    echo "=== jax: skipped, no --steps"
    return
  fi
  local processes counts=(1)
  ((gpus > 1)) && counts+=("$gpus")
  for processes in "${counts[@]}"; do
    run "jax: processes: $processes" \
      env ZPP_XLA="$build/lib/libzpp_xla.so" PYTHONPATH="$root/python" \
      python3 "$root/test/gpu/check_steps.py" --run "$exported" \
      --processes "$processes"
  done
}

step_bench() {
  run "bench" "$build/bin/zpp-kernels-bench" --check
  if ((gpus >= 2)); then
    run "bench: collectives" python3 "$root/bench/collectives.py" \
      --zpp-perf "$build/bin/zpp-perf" --gpus-per-node $((gpus / 2)) \
      --links shared nvlink --iterations 10
  else
    echo "=== bench: collectives: skipped, fewer than 2 GPUs"
  fi
}

gpus=$(nvidia-smi -L | wc -l)
run "GPUs, by nvidia-smi" nvidia-smi -L &&
  run configure configure &&
  run build cmake --build "$build" --parallel "$(nproc)" &&
  for step in "${steps[@]}"; do
    case $step in
    kernels) step_kernels ;;
    sanitize) step_sanitize ;;
    runtime) step_runtime ;;
    jax) step_jax ;;
    bench) step_bench ;;
    esac
  done

if ((${#failed[@]})); then
  printf 'FAILED: %s\n' "${failed[@]}"
  exit 1
fi
echo PASS
