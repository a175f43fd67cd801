//===- PlacementProofTest.cpp - No pass misplaces a slice -----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every program here is run on symbolic elements (SymbolicInterpreter.h) as it
// is written, with logical ops, and again after every pass of the pipeline:
// every element of every rank must be the same sum of the same elements of the
// same ranks. All meshes of two tiers up to 4x8, of three up to 2x3x4, stages 1
// to 4, dims that do not divide, parts of axes and other axes in between. What
// a step keeps is proven by induction over steps.
//
//===----------------------------------------------------------------------===//

#include "SymbolicInterpreter.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Dialect/Guest/GuestDialects.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/While.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Transforms/Passes.h"
#include "llvm/ADT/StringExtras.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace zpp;

namespace {

//===----------------------------------------------------------------------===//
// Programs
//===----------------------------------------------------------------------===//

std::string str(const std::vector<int64_t> &shape) {
  std::string text = "tensor<";
  for (int64_t size : shape)
    text += std::to_string(size) + "x";
  return text + "f32>";
}

/// A tensor [outer..., extent, inner...] whose dim `dim` is partitioned by
/// `factors`.
struct Tensor {
  Mesh mesh;
  std::vector<int64_t> shape;
  int64_t dim;
  /// Most significant first.
  std::vector<AxisRef> factors;

  std::string meshText() const {
    std::string text = "#zero.mesh<";
    for (const MeshAxis &axis : mesh.getAxes())
      text += (&axis == &mesh.getAxes().front() ? "\"" : ", \"") + axis.name +
              "\" = " + std::to_string(axis.size);
    return text + ">";
  }

  static std::string axisText(const Mesh &mesh, const AxisRef &ref) {
    std::string text = "\"" + ref.name + "\"";
    if (ref.size != mesh.getAxes()[mesh.findAxis(ref.name)].size)
      text +=
          ":(" + std::to_string(ref.preSize) + ")" + std::to_string(ref.size);
    return text;
  }

  /// The shard type with all factors whole, or partitioned.
  std::string type(bool isWhole) const {
    std::string text = "!zero.shard<";
    for (int64_t size : shape)
      text += std::to_string(size) + "x";
    text += "f32, dim " + std::to_string(dim) + " = (";
    for (const AxisRef &ref : factors)
      text += (&ref == &factors.front() ? "" : ", ") +
              (isWhole ? std::to_string(ref.size) : axisText(mesh, ref));
    return text + ") on #mesh>";
  }

  std::string along() const {
    std::string text = "[";
    for (const AxisRef &ref : factors)
      text += (&ref == &factors.front() ? "" : ", ") + axisText(mesh, ref);
    return text + "]";
  }

  std::vector<int64_t> localShape() const {
    std::vector<int64_t> local = shape;
    int64_t slices = numDevices(factors);
    local[dim] = (shape[dim] + slices - 1) / slices;
    return local;
  }

  /// A gradient: the sum over all ranks, scattered.
  std::string scatter(StringRef kind = "sum") const {
    return "#mesh = " + meshText() + "\nfunc.func @main(%g: " + str(shape) +
           ") -> " + str(localShape()) +
           " {\n  %0 = zero.from_local %g : " + str(shape) + " to " +
           type(true) + "\n  %1 = zero.reduce_scatter " + kind.str() +
           " %0 along " + along() + " : " + type(true) + " to " + type(false) +
           "\n  %2 = zero.to_local %1 : " + type(false) + " to " +
           str(localShape()) + "\n  return %2 : " + str(localShape()) + "\n}\n";
  }

  /// `body`, which computes `results` of `type` from `%w` of `from`, as a step:
  /// in a manual computation over all axes.
  std::string inStep(const std::string &body, const std::string &from,
                     const std::string &results, const std::string &types,
                     int64_t numResults) const {
    std::string axes, sizes;
    for (const MeshAxis &axis : mesh.getAxes()) {
      axes += (axes.empty() ? "\"" : ", \"") + axis.name + "\"";
      sizes += (sizes.empty() ? "\"" : ", \"") + axis.name +
               "\"=" + std::to_string(axis.size);
    }
    std::string sharding = "<@mesh, [{" + axes + "}]>", shardings = sharding,
                names = "%m#0";
    for (int64_t i = 1; i < numResults; ++i) {
      shardings += ", " + sharding;
      names += ", %m#" + std::to_string(i);
    }
    return "#mesh = " + meshText() + "\n\"sdy.mesh\"() <{mesh = #sdy.mesh<[" +
           sizes +
           "]>, sym_name = \"mesh\"}> : () -> ()\nfunc.func public @main(%a: " +
           from + ") -> (" + types + ") {\n  %m:" + std::to_string(numResults) +
           " = \"sdy.manual_computation\"(%a) <{in_shardings = "
           "#sdy.sharding_per_value<[" +
           sharding + "]>, manual_axes = #sdy<manual_axes{" + axes +
           "}>, out_shardings = #sdy.sharding_per_value<[" + shardings +
           "]>}> ({\n^bb0(%w: " + from + "):\n" + body + "  \"sdy.return\"(" +
           results + ") : (" + types + ") -> ()\n  }) : (" + from + ") -> (" +
           types + ")\n  return " + names + " : " + types + "\n}\n";
  }

  std::string gatherInStep() const {
    std::string whole = str(shape);
    std::string body = gather(/*twice=*/true);
    body = body.substr(body.find("{\n") + 2);
    return inStep(body.substr(0, body.find("  return")), str(localShape()),
                  "%r0, %r1", whole + ", " + whole, 2);
  }

  /// Computes `%sum` from `%gradient`.
  std::string scatterOps() const {
    return "%s0 = zero.from_local %gradient : " + str(shape) + " to " +
           type(true) + "\n%s1 = zero.reduce_scatter sum %s0 along " + along() +
           " : " + type(true) + " to " + type(false) +
           "\n%sum = zero.to_local %s1 : " + type(false) + " to " +
           str(localShape()) + "\n";
  }

  /// A loop over `trips` gradients. It writes a stack, from the last one on, or
  /// adds them up. Each is computed after a product, which another iteration
  /// can hide its scatter under.
  std::string scatterInLoop(int64_t trips, bool addsUp) const {
    auto stacked = [&](std::vector<int64_t> layer, int64_t count) {
      layer.insert(layer.begin(), count);
      return str(layer);
    };
    std::string whole = stacked(shape, trips), one = stacked(shape, 1);
    std::string local = str(localShape()), row = stacked(localShape(), 1);
    std::string carried = addsUp ? local : stacked(localShape(), trips);
    std::string zeros, sizes = "1";
    for (size_t i = 0; i < shape.size(); ++i) {
      zeros += ", %zero";
      sizes += ", " + std::to_string(shape[i]);
    }
    std::string index, indices = "tensor<i32>";
    for (size_t i = 0; i < shape.size(); ++i)
      indices += ", tensor<i32>";
    auto constant = [](const std::string &name, int64_t value) {
      return "%" + name + " = \"stablehlo.constant\"() <{value = dense<" +
             std::to_string(value) + "> : tensor<i32>}> : () -> tensor<i32>\n";
    };
    std::string arguments =
        "^bb0(%i: tensor<i32>, %s: " + carried + ", %gs: " + whole + "):\n";
    std::string types = "tensor<i32>, " + carried + ", " + whole;
    std::string left =
        addsUp ? "%next = \"stablehlo.add\"(%s, %sum) : (" + local + ", " +
                     local + ") -> " + local + "\n"
               : "%at = \"stablehlo.subtract\"(%last, %i) : (tensor<i32>, "
                 "tensor<i32>) -> tensor<i32>\n%row = "
                 "\"stablehlo.reshape\"(%sum) : (" +
                     local + ") -> " + row +
                     "\n%next = \"stablehlo.dynamic_update_slice\"(%s, %row, "
                     "%at" +
                     zeros + ") : (" + carried + ", " + row + ", " + indices +
                     ") -> " + carried + "\n";
    return inStep(
        constant("zero", 0) + constant("one", 1) + constant("trips", trips) +
            constant("last", trips - 1) +
            "%zeros = \"stablehlo.constant\"() <{value = dense<0.0> : " +
            str(shape) + "}> : () -> " + str(shape) +
            "\n%none = \"stablehlo.constant\"() <{value = dense<0.0> : " +
            carried + "}> : () -> " + carried +
            "\n%loop:3 = \"stablehlo.while\"(%zero, %none, %w) ({\n" +
            arguments +
            "%c = \"stablehlo.compare\"(%i, %trips) <{comparison_direction = "
            "#stablehlo<comparison_direction LT>}> : (tensor<i32>, "
            "tensor<i32>) -> tensor<i1>\n\"stablehlo.return\"(%c) : "
            "(tensor<i1>) -> ()\n}, {\n" +
            arguments + "%slice = \"stablehlo.dynamic_slice\"(%gs, %i" + zeros +
            ") <{slice_sizes = array<i64: " + sizes + ">}> : (" + whole + ", " +
            indices + ") -> " + one +
            "\n%layer = \"stablehlo.reshape\"(%slice) : (" + one + ") -> " +
            str(shape) +
            "\n%product = \"stablehlo.dot_general\"(%layer, %layer) : (" +
            str(shape) + ", " + str(shape) + ") -> " + str(shape) +
            "\n%gradient = \"stablehlo.add\"(%layer, %zeros) : (" + str(shape) +
            ", " + str(shape) + ") -> " + str(shape) + "\n" + scatterOps() +
            left +
            "%j = \"stablehlo.add\"(%i, %one) : (tensor<i32>, tensor<i32>) -> "
            "tensor<i32>\n\"stablehlo.return\"(%j, %next, %gs) : (" +
            types +
            ") -> ()\n}) {zpp.loop = {layers = " + std::to_string(trips) +
            " : i64}} : (" + types + ") -> (" + types + ")\n",
        whole, "%loop#1", carried, 1);
  }

