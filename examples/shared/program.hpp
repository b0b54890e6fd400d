// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// What the programs of this folder have in common: the command line, lines that fit the terminal, and how they end.

#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <limits>
#include <memory>
#include <new>
#include <sstream>
#include <streambuf>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "remat/core/detail/words.hpp"
#include "remat/core/error.hpp"
#include "remat/io/detail/whole_file.hpp"
#include "remat/render/table.hpp"
#include "remat/version.hpp"
#include "shared/trimmed.hpp"
#include "shared/usage_error.hpp"
#include "shared/whole_file.hpp"

namespace shared {

/// The number of columns for lines that are written to `file`, a descriptor: what the variable COLUMNS says, or the
/// width of the terminal; without a terminal, no limit.
[[nodiscard]] inline std::size_t line_width(int file) {
  constexpr std::size_t least = 20;
  if (const char* const columns = std::getenv("COLUMNS")) {
    const std::string_view text(columns);
    std::size_t width = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), width).ec == std::errc{} && width != 0)
      return std::max(width, least);
  }
  if (isatty(file) != 1) return remat::text_table::unlimited;
  winsize size{};
  const bool known = ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return std::max(known ? std::size_t{size.ws_col} : std::size_t{80}, least);
}

/// `text` in lines for `file`, each but the first after `indent` spaces.
[[nodiscard]] inline std::string fit(const std::string& text, int file, std::size_t indent = 0) {
  const std::size_t width = line_width(file);
  if (width == remat::text_table::unlimited) return text;
  std::string out;
  for (const std::string& line : remat::wrap_text(text, width - std::min(width / 2, indent)))
    out += (out.empty() ? "" : "\n" + std::string(indent, ' ')) + line;
  return out;
}

/// Help in lines that fit the terminal, or 80 columns.
class help_format : public CLI::Formatter {
 public:
  help_format() { column_width(28); }
  std::string make_option_desc(const CLI::Option* option) const override {
    return wrapped(option->get_description(), get_column_width());
  }
  std::string make_description(const CLI::App* app) const override {
    return wrapped(app->get_description(), 0) + "\n\n";
  }
  std::string make_footer(const CLI::App* app) const override { return wrapped(app->get_footer(), 0) + "\n"; }

 private:
  static std::string wrapped(const std::string& text, std::size_t indent) {
    std::string out;
    for (const std::string& line :
         remat::wrap_text(text, std::min<std::size_t>(line_width(STDOUT_FILENO), 80) - indent))
      out += (out.empty() ? "" : "\n") + line;
    return out;
  }
};

/// The command line of a program: CLI11's, with `--version` and help that fits the terminal.
class command_line : public CLI::App {
 public:
  command_line(const std::string& description, const std::string& name) : CLI::App(description, name) {
    constexpr remat::version v = remat::library_version;
    formatter(std::make_shared<help_format>());
    set_help_flag("-h,--help", "Print this and leave");
    set_version_flag(
        "--version",
        name + " " + std::to_string(v.major) + "." + std::to_string(v.minor) + "." + std::to_string(v.patch),
        "Print the version and leave");
  }

  /// Reads the arguments. Returns false if they asked for help or the version, which this function prints. Throws
  /// `usage_error`.
  [[nodiscard]] bool read(int argc, const char* const* argv) {
    const std::vector<std::string> words = joined_numbers(argc, argv);
    std::vector<const char*> pointers;
    for (const std::string& word : words) pointers.push_back(word.c_str());
    try {
      parse(static_cast<int>(pointers.size()), pointers.data());
      return true;
    } catch (const CLI::CallForHelp&) {
      std::cout << help();
    } catch (const CLI::CallForVersion& e) {
      std::cout << e.what() << '\n';
    } catch (const CLI::ExtrasError&) {
      throw usage_error(about_extras(words) + help_hint());
    } catch (const CLI::ParseError& e) {
      const std::string twice = about_repeated();
      throw usage_error((twice.empty() ? e.what() : twice) + help_hint());
    }
    return false;
  }

 private:
  [[nodiscard]] std::string help_hint() const { return " (" + get_name() + " --help names all arguments)"; }

