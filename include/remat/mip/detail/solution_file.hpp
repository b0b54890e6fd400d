// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <istream>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "remat/core/detail/words.hpp"
#include "remat/core/error.hpp"
#include "remat/mip/model.hpp"

namespace REMAT_NAMESPACE::detail {

/// The content of the solution file of a MIP solver.
struct mip_solution_file {
  /// `optimal`, `feasible`, `infeasible`, `unbounded`, or `no_solution`: what the solver says of its search.
  mip_status status = mip_status::no_solution;
  std::vector<double> values{};  ///< one for every column; empty if the file has none
};

namespace solution_file {

inline std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> out;
  constexpr std::string_view blanks = " \t\r";
  for (std::size_t at = 0;;) {
    at = line.find_first_not_of(blanks, at);
    if (at == std::string_view::npos) return out;
    const std::size_t end = std::min(line.find_first_of(blanks, at), line.size());
    out.push_back(line.substr(at, end - at));
    at = end;
  }
}

/// Reads the text of one file.
class solution_reader {
 public:
  solution_reader(std::istream& in, std::size_t columns, std::string_view file)
      : in_(in), columns_(columns), file_(file) {}

  mip_solution_file read() {
    if (!next()) refuse("the file is empty");
    if (line_.starts_with("Model status"))
      read_highs();
    else if (words_[0] == "c" || words_[0] == "s")
      read_glpk();
    else if (words_[0] == "status" || words_[0][0] == '#')
      read_plain();
    else
      read_cbc();
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& reason) const {
    throw bad_argument(std::string(file_) + ", line " + std::to_string(number_) + ": " + reason);
  }

  static std::string quoted(std::string_view text) { return "\"" + printable(text) + "\""; }

  /// The next line that is not empty. Returns false at the end.
  bool next() {
    while (std::getline(in_, line_)) {
      ++number_;
      words_ = words_of(line_);
      if (!words_.empty()) return true;
    }
    // Such as without memory for a line. The values before it must not pass for all of them.
    if (in_.bad()) refuse("the file cannot be read to its end");
    return false;
  }
  void need(bool more, const char* wanted) const {
    if (!more) refuse(std::string("the file ends; ") + wanted + " should follow");
  }
  void need_words(std::size_t n, const char* shape) const {
    if (words_.size() < n) refuse(quoted(line_) + " should be " + shape);
  }

