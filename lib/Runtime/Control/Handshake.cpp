//===- Handshake.cpp - Who may take part in a job -------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Handshake.h"

#include "ControlWire.h"
#include "Hmac.h"

#include <cerrno>
#include <cstring>
#include <sys/random.h>
#include <unistd.h>

using namespace zpp::rt;

Status zpp::rt::checkToken(std::string_view token) {
  if (token.size() < kMinTokenBytes)
    return invalid(expected("a token of at least " +
                                std::to_string(kMinTokenBytes) + " bytes",
                            static_cast<int64_t>(token.size())));
  return {};
}

Status zpp::rt::makeNonce(std::string &nonce) {
  nonce.assign(kNonceBytes, '\0');
  if (::getentropy(nonce.data(), nonce.size()) != 0)
    return {ZPP_RT_SYSTEM_ERROR, expected("random numbers of the system",
                                          quote(std::strerror(errno)))};
  return {};
}

std::string Handshake::prove(Side side, std::string_view token) const {
  // Every part has its length, so that no two handshakes have the same text.
  std::string text;
  FrameWriter(text, Frame::Proof)
      .text(side == Side::Client ? "zpp client" : "zpp server")
      .text(clientNonce)
      .text(serverNonce)
      .i64(rank)
      .i64(numRanks)
      .text(greeting);
  return getHmac(token, text);
}

bool Handshake::isProof(Side side, std::string_view token,
                        std::string_view proof) const {
  return areEqualInConstantTime(prove(side, token), proof);
}