  /// The message about arguments that have no meaning: the first option among them and the nearest one, else all.
  [[nodiscard]] std::string about_extras(const std::vector<std::string>& words) const {
    std::vector<std::string> extras = remaining(), names;  // in an order of CLI11's own
    for (const CLI::Option* const option : get_options())
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    std::string listed;
    for (std::size_t i = 1; i < words.size(); ++i) {
      const auto found = std::find(extras.begin(), extras.end(), words[i]);
      if (found == extras.end()) continue;
      extras.erase(found);
      if (words[i].size() > 1 && words[i][0] == '-') {
        const std::string name = words[i].substr(0, words[i].find('='));
        const auto distance = [&](const std::string& other) { return remat::detail::name_distance(name, other); };
        const auto nearest = std::min_element(names.begin(), names.end(),
                                              [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
        const bool is_near = nearest != names.end() && distance(*nearest) <= std::max<std::size_t>(1, name.size() / 3);
        return name + ": there is no such option" + (is_near ? "; the nearest one is " + *nearest : "");
      }
      listed += (listed.empty() ? "" : ", ") + words[i];
    }
    return "unexpected: " + listed;
  }

  /// The message about an option that is given more often than once; empty if none is.
  [[nodiscard]] std::string about_repeated() const {
    for (const CLI::Option* const option : get_options()) {
      const std::vector<std::string>& given = option->results();
      if (given.size() < 2 || option->get_items_expected_max() != 1 || option->get_lnames().empty()) continue;
      const std::string name = "--" + option->get_lnames().front();
      std::string message = name + ": is given " + remat::detail::count_of(given.size(), "time") + "; expected once";
      if (option->get_type_name().find("[,") == std::string::npos) return message;
      message += ": " + name + " ";
      for (const std::string& value : given) message += (&value == &given.front() ? "" : ",") + value;
      return message;
    }
    return {};
  }

  /// The arguments, with a negative number as a part of the option before it: "--budget -1" becomes "--budget=-1".
  /// CLI11 would take the number for an option; this way the option's own message says what is wrong with it.
  [[nodiscard]] std::vector<std::string> joined_numbers(int argc, const char* const* argv) const {
    std::vector<std::string> words;
    for (int i = 0; i < argc; ++i) {
      const std::string_view word = argv[i];
      const bool is_negative = word.size() > 1 && word[0] == '-' && word.find_first_of("0123456789.") == 1;
      const CLI::Option* const before = is_negative && words.size() > 1 && words.back().rfind("--", 0) == 0
                                            ? get_option_no_throw(words.back())
                                            : nullptr;
      if (before != nullptr && before->get_items_expected_max() > 0)
        words.back().append("=").append(word);
      else
        words.emplace_back(word);
    }
    return words;
  }
};

/// Reads the whole number of an option: digits alone. Throws `usage_error`.
///
/// CLI11 reads "-1" as 2^64 - 1, "010" as 8, and takes "nan" for a number in any range.
template <class T>
[[nodiscard]] T whole(const std::string& option, const std::string& text, T least, T most) {
  T value{};
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec != std::errc{} || end.ptr != text.data() + text.size() || value < least || value > most)
    throw usage_error(option + " " + text + ": expected a whole number from " + std::to_string(least) + " to " +
                      std::to_string(most));
  return value;
}

/// Reads the number of an option, which is finite and at least 0. Throws `usage_error`.
[[nodiscard]] inline double real(const std::string& option, const std::string& text, const char* expected) {
  double value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec != std::errc{} || end.ptr != text.data() + text.size() || !std::isfinite(value) || value < 0)
    throw usage_error(option + " " + text + ": expected " + expected);
  return value;
}

/// Reads the ratio of an option: a number that is finite and at least 0, or a percentage ("0.1", "10%", "10 %"). Throws
/// `usage_error`.
[[nodiscard]] inline double ratio(const std::string& option, const std::string& text, const char* expected) {
  const std::string_view all = trimmed(text);
  const bool is_percentage = !all.empty() && all.back() == '%';
  if (!is_percentage) return real(option, text, expected);
  try {
    return real(option, std::string(trimmed(all.substr(0, all.size() - 1))), expected) / 100;
  } catch (const usage_error&) {
    throw usage_error(option + " " + text + ": expected " + expected);
  }
}

/// Adds an option with a whole number from `least` to `most`, or any number from 0 if `Number` is double.
template <class Number>
CLI::Option* add_number(CLI::App& app, const std::string& name, Number& to, const std::string& help, Number least = 0,
                        Number most = std::numeric_limits<Number>::max()) {
  return app
      .add_option_function<std::string>(
          name,
          [=, &to](const std::string& text) {
            if constexpr (std::is_floating_point_v<Number>) {
              to = static_cast<Number>(real(name, text, "a number from 0"));
              if (to < least || to > most)
                throw usage_error(name + " " + text + ": expected a number from " + remat::format_number(least) +
                                  " to " + remat::format_number(most));
            } else {
              to = whole(name, text, least, most);
            }
          },
          help)
      ->type_name("N");
}

/// The name of standard input and standard output among the files of the arguments.
inline constexpr std::string_view standard_stream = "-";

/// An option that names a file to write, and its path.
using output_option = std::pair<std::string, std::string>;

/// Writes a file with `fill`, whole or not at all, or standard output if the path is "-". Throws `file_failure` if that
/// fails.
template <class Fill>
void write_file(const std::string& path, const Fill& fill) {
  std::ostringstream text;
  if (path == standard_stream)
    fill(std::cout);
  else
    fill(text);
  std::cout.flush();  // before the file, which may be /dev/stdout; the end of the program says if it failed
  if (path != standard_stream) write_whole(path, text.str());
}

