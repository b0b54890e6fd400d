// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Files that are there whole or not at all, whatever kills the program or fills the disk.

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "remat/core/error.hpp"
#include "remat/io/detail/whole_file.hpp"

namespace shared {

/// A file that cannot be written, or not read though it is there. `what()` names it and the system's reason.
class file_failure : public std::runtime_error {
 public:
  file_failure(const std::filesystem::path& path, const std::string& failed, const std::string& reason)
      : std::runtime_error(remat::printable(path.string(), 4096) + ": " + failed + ": " + reason) {}
};

/// Replaces the file at `path` by `text` (`remat::detail::replace_file`), or throws `file_failure` and leaves what was
/// there.
inline void write_whole(const std::filesystem::path& path, std::string_view text) {
  if (const std::string why = remat::detail::replace_file(path, text); !why.empty())
    throw file_failure(path, "cannot be written", why);
}

/// The content of a file; empty if there is none. Throws `file_failure` if it is there and cannot be read.
[[nodiscard]] inline std::optional<std::string> read_whole(const std::filesystem::path& path) {
  const auto fail = [&](int error) {
    throw file_failure(path, "cannot be read", remat::detail::whole_file::reason_of(error));
  };
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    if (errno == ENOENT) return std::nullopt;
    fail(errno);
  }
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) fail(EISDIR);
  std::ostringstream text;  // whose operator, unlike an iterator over the buffer, passes on no exception of it
  if (in.peek() != std::ifstream::traits_type::eof()) text << in.rdbuf();
  if (in.bad() || text.bad()) fail(errno == 0 ? EIO : errno);
  return std::move(text).str();
}

/// Holds the lock of the file at `path` against other processes, by a file of its own that stays. The system gives it
/// back when the process ends, however it ends. A file system without locks gives none, and the program goes on.
class file_lock {
 public:
  explicit file_lock(const std::filesystem::path& path)
      : file_(path.parent_path() / ("." + path.filename().string() + ".lock"), O_RDWR | O_CREAT) {}

  /// True if no other process holds the lock: it is ours now.
  [[nodiscard]] bool take_if_free() const { return flock(file_.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK; }
  /// Waits until it is ours.
  void take() const {
    while (flock(file_.get(), LOCK_EX) != 0 && errno == EINTR) {
    }
  }

 private:
  remat::detail::file_descriptor file_;
};

}  // namespace shared
