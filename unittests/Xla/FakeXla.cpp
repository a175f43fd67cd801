//===- FakeXla.cpp - Calls of FFI handlers without XLA --------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FakeXla.h"

#include "gtest/gtest.h"

#include <deque>
#include <future>
#include <memory>
#include <thread>

using namespace zpp;

struct XLA_FFI_Error {
  std::string message;
};

struct XLA_FFI_Future {
  std::promise<std::unique_ptr<XLA_FFI_Error>> result;
};

namespace {
/// The context that handlers query.
struct Context {
  int32_t device;
  void *stream;
};
} // namespace

static const Context &getContext(XLA_FFI_ExecutionContext *context) {
  return *reinterpret_cast<const Context *>(context);
}

static XLA_FFI_Error *createError(XLA_FFI_Error_Create_Args *args) {
  return new XLA_FFI_Error{args->message};
}
static void destroyError(XLA_FFI_Error_Destroy_Args *args) {
  delete args->error;
}
static XLA_FFI_Error *getStream(XLA_FFI_Stream_Get_Args *args) {
  args->stream = getContext(args->ctx).stream;
  return nullptr;
}
static XLA_FFI_Error *getDevice(XLA_FFI_DeviceOrdinal_Get_Args *args) {
  args->device_ordinal = getContext(args->ctx).device;
  return nullptr;
}

static XLA_FFI_Error *createFuture(XLA_FFI_Future_Create_Args *args) {
  args->future = new XLA_FFI_Future;
  return nullptr;
}
static XLA_FFI_Error *setAvailable(XLA_FFI_Future_SetAvailable_Args *args) {
  args->future->result.set_value(nullptr);
  return nullptr;
}
static XLA_FFI_Error *setError(XLA_FFI_Future_SetError_Args *args) {
  args->future->result.set_value(std::unique_ptr<XLA_FFI_Error>(args->error));
  return nullptr;
}

static const XLA_FFI_Api &getApi() {
  static const XLA_FFI_Api api = [] {
    XLA_FFI_Api api{};
    api.struct_size = XLA_FFI_Api_STRUCT_SIZE;
    api.api_version.struct_size = XLA_FFI_Api_Version_STRUCT_SIZE;
    api.api_version.major_version = XLA_FFI_API_MAJOR;
    api.api_version.minor_version = XLA_FFI_API_MINOR;
    api.XLA_FFI_Error_Create = createError;
    api.XLA_FFI_Error_Destroy = destroyError;
    api.XLA_FFI_Stream_Get = getStream;
    api.XLA_FFI_DeviceOrdinal_Get = getDevice;
    api.XLA_FFI_Future_Create = createFuture;
    api.XLA_FFI_Future_SetAvailable = setAvailable;
    api.XLA_FFI_Future_SetError = setError;
    return api;
  }();
  return api;
}

namespace {
/// The arrays that a call frame points to.
template <typename Kind> struct Buffers {
  std::vector<XLA_FFI_Buffer> buffers;
  std::vector<Kind> kinds;
  std::vector<void *> pointers;

  Buffers(const std::vector<FakeBuffer> &given, Kind kind)
      : kinds(given.size(), kind) {
    for (const FakeBuffer &buffer : given) {
      XLA_FFI_Buffer &passed = buffers.emplace_back();
      passed = {};
      passed.struct_size = XLA_FFI_Buffer_STRUCT_SIZE;
      passed.dtype = buffer.type;
      passed.data = buffer.data;
      passed.rank = 1;
      passed.dims = const_cast<int64_t *>(&buffer.elements);
    }
    for (XLA_FFI_Buffer &buffer : buffers)
      pointers.push_back(&buffer);
  }
};
} // namespace