/// True if both paths lead to one file of a disk, there or not yet: also through links, hard or symbolic, and "./".
[[nodiscard]] inline bool is_same_file(const std::string& a, const std::string& b) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (const fs::file_status there = fs::status(a, error); fs::exists(there) && !fs::is_regular_file(there))
    return false;
  if (const bool same = fs::equivalent(a, b, error); !error) return same;
  // At most one of them is there. A symbolic link may lead to the place where the other one will be.
  const auto place = [](const fs::path& path) {
    std::error_code ignored;
    return fs::weakly_canonical(fs::absolute(remat::detail::end_of_links(path), ignored), ignored);
  };
  return place(a) == place(b);
}

/// Throws `usage_error` if one of the outputs is the file `input`, which it would overwrite, or if two of them are one
/// file. Outputs without a path are not asked for.
inline void check_outputs(const std::string& input, const std::vector<output_option>& outputs) {
  const bool reads_standard_input = input == standard_stream;
  for (auto output = outputs.begin(); output != outputs.end(); ++output) {
    const auto& [option, path] = *output;
    if (path.empty()) continue;
    const bool is_standard_output = path == standard_stream;
    if (!is_standard_output && !input.empty() && is_same_file(path, reads_standard_input ? "/dev/stdin" : input))
      throw usage_error(option + " " + path + ": is the input " +
                        (reads_standard_input ? "that standard input reads" : input) +
                        ", which would be overwritten; expected the name of another file");
    for (auto other = outputs.begin(); other != output; ++other) {
      if (other->second.empty()) continue;
      if (is_standard_output || other->second == standard_stream) {
        if (path == other->second)
          throw usage_error(other->first + " - and " + option + " -: expected one of them on standard output");
      } else if (is_same_file(path, other->second)) {
        throw usage_error(other->first + " " + other->second + " and " + option + " " + path +
                          ": are one file; expected a file for each");
      }
    }
  }
}

/// A message in one line, whatever the arguments and files that it quotes.
[[nodiscard]] inline std::string message_line(std::string what) {
  std::replace(what.begin(), what.end(), '\n', ' ');
  return remat::printable(what, 4000);
}

/// Prints a line on standard error: the name of the program, and the message, which may quote anything.
inline void note(const std::string& program, const std::string& what) {
  std::cerr << program << ": " << message_line(what) << '\n';
}

/// Passes on what a stream writes, and keeps the system's reason when that fails first, which the stream forgets.
class watched_output : private std::streambuf {
 public:
  explicit watched_output(std::ostream& stream) : stream_(stream), below_(stream.rdbuf(this)) {}
  watched_output(const watched_output&) = delete;
  watched_output& operator=(const watched_output&) = delete;
  ~watched_output() override {
    const std::ios::iostate state = stream_.rdstate();
    stream_.rdbuf(below_);  // clears the state
    stream_.setstate(state);
  }
  /// The error number of the first failure; 0 if there is none, or none is known.
  [[nodiscard]] int error() const noexcept { return error_; }

 private:
  template <class Call>
  auto noting(const Call& call, const auto& is_failure) {
    errno = 0;
    const auto result = call();
    if (is_failure(result) && error_ == 0) error_ = errno;
    return result;
  }
  int_type overflow(int_type c) override {
    if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    return noting([&] { return below_->sputc(traits_type::to_char_type(c)); },
                  [](int_type put) { return traits_type::eq_int_type(put, traits_type::eof()); });
  }
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    return noting([&] { return below_->sputn(text, size); }, [&](std::streamsize put) { return put != size; });
  }
  int sync() override {
    return noting([&] { return below_->pubsync(); }, [](int failed) { return failed != 0; });
  }

  std::ostream& stream_;
  std::streambuf* below_;
  int error_ = 0;
};

/// Runs the program `name`, whose `body` returns its exit status. What is thrown, and output that cannot be written,
/// becomes one line on standard error. Status 2 for unusable arguments and input, 1 for other failures.
template <class Body>
[[nodiscard]] int run_program(const std::string& name, const Body& body) {
  const auto fail = [&](const std::string& what, int status) {
    note(name, what);
    return status;
  };
  const watched_output watched(std::cout);
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond the limit of its size (ulimit -f) fails with a message
  try {
    const int status = body();
    std::cout.flush();
    if (std::cout) return status;
    return fail("standard output: cannot be written" + remat::detail::whole_file::because(watched.error()),
                std::max(status, 1));
  } catch (const usage_error& e) {
    return fail(e.what(), 2);
  } catch (const remat::execution_error& e) {
    return fail(e.what(), 1);
  } catch (const remat::error& e) {
    return fail(e.what(), 2);
  } catch (const std::bad_alloc&) {
    return fail("out of memory", 1);
  } catch (const std::exception& e) {
    return fail(e.what(), 1);
  }
}

}  // namespace shared
