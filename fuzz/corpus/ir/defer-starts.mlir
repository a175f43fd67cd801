// RUN: zpp-opt %s --zero-defer-starts --split-input-file | FileCheck %s
// RUN: zpp-opt %s --zero-defer-starts --zero-defer-starts --split-input-file | FileCheck %s
// RUN: zpp-opt %s --zero-defer-starts --remarks-filter=.* --split-input-file -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

#mesh = #zero.mesh<"gpu" = 2>

func.func @alone(%x: tensor<4xf32>) -> tensor<2x4xf32> {
  %r = "sdy.manual_computation"(%x) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}]>]>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{}, {}]>]>}> ({
  ^bb0(%a: tensor<4xf32>):

    %y = zero.start @zpp_host::@gather(%a) : (tensor<4xf32>) -> tensor<2x4xf32>
    %w = zero.wait %y from(%a : tensor<4xf32>) : tensor<2x4xf32>
    "sdy.return"(%w) : (tensor<2x4xf32>) -> ()
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

func.func @others(%x: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"gpu"}]>}, %l: tensor<f32>)
    -> (tensor<f32> {sdy.sharding = #sdy.sharding<@mesh_0, []>}, tensor<f32>, tensor<2x4xf32>) {
  %r:3 = "sdy.manual_computation"(%x, %l) <{in_shardings = #sdy.sharding_per_value<[<@mesh_0, [{"gpu"}]>, <@mesh_0, []>]>, out_shardings = #sdy.sharding_per_value<[<@mesh_0, []>, <@mesh_0, []>, <@mesh_0, [{}, {}]>]>}> ({

  ^bb0(%a: tensor<4xf32>, %l1: tensor<f32>):

    %y = zero.start @zpp_host::@gather(%a) : (tensor<4xf32>) -> tensor<2x4xf32>
    %e = "stablehlo.exponential"(%l1) : (tensor<f32>) -> tensor<f32>
    %s = "stablehlo.all_reduce"(%e) ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %t = "stablehlo.add"(%p, %q) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%t) : (tensor<f32>) -> ()
    }) : (tensor<f32>) -> tensor<f32>
    %m = "stablehlo.sqrt"(%s) : (tensor<f32>) -> tensor<f32>
    %n = "stablehlo.negate"(%e) : (tensor<f32>) -> tensor<f32>
    %w = zero.wait %y from(%a : tensor<4xf32>) : tensor<2x4xf32>
    %g = "stablehlo.all_reduce"(%w) ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %t = "stablehlo.add"(%p, %q) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%t) : (tensor<f32>) -> ()
    }) : (tensor<2x4xf32>) -> tensor<2x4xf32>
    "sdy.return"(%m, %n, %g) : (tensor<f32>, tensor<f32>, tensor<2x4xf32>) -> ()
  }) : (tensor<4xf32>, tensor<f32>) -> (tensor<f32>, tensor<f32>, tensor<2x4xf32>)
  %c = "sdy.sharding_constraint"(%r#0) <{sharding = #sdy.sharding<@mesh, []>}> : (tensor<f32>) -> tensor<f32>
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

func.func @between(%x: tensor<4xf32>) -> tensor<2x4xf32> {
  %r = "sdy.manual_computation"(%x) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}]>]>}> ({
  ^bb0(%a: tensor<4xf32>):
    %s = "stablehlo.collective_permute"(%a) : (tensor<4xf32>) -> tensor<4xf32>
    %y = zero.start @zpp_host::@gather(%s) : (tensor<4xf32>) -> tensor<2x4xf32>
    %w = zero.wait %y from(%s : tensor<4xf32>) : tensor<2x4xf32>
    "sdy.return"(%w) : (tensor<2x4xf32>) -> ()
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

func.func @unknown_call(%x: tensor<4xf32>) -> tensor<2x4xf32> {
  %r = "sdy.manual_computation"(%x) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}]>]>}> ({
  ^bb0(%a: tensor<4xf32>):
    %b = "stablehlo.custom_call"(%a) <{call_target_name = "__cudnn$fmhaSoftmax"}> : (tensor<4xf32>) -> tensor<4xf32>
    %s = "stablehlo.custom_call"(%b) <{call_target_name = "my_all_reduce"}> : (tensor<4xf32>) -> tensor<4xf32>
    %y = zero.start @zpp_host::@gather(%s) : (tensor<4xf32>) -> tensor<2x4xf32>
    %w = zero.wait %y from(%s : tensor<4xf32>) : tensor<2x4xf32>
    "sdy.return"(%w) : (tensor<2x4xf32>) -> ()
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

func.func @loop(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = "sdy.manual_computation"(%x) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}]>]>}> ({
  ^bb0(%a: tensor<4xf32>):
    %l = "stablehlo.while"(%a) ({
    ^bb0(%b: tensor<4xf32>):
      %true = "stablehlo.constant"() <{value = dense<true> : tensor<i1>}> : () -> tensor<i1>
      "stablehlo.return"(%true) : (tensor<i1>) -> ()
    }, {
    ^bb0(%b: tensor<4xf32>):
      %y = zero.start @zpp_host::@gather(%b) : (tensor<4xf32>) -> tensor<2x4xf32>
      %w = zero.wait %y from(%b : tensor<4xf32>) : tensor<2x4xf32>
      %f = "stablehlo.first"(%w) : (tensor<2x4xf32>) -> tensor<4xf32>
      "stablehlo.return"(%f) : (tensor<4xf32>) -> ()
    }) : (tensor<4xf32>) -> tensor<4xf32>
    %s = "stablehlo.collective_permute"(%l) : (tensor<4xf32>) -> tensor<4xf32>
    "sdy.return"(%s) : (tensor<4xf32>) -> ()
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

func.func @resharded(%x: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>}) -> tensor<2x4xf32> {
  %r = "sdy.manual_computation"(%x) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}]>]>}> ({
  ^bb0(%a: tensor<4xf32>):
    %y = zero.start @zpp_host::@gather(%a) : (tensor<4xf32>) -> tensor<2x4xf32>
    %w = zero.wait %y from(%a : tensor<4xf32>) : tensor<2x4xf32>
    "sdy.return"(%w) : (tensor<2x4xf32>) -> ()
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

func.func @outside(%x: tensor<4xf32>) -> tensor<2x4xf32> {
  %r = "sdy.manual_computation"(%x) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}]>]>}> ({
  ^bb0(%a: tensor<4xf32>):
    %y = zero.start @zpp_host::@gather(%a) : (tensor<4xf32>) -> tensor<2x4xf32>
    %w = zero.wait %y from(%a : tensor<4xf32>) : tensor<2x4xf32>
    "sdy.return"(%w) : (tensor<2x4xf32>) -> ()
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

func.func @computed_late(%x: tensor<4xf32>, %l: tensor<f32>) -> (tensor<2x4xf32>, tensor<f32>) {
  %r:2 = "sdy.manual_computation"(%x, %l) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}]>, <@mesh, []>]>}> ({
  ^bb0(%a: tensor<4xf32>, %l1: tensor<f32>):

    %y = zero.start @zpp_host::@gather(%a) : (tensor<4xf32>) -> tensor<2x4xf32>
    %w = zero.wait %y from(%a : tensor<4xf32>) : tensor<2x4xf32>
    %e = "stablehlo.exponential"(%l1) : (tensor<f32>) -> tensor<f32>
    %n = "stablehlo.negate"(%e) : (tensor<f32>) -> tensor<f32>
    %s = "stablehlo.collective_permute"(%n) : (tensor<f32>) -> tensor<f32>
    "sdy.return"(%w, %s) : (tensor<2x4xf32>, tensor<f32>) -> ()
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

func.func @large(%x: tensor<4xf32>, %l: tensor<16384xf32>) -> (tensor<2x4xf32>, tensor<16384xf32>) {
  %r:2 = "sdy.manual_computation"(%x, %l) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}]>, <@mesh, [{}]>]>}> ({
  ^bb0(%a: tensor<4xf32>, %l1: tensor<16384xf32>):
    %y = zero.start @zpp_host::@gather(%a) : (tensor<4xf32>) -> tensor<2x4xf32>
    %s = "stablehlo.collective_permute"(%l1) : (tensor<16384xf32>) -> tensor<16384xf32>
    %w = zero.wait %y from(%a : tensor<4xf32>) : tensor<2x4xf32>
    "sdy.return"(%w, %s) : (tensor<2x4xf32>, tensor<16384xf32>) -> ()
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
    "sdy.return"(%w) : (tensor<2x4xf32>) -> ()
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

func.func @chain(%x: tensor<4xf32>, %l: tensor<f32>) -> (tensor<2x4xf32>, tensor<f32>) {
  %r:2 = "sdy.manual_computation"(%x, %l) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}]>, <@mesh, []>]>}> ({

  ^bb0(%a: tensor<4xf32>, %l1: tensor<f32>):

    %s = "stablehlo.collective_permute"(%l1) : (tensor<f32>) -> tensor<f32>
    %n = "stablehlo.negate"(%s) : (tensor<f32>) -> tensor<f32>
    %y = zero.start @zpp_host::@gather(%a) : (tensor<4xf32>) -> tensor<2x4xf32>
    %w = zero.wait %y from(%a : tensor<4xf32>) : tensor<2x4xf32>
    %t = "stablehlo.collective_permute"(%n) : (tensor<f32>) -> tensor<f32>
    "sdy.return"(%w, %t) : (tensor<2x4xf32>, tensor<f32>) -> ()
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