std::string
FakeCall::run(XLA_FFI_Error *(*handler)(XLA_FFI_CallFrame *)) const {
  Context context{device, stream};
  Buffers<XLA_FFI_ArgType> args(operands, XLA_FFI_ArgType_BUFFER);
  Buffers<XLA_FFI_RetType> rets(results, XLA_FFI_RetType_BUFFER);

  // Sorted by name, as XLA does.
  auto span = [](const std::string &text) {
    return XLA_FFI_ByteSpan{text.data(), text.size()};
  };
  std::deque<std::string> texts;
  std::deque<XLA_FFI_ByteSpan> spans;
  std::deque<XLA_FFI_Scalar> scalars;
  std::vector<XLA_FFI_AttrType> types;
  std::vector<XLA_FFI_ByteSpan *> names;
  std::vector<void *> values;
  auto add = [&](const char *name, XLA_FFI_AttrType type, void *value) {
    names.push_back(&spans.emplace_back(span(texts.emplace_back(name))));
    types.push_back(type);
    values.push_back(value);
  };
  auto addString = [&](const char *name, const std::string &value) {
    add(name, XLA_FFI_AttrType_STRING, &spans.emplace_back(span(value)));
  };
  auto addScalar = [&](const char *name, XLA_FFI_DataType type,
                       const void *value) {
    add(name, XLA_FFI_AttrType_SCALAR,
        &scalars.emplace_back(XLA_FFI_Scalar{type, const_cast<void *>(value)}));
  };
  addString("bundle", bundle);
  if (isDeferrable)
    addScalar("deferrable", XLA_FFI_DataType_PRED, &*isDeferrable);
  addString("function", function);
  XLA_FFI_Array pairs{XLA_FFI_DataType_S64, inPlace.size(),
                      const_cast<int64_t *>(inPlace.data())};
  if (!inPlace.empty())
    add("in_place", XLA_FFI_AttrType_ARRAY, &pairs);
  addScalar("inputs", XLA_FFI_DataType_S64, &inputs);
  addScalar("outputs", XLA_FFI_DataType_S64, &outputs);
  addScalar("workspace", XLA_FFI_DataType_S64, &workspace);

  XLA_FFI_CallFrame frame{};
  frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
  frame.api = &getApi();
  frame.ctx = reinterpret_cast<XLA_FFI_ExecutionContext *>(&context);
  frame.stage = XLA_FFI_ExecutionStage_EXECUTE;
  frame.args.struct_size = XLA_FFI_Args_STRUCT_SIZE;
  frame.args.size = operands.size();
  frame.args.types = args.kinds.data();
  frame.args.args = args.pointers.data();
  frame.rets.struct_size = XLA_FFI_Rets_STRUCT_SIZE;
  frame.rets.size = results.size();
  frame.rets.types = rets.kinds.data();
  frame.rets.rets = rets.pointers.data();
  frame.attrs.struct_size = XLA_FFI_Attrs_STRUCT_SIZE;
  frame.attrs.size = names.size();
  frame.attrs.types = types.data();
  frame.attrs.names = names.data();
  frame.attrs.attrs = values.data();
  std::unique_ptr<XLA_FFI_Error> error(handler(&frame));
  if (frame.future) {
    std::unique_ptr<XLA_FFI_Future> future(frame.future);
    error = future->result.get_future().get();
  }
  return error ? error->message : "";
}

TestWorld::TestWorld(const char *backend, const std::vector<int64_t> &ordinals,
                     bool isTraced) {
  std::vector<int64_t> ranks;
  for (int64_t rank = 0; rank < kRanks; ++rank)
    ranks.push_back(rank);
  zpp_xla_world_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.backend = backend;
  desc.mesh = "node:2,gpu:4";
  desc.time_limit_usec = 20'000'000;
  desc.trace = isTraced;
  desc.ranks = ranks.data();
  desc.device_ordinals = ordinals.data();
  desc.num_ranks = kRanks;
  char message[512] = "";
  EXPECT_EQ(zpp_xla_world_create(&desc, &world, message, sizeof(message)),
            ZPP_RT_OK)
      << message;
  EXPECT_EQ(zpp_xla_bundle_load(world, "test", ZPP_TEST_BUNDLE, message,
                                sizeof(message)),
            ZPP_RT_OK)
      << message;
}

void TestWorld::destroy() {
  zpp_xla_world_destroy(world);
  world = nullptr;
}

void zpp::runAllRanks(const std::function<void(int rank)> &program) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank)
    threads.emplace_back(program, rank);
  for (std::thread &thread : threads)
    thread.join();
}