  template <class Number>
  [[nodiscard]] Number parse(std::string_view word, const char* kind) const {
    Number x{};
    const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), x);
    if (code != std::errc() || end != word.data() + word.size() || !std::isfinite(static_cast<double>(x)))
      refuse(quoted(word) + " should be a " + kind);
    return x;
  }
  [[nodiscard]] std::size_t whole_number(std::string_view word) const {
    return parse<std::size_t>(word, "whole number");
  }
  /// Notes the value of the column with the name `c<j>`.
  void set(std::string_view name, std::string_view value) {
    if (name.size() < 2 || name[0] != 'c') refuse(quoted(name) + " should be a column, c<number>");
    set_column(whole_number(name.substr(1)), value);
  }
  void set_column(std::size_t j, std::string_view value) {
    if (j >= columns_)
      refuse("there is no column " + std::to_string(j) + "; the model has " + std::to_string(columns_));
    out_.values.resize(columns_, 0);
    out_.values[j] = parse<double>(value, "finite number");
  }

  /// Sets the status with which the line begins in CBC's and HiGHS's files.
  void set_status_of_line() {
    if (line_.starts_with("Optimal"))
      out_.status = mip_status::optimal;
    else if (line_.starts_with("Infeasible") || line_.starts_with("Integer infeasible"))
      out_.status = mip_status::infeasible;
    else if (line_.starts_with("Unbounded"))
      out_.status = mip_status::unbounded;
  }
  [[nodiscard]] bool has_values() const noexcept {
    return out_.status == mip_status::optimal || out_.status == mip_status::feasible;
  }

  void read_highs() {
    need(next(), "the model's status");
    set_status_of_line();
    while (next() && !line_.starts_with("# Primal solution")) {
    }
    if (!next() || words_[0] == "None") return;
    while (next() && !line_.starts_with("# Columns")) {
    }
    need(words_.size() >= 3 && words_[1] == "Columns", "\"# Columns N\" and the columns' values");
    const std::size_t n = whole_number(words_[2]);
    if (n != columns_)
      refuse("there are " + detail::count_of(n, "column") + "; the model has " + std::to_string(columns_));
    for (std::size_t j = 0; j < n; ++j) {
      need(next(), "a line for each column");
      need_words(2, "a column and its value");
      set(words_[0], words_[1]);
    }
    out_.values.resize(columns_, 0);
    if (out_.status == mip_status::no_solution) out_.status = mip_status::feasible;
  }

  void read_glpk() {
    bool basic = false;
    do {
      if (words_[0] == "c") continue;
      if (words_[0] == "e") break;
      if (words_[0] == "s") {
        need_words(5, "\"s mip ROWS COLUMNS STATUS …\" or \"s bas ROWS COLUMNS STATUS STATUS …\"");
        basic = words_[1] == "bas";
        if (!basic && words_[1] != "mip") refuse(quoted(words_[1]) + " should be mip or bas");
        set_glpk_status(words_[4], basic && words_.size() > 5 ? words_[5] : std::string_view());
      } else if (words_[0] == "j") {
        need_words(basic ? 4 : 3, "\"j COLUMN VALUE\", with a status before the value in basic solutions");
        const std::size_t j = whole_number(words_[1]);
        if (j == 0) refuse("columns count from 1");
        set_column(j - 1, words_[basic ? 3 : 2]);
      } else if (words_[0] != "i") {
        refuse(quoted(line_) + " should begin with c, s, i, j or e");
      }
    } while (next());
    if (!has_values()) out_.values.clear();
  }
  void set_glpk_status(std::string_view status, std::string_view dual) {
    if (status == "o" || (status == "f" && dual == "f"))
      out_.status = mip_status::optimal;
    else if (status == "f")
      out_.status = dual == "n" ? mip_status::unbounded : mip_status::feasible;
    else if (status == "n")
      out_.status = mip_status::infeasible;
  }

  void read_plain() {
    bool said = false;
    do {
      if (words_[0][0] == '#') continue;
      need_words(2, "\"status WORD\" or a column and its value");
      if (words_[0] == "status") {
        const std::optional<mip_status> status = enum_value<mip_status>(words_[1]);
        if (!status || *status == mip_status::failed)
          refuse(quoted(words_[1]) + " should be optimal, feasible, infeasible, unbounded or no_solution");
        out_.status = *status;
        said = true;
      } else {
        set(words_[0], words_[1]);
      }
    } while (next());
    if (!said) refuse("the file has no line \"status WORD\"");
    out_.values.resize(has_values() ? columns_ : 0, 0);
  }

  void read_cbc() {
    if (line_.find("objective value") == std::string::npos)
      refuse(quoted(line_) + " is the first line of no solution file of CBC, GLPK or HiGHS, and not \"status WORD\"");
    set_status_of_line();
    if (line_.find("no integer solution") != std::string::npos) return;  // the values are those of the relaxation
    if (out_.status == mip_status::no_solution) out_.status = mip_status::feasible;
    if (!has_values()) return;
    out_.values.assign(columns_, 0);
    while (next()) {
      const std::size_t first = words_[0] == "**" ? 1 : 0;  // marks values that break the model
      need_words(first + 3, "a number, a column and its value");
      set(words_[first + 1], words_[first + 2]);
    }
  }

  std::istream& in_;
  std::size_t columns_;
  std::string_view file_;
  std::string line_;
  std::vector<std::string_view> words_;
  std::size_t number_ = 0;
  mip_solution_file out_;
};

}  // namespace solution_file

/// Reads the solution of a model that `write_mps` wrote. The first line tells the format:
///
///  - CBC's (`cbc model.mps -solve -solution FILE`): columns that the file leaves out are 0;
///  - GLPK's raw one (`glpsol --freemps model.mps --write FILE`);
///  - HiGHS's raw one (`writeSolution(FILE, 0)`, `--solution_file FILE`);
///  - for all others: a line `status WORD` with the name of a `mip_status`, then a line `c<j> VALUE` for each column
///    that is not 0, and comments that begin with `#`.
///
/// The values are what the solver says: check them against the model (`mip_model::violation`). `file` names the file in
/// messages. Throws `bad_argument` with the number of the line for anything else. O(length of the text).
[[nodiscard]] inline mip_solution_file read_mip_solution(std::istream& in, std::size_t num_columns,
                                                         std::string_view file) {
  return solution_file::solution_reader(in, num_columns, file).read();
}

}  // namespace REMAT_NAMESPACE::detail
