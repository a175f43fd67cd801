//===- Passes.td - What becomes of loops -------------------*- tablegen -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TRANSFORMS_LOOPS_PASSES
#define ZPP_TRANSFORMS_LOOPS_PASSES

include "zpp/Transforms/PassOptions.td"

def PlanLoopsPass : Zpp_ModulePass<"zero-plan-loops"> {
  let summary = "Decide what becomes of the iterations of loops";
  let description = [{
    Notes on each loop with collectives, as `zpp.loop`, what `zero-write-loops` is
    to write. Passes in between see what will be there.

    - `layers`: so many iterations follow each other without a loop, at most 128.
      They are the layers of a model: all weights that it gathers depend on the
      number of the iteration and on nothing that the one before has computed, or
      it stores gradients in a stack, at its own place, that follow from what the
      one before has computed. So a loop over micro-batches or steps stays one, as
      does a loop around other loops that communicate. Without a loop, the layers
      overlap as those of a step that was written without one.
    - `first`: the first iteration stands in front of the loop. Weights do not
      change between micro-batches: zero-partition-within-node, with the same
      options, would gather their secondary partitions in front of the loop,
      where nothing hides it. It then finds the first gather of a weight in that
      iteration, whose compute hides it, and keeps its result for the loop, as far
      as an iteration can. With `secondary=none`, no weights are kept.
    - `last`, with `gradients`: the last iteration stands after the loop. What a
      loop over micro-batches has added up is sent after it, where nothing hides
      it: by zero-accumulate-gradients, with the same `group`, or by the step
      itself, as with replicated weights. Each sum can then be sent as soon as its
      last gradient is there. What an iteration has all-reduced by a collective
      that is left to XLA, or stacked, is there at its end only, and does not
      count if it is most of what is sent. This is decided when the hops of
      gradients exist.

    For the last two, the loop has a known number of iterations, another one is
    left in it, and the hops that they hide take at least `min-usec`. Remarks say
    what becomes of loops, and why others stay.

    ```
    loop i = 0 .. 3: step(i)          ->  loop {layers = 3} i = 0 .. 3: step(i)
    ```
  }];
  let options = [
    Option<"secondary", "secondary", "std::string", "\"\"",
           "As in zero-partition-within-node, or none">,
    SplitSmallOption<"small gathers">,
    BetweenStepsOption,
    Option<"gradients", "gradients", "bool", "false",
           "Decide which last iterations stand after their loops, and nothing "
           "else">,
    Option<"group", "group", "std::string", /*default=*/"\"\"",
           "As in zero-accumulate-gradients; empty: there is none, and only the "
           "step itself sends after loops">,
    Option<"minUsec", "min-usec", "int64_t", "1000",
           "Leave loops alone if the hops before or after them take less than "
           "these microseconds: the copy of an iteration is compiled, too">,
  ];
}

def WriteLoopsPass : Zpp_ModulePass<"zero-write-loops"> {
  let summary = "Write loops as they are planned (4.1.1)";
  let description = [{
    Does what `zero-plan-loops` has noted. First iterations are written in front
    of their loops and last ones after them; if only one other is left, that one
    is written without a loop, too. Of what the step sends after the last
    iteration, the first hop moves up to where the last gradient of its sum is
    there. If that is a stack, which each micro-batch leaves in a loop over
    layers, the last one of these loops sends the sum, a layer in each iteration:
    where hops scatter another dim than that of the layers, or leave the whole sum
    on each device, and where all that the sum is multiplied by is known before.

    Layers are written with `layers`, once there are starts. XLA sees as little of
    the neighbors of an iteration as in a loop: activations that enter the loop
    pass through an `optimization_barrier`, so that a backward pass still computes
    them again where it was written so, and so do the number of each iteration and
    the stacks of weights, early: a gather may start in front of the loop. Gradients are
    stored in their stacks after all iterations, or, where a loop around this one
    adds them up, in the sum at once. Layers that are read and written again, as
    with differences, are read in front of the write of the iteration before. A
    stack that is joined from layers or begins as zeros, and is only read and
    written layer by layer, is replaced by its layers.

    ```
    loop {layers = 2} i: step(i)      ->  step(0); step(1)
    ```
  }];
  let options = [
    Option<"layers", "layers", "bool", "false", "Write layers, too">,
  ];
}

#endif // ZPP_TRANSFORMS_LOOPS_PASSES
