// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/mip/command.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <new>
#include <optional>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/mip/detail/best_values.hpp"
#include "remat/mip/detail/child_process.hpp"
#include "remat/mip/detail/solution_file.hpp"

namespace REMAT_NAMESPACE {

namespace detail::mip_commands {

/// A new directory with the files of one solve, removed with all its files at the end unless it is kept.
class scratch_directory {
 public:
  scratch_directory(const std::string& parent, bool keep) : keep_(keep) {
    std::error_code code;
    const std::filesystem::path base =
        parent.empty() ? std::filesystem::temp_directory_path(code) : std::filesystem::path(parent);
    path_ = (base / "remat-XXXXXX").string();
    model_ = path_ + "/model.mps";
    answer_ = path_ + "/solution.txt";
    exists_ = ::mkdtemp(path_.data()) != nullptr;  // nothing throws from here on: the directory would stay
    std::copy(path_.begin(), path_.end(), model_.begin());
    std::copy(path_.begin(), path_.end(), answer_.begin());
  }
  scratch_directory(const scratch_directory&) = delete;
  scratch_directory& operator=(const scratch_directory&) = delete;
  ~scratch_directory() {
    if (keep_ || !exists_) return;
    try {
      std::error_code code;
      std::filesystem::remove_all(path_, code);
    } catch (...) {  // no memory for a walk through the directory: without it, the known files
      (void)::unlink(model_.c_str());
      (void)::unlink(answer_.c_str());
      (void)::rmdir(path_.c_str());
    }
  }

  /// False if no directory could be made.
  [[nodiscard]] bool exists() const noexcept { return exists_; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] const std::string& model() const noexcept { return model_; }    ///< the path of the model's file
  [[nodiscard]] const std::string& answer() const noexcept { return answer_; }  ///< the path of the solution file

 private:
  std::string path_, model_, answer_;
  bool keep_, exists_ = false;
};

/// Writes a new file. Returns false if it cannot be written.
inline bool write_text(const std::string& path, std::string_view text) {
  const int f = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (f < 0) return false;
  while (!text.empty()) {
    const ssize_t n = ::write(f, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return ::close(f) == 0 && text.empty();
}

/// The whole of a file; nothing if it cannot be read.
inline std::optional<std::string> read_text(const std::string& path) {
  struct open_file {
    int descriptor;
    ~open_file() {
      if (descriptor >= 0) ::close(descriptor);
    }
  } const file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.descriptor < 0) return std::nullopt;
  std::string out;
  char part[1 << 14];
  for (;;) {
    const ssize_t n = ::read(file.descriptor, part, sizeof part);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return out;
    out.append(part, static_cast<std::size_t>(n));
  }
}

/// The text as one word of the shell.
inline std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out += '\'';
}

inline std::string decimal(double x) {
  char text[64];
  const std::to_chars_result end = std::to_chars(text, text + sizeof text, x, std::chars_format::fixed);
  return end.ec == std::errc() ? std::string(text, end.ptr) : std::to_string(x);
}

inline void replace_all(std::string& text, std::string_view word, const std::string& by) {
  for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += by.size())
    text.replace(at, word.size(), by);
}

/// One call of `solve`.
class command_run {
 public:
  command_run(const command_backend& backend, const mip_model& model, const mip_options& options)
      : backend_(backend), model_(model), options_(options), best_(command_backend::name, model, options) {}

  mip_result run() {
    if (!options_.start.empty()) best_.take(options_.start);
    if (best_.clock.should_stop()) return best_.finish(best_.stopped_status());
    if (model_.num_columns() == 0) return best_.without_columns();
    const scratch_directory place(backend_.directory, backend_.keep_files);
    if (!place.exists()) return fail("no directory for the model's file could be made");
    {
      std::ostringstream text;
      write_mps(text, model_);
      if (!text) throw std::bad_alloc();  // a stream catches what its buffer throws: the text is cut off
      if (!write_text(place.model(), std::move(text).str())) return fail(place.model() + " could not be written");
    }
    if (best_.clock.should_stop()) return best_.finish(best_.stopped_status());
    child_process child;
    if (!child.start_command(command_line(place.model(), place.answer()), backend_.memory_limit))
      return fail("no process for the command could be started");
    const bool in_time = listen(child);
    child.kill();
    mip_result out = conclude(place.answer(), in_time, child.ending());
    if (backend_.keep_files) out.message += (out.message.empty() ? "files: " : "; files: ") + place.path();
    return out;
  }

 private:
  mip_result fail(std::string message) {
    best_.result.message = std::move(message);
    return best_.finish(best_.found() ? mip_status::feasible : mip_status::failed);
  }

  [[nodiscard]] std::string command_line(const std::string& mps, const std::string& answer) const {
    double seconds = 10'000'000;
    if (options_.run.has_time_limit())
      seconds = std::min(seconds, 0.95 * std::chrono::duration<double>(best_.clock.left()).count());
    constexpr std::uint64_t max_number = 2147483647;
    std::string line = backend_.command;
    replace_all(line, "{seconds}", decimal(std::max(seconds, 0.01)));
    replace_all(line, "{whole_seconds}", decimal(std::max(std::floor(seconds), 1.0)));
    replace_all(line, "{gap}", decimal(options_.relative_gap));
    replace_all(line, "{nodes}",
                std::to_string(std::min({max_number, options_.max_nodes, options_.run.work_limit / work_of::move})));
    replace_all(line, "{seed}", std::to_string(options_.run.seed % max_number));
    replace_all(line, "{mps}", quoted(mps));
    replace_all(line, "{solution}", quoted(answer));
    return line;
  }

