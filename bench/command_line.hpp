// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// The one way in which the benchmarks read their arguments: `--help` says what a program measures, which graphs it
/// takes, and what each option is without being given; a wrong argument is one line and exit status 2.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "remat/render/table.hpp"
#include "shared/program.hpp"
#include "support/csv.hpp"

namespace bench {

/// The command line of a benchmark. Each function adds one option; its help ends with the value that it has before.
class command_line : public shared::command_line {
 public:
  /// `measures`: what the program measures, and on which graphs.
  command_line(const std::string& name, const std::string& measures) : shared::command_line(measures, name) {}

  /// A number from `least` to `most`.
  template <class Number>
  CLI::Option* number(const std::string& name, Number& to, const std::string& help, Number least = 0,
                      Number most = std::numeric_limits<Number>::max()) {
    return shared::add_number(*this, name, to, with_default(help, text_of(to)), least, most);
  }

  /// A text; one of `expected`, unless that is empty.
  CLI::Option* text(const std::string& name, std::string& to, const std::string& help, const std::string& type,
                    const std::vector<std::string>& expected = {}) {
    return read_by(name, with_default(help, to, expected), type, [=, &to](const std::string& given) {
      require_expected(name, given, expected);
      to = given;
    });
  }

  /// A list with commas of texts, each one of `expected`, unless that is empty.
  CLI::Option* list(const std::string& name, std::vector<std::string>& to, const std::string& help,
                    const std::string& type, const std::vector<std::string>& expected = {}) {
    return read_by(name, with_default(help, joined(to), expected), type, [=, &to](const std::string& given) {
      to = remat::test::csv_fields(given);
      for (const std::string& one : to) require_expected(name, one, expected);
    });
  }

  /// A list with commas of numbers from 0.
  CLI::Option* list(const std::string& name, std::vector<double>& to, const std::string& help,
                    const std::string& type) {
    std::vector<std::string> before;
    for (const double x : to) before.push_back(remat::format_number(x));
    return read_by(name, with_default(help, joined(before)), type, [=, &to](const std::string& given) {
      to.clear();
      for (const std::string& one : remat::test::csv_fields(given))
        to.push_back(shared::real(name, one, "numbers from 0, with commas between them"));
    });
  }

  /// A folder, which exists.
  CLI::Option* folder(const std::string& name, std::filesystem::path& to, const std::string& help) {
    return add_option(name, to, help)->type_name("FOLDER")->check(CLI::ExistingDirectory);
  }

  /// The other arguments: files, which exist.
  CLI::Option* files(std::vector<std::filesystem::path>& to, const std::string& help) {
    return add_option("files", to, help)->type_name("FILE")->check(CLI::ExistingFile);
  }

 private:
  template <class Read>
  CLI::Option* read_by(const std::string& name, const std::string& help, const std::string& type, const Read& read) {
    return add_option_function<std::string>(name, read, help)->type_name(type);
  }

  template <class Number>
  static std::string text_of(Number value) {
    if constexpr (std::is_floating_point_v<Number>)
      return remat::format_number(value);
    else
      return value == std::numeric_limits<Number>::max() ? "unlimited" : std::to_string(value);
  }
  static std::string joined(const std::vector<std::string>& list) {
    std::string out;
    for (const std::string& one : list) out += (out.empty() ? "" : ",") + one;
    return out;
  }
  static std::string with_default(const std::string& help, const std::string& before,
                                  const std::vector<std::string>& expected = {}) {
    const std::string choice = expected.empty() ? "" : ", of " + joined(expected);
    return help + choice + (before.empty() ? "" : " (" + before + ")");
  }
  static void require_expected(const std::string& name, const std::string& given,
                               const std::vector<std::string>& expected) {
    if (!expected.empty() && std::find(expected.begin(), expected.end(), given) == expected.end())
      throw shared::usage_error(name + " " + given + ": expected one of " + joined(expected));
  }
};

/// The names in a map from names to solvers.
template <class Map>
[[nodiscard]] std::vector<std::string> names_in(const Map& map) {
  std::vector<std::string> names;
  for (const auto& entry : map) names.push_back(entry.first);
  return names;
}

}  // namespace bench
