// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/mip/mps.hpp"

#include <charconv>
#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "remat/core/detail/linkage.hpp"

namespace remat {

namespace detail::mps_writing {

/// Writes the sections of one model.
class mps_writer {
 public:
  mps_writer(std::ostream& out, const mip_model& model) : out_(out), model_(model) {}

  void write(std::string_view name) {
    std::string word(name.empty() ? "remat" : name);
    for (char& c : word)
      if (static_cast<unsigned char>(c) <= ' ') c = '_';
    out_ << "* minimise cost + " << text(model_.offset) << '\n';
    // "FREE" tells the readers that know fixed columns, too, not to look for them.
    out_ << "NAME " << word << " FREE\n";
    write_row_names();
    write_columns();
    write_sides();
    write_bounds();
    out_ << "ENDATA\n";
  }

 private:
  [[nodiscard]] std::string_view text(double x) {
    if (x == 0) x = 0;  // not "-0"
    const std::to_chars_result end = std::to_chars(number_, number_ + sizeof number_, x);
    return {number_, static_cast<std::size_t>(end.ptr - number_)};
  }
  [[nodiscard]] bool has_lower(std::size_t i) const { return model_.row_lower(i) != -mip_model::infinite; }
  [[nodiscard]] bool has_upper(std::size_t i) const { return model_.row_upper(i) != mip_model::infinite; }
  [[nodiscard]] bool is_equality(std::size_t i) const { return model_.row_lower(i) == model_.row_upper(i); }

  void write_row_names() {
    out_ << "ROWS\n N cost\n";
    for (std::size_t i = 0; i < model_.num_rows(); ++i) {
      if (!has_lower(i) && !has_upper(i)) continue;
      out_ << ' ' << (is_equality(i) ? 'E' : has_upper(i) ? 'L' : 'G') << " r" << i << '\n';
    }
  }

  /// The format goes by columns, the model by rows.
  void write_columns() {
    struct entry {
      std::size_t row;
      double value;
    };
    std::vector<std::size_t> begin(model_.num_columns() + 1, 0);
    for (std::size_t i = 0; i < model_.num_rows(); ++i)
      for (const mip_term& t : model_.row(i)) ++begin[t.column + 1];
    for (std::size_t j = 0; j < model_.num_columns(); ++j) begin[j + 1] += begin[j];
    std::vector<entry> entries(model_.num_terms());
    std::vector<std::size_t> next(begin.begin(), begin.end() - 1);
    for (std::size_t i = 0; i < model_.num_rows(); ++i)
      for (const mip_term& t : model_.row(i)) entries[next[t.column]++] = {i, t.value};

    out_ << "COLUMNS\n";
    bool integer = false;
    for (std::size_t j = 0; j < model_.num_columns(); ++j) {
      if (model_.is_integer(j) != integer) mark(integer = !integer);
      out_ << " c" << j << " cost " << text(model_.cost(j)) << '\n';  // so that each column stands in the file
      for (std::size_t k = begin[j]; k < begin[j + 1]; ++k)
        if (has_lower(entries[k].row) || has_upper(entries[k].row))
          out_ << " c" << j << " r" << entries[k].row << ' ' << text(entries[k].value) << '\n';
    }
    if (integer) mark(false);
  }
  void mark(bool integer) {
    out_ << " marker" << marks_++ << " 'MARKER' " << (integer ? "'INTORG'" : "'INTEND'") << '\n';
  }

  /// The right-hand sides; the other side of a row with two is a range.
  void write_sides() {
    out_ << "RHS\n";
    for (std::size_t i = 0; i < model_.num_rows(); ++i) {
      const double side = has_upper(i) ? model_.row_upper(i) : has_lower(i) ? model_.row_lower(i) : 0;
      if (side != 0) out_ << " rhs r" << i << ' ' << text(side) << '\n';
    }
    out_ << "RANGES\n";
    for (std::size_t i = 0; i < model_.num_rows(); ++i)
      if (has_lower(i) && has_upper(i) && !is_equality(i))
        out_ << " range r" << i << ' ' << text(model_.row_upper(i) - model_.row_lower(i)) << '\n';
  }

  void write_bounds() {
    out_ << "BOUNDS\n";
    for (std::size_t j = 0; j < model_.num_columns(); ++j) {
      const double lower = model_.lower(j), upper = model_.upper(j);
      if (lower == upper) {
        out_ << " FX bound c" << j << ' ' << text(lower) << '\n';
        continue;
      }
      // The lower bound first: a reader that sees a negative upper bound alone may drop the lower one.
      if (lower == -mip_model::infinite)
        out_ << " MI bound c" << j << '\n';
      else
        out_ << " LO bound c" << j << ' ' << text(lower) << '\n';
      if (upper == mip_model::infinite)
        out_ << " PL bound c" << j << '\n';
      else
        out_ << " UP bound c" << j << ' ' << text(upper) << '\n';
    }
  }

  std::ostream& out_;
  const mip_model& model_;
  std::size_t marks_ = 0;
  char number_[32];
};

}  // namespace detail::mps_writing

REMAT_INLINE void write_mps(std::ostream& out, const mip_model& model, std::string_view name) {
  detail::mps_writing::mps_writer(out, model).write(name);
}

}  // namespace remat
