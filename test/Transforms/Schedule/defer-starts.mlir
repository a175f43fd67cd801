// RUN: zpp-opt %s --zero-defer-starts --split-input-file | FileCheck %s
// RUN: zpp-opt %s --zero-defer-starts --zero-defer-starts --split-input-file | FileCheck %s
// RUN: zpp-opt %s --zero-defer-starts --remarks-filter=.* --split-input-file -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

#mesh = #zero.mesh<"gpu" = 2>

// Nothing but starts communicates.

// CHECK-LABEL: func @alone
// REMARK-NOT: not-deferred
func.func @alone(%x: tensor<4xf32>) -> tensor<2x4xf32> {
  %r = "sdy.manual_computation"(%x) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}]>]>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{}, {}]>]>}> ({
  ^bb0(%a: tensor<4xf32>):
    // CHECK: zero.start @zpp_host::@gather(%{{.*}}) {deferrable}
    %y = zero.start @zpp_host::@gather(%a) : (tensor<4xf32>) -> tensor<2x4xf32>
    %w = zero.wait %y from(%a : tensor<4xf32>) : tensor<2x4xf32>
    sdy.return %w : tensor<2x4xf32>
  }) : (tensor<4xf32>) -> tensor<2x4xf32>
  return %r : tensor<2x4xf32>
}
module @zpp_host {
  func.func @gather(%x: tensor<4xf32>) -> tensor<2x4xf32> {
    %e = tensor.empty() : tensor<2x4xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e
        : tensor<4xf32> into tensor<2x4xf32> -> tensor<2x4xf32>
    return %0 : tensor<2x4xf32>
  }
}

// -----

#mesh = #zero.mesh<"gpu" = 2>

// XLA's own collectives come after the last wait, with what reads them: the
// wait passes on an operand of those that do not depend on it anyway. What the
// wait passes on is read from there on.

// CHECK-LABEL: func @others
func.func @others(%x: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"gpu"}]>}, %l: tensor<f32>)
    -> (tensor<f32> {sdy.sharding = #sdy.sharding<@mesh_0, []>}, tensor<f32>, tensor<2x4xf32>) {
  %r:3 = "sdy.manual_computation"(%x, %l) <{in_shardings = #sdy.sharding_per_value<[<@mesh_0, [{"gpu"}]>, <@mesh_0, []>]>, out_shardings = #sdy.sharding_per_value<[<@mesh_0, []>, <@mesh_0, []>, <@mesh_0, [{}, {}]>]>}> ({
  // CHECK: ^bb0(%[[A:.*]]: tensor<4xf32>, %[[L:.*]]: tensor<f32>):
  ^bb0(%a: tensor<4xf32>, %l1: tensor<f32>):
    // CHECK-NEXT: %[[Y:.*]] = zero.start @zpp_host::@gather(%[[A]]) {deferrable}
    // CHECK-NEXT: %[[E:.*]] = stablehlo.exponential %[[L]]
    // CHECK-NEXT: %[[N:.*]] = stablehlo.negate %[[E]]
    // CHECK-NEXT: %[[W:.*]], %[[T:.*]] = zero.wait %[[Y]] from(%[[A]] : tensor<4xf32>) ties(%[[E]] : tensor<f32>)
    // CHECK-NEXT: %[[S:.*]] = "stablehlo.all_reduce"(%[[T]])
    // CHECK: %[[M:.*]] = stablehlo.sqrt %[[S]]
    // CHECK-NEXT: "stablehlo.all_reduce"(%[[W]])
    // CHECK: sdy.return %[[M]], %[[N]], %{{.*}}
    %y = zero.start @zpp_host::@gather(%a) : (tensor<4xf32>) -> tensor<2x4xf32>
    %e = stablehlo.exponential %l1 : tensor<f32>
    %s = "stablehlo.all_reduce"(%e) ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %t = stablehlo.add %p, %q : tensor<f32>
      stablehlo.return %t : tensor<f32>
    }) : (tensor<f32>) -> tensor<f32>
    %m = stablehlo.sqrt %s : tensor<f32>
    %n = stablehlo.negate %e : tensor<f32>
    %w = zero.wait %y from(%a : tensor<4xf32>) : tensor<2x4xf32>
    %g = "stablehlo.all_reduce"(%w) ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %t = stablehlo.add %p, %q : tensor<f32>
      stablehlo.return %t : tensor<f32>
    }) : (tensor<2x4xf32>) -> tensor<2x4xf32>
    sdy.return %m, %n, %g : tensor<f32>, tensor<f32>, tensor<2x4xf32>
  }) : (tensor<4xf32>, tensor<f32>) -> (tensor<f32>, tensor<f32>, tensor<2x4xf32>)
  %c = sdy.sharding_constraint %r#0 <@mesh, []> : tensor<f32>
  return %c, %r#1, %r#2 : tensor<f32>, tensor<f32>, tensor<2x4xf32>
}
module @zpp_host {
  func.func @gather(%x: tensor<4xf32>) -> tensor<2x4xf32> {
    %e = tensor.empty() : tensor<2x4xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e
        : tensor<4xf32> into tensor<2x4xf32> -> tensor<2x4xf32>
    return %0 : tensor<2x4xf32>
  }
}