  /// A weight, gathered once, or again after a barrier.
  std::string gather(bool twice) const {
    std::string local = str(localShape()), whole = str(shape);
    auto once = [&](const std::string &id, const std::string &from) {
      return "  %p" + id + " = zero.from_local " + from + " : " + local +
             " to " + type(false) + "\n  %w" + id + " = zero.all_gather %p" +
             id + " along " + along() + " : " + type(false) + " to " +
             type(true) + "\n  %r" + id + " = zero.to_local %w" + id + " : " +
             type(true) + " to " + whole + "\n";
    };
    std::string text = "#mesh = " + meshText() +
                       "\nfunc.func @main(%w: " + local + ") -> (" + whole +
                       (twice ? ", " + whole : "") + ") {\n" + once("0", "%w");
    if (twice)
      text += "  %b = \"stablehlo.optimization_barrier\"(%w) : (" + local +
              ") -> " + local + "\n" + once("1", "%b");
    return text + "  return %r0" + (twice ? ", %r1 : " + whole : " : ") +
           (twice ? ", " : "") + whole + "\n}\n";
  }
};

//===----------------------------------------------------------------------===//
// The proof
//===----------------------------------------------------------------------===//

class PlacementProof : public testing::Test {
protected:
  static void SetUpTestSuite() { registerZppTransformsPasses(); }

