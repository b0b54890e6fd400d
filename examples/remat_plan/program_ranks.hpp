// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <streambuf>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "input_file.hpp"
#include "remat/core/run.hpp"
#include "remat/render/table.hpp"
#include "shared/usage_error.hpp"

#ifdef REMAT_HAVE_MPI
#include <mpi.h>

#include "remat/distribute/mpi_crew.hpp"
#endif

namespace remat_plan {

/// The ranks that run the program together, if mpirun has started several. Rank 0 reads, prints and writes; the others
/// are silent, and run pieces of its solves. All have the same exit status.
class program_ranks {
 public:
  /// Starts MPI if a launcher of MPI has started the program, unless the variable REMAT_PLAN_RANKS is 0.
  program_ranks([[maybe_unused]] int& argc, [[maybe_unused]] char**& argv) {
#ifdef REMAT_HAVE_MPI
    if (!is_launched()) return;
    int level = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    ranks_.emplace(MPI_COMM_WORLD);
    if (is_first()) return;
    out_ = std::cout.rdbuf(&nowhere_);
    error_ = std::cerr.rdbuf(&nowhere_);
    // A signal is for rank 0, which then stops the pieces of the others.
    std::signal(SIGINT, SIG_IGN);
    std::signal(SIGTERM, SIG_IGN);
    std::signal(SIGHUP, SIG_IGN);
#endif
  }
  program_ranks(const program_ranks&) = delete;
  program_ranks& operator=(const program_ranks&) = delete;
#ifdef REMAT_HAVE_MPI
  ~program_ranks() {
    if (!ranks_) return;
    if (out_ != nullptr) {
      std::cout.rdbuf(out_);
      std::cerr.rdbuf(error_);
    }
    ranks_.reset();
    MPI_Finalize();
  }
#endif

  /// True if there are other ranks.
  [[nodiscard]] bool several() const noexcept { return size() > 1; }
  /// True on rank 0.
  [[nodiscard]] bool is_first() const noexcept {
#ifdef REMAT_HAVE_MPI
    if (ranks_) return ranks_->rank() == 0;
#endif
    return true;
  }
  /// The number of ranks.
  [[nodiscard]] int size() const noexcept {
#ifdef REMAT_HAVE_MPI
    if (ranks_) return ranks_->size();
#endif
    return 1;
  }

  /// The input file `path`, or standard input for "-". Rank 0 reads it, and sends the text.
  [[nodiscard]] input_file read(const std::string& path) const {
    if (!several()) return reading::read_input_file(path);
    std::string text;
    std::exception_ptr failure;
    if (is_first()) {
      try {
        text = reading::input_text(path);
      } catch (...) {
        failure = std::current_exception();
      }
    }
    const std::string sent = share((failure ? "-" : "+") + text);
    if (failure) std::rethrow_exception(failure);
    if (sent.front() == '-') throw shared::usage_error("rank 0 cannot read " + path);
    return reading::read_input_text(std::string_view(sent).substr(1), path);
  }

  /// Calls `prepare()` on every rank. If that throws on one of them, an exception leaves the call on all.
  template <class Prepare>
  void agree(const Prepare& prepare) const {
    if (!several()) return prepare();
    std::exception_ptr failure;
    std::string text = "+";
    try {
      prepare();
    } catch (const std::exception& e) {
      failure = std::current_exception();
      text = std::string("-") + e.what();
    }
    const std::string wrong = first_failure(text);
    if (failure) std::rethrow_exception(failure);
    if (!wrong.empty()) throw std::runtime_error(wrong);
  }

  /// Calls `lead(crew)` on rank 0 and returns its result, while the others run pieces of `kinds`; these return 0. The
  /// crew is null if there are no other ranks.
  template <class Lead>
  [[nodiscard]] int work([[maybe_unused]] std::vector<remat::piece_kind> kinds, const Lead& lead) const {
#ifdef REMAT_HAVE_MPI
    if (several()) {
      remat::mpi_crew crew(*ranks_, std::move(kinds));
      if (is_first()) return lead(&crew);
      crew.serve();
      return 0;
    }
#endif
    return lead(static_cast<remat::crew*>(nullptr));
  }

  /// Returns the exit status of rank 0 on all ranks.
  [[nodiscard]] int finish(int status) const {
    if (!several()) return status;
    return std::stoi(share(std::to_string(status)));
  }

 private:
  class no_buffer final : public std::streambuf {
    int overflow(int c) override { return traits_type::not_eof(c); }
    std::streamsize xsputn(const char*, std::streamsize count) override { return count; }
  };

#ifdef REMAT_HAVE_MPI
  [[nodiscard]] static bool is_launched() {
    const char* const wanted = std::getenv("REMAT_PLAN_RANKS");
    if (wanted != nullptr && std::string_view(wanted) == "0") return false;
    for (const char* const name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"})
      if (std::getenv(name) != nullptr) return true;
    return false;
  }
  [[nodiscard]] static std::vector<std::byte> bytes_of(const std::string& text) {
    const auto* const begin = reinterpret_cast<const std::byte*>(text.data());
    return {begin, begin + text.size()};
  }
  [[nodiscard]] static std::string text_of(const std::vector<std::byte>& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  /// The text of rank 0.
  [[nodiscard]] std::string share(const std::string& text) const {
    std::vector<std::byte> bytes = bytes_of(text);
    ranks_->broadcast(bytes);
    return text_of(bytes);
  }
  /// The text of the least rank that begins with "-", and the rank; empty if none does.
  [[nodiscard]] std::string first_failure(const std::string& text) const {
    std::string wrong;
    const std::vector<std::vector<std::byte>> all = ranks_->gather(bytes_of(text));
    for (std::size_t r = 0; r < all.size() && wrong.empty(); ++r)
      if (text_of(all[r]).front() == '-') wrong = "rank " + std::to_string(r) + ": " + text_of(all[r]).substr(1);
    return share(wrong);
  }

  std::optional<remat::communicator> ranks_{};
  no_buffer nowhere_{};
  std::streambuf *out_ = nullptr, *error_ = nullptr;  // of the program; null on rank 0
#else
  [[nodiscard]] static std::string share(std::string text) { return text; }
  [[nodiscard]] static std::string first_failure(const std::string&) { return {}; }
#endif
};

}  // namespace remat_plan