// -----

#mesh = #zero.mesh<"gpu" = 2>

// A start that needs a collective of XLA.

// CHECK-LABEL: func @between
// CHECK-NOT: deferrable
// REMARK: not-deferred{{.*}}starts are queued on XLA's thread: a start or wait depends on stablehlo.collective_permute
func.func @between(%x: tensor<4xf32>) -> tensor<2x4xf32> {
  %r = "sdy.manual_computation"(%x) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}]>]>}> ({
  ^bb0(%a: tensor<4xf32>):
    %s = "stablehlo.collective_permute"(%a) : (tensor<4xf32>) -> tensor<4xf32>
    %y = zero.start @zpp_host::@gather(%s) : (tensor<4xf32>) -> tensor<2x4xf32>
    %w = zero.wait %y from(%s : tensor<4xf32>) : tensor<2x4xf32>
    sdy.return %w : tensor<2x4xf32>
  }) : (tensor<4xf32>) -> tensor<2x4xf32>
  return %r : tensor<2x4xf32>
}
module @zpp_host {
  func.func @gather(%x: tensor<4xf32>) -> tensor<2x4xf32> {
    %e = tensor.empty() : tensor<2x4xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e
        : tensor<4xf32> into tensor<2x4xf32> -> tensor<2x4xf32>
    return %0 : tensor<2x4xf32>
  }
}

// -----

#mesh = #zero.mesh<"gpu" = 2>

// A call that may communicate; those of XLA's libraries do not.

// CHECK-LABEL: func @unknown_call
// CHECK-NOT: deferrable
// REMARK: not-deferred{{.*}}stablehlo.custom_call 'my_all_reduce' may be a collective
func.func @unknown_call(%x: tensor<4xf32>) -> tensor<2x4xf32> {
  %r = "sdy.manual_computation"(%x) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}]>]>}> ({
  ^bb0(%a: tensor<4xf32>):
    %b = stablehlo.custom_call @__cudnn$fmhaSoftmax(%a) : (tensor<4xf32>) -> tensor<4xf32>
    %s = stablehlo.custom_call @my_all_reduce(%b) : (tensor<4xf32>) -> tensor<4xf32>
    %y = zero.start @zpp_host::@gather(%s) : (tensor<4xf32>) -> tensor<2x4xf32>
    %w = zero.wait %y from(%s : tensor<4xf32>) : tensor<2x4xf32>
    sdy.return %w : tensor<2x4xf32>
  }) : (tensor<4xf32>) -> tensor<2x4xf32>
  return %r : tensor<2x4xf32>
}
module @zpp_host {
  func.func @gather(%x: tensor<4xf32>) -> tensor<2x4xf32> {
    %e = tensor.empty() : tensor<2x4xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e
        : tensor<4xf32> into tensor<2x4xf32> -> tensor<2x4xf32>
    return %0 : tensor<2x4xf32>
  }
}

// -----

#mesh = #zero.mesh<"gpu" = 2>

// In a loop a collective is between the starts of two iterations, or after a
// loop that no wait follows.