  PlacementProof() {
    DialectRegistry registry;
    registry
        .insert<zero::ZeroDialect, func::FuncDialect, tensor::TensorDialect>();
    registerGuestDialects(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
    context.disableMultithreading();
    // A failure shows the diagnostics; remarks are of no interest.
    context.getDiagEngine().registerHandler([&](Diagnostic &diagnostic) {
      if (diagnostic.getSeverity() == DiagnosticSeverity::Error)
        diagnostics += diagnostic.str() + "\n";
    });
  }

  std::vector<PerRank> run(ModuleOp module, const Mesh &mesh,
                           ArrayRef<PerRank> arguments = {}) {
    std::string error;
    auto results = interpret(module.lookupSymbol<func::FuncOp>("main"), mesh,
                             error, arguments);
    EXPECT_EQ(error, "");
    return results;
  }

  void runPasses(ModuleOp module, ArrayRef<std::string> passes) {
    for (const std::string &pass : passes) {
      PassManager manager(&context);
      EXPECT_TRUE(succeeded(parsePassPipeline(pass, manager)));
      EXPECT_TRUE(succeeded(manager.run(module))) << diagnostics;
    }
  }

  /// `program`, a step, after `passes`: what its manual computation does on
  /// each device, as a function.
  OwningOpRef<ModuleOp> compileStep(const std::string &program,
                                    ArrayRef<std::string> passes) {
    OwningOpRef<ModuleOp> module =
        parseSourceString<ModuleOp>(program, &context);
    EXPECT_TRUE(module) << diagnostics;
    if (!module)
      return {};
    // As if it had been imported.
    OpBuilder builder(&context);
    module->walk([&](zero::ReduceScatterOp op) {
      op->setAttr(kOriginAttr, builder.getDictionaryAttr(builder.getNamedAttr(
                                   "role", builder.getStringAttr("gradient"))));
    });
    runPasses(*module, passes);
    auto step = module->lookupSymbol<func::FuncOp>("main");
    Operation *manual = &step.getBody().front().front();
    Block &body = manual->getRegion(0).front();
    builder.setInsertionPointToEnd(module->getBody());
    auto local = func::FuncOp::create(
        builder, step.getLoc(), "main",
        builder.getFunctionType(body.getArgumentTypes(),
                                body.getTerminator()->getOperandTypes()));
    builder.setInsertionPoint(body.getTerminator());
    func::ReturnOp::create(builder, step.getLoc(),
                           body.getTerminator()->getOperands());
    body.getTerminator()->erase();
    local.getBody().takeBody(manual->getRegion(0));
    step.erase();
    return module;
  }

  /// Runs `passes` one after the other and compares after each.
  void prove(const Mesh &mesh, const std::string &program,
             ArrayRef<std::string> passes) {
    SCOPED_TRACE(program);
    OwningOpRef<ModuleOp> module =
        parseSourceString<ModuleOp>(program, &context);
    ASSERT_TRUE(module) << diagnostics;
    std::vector<PerRank> expected = run(*module, mesh);
    ASSERT_FALSE(expected.empty());
    for (const std::string &pass : passes) {
      PassManager manager(&context);
      ASSERT_TRUE(succeeded(parsePassPipeline(pass, manager)));
      ASSERT_TRUE(succeeded(manager.run(*module))) << diagnostics;
      std::string difference = compare(expected, run(*module, mesh));
      ASSERT_EQ(difference, "") << "after " << pass << ":\n" << print(*module);
    }
    ++proofs;
    last = std::move(module);
  }

  static std::string print(ModuleOp module) {
    std::string text;
    llvm::raw_string_ostream os(text);
    module.print(os);
    return text;
  }

  template <typename OpT> int64_t count() {
    int64_t number = 0;
    last->walk([&](OpT) { ++number; });
    return number;
  }

  MLIRContext context;
  std::string diagnostics;
  OwningOpRef<ModuleOp> last;
  int64_t proofs = 0;
};

std::vector<std::string> scatterPasses(StringRef formats, int64_t stages,
                                       int64_t rotate = 0) {
  return {"zero-split-hierarchy{block=32 formats=" + formats.str() +
              " rotate=" + std::to_string(rotate) + "}",
          "zero-decompose-reduce-scatter{stages=" + std::to_string(stages) +
              "}",
          "zero-reorder-slices", "zero-quantize-all-to-all",
          "zero-fuse-quantization"};
}

std::vector<std::string> gatherPasses(StringRef format, StringRef secondary) {
  std::vector<std::string> passes;
  if (format != "none")
    passes.push_back(
        "zero-quantize-all-gather{block=32 format=" + format.str() + "}");
  if (secondary != "none")
    passes.push_back("zero-partition-within-node{secondary=" + secondary.str() +
                     "}");
  passes.push_back("zero-decompose-all-gather");
  passes.push_back("zero-fuse-quantization");
  return passes;
}

/// Returns the local parts of `tensor`, with elements numbered from `from`.
PerRank makeArgument(const Tensor &tensor, int64_t from) {
  std::vector<int64_t> shape = tensor.localShape();
  int64_t elements = llvm::product_of(shape);
  PerRank parts(tensor.mesh.numDevices());
  for (auto [rank, part] : llvm::enumerate(parts))
    for (int64_t element = 0; element < elements; ++element)
      part.push_back(SymbolicValue::ofSource(rank, from + element));
  return parts;
}

Mesh makeMesh(ArrayRef<int64_t> sizes) {
  static const char *names[] = {"rack", "node", "gpu"};
  std::vector<MeshAxis> axes;
  for (auto [index, size] : llvm::enumerate(sizes))
    axes.push_back({names[3 - sizes.size() + index], size});
  return Mesh(std::move(axes));
}

std::vector<AxisRef> allAxes(const Mesh &mesh) {
  std::vector<AxisRef> refs;
  for (size_t index = 0; index < mesh.getAxes().size(); ++index)
    refs.push_back(mesh.getAxis(index));
  return refs;
}

/// All meshes of one and two tiers up to 4x8.
std::vector<Mesh> twoTierMeshes() {
  std::vector<Mesh> meshes;
  for (int64_t nodes = 1; nodes <= 4; ++nodes)
    for (int64_t gpus = 1; gpus <= 8; ++gpus)
      meshes.push_back(makeMesh({nodes, gpus}));
  return meshes;
}

/// All meshes of three tiers up to 2x3x4.
std::vector<Mesh> threeTierMeshes() {
  std::vector<Mesh> meshes;
  for (int64_t racks = 1; racks <= 2; ++racks)
    for (int64_t nodes = 1; nodes <= 3; ++nodes)
      for (int64_t gpus = 1; gpus <= 4; ++gpus)
        meshes.push_back(makeMesh({racks, nodes, gpus}));
  return meshes;
}

/// Shapes whose dim `dim` has `slices` slices: what divides, what does not, and
/// fewer rows than slices. Chunks are long enough to be worth quantizing, but
/// for the last.
struct Shape {
  std::vector<int64_t> shape;
  int64_t dim;
};
std::vector<Shape> shapesFor(int64_t slices) {
  return {
      {{3 * slices, 4}, 0}, {{2, 3 * slices - 2, 2}, 1}, {{slices / 2 + 1}, 0}};
}

/// The plan of a scatter or gather with one hop per tier.
HopPlan planOf(const Tensor &tensor, int64_t stages) {
  HopPlan plan;
  for (auto it = tensor.factors.rbegin(); it != tensor.factors.rend(); ++it)
    plan.hops.push_back({*it});
  plan.extent = tensor.shape[tensor.dim];
  for (int64_t index = 0; index < tensor.dim; ++index)
    plan.outer *= tensor.shape[index];
  for (size_t index = tensor.dim + 1; index < tensor.shape.size(); ++index)
    plan.inner *= tensor.shape[index];
  plan.stages = stages;
  return plan;
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

TEST_F(PlacementProof, ScatterOverTwoTiers) {
  for (const Mesh &mesh : twoTierMeshes())
    for (const Shape &shape : shapesFor(mesh.numDevices())) {
      Tensor tensor{mesh, shape.shape, shape.dim, allAxes(mesh)};
      for (int64_t stages = 1; stages <= 4; ++stages)
        for (StringRef formats : {"i8:i4", "i8", "none:none"})
          prove(mesh, tensor.scatter(), scatterPasses(formats, stages));
      if (HasFatalFailure())
        return;
    }
  EXPECT_EQ(proofs, 32 * 3 * 4 * 3);
}

TEST_F(PlacementProof, ScatterOverThreeTiers) {
  for (const Mesh &mesh : threeTierMeshes())
    for (const Shape &shape : shapesFor(mesh.numDevices())) {
      Tensor tensor{mesh, shape.shape, shape.dim, allAxes(mesh)};
      for (int64_t stages = 1; stages <= 4; ++stages)
        for (StringRef formats : {"i8:i4:i4", "i8:i4"})
          prove(mesh, tensor.scatter("mean"),
                scatterPasses(formats, stages,
                              /*rotate=*/formats == "i8:i4" ? 32 : 0));
      if (HasFatalFailure())
        return;
    }
  EXPECT_EQ(proofs, 24 * 3 * 4 * 2);
}

/// The logical ops mean what SymbolicPlacement.h proves about plans: one oracle
/// for both.
TEST_F(PlacementProof, LogicalScatterIsThePlans) {
  for (const Mesh &mesh : threeTierMeshes())
    for (const Shape &shape : shapesFor(mesh.numDevices())) {
      Tensor tensor{mesh, shape.shape, shape.dim, allAxes(mesh)};
      prove(mesh, tensor.scatter(), {});
      if (HasFatalFailure())
        return;
      EXPECT_EQ(verifyReduceScatter(mesh, planOf(tensor, 1),
                                    run(*last, mesh).front()),
                "");
    }
}

/// Ops that this file is about are there; a program without them would prove
/// nothing.
TEST_F(PlacementProof, ScatterIsQuantizedAndFused) {
  Mesh mesh = makeMesh({2, 3, 4});
  Tensor tensor{mesh, {72, 4}, 0, allAxes(mesh)};
  prove(mesh, tensor.scatter(), scatterPasses("i8:i4:i4", 2));
  EXPECT_EQ(count<zero::ReduceScatterOp>(), 0);
  EXPECT_EQ(count<zero::QuantizeOp>(), 2);
  EXPECT_EQ(count<zero::AllToAllOp>(), 6);
  EXPECT_EQ(count<zero::DequantizeReduceQuantizeOp>(), 4);
  EXPECT_EQ(count<zero::DequantizeReduceOp>(), 2);
  EXPECT_EQ(count<zero::PackSlicesOp>(), 0);
}

/// The order of the factors is the program's, not the mesh's; another axis
/// stands among them, and only parts of axes are scattered over.
std::vector<std::vector<AxisRef>> otherAxes() {
  AxisRef node{"node", 1, 2}, gpu{"gpu", 1, 4};
  AxisRef pair{"gpu", 1, 2}, inPair{"gpu", 2, 2};
  return {{node, gpu},
          {gpu, node},
          {gpu},
          {node},
          {node, pair},
          {node, inPair},
          {pair, inPair, node},
          {inPair, node, pair}};
}

TEST_F(PlacementProof, ScatterOverOtherAxes) {
  Mesh mesh({{"node", 2}, {"tensor", 2}, {"gpu", 4}});
  for (const std::vector<AxisRef> &factors : otherAxes())
    for (const Shape &shape : shapesFor(numDevices(factors))) {
      Tensor tensor{mesh, shape.shape, shape.dim, factors};
      for (int64_t stages = 1; stages <= 3; ++stages)
        for (StringRef formats : {"i8:i4", "i4", "none:i4"})
          prove(mesh, tensor.scatter(), scatterPasses(formats, stages));
      if (HasFatalFailure())
        return;
    }
}

/// Hops that were split already, and factors that stay whole at the end.
TEST_F(PlacementProof, PartialScatter) {
  for (int64_t stages = 1; stages <= 3; ++stages)
    for (int64_t rows : {24, 21})
      for (bool isOuter : {false, true}) {
        Mesh mesh = makeMesh({2, 4});
        std::string size = std::to_string(rows);
        std::string whole =
            "!zero.shard<2x" + size + "x3xf32, dim 1 = (2, 4) on #mesh>";
        std::string part = "!zero.shard<2x" + size + "x3xf32, dim 1 = " +
                           (isOuter ? "(\"node\", 4)" : "(2, \"gpu\")") +
                           " on #mesh>";
        std::string local =
            isOuter ? "tensor<2x12x3xf32>" : "tensor<2x6x3xf32>";
        std::string program = "#mesh = #zero.mesh<\"node\" = 2, \"gpu\" = 4>\n"
                              "func.func @main(%g: tensor<2x" +
                              size + "x3xf32>) -> " + local +
                              " {\n  %0 = zero.from_local %g : " + "tensor<2x" +
                              size + "x3xf32> to " + whole +
                              "\n  %1 = zero.reduce_scatter sum %0 along [" +
                              (isOuter ? "\"node\"" : "\"gpu\"") +
                              "] : " + whole + " to " + part +
                              "\n  %2 = zero.to_local %1 : " + part + " to " +
                              local + "\n  return %2 : " + local + "\n}\n";
        prove(mesh, program, scatterPasses("i8:i4", stages));
      }
}

/// The value between two hops has another reader.
TEST_F(PlacementProof, HopIsReadTwice) {
  const char *program = R"(
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<21x3xf32, dim 0 = (2, 4) on #mesh>
!between = !zero.shard<21x3xf32, dim 0 = (2, "gpu") on #mesh>
!part = !zero.shard<21x3xf32, dim 0 = ("node", "gpu") on #mesh>
func.func @main(%g: tensor<21x3xf32>) -> (tensor<6x3xf32>, tensor<3x3xf32>) {
  %0 = zero.from_local %g : tensor<21x3xf32> to !whole
  %1 = zero.reduce_scatter sum %0 along ["gpu"] wire <i8, block = 32>
      : !whole to !between
  %2 = zero.reduce_scatter sum %1 along ["node"] wire <i4, block = 32>
      : !between to !part
  %3 = zero.to_local %1 : !between to tensor<6x3xf32>
  %4 = zero.to_local %2 : !part to tensor<3x3xf32>
  return %3, %4 : tensor<6x3xf32>, tensor<3x3xf32>
})";
  for (int64_t stages = 1; stages <= 3; ++stages)
    prove(makeMesh({2, 4}), program, scatterPasses("i8:i4", stages));
  EXPECT_EQ(count<zero::ReduceScatterOp>(), 0);
}

//===----------------------------------------------------------------------===//
// All-reduces
//===----------------------------------------------------------------------===//

std::vector<std::string> allReducePasses(StringRef formats, StringRef reduced,
                                         int64_t stages) {
  std::vector<std::string> passes = {
      "zero-split-all-reduce{block=32 formats=" + formats.str() +
      " reduced=" + reduced.str() + " stages=" + std::to_string(stages) + "}"};
  llvm::append_range(passes, scatterPasses(formats, stages));
  passes.insert(passes.end() - 1, "zero-decompose-all-gather");
  return passes;
}

/// The sum of `shape` over `refs`.
std::string allReduce(const Mesh &mesh, const std::vector<int64_t> &shape,
                      const std::vector<AxisRef> &refs, StringRef kind) {
  Tensor tensor{mesh, shape, 0, refs};
  std::string local = str(shape);
  std::string type = "!zero.shard<" + local.substr(7, local.size() - 8) +
                     ", dim 0 = () on #mesh>";
  return "#mesh = " + tensor.meshText() + "\nfunc.func @main(%g: " + local +
         ") -> " + local + " {\n  %0 = zero.from_local %g : " + local + " to " +
         type + "\n  %1 = zero.all_reduce " + kind.str() + " %0 along " +
         tensor.along() + " : " + type + "\n  %2 = zero.to_local %1 : " + type +
         " to " + local + "\n  return %2 : " + local + "\n}\n";
}

TEST_F(PlacementProof, AllReduce) {
  std::vector<Mesh> meshes = twoTierMeshes();
  llvm::append_range(meshes, threeTierMeshes());
  for (const Mesh &mesh : meshes)
    for (int64_t extra : {0, -5}) {
      int64_t rows = 6 * mesh.numDevices() + extra;
      for (auto [formats, reduced] :
           std::vector<std::pair<StringRef, StringRef>>{
               {"i8:i4", "i8"}, {"i4", "i4"}, {"none:none", "none"}})
        prove(mesh, allReduce(mesh, {rows, 2}, allAxes(mesh), "mean"),
              allReducePasses(formats, reduced, /*stages=*/1));
      if (HasFatalFailure())
        return;
    }
  EXPECT_EQ(proofs, (32 + 24) * 2 * 3);
  EXPECT_EQ(count<zero::AllReduceOp>(), 0);
}

/// Parts of a large tensor are all-reduces of their own.
TEST_F(PlacementProof, AllReduceInStages) {
  for (const Mesh &mesh : {makeMesh({2, 1}), makeMesh({2, 2})}) {
    prove(mesh,
          allReduce(mesh, {3 * 4096 * mesh.numDevices() - 100}, allAxes(mesh),
                    "sum"),
          allReducePasses("i8:i4", "i8", /*stages=*/3));
    EXPECT_EQ(count<zero::DequantizeOp>(), 2);
  }
}

/// Other axes stand among those of the sum, and only parts of axes are summed
/// over.
TEST_F(PlacementProof, AllReduceOverOtherAxes) {
  Mesh mesh({{"node", 2}, {"tensor", 2}, {"gpu", 4}});
  AxisRef node{"node", 1, 2}, gpu{"gpu", 1, 4};
  AxisRef pair{"gpu", 1, 2}, inPair{"gpu", 2, 2};
  for (const std::vector<AxisRef> &refs : std::vector<std::vector<AxisRef>>{
           {node, gpu}, {gpu}, {node}, {node, pair}, {node, inPair}, {pair}})
    for (StringRef formats : {"i8:i4", "i4", "none:i4"})
      prove(mesh, allReduce(mesh, {301}, refs, "sum"),
            allReducePasses(formats, "i8", 2));
}

/// A scatter within nodes and an all-reduce between them, in either order.
TEST_F(PlacementProof, ScatterAndAllReduce) {
  Mesh mesh = makeMesh({2, 3, 4});
  AxisRef rack = mesh.getAxis(0), node = mesh.getAxis(1), gpu = mesh.getAxis(2);
  struct Axes {
    std::vector<AxisRef> scattered, summed;
  };
  for (const Axes &axes : std::vector<Axes>{{{gpu}, {rack, node}},
                                            {{node, gpu}, {rack}},
                                            {{rack, gpu}, {node}},
                                            {{rack}, {node, gpu}}})
    // What divides, what is flat, and what stays apart.
    for (const Shape &shape : std::vector<Shape>{
             {{24, 8}, 0}, {{12, 16}, 0}, {{2, 96}, 1}, {{4, 60}, 1}})
      for (bool isAfter : {false, true}) {
        Tensor tensor{mesh, shape.shape, shape.dim, axes.scattered};
        std::vector<int64_t> part = tensor.localShape();
        std::string whole = str(shape.shape), local = str(part);
        const std::string &summed = isAfter ? whole : local;
        std::string type = "!zero.shard<" +
                           summed.substr(7, summed.size() - 8) +
                           ", dim 0 = () on #mesh>";
        std::string along = Tensor{mesh, {}, 0, axes.summed}.along();
        auto sum = [&](const std::string &from, const std::string &to) {
          return "  %a = zero.from_local " + from + " : " + summed + " to " +
                 type + "\n  %b = zero.all_reduce sum %a along " + along +
                 " : " + type + "\n  " + to + " = zero.to_local %b : " + type +
                 " to " + summed + "\n";
        };
        auto scatter = [&](const std::string &from, const std::string &to) {
          return "  %c = zero.from_local " + from + " : " + whole + " to " +
                 tensor.type(true) + "\n  %d = zero.reduce_scatter sum %c " +
                 "along " + tensor.along() + " : " + tensor.type(true) +
                 " to " + tensor.type(false) + "\n  " + to +
                 " = zero.to_local %d : " + tensor.type(false) + " to " +
                 local + "\n";
        };
        std::string program =
            "#mesh = " + tensor.meshText() + "\nfunc.func @main(%g: " + whole +
            ") -> " + local + " {\n" +
            (isAfter ? sum("%g", "%m") + scatter("%m", "%r")
                     : scatter("%g", "%m") + sum("%m", "%r")) +
            "  return %r : " + local + "\n}\n";
        for (auto [formats, stages] :
             std::vector<std::pair<StringRef, int64_t>>{
                 {"i8:i4", 1}, {"i8:i4", 2}, {"i4", 1}})
          prove(mesh, program, allReducePasses(formats, "i8", stages));
        if (HasFatalFailure())
          return;
      }
}

/// In stages too, the chunk that is gathered is the fused kernel's.
TEST_F(PlacementProof, StagesOfAnAllReduceAreFused) {
  Mesh mesh = makeMesh({2, 4});
  prove(
      mesh,
      "#mesh = #zero.mesh<\"node\" = 2, \"gpu\" = 4>\n"
      "func.func @main(%g: tensor<192x8xf32>) -> tensor<48x8xf32> {\n"
      "  %0 = zero.from_local %g : tensor<192x8xf32> to "
      "!zero.shard<192x8xf32, dim 0 = (4) on #mesh>\n"
      "  %1 = zero.reduce_scatter sum %0 along [\"gpu\"] : "
      "!zero.shard<192x8xf32, dim 0 = (4) on #mesh> to "
      "!zero.shard<192x8xf32, dim 0 = (\"gpu\") on #mesh>\n"
      "  %2 = zero.to_local %1 : !zero.shard<192x8xf32, dim 0 = (\"gpu\") on "
      "#mesh> to tensor<48x8xf32>\n"
      "  %3 = zero.from_local %2 : tensor<48x8xf32> to !zero.shard<48x8xf32, "
      "dim 0 = () on #mesh>\n"
      "  %4 = zero.all_reduce sum %3 along [\"node\"] : !zero.shard<48x8xf32, "
      "dim 0 = () on #mesh>\n"
      "  %5 = zero.to_local %4 : !zero.shard<48x8xf32, dim 0 = () on #mesh> to "
      "tensor<48x8xf32>\n  return %5 : tensor<48x8xf32>\n}\n",
      allReducePasses("i8:i4", "i8", 3));
  EXPECT_EQ(count<zero::QuantizeOp>(), 3);
  EXPECT_EQ(count<zero::AllToAllOp>(), 6);
  EXPECT_EQ(count<zero::DequantizeReduceQuantizeOp>(), 6);
  EXPECT_EQ(count<zero::AllGatherChunksOp>(), 3);
  EXPECT_EQ(count<zero::DequantizeOp>(), 3);
  EXPECT_EQ(count<zero::DequantizeReduceOp>(), 0);
}

/// The chunk that is gathered is the fused kernel's, and the own piece is read
/// from it.
TEST_F(PlacementProof, AllReduceIsQuantizedAndFused) {
  Mesh mesh = makeMesh({2, 4});
  prove(mesh, allReduce(mesh, {4096}, allAxes(mesh), "sum"),
        allReducePasses("i8:i4", "i8", 1));
  EXPECT_EQ(count<zero::QuantizeOp>(), 1);
  EXPECT_EQ(count<zero::AllToAllOp>(), 2);
  EXPECT_EQ(count<zero::DequantizeReduceQuantizeOp>(), 2);
  EXPECT_EQ(count<zero::AllGatherChunksOp>(), 2);
  EXPECT_EQ(count<zero::DequantizeOp>(), 1);
  EXPECT_EQ(count<zero::DequantizeReduceOp>(), 0);
}

TEST_F(PlacementProof, NoElements) {
  Mesh mesh = makeMesh({2, 4});
  for (const std::vector<int64_t> &shape :
       std::vector<std::vector<int64_t>>{{0, 4}, {8, 0}}) {
    Tensor tensor{mesh, shape, 0, allAxes(mesh)};
    prove(mesh, tensor.scatter(), scatterPasses("none:none", 3));
    prove(mesh, tensor.scatter(), scatterPasses("i8:i4", 3));
    prove(mesh, tensor.gather(true), gatherPasses("i8", "gpu"));
  }
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

TEST_F(PlacementProof, GatherOverTwoTiers) {
  for (const Mesh &mesh : twoTierMeshes())
    for (const Shape &shape : shapesFor(mesh.numDevices())) {
      Tensor tensor{mesh, shape.shape, shape.dim, allAxes(mesh)};
      for (StringRef format : {"none", "i8", "i4"}) {
        prove(mesh, tensor.gather(false), gatherPasses(format, "none"));
        prove(mesh, tensor.gather(true), gatherPasses(format, "gpu"));
      }
      if (HasFatalFailure())
        return;
    }
  EXPECT_EQ(proofs, 32 * 3 * 3 * 2);
}

TEST_F(PlacementProof, GatherOverThreeTiers) {
  for (const Mesh &mesh : threeTierMeshes())
    for (const Shape &shape : shapesFor(mesh.numDevices())) {
      Tensor tensor{mesh, shape.shape, shape.dim, allAxes(mesh)};
      for (StringRef format : {"none", "i8", "i4"})
        for (StringRef secondary : {"none", "gpu", "node"})
          prove(mesh, tensor.gather(true), gatherPasses(format, secondary));
      if (HasFatalFailure())
        return;
    }
  EXPECT_EQ(proofs, 24 * 3 * 3 * 3);
}

TEST_F(PlacementProof, LogicalGatherIsThePlans) {
  for (const Mesh &mesh : threeTierMeshes())
    for (const Shape &shape : shapesFor(mesh.numDevices())) {
      Tensor tensor{mesh, shape.shape, shape.dim, allAxes(mesh)};
      prove(mesh, tensor.gather(false), {});
      if (HasFatalFailure())
        return;
      EXPECT_EQ(
          verifyAllGather(mesh, planOf(tensor, 1), run(*last, mesh).front()),
          "");
    }
}

/// Secondary groups whose border falls inside an axis, or that span tiers.
TEST_F(PlacementProof, SecondaryGroupOfAnySize) {
  for (const std::vector<int64_t> &sizes :
       std::vector<std::vector<int64_t>>{{2, 4}, {2, 6}, {1, 8}, {2, 2, 4}}) {
    Mesh mesh = makeMesh(sizes);
    for (const Shape &shape : shapesFor(mesh.numDevices())) {
      Tensor tensor{mesh, shape.shape, shape.dim, allAxes(mesh)};
      for (int64_t size = 2; size < mesh.numDevices(); ++size) {
        std::vector<AxisRef> outer, inner;
        if (!splitRefs(allAxes(mesh), size, outer, inner))
          continue;
        for (StringRef format : {"none", "i8"})
          prove(mesh, tensor.gather(true),
                gatherPasses(format, std::to_string(size)));
      }
      if (HasFatalFailure())
        return;
    }
  }
}

TEST_F(PlacementProof, GatherOverOtherAxes) {
  Mesh mesh({{"node", 2}, {"tensor", 2}, {"gpu", 4}});
  AxisRef node{"node", 1, 2}, gpu{"gpu", 1, 4};
  AxisRef pair{"gpu", 1, 2}, inPair{"gpu", 2, 2};
  for (const std::vector<AxisRef> &factors : std::vector<std::vector<AxisRef>>{
           {node, gpu}, {gpu, node}, {inPair, node, pair}})
    for (const Shape &shape : shapesFor(numDevices(factors))) {
      Tensor tensor{mesh, shape.shape, shape.dim, factors};
      for (StringRef format : {"none", "i8", "i4"})
        for (StringRef secondary : {"none", "gpu", "2", "4"})
          prove(mesh, tensor.gather(true), gatherPasses(format, secondary));
      if (HasFatalFailure())
        return;
    }
}

TEST_F(PlacementProof, GatherIsQuantizedAndKept) {
  Mesh mesh = makeMesh({2, 4});
  Tensor tensor{mesh, {24, 4}, 0, allAxes(mesh)};
  prove(mesh, tensor.gather(true), gatherPasses("i8", "gpu"));
  EXPECT_EQ(count<zero::AllGatherOp>(), 0);
  EXPECT_EQ(count<zero::QuantizeOp>(), 1);
  // Between nodes once, within the node twice.
  EXPECT_EQ(count<zero::AllGatherChunksOp>(), 3);
  EXPECT_EQ(count<zero::DequantizeOp>(), 2);
}

/// The receiver adds what the sender has subtracted.
TEST_F(PlacementProof, GatherOfDifferences) {
  Mesh mesh = makeMesh({2, 4});
  prove(mesh, R"(
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!part = !zero.shard<5x21xf32, dim 1 = ("node", "gpu") on #mesh>
!sent = !zero.shard<5x21xf32, dim 1 = ("node", "gpu") on #mesh, #zero.quant<i4, block = 32>>
!received = !zero.shard<5x21xf32, dim 1 = (2, "gpu") on #mesh, #zero.quant<i4, block = 32>>
!held = !zero.shard<5x21xf32, dim 1 = (2, "gpu") on #mesh>
func.func @main(%w: tensor<5x3xf32>, %own: tensor<5x3xf32>, %h: tensor<5x6xf32>) -> (tensor<5x6xf32>, tensor<5x3xf32>) {
  %0 = zero.from_local %w : tensor<5x3xf32> to !part
  %1 = zero.from_local %own : tensor<5x3xf32> to !part
  %2 = zero.from_local %h : tensor<5x6xf32> to !held
  %3 = zero.encode %0 minus %1 : !part to !sent
  %4 = zero.all_gather %3 along ["node"] : !sent to !received
  %5 = zero.decode %4 plus %2 : !received to !held
  %6 = zero.decode %3 plus %1 : !sent to !part
  %7 = zero.to_local %5 : !held to tensor<5x6xf32>
  %8 = zero.to_local %6 : !part to tensor<5x3xf32>
  return %7, %8 : tensor<5x6xf32>, tensor<5x3xf32>
}
)",
        {"zero-decompose-all-gather", "zero-fuse-quantization"});
  EXPECT_EQ(count<zero::QuantizeDifferenceOp>(), 1);
  EXPECT_EQ(count<zero::DequantizeAddOp>(), 2);
  EXPECT_EQ(count<zero::UnpackSlicesOp>(), 0);
}

//===----------------------------------------------------------------------===//
// Weights by difference
//===----------------------------------------------------------------------===//

/// Checks what `passes` do to a weight that is gathered for both passes of a
/// step, and kept.
std::vector<std::string> differencePasses(StringRef secondary, bool isStart) {
  return {"zero-partition-within-node{between-steps=all secondary=" +
              secondary.str() + "}",
          "zero-send-differences{block=32 start=" +
              std::string(isStart ? "true}" : "false}"),
          "zero-decompose-all-gather", "zero-fuse-quantization"};
}

/// By induction over the steps: a step that begins the state gathers the
/// weight, and a step that takes the state of any other weight leaves what a
/// step leaves that begins it with its own. So own parts and held copies are of
/// the same elements on all devices, and both passes read what the owners have.
/// Rounding aside, which adds the same numbers to both.
TEST_F(PlacementProof, DifferencesLeaveWhatWholeWeightsLeave) {
  std::vector<Mesh> meshes = twoTierMeshes();
  llvm::append_range(meshes, threeTierMeshes());
  int64_t withState = 0;
  for (const Mesh &mesh : meshes)
    for (const Shape &shape : shapesFor(mesh.numDevices()))
      for (StringRef secondary : {"gpu", "node"}) {
        if (mesh.findAxis(secondary.str()) == -1)
          continue;
        Tensor tensor{mesh, shape.shape, shape.dim, allAxes(mesh)};
        std::string program = tensor.gatherInStep();
        SCOPED_TRACE(program + secondary.str());
        OwningOpRef<ModuleOp> logical = compileStep(program, {});
        OwningOpRef<ModuleOp> begins =
            compileStep(program, differencePasses(secondary, true));
        OwningOpRef<ModuleOp> takes =
            compileStep(program, differencePasses(secondary, false));
        ASSERT_TRUE(logical && begins && takes);
        // Of another weight, whose elements have other numbers.
        PerRank before = makeArgument(tensor, /*from=*/1 << 19);
        std::vector<PerRank> state = run(*begins, mesh, before);
        ASSERT_GE(state.size(), 2u);
        state.erase(state.begin(), state.begin() + 2);
        std::vector<PerRank> arguments = {makeArgument(tensor, 0)};
        llvm::append_range(arguments, state);
        std::vector<PerRank> expected = run(*begins, mesh, arguments.front());
        ASSERT_EQ(compare(expected, run(*takes, mesh, arguments)), "")
            << print(*takes);
        std::vector<PerRank> gathered = {expected[0], expected[1]};
        ASSERT_EQ(compare(run(*logical, mesh), gathered), "");
        withState += !state.empty();
      }
  EXPECT_GT(withState, 100);
}

/// It finds what belongs to another device.
TEST_F(PlacementProof, FindsAStateOfAnotherDevice) {
  Mesh mesh = makeMesh({2, 2});
  Tensor tensor{mesh, {48, 4}, 0, allAxes(mesh)};
  OwningOpRef<ModuleOp> begins =
      compileStep(tensor.gatherInStep(), differencePasses("gpu", true));
  OwningOpRef<ModuleOp> takes =
      compileStep(tensor.gatherInStep(), differencePasses("gpu", false));
  std::vector<PerRank> state =
      run(*begins, mesh, makeArgument(tensor, 1 << 19));
  ASSERT_EQ(state.size(), 4u);
  std::vector<PerRank> arguments = {makeArgument(tensor, 0), state[2],
                                    state[3]};
  std::vector<PerRank> expected = run(*begins, mesh, arguments.front());
  ASSERT_EQ(compare(expected, run(*takes, mesh, arguments)), "");
  std::swap(arguments[2][0], arguments[2][2]);
  ASSERT_EQ(compare(expected, run(*takes, mesh, arguments)), "")
      << "nodes hold the same";
  std::swap(arguments[2][0], arguments[2][1]);
  EXPECT_NE(compare(expected, run(*takes, mesh, arguments)), "");
}

//===----------------------------------------------------------------------===//
// Scatters of layers
//===----------------------------------------------------------------------===//

std::vector<std::string> layerPasses(StringRef formats) {
  std::vector<std::string> passes = scatterPasses(formats, 1);
  passes.insert(passes.end(),
                {"zero-outline-collectives", "zero-write-loops{layers}"});
  return passes;
}

/// Whether layers scatter without a loop.
bool areWritten(ModuleOp step) {
  bool found = false;
  step.walk([&](zero::StartOp start) { found |= !isInLoop(start); });
  return found;
}

/// Layers and micro-batches, one after the other without a loop.
TEST_F(PlacementProof, ScattersOfLayers) {
  int64_t written = 0;
  for (const Mesh &mesh : threeTierMeshes())
    for (const Shape &shape : shapesFor(mesh.numDevices()))
      for (bool addsUp : {false, true})
        for (int64_t trips : {2, 3}) {
          Tensor tensor{mesh, shape.shape, shape.dim, allAxes(mesh)};
          std::string program = tensor.scatterInLoop(trips, addsUp);
          SCOPED_TRACE(program);
          OwningOpRef<ModuleOp> logical = compileStep(program, {});
          OwningOpRef<ModuleOp> step =
              compileStep(program, layerPasses("i8:i4:i4"));
          ASSERT_TRUE(logical && step);
          ASSERT_EQ(compare(run(*logical, mesh), run(*step, mesh)), "");
          written += areWritten(*step);
        }
  EXPECT_GT(written, 150);
}

/// It finds a layer that is stored in the place of another one, and a
/// micro-batch that is lost.
TEST_F(PlacementProof, FindsScattersOfAnotherLayer) {
  Mesh mesh = makeMesh({2, 2});
  Tensor tensor{mesh, {48, 4}, 0, allAxes(mesh)};
  for (bool addsUp : {false, true}) {
    std::string program = tensor.scatterInLoop(3, addsUp);
    OwningOpRef<ModuleOp> logical = compileStep(program, {});
    std::vector<PerRank> expected = run(*logical, mesh);
    int64_t mutated = 0;
    for (int64_t number = 0, numStores = 1; number < numStores; ++number) {
      OwningOpRef<ModuleOp> step = compileStep(program, layerPasses("i4:i4"));
      ASSERT_TRUE(areWritten(*step));
      ASSERT_EQ(compare(expected, run(*step, mesh)), "");
      SmallVector<Operation *> stores;
      step->lookupSymbol<func::FuncOp>("main").walk([&](Operation *op) {
        StringRef name = op->getName().getStringRef();
        if (addsUp
                ? name == "stablehlo.add" &&
                      cast<ShapedType>(op->getResult(0).getType()).getShape() ==
                          ArrayRef(tensor.localShape())
                : name == "stablehlo.dynamic_update_slice")
          stores.push_back(op);
      });
      numStores = stores.size();
      ASSERT_LT(number, numStores);
      // What was there before stays.
      stores[number]->getResult(0).replaceAllUsesWith(
          stores[number]->getOperand(0));
      EXPECT_NE(compare(expected, run(*step, mesh)), "") << print(*step);
      ++mutated;
    }
    EXPECT_EQ(mutated, 3);
  }
}

//===----------------------------------------------------------------------===//
// Updates of replicated weights
//===----------------------------------------------------------------------===//

/// A step that gathers slices of a weight %w which every device has whole, hop
/// by hop, and returns it: the sums of its slices and %g if `isCut`, and
/// otherwise %g. `hops` are the axes of each gather, the last one first.
std::string updateStep(const Mesh &mesh, const Shape &shape,
                       const std::vector<std::vector<AxisRef>> &hops,
                       bool isCut) {
  std::vector<AxisRef> refs;
  for (const std::vector<AxisRef> &hop : hops)
    llvm::append_range(refs, hop);
  Tensor tensor{mesh, shape.shape, shape.dim, refs};
  std::string whole = str(shape.shape), local = str(tensor.localShape());
  std::vector<int64_t> offsets(mesh.numDevices());
  for (const std::vector<int64_t> &group : mesh.getGroups(refs))
    for (auto [place, device] : llvm::enumerate(group))
      offsets[device] = place * tensor.localShape()[shape.dim];
  auto join = [](const auto &items) {
    std::string text;
    for (const auto &item : items)
      text += (text.empty() ? "" : ", ") + std::to_string(item);
    return text;
  };
  std::string axes, sizes, devices = std::to_string(mesh.numDevices());
  for (const MeshAxis &axis : mesh.getAxes()) {
    axes += (axes.empty() ? "\"" : ", \"") + axis.name + "\"";
    sizes += (sizes.empty() ? "\"" : ", \"") + axis.name +
             "\"=" + std::to_string(axis.size);
  }
  std::string starts, indexTypes;
  for (size_t dim = 0; dim < shape.shape.size(); ++dim) {
    starts += static_cast<int64_t>(dim) == shape.dim ? ", %at" : ", %zero";
    indexTypes += ", tensor<i32>";
  }
  std::string body =
      "  %zero = \"stablehlo.constant\"() <{value = dense<0> : tensor<i32>}> "
      ": () -> tensor<i32>\n"
      "  %table = \"stablehlo.constant\"() <{value = dense<[" +
      join(offsets) + "]> : tensor<" + devices + "xi32>}> : () -> tensor<" +
      devices +
      "xi32>\n"
      "  %id = \"stablehlo.partition_id\"() : () -> tensor<ui32>\n"
      "  %entry = \"stablehlo.dynamic_slice\"(%table, %id) <{slice_sizes = "
      "array<i64: 1>}> : (tensor<" +
      devices +
      "xi32>, tensor<ui32>) -> tensor<1xi32>\n"
      "  %at = \"stablehlo.reshape\"(%entry) : (tensor<1xi32>) -> "
      "tensor<i32>\n"
      "  %own = \"stablehlo.dynamic_slice\"(%w" +
      starts + ") <{slice_sizes = array<i64: " + join(tensor.localShape()) +
      ">}> : (" + whole + indexTypes + ") -> " + local +
      "\n  %new = \"stablehlo.add\"(%own, %g) : (" + local + ", " + local +
      ") -> " + local + "\n";
  std::string from = isCut ? "%new" : "%g", type = local;
  std::vector<int64_t> held = tensor.localShape();
  for (size_t index = hops.size(); index-- > 0;) {
    std::vector<std::vector<int64_t>> groups = mesh.getGroups(hops[index]);
    std::string list;
    for (const std::vector<int64_t> &group : groups)
      list += (list.empty() ? "[" : ", [") + join(group) + "]";
    held[shape.dim] *= numDevices(hops[index]);
    std::string result = "%r" + std::to_string(index);
    body +=
        "  " + result + " = \"stablehlo.all_gather\"(" + from +
        ") <{all_gather_dim = " + std::to_string(shape.dim) +
        " : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type "
        "= 0>, replica_groups = dense<[" +
        list + "]> : tensor<" + std::to_string(groups.size()) + "x" +
        std::to_string(groups.front().size()) +
        "xi64>, use_global_device_ids}> {zpp.updated} : (" + type + ") -> " +
        str(held) + "\n";
    from = result;
    type = str(held);
  }
  std::string sharded;
  for (const AxisRef &ref : refs)
    sharded += (sharded.empty() ? "\"" : ", \"") + ref.name + "\"";
  std::string all = "<@mesh, [{}, {}, {}]>",
              part = "<@mesh, [{" + sharded + "}]>";
  return "module attributes {mhlo.num_partitions = " + devices +
         " : i32, zpp.machine = {mesh = \"" + mesh.str() + "\"}} {\n" +
         "\"sdy.mesh\"() <{mesh = #sdy.mesh<[" + sizes +
         "]>, sym_name = \"mesh\"}> : () -> ()\nfunc.func public @main(%a: " +
         whole + " {tf.aliasing_output = 0 : i32}, %b: " + local + ") -> " +
         whole +
         " {\n  %m = \"sdy.manual_computation\"(%a, %b) <{in_shardings = "
         "#sdy.sharding_per_value<[" +
         all + ", " + part + "]>, manual_axes = #sdy<manual_axes{" + axes +
         "}>, out_shardings = #sdy.sharding_per_value<[" + all +
         "]>}> ({\n^bb0(%w: " + whole + ", %g: " + local + "):\n" + body +
         "  \"sdy.return\"(%r0) : (" + whole + ") -> ()\n  }) : (" + whole +
         ", " + local + ") -> " + whole + "\n  return %m : " + whole +
         "\n}\n}\n";
}

/// Everyone adds to what it holds what the owner has sent: the difference of
/// the new slice and what it held of it. This leaves the new slices, in their
/// places, if all hold the same before.
TEST_F(PlacementProof, UpdatesLeaveWhatWholeWeightsLeave) {
  std::vector<Mesh> meshes = twoTierMeshes();
  llvm::append_range(meshes, threeTierMeshes());
  int64_t sent = 0;
  for (const Mesh &mesh : meshes) {
    std::vector<AxisRef> all = allAxes(mesh);
    // All at once in both orders, one tier, and tier by tier in both orders.
    std::vector<std::vector<std::vector<AxisRef>>> ways = {
        {all},
        {{all.rbegin(), all.rend()}},
        {{all.back()}},
        {{all.front()}},
        {{all.front()}, {all.begin() + 1, all.end()}},
        {{all.begin() + 1, all.end()}, {all.front()}}};
    for (const auto &hops : ways)
      for (auto [dim, isCut] :
           {std::pair<int64_t, bool>{0, true}, {1, false}}) {
        int64_t slices = 1;
        for (const std::vector<AxisRef> &hop : hops)
          slices *= numDevices(hop);
        Shape shape{{2, 3, 16}, dim};
        shape.shape[dim] = 2 * slices;
        std::string program = updateStep(mesh, shape, hops, isCut);
        SCOPED_TRACE(program);
        std::vector<PerRank> arguments(2);
        int64_t elements = llvm::product_of(shape.shape);
        for (int64_t rank = 0; rank < mesh.numDevices(); ++rank) {
          arguments[0].push_back(makeSymbolicSource(0, elements));
          SymbolicTensor &own = arguments[1].emplace_back();
          for (int64_t element = 0; element < elements / slices; ++element)
            own.push_back(SymbolicValue::ofSource(rank, (1 << 20) + element));
        }
        OwningOpRef<ModuleOp> written = compileStep(program, {});
        ASSERT_TRUE(written);
        std::vector<PerRank> expected = run(*written, mesh, arguments);
        std::vector<std::string> passes = {"zero-send-updates{block=32}",
                                           "zero-decompose-all-gather",
                                           "zero-fuse-quantization"};
        for (size_t count : {size_t(1), passes.size()}) {
          last = compileStep(program, ArrayRef(passes).take_front(count));
          ASSERT_TRUE(last);
          ASSERT_EQ(compare(expected, run(*last, mesh, arguments)), "")
              << print(*last);
        }
        int64_t differences = count<zero::QuantizeDifferenceOp>();
        EXPECT_EQ(differences, slices > 1 ? 1 : 0);
        EXPECT_EQ(count<zero::DequantizeAddOp>(), differences);
        sent += differences;
      }
  }
  EXPECT_GT(sent, 500);
}

//===----------------------------------------------------------------------===//
// Partial sums
//===----------------------------------------------------------------------===//

/// Loops over micro-batches that add up partial sums. By induction: whatever
/// partial sum an iteration takes over, the loop ends with what it would have
/// added to the gradient of that sum.
class AccumulationProof : public PlacementProof {
protected:
  static std::string split() {
    return "zero-split-hierarchy{block=32 formats=i8:i4:i4}";
  }