  /// Reads what the command prints until it ends. Returns false if it must be killed before that.
  bool listen(child_process& child) {
    for (bool open = true;;) {
      if (best_.clock.should_stop()) return false;
      if (open)
        open = child.wait(poll_interval(best_.clock));
      else
        std::this_thread::sleep_for(std::min(poll_interval(best_.clock), std::chrono::milliseconds(5)));
      const bool has_exited = child.has_exited();  // asked before the last read
      open = child.read(printed_) && open;
      if (printed_.size() > max_printed) printed_.erase(printed_.begin(), printed_.end() - max_printed);
      if (has_exited) return true;
      best_.report();
    }
  }

  /// The last line that the command has printed, for messages.
  [[nodiscard]] std::string last_words() const {
    std::string text(printed_.begin(), printed_.end());
    text.erase(std::find_if(text.rbegin(), text.rend(), [](char c) { return c > ' '; }).base(), text.end());
    text.erase(0, text.rfind('\n') + 1);  // npos + 1 is 0
    for (char& c : text)
      if (static_cast<unsigned char>(c) < ' ') c = ' ';
    return text.empty() ? text : ": " + text;
  }

  mip_result conclude(const std::string& answer, bool in_time, const std::string& ending) {
    mip_solution_file said;
    std::string wrong;
    try {
      const std::optional<std::string> text = read_text(answer);
      if (!text) throw bad_argument("the command wrote no solution file");
      std::istringstream in(*text);
      said = read_mip_solution(in, model_.num_columns(), "solution file");
    } catch (const bad_argument& e) {
      wrong = e.what();
    }
    const bool meets = !said.values.empty() && best_.take(said.values);
    if (!in_time) return best_.finish(best_.stopped_status());
    if (!wrong.empty() || !ending.empty()) {
      if (wrong.empty()) wrong = "the command failed";
      return fail(wrong + ending + last_words());
    }
    return judge(said.status, meets, !said.values.empty());
  }

  /// Judges what the solver says of its search.
  mip_result judge(mip_status said, bool meets, bool has_values) {
    if (has_values && !meets) best_.result.message = "the command's values do not meet the model";
    switch (said) {
      case mip_status::optimal:
        if (!meets) return best_.finish(best_.stopped_status());
        best_.take_bound(best_.bound_of_optimum());
        return best_.finish(mip_status::optimal);
      case mip_status::infeasible:
        return best_.infeasible("the command");
      case mip_status::unbounded:
        return best_.finish(mip_status::unbounded);
      default:
        return best_.finish(best_.stopped_status());
    }
  }

  const command_backend& backend_;
  const mip_model& model_;
  static constexpr std::ptrdiff_t max_printed = 1000;

  const mip_options& options_;
  best_values best_;
  std::vector<char> printed_;  // the end of it
};

}  // namespace detail::mip_commands

REMAT_INLINE mip_result command_backend::solve(const mip_model& model, const mip_options& options) const {
  for (const char* word : {"{mps}", "{solution}"})
    if (command.find(word) == std::string::npos)
      throw bad_argument("command: \"" + command + "\" has no " + word + "; the command needs {mps} and {solution}");
  if (options.run.has_work_limit() && !options.run.has_time_limit() && command.find("{nodes}") == std::string::npos)
    throw bad_argument("command: \"" + command +
                       "\" has no {nodes}, so a limit of work cannot end it; set a time limit, too");
  return detail::mip_commands::command_run(*this, model, options).run();
}

REMAT_INLINE command_backend cbc_command() {
  return {.command =
              "cbc {mps} -timeMode elapsed -seconds {seconds} -ratioGap {gap} -maxNodes {nodes} "
              "-randomCbcSeed {seed} -solve -solution {solution}"};
}

REMAT_INLINE command_backend glpsol_command() {
  return {.command = "glpsol --freemps {mps} --tmlim {whole_seconds} --mipgap {gap} --write {solution}"};
}

REMAT_INLINE command_backend highs_command(const std::string& python) {
  return {.command = detail::mip_commands::quoted(python) +
                     " -c 'import sys, highspy; a = sys.argv; h = highspy.Highs(); "
                     "h.setOptionValue(\"output_flag\", False); h.setOptionValue(\"threads\", 1); "
                     "h.setOptionValue(\"time_limit\", float(a[3])); h.setOptionValue(\"mip_rel_gap\", float(a[4])); "
                     "h.setOptionValue(\"mip_max_nodes\", int(a[5])); h.setOptionValue(\"random_seed\", int(a[6])); "
                     "h.readModel(a[1]); h.run(); h.writeSolution(a[2], 0)' "
                     "{mps} {solution} {seconds} {gap} {nodes} {seed}"};
}

}  // namespace REMAT_NAMESPACE