// CHECK-LABEL: func @loop
// CHECK-NOT: deferrable
// REMARK: not-deferred{{.*}}there is a collective of XLA, and no wait after the last loop
func.func @loop(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = "sdy.manual_computation"(%x) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}]>]>}> ({
  ^bb0(%a: tensor<4xf32>):
    %l = stablehlo.while(%b = %a) : tensor<4xf32>
    cond {
      %true = stablehlo.constant dense<true> : tensor<i1>
      stablehlo.return %true : tensor<i1>
    } do {
      %y = zero.start @zpp_host::@gather(%b) : (tensor<4xf32>) -> tensor<2x4xf32>
      %w = zero.wait %y from(%b : tensor<4xf32>) : tensor<2x4xf32>
      %f = "stablehlo.first"(%w) : (tensor<2x4xf32>) -> tensor<4xf32>
      stablehlo.return %f : tensor<4xf32>
    }
    %s = "stablehlo.collective_permute"(%l) : (tensor<4xf32>) -> tensor<4xf32>
    sdy.return %s : tensor<4xf32>
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}
module @zpp_host {
  func.func @gather(%x: tensor<4xf32>) -> tensor<2x4xf32> {
    %e = tensor.empty() : tensor<2x4xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e
        : tensor<4xf32> into tensor<2x4xf32> -> tensor<2x4xf32>
    return %0 : tensor<2x4xf32>
  }
}

// -----

#mesh = #zero.mesh<"gpu" = 2>

// The partitioner shards operands anew, and may do so with what is computed
// around the manual computation.

// CHECK-LABEL: func @resharded
// CHECK-NOT: deferrable
// REMARK: not-deferred{{.*}}operands of the manual computation may have to be sharded anew
func.func @resharded(%x: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>}) -> tensor<2x4xf32> {
  %r = "sdy.manual_computation"(%x) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}]>]>}> ({
  ^bb0(%a: tensor<4xf32>):
    %y = zero.start @zpp_host::@gather(%a) : (tensor<4xf32>) -> tensor<2x4xf32>
    %w = zero.wait %y from(%a : tensor<4xf32>) : tensor<2x4xf32>
    sdy.return %w : tensor<2x4xf32>
  }) : (tensor<4xf32>) -> tensor<2x4xf32>
  return %r : tensor<2x4xf32>
}
module @zpp_host {
  func.func @gather(%x: tensor<4xf32>) -> tensor<2x4xf32> {
    %e = tensor.empty() : tensor<2x4xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e
        : tensor<4xf32> into tensor<2x4xf32> -> tensor<2x4xf32>
    return %0 : tensor<2x4xf32>
  }
}

// -----

#mesh = #zero.mesh<"gpu" = 2>

// CHECK-LABEL: func @outside
// CHECK-NOT: deferrable
// REMARK: not-deferred{{.*}}stablehlo.dot_general is outside of the manual computation
func.func @outside(%x: tensor<4xf32>) -> tensor<2x4xf32> {
  %r = "sdy.manual_computation"(%x) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}]>]>}> ({
  ^bb0(%a: tensor<4xf32>):
    %y = zero.start @zpp_host::@gather(%a) : (tensor<4xf32>) -> tensor<2x4xf32>
    %w = zero.wait %y from(%a : tensor<4xf32>) : tensor<2x4xf32>
    sdy.return %w : tensor<2x4xf32>
  }) : (tensor<4xf32>) -> tensor<2x4xf32>
  %d = "stablehlo.dot_general"(%r) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %d : tensor<2x4xf32>
}
module @zpp_host {
  func.func @gather(%x: tensor<4xf32>) -> tensor<2x4xf32> {
    %e = tensor.empty() : tensor<2x4xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e
        : tensor<4xf32> into tensor<2x4xf32> -> tensor<2x4xf32>
    return %0 : tensor<2x4xf32>
  }
}

// -----

#mesh = #zero.mesh<"gpu" = 2>

// CHECK-LABEL: func @not_manual
// CHECK-NOT: deferrable
// REMARK: not-deferred{{.*}}they are not all in one sdy.manual_computation
func.func @not_manual(%x: tensor<4xf32>) -> tensor<2x4xf32> {
  %y = zero.start @zpp_host::@gather(%x) : (tensor<4xf32>) -> tensor<2x4xf32>
  %w = zero.wait %y from(%x : tensor<4xf32>) : tensor<2x4xf32>
  return %w : tensor<2x4xf32>
}
module @zpp_host {
  func.func @gather(%x: tensor<4xf32>) -> tensor<2x4xf32> {
    %e = tensor.empty() : tensor<2x4xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e
        : tensor<4xf32> into tensor<2x4xf32> -> tensor<2x4xf32>
    return %0 : tensor<2x4xf32>
  }
}

// -----

#mesh = #zero.mesh<"gpu" = 2>

// An op after the last wait that does not depend on it moves before it.