  /// The step with what its loop begins to add up as a second argument, or null
  /// if it adds up no partial sums. `change` may break it.
  OwningOpRef<ModuleOp> accumulate(
      const std::string &program, StringRef group,
      ArrayRef<std::string> later = {},
      llvm::function_ref<void(WhileView)> change = [](WhileView) {}) {
    OwningOpRef<ModuleOp> plain = compileStep(program, {split()});
    OwningOpRef<ModuleOp> step = compileStep(
        program,
        {split(), "zero-accumulate-gradients{group=" + group.str() + "}"});
    WhileView before = findLoop(*plain), loop = findLoop(*step);
    if (loop.getNumCarried() == before.getNumCarried())
      return {};
    auto function = step->lookupSymbol<func::FuncOp>("main");
    unsigned last = loop.getNumCarried() - 1;
    Type type = loop.getInit(last).getType();
    loop->setOperand(last,
                     function.getBody().addArgument(type, function.getLoc()));
    SmallVector<Type> types(function.getArgumentTypes());
    types.push_back(type);
    function.setType(FunctionType::get(
        &context, types, function.getFunctionType().getResults()));
    change(loop);
    runPasses(*step, later);
    return step;
  }

  /// Returns the gradients of `program`, and of any partial sum that `step`
  /// takes.
  std::vector<PerRank> getExpected(const Mesh &mesh, const std::string &program,
                                   StringRef group) {
    std::vector<PerRank> expected = run(*compileStep(program, {}), mesh);
    // The hops outside of the group, as they were in the loop.
    OwningOpRef<ModuleOp> plain = compileStep(program, {split()});
    SmallVector<zero::ReduceScatterOp> hops;
    plain->walk([&](zero::ReduceScatterOp hop) { hops.push_back(hop); });
    auto isWithin = [&](zero::ReduceScatterOp hop) {
      return hop.getAlong().size() == 1 &&
             mesh.findAxis(cast<zero::AxisRefAttr>(hop.getAlong()[0])
                               .resolve(mesh)
                               ->name) >= mesh.findAxis(group.str());
    };
    hops.erase(hops.begin(), llvm::find_if_not(hops, isWithin));
    OpBuilder builder(&context);
    builder.setInsertionPointToEnd(plain->getBody());
    Location loc = plain->getLoc();
    zero::ShardType from = hops.front().getOperand().getType();
    zero::ShardType to = hops.back().getType();
    auto outer = func::FuncOp::create(
        builder, loc, "outer",
        builder.getFunctionType(from.getLocalType(), to.getLocalType()));
    builder.setInsertionPointToStart(outer.addEntryBlock());
    Value value =
        zero::FromLocalOp::create(builder, loc, from, outer.getArgument(0));
    for (zero::ReduceScatterOp hop : hops) {
      Operation *clone = builder.clone(*hop);
      clone->setOperand(0, value);
      value = clone->getResult(0);
    }
    func::ReturnOp::create(
        builder, loc,
        zero::ToLocalOp::create(builder, loc, to.getLocalType(), value)
            ->getResults());
    std::string error;
    PerRank sums(mesh.numDevices());
    for (auto [rank, sum] : llvm::enumerate(sums))
      for (int64_t i = 0; i < from.getLocalType().getNumElements(); ++i)
        sum.push_back(SymbolicValue::ofSource(rank, kElementsPerArgument + i));
    std::vector<PerRank> more = interpret(outer, mesh, error, {sums});
    EXPECT_EQ(error, "");
    for (auto [tensor, other] : llvm::zip_equal(expected[0], more[0]))
      for (auto [a, b] : llvm::zip_equal(tensor, other))
        a += b;
    return expected;
  }

