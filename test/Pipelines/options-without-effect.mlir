// Where an option needs another one, an error or a warning says what to write.

// DEFINE: %{options} =
// DEFINE: %{run} = zpp-opt %s --zeropp="%{options}" -o /dev/null 2>&1 | FileCheck %s --implicit-check-not=warning --check-prefix

// REDEFINE: %{options} = weights=i4:delta secondary=none
// RUN: not %{run} DELTA
// DELTA: error: expected a secondary partition with weights=i4:delta, which is what differences are taken to, but got secondary=none; write secondary=gpu, the name of a tier, or leave secondary out

// REDEFINE: %{options} = frozen=keep secondary=none
// RUN: not %{run} KEEP
// KEEP: error: expected a secondary partition with frozen=keep, which is what is kept, but got secondary=none; write secondary=gpu, the name of a tier, or leave secondary out

// REDEFINE: %{options} = weights=i8:gamma
// RUN: not %{run} GAMMA
// GAMMA: error: expected weights as none, i8, i4, i8:delta or i4:delta, but got 'i8:gamma'

// REDEFINE: %{options} = moments=i4
// RUN: not %{run} MOMENTS
// MOMENTS: error: expected moments as none or i8, but got 'i4'

// REDEFINE: %{options} = exchanges=i4
// RUN: not %{run} EXCHANGES
// EXCHANGES: error: expected exchanges as none or i8, but got 'i4'

// REDEFINE: %{options} = start=all
// RUN: %{run} START
// START: warning: start=all has no effect, because the step keeps no state; write weights=i4:delta or frozen=keep, or leave start out

// REDEFINE: %{options} = start=frozen weights=i4:delta
// RUN: %{run} FROZEN
// FROZEN: warning: start=frozen has no effect with frozen=none; write frozen=keep, or leave start out

// REDEFINE: %{options} = reduced=i4 gradients=none
// RUN: %{run} REDUCED
// REDUCED: warning: reduced=i4 has no effect with gradients=none; write gradients=i8:i4, or leave reduced out

// REDEFINE: %{options} = tuning.prefetch-bytes=7
// RUN: %{run} PREFETCH
// PREFETCH: warning: tuning.prefetch-bytes has no effect with target=portable, where XLA orders collectives; write target=cuda, or leave it out

// REDEFINE: %{options} = tuning.rotate=0 gradients=none
// RUN: %{run} ROTATE
// ROTATE: warning: tuning.rotate=0 has no effect with gradients=none; write gradients=i8:i4, or leave tuning.rotate out

// REDEFINE: %{options} = tuning.block=64 gradients=none weights=none
// RUN: %{run} BLOCK
// BLOCK: warning: tuning.block=64 has no effect, because nothing has a format; write weights=i8 or gradients=i8:i4, or leave tuning.block out

// REDEFINE: %{options} = accumulate=gpu gradients=none
// RUN: %{run} ACCUMULATE
// ACCUMULATE: warning: accumulate=gpu has no effect with gradients=none; write gradients=none:none, for hops that round nothing, or leave accumulate out

// REDEFINE: %{options} = tuning.prefetch-bytes=7 tuning.rotate=32 tuning.block=64 reduced=none gradients=none start=all frozen=keep target=cuda
// RUN: zpp-opt %s --zeropp="%{options}" --remarks-filter=none -o /dev/null 2>&1 | count 0

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
func.func @step(%w: tensor<4x64xf32>) -> tensor<4x64xf32> {
  return %w : tensor<4x64xf32>
}