// CHECK-LABEL: func @computed_late
// REMARK-NOT: not-deferred
func.func @computed_late(%x: tensor<4xf32>, %l: tensor<f32>) -> (tensor<2x4xf32>, tensor<f32>) {
  %r:2 = "sdy.manual_computation"(%x, %l) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}]>, <@mesh, []>]>}> ({
  ^bb0(%a: tensor<4xf32>, %l1: tensor<f32>):
    // CHECK: zero.start {{.*}} {deferrable}
    // CHECK-NEXT: %[[E:.*]] = stablehlo.exponential
    // CHECK-NEXT: %[[N:.*]] = stablehlo.negate %[[E]]
    // CHECK-NEXT: %{{.*}}, %[[T:.*]] = zero.wait {{.*}} ties(%[[N]] : tensor<f32>)
    // CHECK-NEXT: "stablehlo.collective_permute"(%[[T]])
    %y = zero.start @zpp_host::@gather(%a) : (tensor<4xf32>) -> tensor<2x4xf32>
    %w = zero.wait %y from(%a : tensor<4xf32>) : tensor<2x4xf32>
    %e = stablehlo.exponential %l1 : tensor<f32>
    %n = stablehlo.negate %e : tensor<f32>
    %s = "stablehlo.collective_permute"(%n) : (tensor<f32>) -> tensor<f32>
    sdy.return %w, %s : tensor<2x4xf32>, tensor<f32>
  }) : (tensor<4xf32>, tensor<f32>) -> (tensor<2x4xf32>, tensor<f32>)
  return %r#0, %r#1 : tensor<2x4xf32>, tensor<f32>
}
module @zpp_host {
  func.func @gather(%x: tensor<4xf32>) -> tensor<2x4xf32> {
    %e = tensor.empty() : tensor<2x4xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e
        : tensor<4xf32> into tensor<2x4xf32> -> tensor<2x4xf32>
    return %0 : tensor<2x4xf32>
  }
}

// -----

#mesh = #zero.mesh<"gpu" = 2>

// A large collective of XLA would lose what it overlaps with.

// CHECK-LABEL: func @large
// CHECK: zero.wait
// CHECK-NOT: deferrable
// REMARK: not-deferred{{.*}}stablehlo.collective_permute would come too late after the last wait
func.func @large(%x: tensor<4xf32>, %l: tensor<16384xf32>) -> (tensor<2x4xf32>, tensor<16384xf32>) {
  %r:2 = "sdy.manual_computation"(%x, %l) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}]>, <@mesh, [{}]>]>}> ({
  ^bb0(%a: tensor<4xf32>, %l1: tensor<16384xf32>):
    %y = zero.start @zpp_host::@gather(%a) : (tensor<4xf32>) -> tensor<2x4xf32>
    %s = "stablehlo.collective_permute"(%l1) : (tensor<16384xf32>) -> tensor<16384xf32>
    %w = zero.wait %y from(%a : tensor<4xf32>) : tensor<2x4xf32>
    sdy.return %w, %s : tensor<2x4xf32>, tensor<16384xf32>
  }) : (tensor<4xf32>, tensor<16384xf32>) -> (tensor<2x4xf32>, tensor<16384xf32>)
  return %r#0, %r#1 : tensor<2x4xf32>, tensor<16384xf32>
}
module @zpp_host {
  func.func @gather(%x: tensor<4xf32>) -> tensor<2x4xf32> {
    %e = tensor.empty() : tensor<2x4xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e
        : tensor<4xf32> into tensor<2x4xf32> -> tensor<2x4xf32>
    return %0 : tensor<2x4xf32>
  }
}

// -----

#mesh = #zero.mesh<"gpu" = 2>

// And so would many small ones.

// CHECK-LABEL: func @many
// CHECK-NOT: deferrable
// REMARK: not-deferred{{.*}}9 collectives of XLA would come too late after the last wait
func.func @many(%x: tensor<4xf32>, %l: tensor<f32>) -> tensor<2x4xf32> {
  %r = "sdy.manual_computation"(%x, %l) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}]>, <@mesh, []>]>}> ({
  ^bb0(%a: tensor<4xf32>, %l1: tensor<f32>):
    %y = zero.start @zpp_host::@gather(%a) : (tensor<4xf32>) -> tensor<2x4xf32>
    %s0 = "stablehlo.collective_permute"(%l1) : (tensor<f32>) -> tensor<f32>
    %s1 = "stablehlo.collective_permute"(%l1) : (tensor<f32>) -> tensor<f32>
    %s2 = "stablehlo.collective_permute"(%l1) : (tensor<f32>) -> tensor<f32>
    %s3 = "stablehlo.collective_permute"(%l1) : (tensor<f32>) -> tensor<f32>
    %s4 = "stablehlo.collective_permute"(%l1) : (tensor<f32>) -> tensor<f32>
    %s5 = "stablehlo.collective_permute"(%l1) : (tensor<f32>) -> tensor<f32>
    %s6 = "stablehlo.collective_permute"(%l1) : (tensor<f32>) -> tensor<f32>
    %s7 = "stablehlo.collective_permute"(%l1) : (tensor<f32>) -> tensor<f32>
    %s8 = "stablehlo.collective_permute"(%l1) : (tensor<f32>) -> tensor<f32>
    %w = zero.wait %y from(%a : tensor<4xf32>) : tensor<2x4xf32>
    sdy.return %w : tensor<2x4xf32>
  }) : (tensor<4xf32>, tensor<f32>) -> tensor<2x4xf32>
  return %r : tensor<2x4xf32>
}
module @zpp_host {
  func.func @gather(%x: tensor<4xf32>) -> tensor<2x4xf32> {
    %e = tensor.empty() : tensor<2x4xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e
        : tensor<4xf32> into tensor<2x4xf32> -> tensor<2x4xf32>
    return %0 : tensor<2x4xf32>
  }
}