  /// Proves that what `make` makes of a program leaves `expected`, as it is and
  /// after the passes that it takes.
  void proveSums(
      const Mesh &mesh, const std::vector<PerRank> &expected,
      llvm::function_ref<OwningOpRef<ModuleOp>(ArrayRef<std::string> later)>
          make) {
    SmallVector<std::string> decomposition = {
        "zero-decompose-reduce-scatter{stages=1}", "zero-reorder-slices",
        "zero-quantize-all-to-all", "zero-fuse-quantization"};
    for (ArrayRef<std::string> later :
         {ArrayRef<std::string>(), ArrayRef<std::string>(decomposition)}) {
      OwningOpRef<ModuleOp> step = make(later);
      ASSERT_EQ(compare(expected, run(*step, mesh)), "") << print(*step);
    }
  }

  /// Changes a sum, or the hops that scatter it.
  using Change =
      llvm::function_ref<void(Operation *add, ArrayRef<zero::ReduceScatterOp>)>;

  /// Expects that the proof finds a sum which forgets a term, one which adds a
  /// term twice instead, and one which another axis adds up. `mutate` says what
  /// the proof finds after a change.
  void expectFinds(const Mesh &mesh,
                   llvm::function_ref<std::string(Change)> mutate) {
    EXPECT_EQ(mutate([](Operation *, ArrayRef<zero::ReduceScatterOp>) {}), "");
    for (unsigned term : {0, 1}) {
      EXPECT_NE(mutate([&](Operation *add, ArrayRef<zero::ReduceScatterOp>) {
                  add->getResult(0).replaceAllUsesWith(add->getOperand(term));
                }),
                "");
      EXPECT_NE(mutate([&](Operation *add, ArrayRef<zero::ReduceScatterOp>) {
                  add->setOperand(1 - term, add->getOperand(term));
                }),
                "");
    }
    EXPECT_NE(mutate([&](Operation *, ArrayRef<zero::ReduceScatterOp> hops) {
                for (zero::ReduceScatterOp hop : hops)
                  hop.setAlongAttr(
                      zero::getAxesAttr(&context, mesh, mesh.getAxis(1)));
              }),
              "");
  }

private:
  static WhileView findLoop(ModuleOp module) {
    WhileView found;
    module.walk([&](Operation *op) {
      if (isWhile(op))
        found = WhileView(op);
    });
    return found;
  }
};

TEST_F(AccumulationProof, OfMicroBatches) {
  int64_t proven = 0;
  for (const Mesh &mesh : threeTierMeshes())
    for (const Shape &shape : shapesFor(mesh.numDevices()))
      for (StringRef group : {"gpu", "node"}) {
        Tensor tensor{mesh, shape.shape, shape.dim, allAxes(mesh)};
        std::string program = tensor.scatterInLoop(2, /*addsUp=*/true);
        // Scatters in one piece have no partial sums.
        if (!accumulate(program, group))
          continue;
        proveSums(mesh, getExpected(mesh, program, group),
                  [&](ArrayRef<std::string> later) {
                    return accumulate(program, group, later);
                  });
        ++proven;
      }
  EXPECT_GT(proven, 50);
}

TEST_F(AccumulationProof, FindsWrongSums) {
  Mesh mesh = makeMesh({2, 2});
  Tensor tensor{mesh, {48, 4}, 0, allAxes(mesh)};
  std::string program = tensor.scatterInLoop(2, /*addsUp=*/true);
  std::vector<PerRank> expected = getExpected(mesh, program, "gpu");
  expectFinds(mesh, [&](Change change) {
    OwningOpRef<ModuleOp> step =
        accumulate(program, "gpu", {}, [&](WhileView loop) {
          Value sum = loop.getNext(loop.getNumCarried() - 1);
          change(sum.getDefiningOp(),
                 llvm::to_vector(
                     loop->getBlock()->getOps<zero::ReduceScatterOp>()));
        });
    return compare(expected, run(*step, mesh));
  });
}

/// The step with its last iteration after the loop, and its gradients sent
/// there, after `later`. `change` may break it.
class PeelingProof : public AccumulationProof {
protected:
  OwningOpRef<ModuleOp> peel(
      const std::string &program, StringRef group,
      ArrayRef<std::string> later = {},
      llvm::function_ref<void(ModuleOp)> change = [](ModuleOp) {}) {
    std::string options = "{group=" + group.str();
    OwningOpRef<ModuleOp> step = compileStep(
        program,
        {split(), "zero-plan-loops" + options + " gradients min-usec=0}",
         "zero-write-loops", "zero-accumulate-gradients" + options + "}"});
    change(*step);
    runPasses(*step, later);
    return step;
  }

