// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>

#include "remat/core/id.hpp"

namespace remat {

/// Base of every exception that the library throws for invalid input or misuse.
///
/// The outcome of a solve (infeasible, timeout, …) is never an exception: see `solution`.
class error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A graph that does not model a training step: a cycle, a missing producer, an id out of range.
class bad_graph : public error {
 public:
  using error::error;
};

/// A cost model gave a time or a size that cannot be used: negative, NaN, infinite, missing or overflowing.
class bad_cost : public error {
 public:
  using error::error;
};

/// An option or an argument outside of what is allowed.
class bad_argument : public error {
 public:
  using error::error;
};

/// A file that cannot be read as what it claims to be.
///
/// `what()` is one line: the file, the place in it (a JSON pointer such as `/tensors/3/bytes`, or line and column),
/// what is wrong and what would be right.
class bad_file : public error {
 public:
  bad_file(std::string file, std::string where, const std::string& message)
      : error(file + (where.empty() ? "" : ": " + where) + ": " + message),
        file_(std::move(file)),
        where_(std::move(where)) {}
  [[nodiscard]] const std::string& file() const noexcept { return file_; }
  [[nodiscard]] const std::string& where() const noexcept { return where_; }

 private:
  std::string file_, where_;
};

/// A kernel, or what it runs on, failed: the operation whose turn it was, and why. What was thrown is nested
/// (`std::rethrow_if_nested`), where anything was.
class execution_error : public error {
 public:
  execution_error(op_id operation, std::size_t step, const std::string& message)
      : error(message), operation_(operation), step_(step) {}
  [[nodiscard]] op_id operation() const noexcept { return operation_; }
  [[nodiscard]] std::size_t step() const noexcept { return step_; }  ///< of the schedule

 private:
  op_id operation_;
  std::size_t step_;
};

/// A defect of the library itself, for instance a solver's schedule that the exact checker refuses.
class internal_error : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace remat