// -----

#mesh = #zero.mesh<"gpu" = 2>

// An op that needs another collective of XLA comes after it.

// CHECK-LABEL: func @chain
// REMARK-NOT: not-deferred
func.func @chain(%x: tensor<4xf32>, %l: tensor<f32>) -> (tensor<2x4xf32>, tensor<f32>) {
  %r:2 = "sdy.manual_computation"(%x, %l) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}]>, <@mesh, []>]>}> ({
  // CHECK: ^bb0(%{{.*}}: tensor<4xf32>, %[[L:.*]]: tensor<f32>):
  ^bb0(%a: tensor<4xf32>, %l1: tensor<f32>):
    // CHECK-NEXT: zero.start {{.*}} {deferrable}
    // CHECK-NEXT: %{{.*}}, %[[T:.*]] = zero.wait {{.*}} ties(%[[L]] : tensor<f32>)
    // CHECK-NEXT: %[[S:.*]] = "stablehlo.collective_permute"(%[[T]])
    // CHECK-NEXT: %[[N:.*]] = stablehlo.negate %[[S]]
    // CHECK-NEXT: "stablehlo.collective_permute"(%[[N]])
    %s = "stablehlo.collective_permute"(%l1) : (tensor<f32>) -> tensor<f32>
    %n = stablehlo.negate %s : tensor<f32>
    %y = zero.start @zpp_host::@gather(%a) : (tensor<4xf32>) -> tensor<2x4xf32>
    %w = zero.wait %y from(%a : tensor<4xf32>) : tensor<2x4xf32>
    %t = "stablehlo.collective_permute"(%n) : (tensor<f32>) -> tensor<f32>
    sdy.return %w, %t : tensor<2x4xf32>, tensor<f32>
  }) : (tensor<4xf32>, tensor<f32>) -> (tensor<2x4xf32>, tensor<f32>)
  return %r#0, %r#1 : tensor<2x4xf32>, tensor<f32>
}
module @zpp_host {
  func.func @gather(%x: tensor<4xf32>) -> tensor<2x4xf32> {
    %e = tensor.empty() : tensor<2x4xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e
        : tensor<4xf32> into tensor<2x4xf32> -> tensor<2x4xf32>
    return %0 : tensor<2x4xf32>
  }
}

// -----

#mesh = #zero.mesh<"gpu" = 2>

// A value from outside of the computation has readers there, too.

// CHECK-LABEL: func @from_outside
// CHECK: zero.start
// CHECK: zero.wait
func.func @from_outside(%x: tensor<4xf32>, %l: tensor<f32>) -> (tensor<2x4xf32>, tensor<f32>) {
  %r:2 = "sdy.manual_computation"(%x, %l) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}]>, <@mesh, []>]>}> ({
  ^bb0(%a: tensor<4xf32>, %l1: tensor<f32>):
    %s = "stablehlo.collective_permute"(%l1) : (tensor<f32>) -> tensor<f32>
    %n = stablehlo.negate %s : tensor<f32>
    %y = zero.start @zpp_host::@gather(%a) : (tensor<4xf32>) -> tensor<2x4xf32>
    %w = zero.wait %y from(%a : tensor<4xf32>) : tensor<2x4xf32>
    %t = "stablehlo.collective_permute"(%l) : (tensor<f32>) -> tensor<f32>
    sdy.return %w, %t : tensor<2x4xf32>, tensor<f32>
  }) : (tensor<4xf32>, tensor<f32>) -> (tensor<2x4xf32>, tensor<f32>)
  return %r#0, %r#1 : tensor<2x4xf32>, tensor<f32>
}
module @zpp_host {
  func.func @gather(%x: tensor<4xf32>) -> tensor<2x4xf32> {
    %e = tensor.empty() : tensor<2x4xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e
        : tensor<4xf32> into tensor<2x4xf32> -> tensor<2x4xf32>
    return %0 : tensor<2x4xf32>
  }
}