  /// Whether a hop that leaves `group` lies outside of all loops, and none does
  /// in one.
  bool isSentOnce(ModuleOp step, const Mesh &mesh, StringRef group) {
    int64_t inLoops = 0, outside = 0;
    step.walk([&](zero::ReduceScatterOp hop) {
      for (auto axis : hop.getAlong().getAsRange<zero::AxisRefAttr>())
        if (mesh.findAxis(axis.resolve(mesh)->name) <
            mesh.findAxis(group.str()))
          ++(isInLoop(hop) ? inLoops : outside);
    });
    return inLoops == 0 && outside > 0;
  }
};

TEST_F(PeelingProof, OfMicroBatches) {
  int64_t proven = 0;
  for (const Mesh &mesh : threeTierMeshes())
    for (const Shape &shape : shapesFor(mesh.numDevices()))
      for (int64_t trips : {2, 3, 4}) {
        Tensor tensor{mesh, shape.shape, shape.dim, allAxes(mesh)};
        std::string program = tensor.scatterInLoop(trips, /*addsUp=*/true);
        if (!isSentOnce(*peel(program, "gpu"), mesh, "gpu"))
          continue;
        proveSums(mesh, run(*compileStep(program, {}), mesh),
                  [&](ArrayRef<std::string> later) {
                    return peel(program, "gpu", later);
                  });
        ++proven;
      }
  EXPECT_GT(proven, 50);
}

TEST_F(PeelingProof, FindsWrongSums) {
  Mesh mesh = makeMesh({2, 2});
  Tensor tensor{mesh, {48, 4}, 0, allAxes(mesh)};
  std::string program = tensor.scatterInLoop(3, /*addsUp=*/true);
  std::vector<PerRank> expected = run(*compileStep(program, {}), mesh);
  // The sum of what the loop leaves and the gradient of the last iteration.
  auto findSum = [](zero::ReduceScatterOp hop) -> Operation * {
    auto shard = hop.getOperand().getDefiningOp<zero::FromLocalOp>();
    Operation *add = shard ? shard.getLocal().getDefiningOp() : nullptr;
    return !isInLoop(hop) && add && isNamed(add, guest::kAdd) &&
                   isWhile(add->getOperand(0).getDefiningOp())
               ? add
               : nullptr;
  };
  expectFinds(mesh, [&](Change change) {
    int64_t found = 0;
    OwningOpRef<ModuleOp> step = peel(program, "gpu", {}, [&](ModuleOp module) {
      module.walk([&](zero::ReduceScatterOp hop) {
        if (Operation *add = findSum(hop)) {
          change(add, hop);
          ++found;
        }
      });
    });
    EXPECT_EQ(found, 1);
    return compare(expected, run(*step, mesh));
  });
}

//===----------------------------------------------------------------------===//
// The proof itself
//===----------------------------------------------------------------------===//

/// Chunks in another order reach other devices: the mistake that slice
/// reordering is there to avoid.
TEST_F(PlacementProof, FindsMisplacedSlices) {
  Mesh mesh = makeMesh({2, 2});
  Tensor tensor{mesh, {12, 4}, 0, allAxes(mesh)};
  prove(mesh, tensor.scatter(), {});
  std::vector<PerRank> expected = run(*last, mesh);
  prove(mesh, tensor.scatter(), scatterPasses("i8:i4", 1));
  ASSERT_EQ(compare(expected, run(*last, mesh)), "");
  last->walk([&](zero::QuantizeOp op) {
    zero::SlicesAttr slices = op.getSlicesAttr();
    ASSERT_EQ(slices.getChunk(), ArrayRef<int64_t>{1});
    op.setSlicesAttr(zero::SlicesAttr::get(&context, slices.getDim(),
                                           slices.getFactors(), {0}, 0, 1));
  });
  ASSERT_TRUE(succeeded(verify(*last)));
  EXPECT_EQ(compare(expected, run(*last, mesh)),
            "expected r0[12] + r1[12] + r2[12] + r3[12] as element 0 of result "
            "0 on rank 1, but got r0[24] + r1[24] + r2[24] + r3[24]");
}

/// A sum over one hop twice counts ranks twice.
TEST_F(PlacementProof, FindsDoubledSums) {
  Mesh mesh = makeMesh({2, 2});
  Tensor tensor{mesh, {12, 4}, 0, allAxes(mesh)};
  prove(mesh, tensor.scatter(), {});
  std::vector<PerRank> expected = run(*last, mesh);
  prove(mesh, tensor.scatter(), scatterPasses("none:none", 1));
  last->walk([&](zero::AllToAllOp op) {
    op.setAlongAttr(zero::getAxesAttr(&context, mesh, mesh.getAxis(1)));
  });
  ASSERT_TRUE(succeeded(verify(*last)));
  EXPECT_NE(compare(expected, run(*last, mesh)), "");
}

} // namespace
