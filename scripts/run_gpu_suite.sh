#!/usr/bin/env bash
#
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Builds the runtime and the kernels on a machine with GPUs and runs the tests and
# benchmarks that need them. Downloads nothing. The last line is PASS, or what failed.

set -uo pipefail

usage() {
  cat <<'USAGE'
usage: scripts/run_gpu_suite.sh [--build DIR] [STEP...]

Builds what the given steps need and runs them; default: all of them, in this order.
Each says how long it took, so that you can choose some of them if time is limited. On
one GPU, ranks share it: by MPS, and with NCCL 2.30.3 or newer and
NCCL_MULTI_RANK_GPU_ENABLE=1 also as two nodes of two.
  kernels   the kernels' tests, which compare with the CPU bit for bit
  sanitize  some of them under compute-sanitizer: memcheck and racecheck
  runtime   the unit tests of the runtime and the arithmetic (ctest), and the
            suites of the back ends on the GPUs
  jax       rewritten steps under JAX, in one process where each device has its GPU,
            then in one per device, one of which is lost at the end; needs --steps
  run       plain jax.jit under 'zpp run'; needs JAX 0.11, and ZPP_OPT where there
            is more than one GPU
  guard     measures of a step between two processes, which may share a GPU, and
            the guard over its rounding errors; needs JAX and ZPP_OPT
  torch     a small GPT under FSDP2 with zpp.torch, one process per GPU and two on one,
            one of which is lost at the end; needs PyTorch and ZPP_OPT
  bench     the kernels' benchmark, compared with its targets, and collectives
            compared with NCCL's own

  --steps DIR  steps compiled elsewhere, for as many devices as the machine has GPUs, or
               for 2 or 4 that share one: test/gpu/check_steps.py --export DIR --devices N
  --build DIR  the build directory; default: build-gpu

Needs a CUDA toolkit, NCCL, CMake, a C++ compiler, and GoogleTest: the library,
or its sources in third_party/googletest (on Debian, those in
/usr/src/googletest).

environment:
  CUDA_ARCHITECTURES  what to compile for; default: this machine's GPUs
  CMAKE_ARGS          more options for CMake, such as -DNCCL_ROOT=...
  ZPP_OPT             zpp-opt, with zpp-bundle beside it, for run, guard and torch: those
                      of a wheel need no LLVM
USAGE
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build-gpu
all_steps=(kernels sanitize runtime jax run guard torch bench)
# What each step needs of the build.
declare -A targets=(
  [kernels]=zpp-kernels-test [sanitize]=zpp-kernels-test [runtime]=all
  [jax]=zpp_xla [run]=zpp_xla [guard]=zpp_xla [torch]=zpp_rt
  [bench]="zpp-kernels-bench zpp-perf"
)
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
  -h | --help) usage && exit 0 ;;
  *)
    if [[ " ${all_steps[*]} " != *" $1 "* ]]; then
      echo "expected one of the steps ${all_steps[*]}, but got '$1'" >&2
      exit 2
    fi
    steps+=("$1")
    ;;
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

# Runs a program of GoogleTest's as several processes, since what GPUs are compared with
# is computed by one core each.
in_shards() {
  local count=$(($(nproc) < 16 ? $(nproc) : 16)) index outputs pids=() status=0
  outputs=$(mktemp -d)
  for ((index = 0; index < count; index++)); do
    GTEST_TOTAL_SHARDS=$count GTEST_SHARD_INDEX=$index "$@" \
      >"$outputs/$index" 2>&1 &
    pids+=($!)
  done
  for index in "${!pids[@]}"; do
    wait "${pids[index]}" || status=$?
    cat "$outputs/$index"
  done
  rm -r "$outputs"
  return "$status"
}

step_kernels() {
  run "kernels" in_shards "$build/bin/zpp-kernels-test"
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
  run "runtime" ctest --test-dir "$build" --output-on-failure --parallel "$(nproc)"
  # The same suites on the GPUs. Those of operations need one GPU, those of
  # collectives two or more, those of faults four.
  run "runtime: GPUs" env ZPP_TEST_BACKENDS=cuda ZPP_TEST_GPUS="$gpus" \
    "$build/unittests/Runtime/ZppRuntimeTests" --gtest_filter='*cuda*'
  run "runtime: collectives of NCCL" env ZPP_TEST_BACKENDS=cuda \
    ZPP_TEST_GPUS="$gpus" "$build/unittests/Runtime/ZppPlainTests"
  ((gpus >= 4)) || echo "=== runtime: faults skipped, fewer than 4 GPUs"
}

step_jax() {
  if [[ -z $exported ]]; then
    echo "=== jax: skipped, no --steps"
    return
  fi
  local processes counts=() devices
  devices=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["devices"])' \
    "$exported/check.json")
  ((devices > gpus)) || counts+=(1)
  ((devices == 1)) || counts+=("$devices")
  for processes in "${counts[@]}"; do
    run "jax: processes: $processes" \
      env ZPP_XLA="$build/lib/libzpp_xla.so" PYTHONPATH="$root/python" \
      python3 "$root/test/gpu/check_steps.py" --run "$exported" \
      --processes "$processes"
  done
}

step_run() {
  if ((gpus > 1)) && [[ -z ${ZPP_OPT:-} ]]; then
    echo "=== run: skipped, no ZPP_OPT"
    return
  fi
  run "run" env ZPP_XLA="$build/lib/libzpp_xla.so" \
    python3 "$root/test/gpu/check_run.py"
}

step_guard() {
  if [[ -z ${ZPP_OPT:-} ]]; then
    echo "=== guard: skipped, no ZPP_OPT"
    return
  fi
  run "guard" env ZPP_XLA="$build/lib/libzpp_xla.so" \
    python3 "$root/test/gpu/check_guard.py"
}

step_torch() {
  if [[ -z ${ZPP_OPT:-} ]] || ! python3 -c 'import torch' 2>/dev/null; then
    echo "=== torch: skipped, no ZPP_OPT or no PyTorch"
    return
  fi
  run "torch" env ZPP_RT="$build/lib/libzpp_rt.so" \
    python3 "$root/test/gpu/check_torch.py"
}

step_bench() {
  run "bench" "$build/bin/zpp-kernels-bench" --check
  # On one GPU all ranks are on hosts of their own.
  local links=(shared)
  ((gpus == 1)) || links+=(nvlink)
  run "bench: collectives" python3 "$root/bench/collectives.py" \
    --zpp-perf "$build/bin/zpp-perf" --gpus-per-node $((gpus > 1 ? gpus / 2 : 1)) \
    --links "${links[@]}" --iterations 10
}

gpus=$(nvidia-smi -L | wc -l)
run "GPUs, by nvidia-smi" nvidia-smi -L &&
  run configure configure &&
  read -ra needed <<<"$(for step in "${steps[@]}"; do echo "${targets[$step]}"; done | xargs)" &&
  run build cmake --build "$build" --parallel "$(nproc)" --target "${needed[@]}" &&
  for step in "${steps[@]}"; do
    "step_$step"
  done

if ((${#failed[@]})); then
  printf 'FAILED: %s\n' "${failed[@]}"
  exit 1
fi
echo PASS
