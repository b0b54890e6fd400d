// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/problem/flat_graph.hpp"

namespace REMAT_NAMESPACE {

/// 128 bits computed from some data: equal for equal data, and different for different data, but for a chance of one
/// in 2^128. Anybody can make data for a given digest: it finds mistakes, not attacks.
struct digest {
  std::uint64_t high = 0;  ///< the first 64 bits
  std::uint64_t low = 0;   ///< the other 64 bits

  /// Returns 32 hexadecimal digits.
  [[nodiscard]] std::string text() const;
  /// Compares all bits.
  friend constexpr bool operator==(const digest&, const digest&) = default;
};

/// The data that a `graph_digest` covers besides inputs, outputs, bytes, workspace, phases and flags.
struct digest_options {
  bool names = true;  ///< the operations' names, if the graph has names
  bool times = true;  ///< the operations' times; false if each machine measures its own

  /// Compares all members.
  friend constexpr bool operator==(const digest_options&, const digest_options&) = default;
};

/// Digests of a training step with its costs: of the whole, and of each operation.
///
/// They cover everything in a `flat_graph` that decides a plan. So two problems with the same digest and the same
/// budgets have the same schedules. An operation's digest covers its name, phase, time and workspace, whether it may
/// run again, the ids of its inputs, and for each output the id, the bytes and whether it is a final output. Parameters
/// and inputs of the step count no bytes and are not covered. The digests are the same on every machine, for every
/// compiler, and in every version of the library with the same first number.
///
///     const graph_digest here = digest_of(p.graph());
///     if (here != there) std::cerr << "the first operation that differs is " << index(*first_difference(here, there));
struct graph_digest {
  digest whole{};                    ///< one digest of all operations and tensors
  std::vector<digest> operations{};  ///< a digest of each operation

  /// Compares all digests.
  friend bool operator==(const graph_digest&, const graph_digest&) = default;
};

/// Returns the digests of the graph of a `problem`. O(operations + reads and writes + bytes of names) time.
[[nodiscard]] graph_digest digest_of(const flat_graph& g, const digest_options& options = {});

/// Returns the first operation whose digest differs, or that one of the graphs lacks. Empty if there is none: then the
/// graphs are equal, or differ in a tensor that no operation writes.
[[nodiscard]] std::optional<op_id> first_difference(const graph_digest& a, const graph_digest& b);

/// Returns one line that names the first operation that differs between two graphs of problems, and everything that
/// differs in it: "operation 3 (mm): bytes of its output 7 are 4096, there 8192". Empty if the digests are equal.
/// `there` says where `b` is. Takes the time of two digests.
[[nodiscard]] std::string describe_difference(const flat_graph& a, const flat_graph& b,
                                              const digest_options& options = {}, std::string_view there = "there");

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/problem/impl/digest.hpp"
#endif
