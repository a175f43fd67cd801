//===- ZeroInterfaces.td - Interfaces of the zero dialect --*- tablegen -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_DIALECT_ZERO_IR_ZEROINTERFACES
#define ZPP_DIALECT_ZERO_IR_ZEROINTERFACES

include "mlir/IR/OpBase.td"

def Zero_CollectiveOpInterface : OpInterface<"CollectiveOpInterface"> {
  let cppNamespace = "::zpp::zero";
  let description = [{
    An op in which the devices along some mesh axes take part together. Its
    verifier holds the constraints common to all of them:

    - K1: every axis of `along` is an axis of the mesh, or a part of one.
    - K2: no axis or part of one appears twice.
    - K3: `along` is not empty.
  }];
  let methods = [
    InterfaceMethod<"The mesh.", "::zpp::zero::MeshAttr", "getMeshAttr">,
    InterfaceMethod<"The axes of the group, most significant first.",
                    "::mlir::ArrayAttr", "getAlongAttr">,
    InterfaceMethod<"The axes with their sizes; valid after verification.",
                    "std::vector<::zpp::AxisRef>", "getAxisRefs",
                    (ins), [{}], [{
      return ::zpp::zero::resolveAxes($_op.getAlongAttr(), $_op.getMeshAttr());
    }]>,
    InterfaceMethod<"Devices in a group.", "int64_t", "getGroupSize", (ins),
                    [{}], [{
      return ::zpp::numDevices($_op.getAxisRefs());
    }]>,
  ];
  let verify = [{ return ::zpp::zero::verifyCollective($_op); }];
}

def Zero_DecomposedOpInterface : OpInterface<"DecomposedOpInterface"> {
  let cppNamespace = "::zpp::zero";
  let description = [{
    A decomposed op reads one input and overwrites one destination, both local
    to the device. It may read one more tensor. Either all are tensors and the
    op has one result, or all are buffers and it has none. Tensors have fewer
    than 2^57 elements, so that sizes computed from their types do not overflow.
  }];
  let methods = [
    InterfaceMethod<"The type of the input.", "::mlir::ShapedType",
                    "getInputType", (ins), [{}], [{
      return ::mlir::cast<::mlir::ShapedType>($_op.getInput().getType());
    }]>,
    InterfaceMethod<"The type of the destination.", "::mlir::ShapedType",
                    "getInitType", (ins), [{}], [{
      return ::mlir::cast<::mlir::ShapedType>($_op.getInit().getType());
    }]>,
    InterfaceMethod<"Whether it works on buffers.", "bool", "isOnBuffers",
                    (ins), [{}], [{
      return ::mlir::isa<::mlir::BaseMemRefType>($_op.getInput().getType());
    }]>,
  ];

  let verify = [{ return ::zpp::zero::verifySizes($_op); }];
}

#endif // ZPP_DIALECT_ZERO_IR_ZEROINTERFACES
