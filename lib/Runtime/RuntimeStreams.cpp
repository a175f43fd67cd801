//===- RuntimeStreams.cpp - Streams of the caller, in the C interface -----===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Handles.h"

using namespace zpp::rt;

static Status markOperations(zpp_rt_rank *rank, const zpp_rt_buffer *buffers,
                             int64_t numBuffers, std::unique_ptr<Mark> &mark) {
  if (numBuffers < 0)
    return invalid(expected("a number of buffers", numBuffers));
  if (numBuffers > 0 && !buffers)
    return invalid(expected(std::to_string(numBuffers) + " buffers", "NULL"));
  for (int64_t i = 0; i < numBuffers; ++i)
    if (buffers[i].bytes < 0)
      return invalid(expected("a number of bytes", buffers[i].bytes));
  return rank->backend->markOperations({buffers, buffers + numBuffers}, mark);
}

zpp_rt_status zpp_rt_enter(zpp_rt_rank *rank, void *stream) {
  return call(rank, "enter", [&]() -> Status {
    std::unique_ptr<Mark> mark;
    ZPP_RT_TRY(rank->backend->markStream(stream, mark));
    return rank->backend->enter(*mark);
  });
}

zpp_rt_status zpp_rt_leave(zpp_rt_rank *rank, void *stream,
                           const zpp_rt_buffer *buffers, int64_t numBuffers) {
  return call(rank, "leave", [&]() -> Status {
    std::unique_ptr<Mark> mark;
    ZPP_RT_TRY(markOperations(rank, buffers, numBuffers, mark));
    return rank->backend->leave(stream, *mark);
  });
}

struct zpp_rt_mark {
  bool isOfStream;
  std::unique_ptr<Mark> mark;
};

/// Makes a mark with `function(mark)`.
template <typename Function>
static zpp_rt_status createMark(zpp_rt_rank *rank, const char *title,
                                bool isOfStream, zpp_rt_mark **result,
                                const Function &function) {
  if (result)
    *result = nullptr;
  return call(rank, title, [&]() -> Status {
    if (!result)
      return invalid(expected("where to write the mark", "NULL"));
    auto mark = std::make_unique<zpp_rt_mark>();
    mark->isOfStream = isOfStream;
    ZPP_RT_TRY(function(mark->mark));
    *result = mark.release();
    return {};
  });
}

/// Checks that `mark` is not null and of the right kind.
static Status checkMark(const zpp_rt_mark *mark, bool isOfStream) {
  auto describe = [](bool isOfStream) {
    return std::string("a mark of ") + (isOfStream ? "a stream" : "operations");
  };
  if (!mark)
    return invalid(expected(describe(isOfStream), "NULL"));
  if (mark->isOfStream != isOfStream)
    return invalid(expected(describe(isOfStream), describe(mark->isOfStream)));
  return {};
}

zpp_rt_status zpp_rt_mark_stream(zpp_rt_rank *rank, void *stream,
                                 zpp_rt_mark **mark) {
  return createMark(
      rank, "mark_stream", /*isOfStream=*/true, mark,
      [&](auto &result) { return rank->backend->markStream(stream, result); });
}

zpp_rt_status zpp_rt_enter_mark(zpp_rt_rank *rank, const zpp_rt_mark *mark) {
  return call(rank, "enter_mark", [&]() -> Status {
    ZPP_RT_TRY(checkMark(mark, /*isOfStream=*/true));
    return rank->backend->enter(*mark->mark);
  });
}

zpp_rt_status zpp_rt_mark_operations(zpp_rt_rank *rank,
                                     const zpp_rt_buffer *buffers,
                                     int64_t numBuffers, zpp_rt_mark **mark) {
  return createMark(rank, "mark_operations", /*isOfStream=*/false, mark,
                    [&](auto &result) {
                      return markOperations(rank, buffers, numBuffers, result);
                    });
}

zpp_rt_status zpp_rt_leave_mark(zpp_rt_rank *rank, void *stream,
                                const zpp_rt_mark *mark) {
  return call(rank, "leave_mark", [&]() -> Status {
    ZPP_RT_TRY(checkMark(mark, /*isOfStream=*/false));
    return rank->backend->leave(stream, *mark->mark);
  });
}

zpp_rt_status zpp_rt_copy_on_stream(zpp_rt_rank *rank, void *stream, void *dest,
                                    const void *source, int64_t bytes) {
  return call(rank, "copy_on_stream", [&]() -> Status {
    if (bytes < 0)
      return invalid(expected("a number of bytes", bytes));
    if (bytes == 0)
      return {};
    if (!dest || !source)
      return invalid(
          expected("memory of " + std::to_string(bytes) + " bytes", "NULL"));
    return rank->backend->copyOnStream(stream, source, dest, bytes);
  });
}

void zpp_rt_mark_destroy(zpp_rt_mark *mark) { delete mark; }
