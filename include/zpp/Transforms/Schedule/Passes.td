//===- Passes.td - Phase 5: starts and waits ---------------*- tablegen -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TRANSFORMS_SCHEDULE_PASSES
#define ZPP_TRANSFORMS_SCHEDULE_PASSES

include "zpp/Transforms/PassOptions.td"

def OutlineCollectivesPass : Zpp_ModulePass<"zero-outline-collectives"> {
  let summary = "Move collectives into functions that run beside the compute";
  let description = [{
    In each block, a chain of decomposed ops that use each other's results, with
    the tensor ops between them, becomes a function in the nested module
    `@zpp_host`, and a `zero.start` and a `zero.wait` of this function. Layers
    are alike, so equal chains share one function. If other locations, which
    name weights, are all that tells them apart, a chain has an instance
    (`zero.instance`) of the function. `tensor.empty` is cloned into the
    function. All other values that a chain reads are arguments, and
    those that other ops read are results.

    A secondary partition (hpZ) is the result of one chain and the argument of
    another, because the barrier between them is not a zero op.

    A chain may have to stay where it is, to be lowered portably: because it
    sends nothing quantized, lies in a branch, has slices that are not static,
    or because one of its operands depends on one of its results. A remark says
    why.

    ```
    %y = exchange %x                  ->  %t = start @zpp_host::@f(%x)
                                          %y = wait %t
    ```
  }];
  let dependentDialects = ["::zpp::zero::ZeroDialect",
                           "::mlir::func::FuncDialect",
                           "::mlir::tensor::TensorDialect"];
}

def PipelineChunksPass : Zpp_ModulePass<"zero-pipeline-chunks"> {
  let summary = "Overlap the hops of one stage with those of others (4.1.2)";
  let description = [{
    Orders the ops of each function in the module `@zpp_host` by the times at
    which they would start if kernels and the exchanges of each tier had queues
    of their own. So a tier does not wait for kernels of a stage that itself
    waits for a slower tier. The order is the same on every rank.

    ```
    a.node, a.gpu, b.node, b.gpu      ->  a.node, b.node beside a.gpu, b.gpu
    ```
  }];
}

def OverlapCollectivesPass : Zpp_ModulePass<"zero-overlap-collectives"> {
  let summary = "Start collectives early and wait for them late (4.1.1)";
  let description = [{
    Moves starts up and waits down, in the same order on every rank:

    - Gathers of weights start in the order in which their results are needed,
      each as soon as its operand is available and the bytes in flight stay
      within `prefetch-bytes`. Each is waited for where its result is needed
      first. Casts, shape changes and arithmetic of weights move with them. A
      second gather of a weight reads its operand from before the barrier that
      kept the two apart, since ties do this from now on. If the operand is
      cast, the cast is repeated after a barrier of its own. Where several
      layers are read of a stack that is kept beyond that, each is read after a
      barrier of its own, through which the tied value passes: XLA would read
      all of them at once.
    - A scatter of gradients starts once its gradient is available, and is
      waited for where its result is needed. Arithmetic that nothing else reads,
      such as a scale, moves with it. It is waited for earlier only if
      `prefetch-bytes` are in flight, or twice as many after the last heavy op,
      and another scatter is to start.

    With `prefetch-bytes=-1` each block has what one layer needs, and at least
    256 MiB: the bytes of the largest one of its layers, which are the transfers
    after which their sizes repeat; all of a loop's body if they do not; or the
    largest transfer if that is more.

    XLA respects no other order than that of data, so values of the compute are
    tied through starts and waits:

    - An operand of the next heavy op (a product, a convolution, a loop, a call,
      or the op on the most data) passes through a start, which then cannot come
      later than this op.
    - The value that was computed last passes through a wait, which then cannot
      come earlier. A wait that makes room for a gradient has this gradient pass
      through it. An operand of the next product, which the one before may have
      read, XLA would copy.
    - Products that only later products and scatters read, and the gradients and
      results of scatters that are left to XLA, pass through the next wait. XLA
      would leave much of this work for the end and keep its operands in memory.
      For the same reason a layer of a stack that a wait brings to make room is
      stored behind it, and the stack passes through the next wait.
    - Outside of loops, what depends on scatters stands after the last heavy op
      if no compute needs it. Ops there are sorted by the scatters that they
      need, and updates of at least 1 MiB pass through the next wait.
      XLA would wait for all gradients first. So the last ones are on the way
      while the weights of earlier ones are updated. Where a start comes before
      such updates, their gradients pass through it: XLA would run the updates
      first.
    - A stack of layers, or a loop, that begins with a broadcast of zero has a
      broadcast of its own, behind a barrier with a value that is there last.
      XLA would compute equal zeros together, before the first of all stacks
      begins. Of stacks that one op reads, one begins when the one before is
      complete.

    A block that has ties has been scheduled already and stays as it is.

    For each transfer a remark says where it starts, where it is waited for,
    under how many heavy ops it runs and how many bytes are in flight. If there
    is nothing to hide under, the remark is a missed one.

    ```
    start; wait; dot %x; dot %w       ->  start; dot %x; wait; dot %w
    ```
  }];
  let options = [
    Option<"prefetchBytes", "prefetch-bytes", "int64_t", "-1",
           "Bytes of weights that may be gathered before they are needed, and "
           "of gradients that may wait to be scattered; -1: of one layer">,
  ];
}

def DeferStartsPass : Zpp_ModulePass<"zero-defer-starts"> {
  let summary = "Let starts be queued beside XLA's thread";
  let description = [{
    To queue the work of a start can take a thread longer than the device needs
    for a product. A thread other than XLA's may queue it if all collectives,
    including those of XLA, keep one order on all ranks. Such starts become
    `deferrable`. The conditions are:

    - All starts are in one `sdy.manual_computation` along all axes, and the
      values around it need no resharding, so that the partitioner adds no
      collectives.
    - The collectives that are left to XLA come after the last wait. Those that
      do not are moved there and read an operand that is tied through the wait.
      They must be few and small.

    If starts are not deferrable, a remark says why.
  }];
}

#endif // ZPP_TRANSFORMS_SCHEDULE_PASSES
