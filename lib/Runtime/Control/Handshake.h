//===- Handshake.h - Proofs of the token of a job ---------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Client and server prove to each other that they know the token of the job,
// without telling it:
//
//   client: Hello      a random number
//   server: Challenge  another one
//   client: Proof      HMAC of both and of what follows: rank, number of ranks,
//                      greeting
//   server: Accept     HMAC of the same, as the server
//
// Before the proof the server says nothing else, and after a wrong one it hangs
// up. The client believes nothing before Accept.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_CONTROL_HANDSHAKE_H
#define ZPP_LIB_RUNTIME_CONTROL_HANDSHAKE_H

#include "Status.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace zpp::rt {

/// Shorter tokens could be guessed from a proof.
inline constexpr size_t kMinTokenBytes = 16;
/// The size of the random numbers.
inline constexpr size_t kNonceBytes = 32;

Status checkToken(std::string_view token);

/// Random bytes of the system, kNonceBytes of them.
Status makeNonce(std::string &nonce);

/// The messages of both sides.
struct Handshake {
  std::string clientNonce;
  std::string serverNonce;
  int64_t rank = -1;
  int64_t numRanks = 0;
  std::string greeting;

  /// The proof that a side knows the token.
  enum class Side { Client, Server };
  std::string prove(Side side, std::string_view token) const;
  /// Whether `proof` is valid. Takes constant time.
  bool isProof(Side side, std::string_view token, std::string_view proof) const;
};

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_CONTROL_HANDSHAKE_H
