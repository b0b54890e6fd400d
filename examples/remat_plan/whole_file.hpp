// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Files that are there whole or not at all, whatever kills the program or fills the disk.

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace remat_plan {

/// A file that cannot be written, or not read though it is there. `what()` names it and the system's reason.
class file_failure : public std::system_error {
 public:
  file_failure(const std::filesystem::path& path, const char* failed, int error)
      : std::system_error(error, std::generic_category(), path.string() + ": " + failed) {}
};

namespace files {

class descriptor {
 public:
  descriptor(const std::filesystem::path& path, int flags) : fd_(open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  ~descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] bool close() {
    const int fd = fd_;
    fd_ = -1;
    return ::close(fd) == 0;
  }

 private:
  int fd_;
};

[[nodiscard]] inline bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace files

/// Replaces the file at `path` by `text`, or throws `file_failure` and leaves what was there. A reader sees the old
/// file or the new one, and after a power cut one of them is there. Only one process at a time may replace a file.
inline void write_whole(const std::filesystem::path& path, std::string_view text) {
  const std::filesystem::path beside = path.parent_path() / ("." + path.filename().string() + ".new");
  const auto fail = [&] {
    const int error = errno;
    unlink(beside.c_str());
    throw file_failure(path, "cannot be written", error);
  };
  {
    files::descriptor file(beside, O_WRONLY | O_CREAT | O_TRUNC);
    if (file.get() < 0 || !files::write_all(file.get(), text) || fsync(file.get()) != 0 || !file.close()) fail();
  }
  if (std::rename(beside.c_str(), path.c_str()) != 0) fail();
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  const files::descriptor directory(folder, O_RDONLY | O_DIRECTORY);
  if (directory.get() >= 0) fsync(directory.get());  // some file systems cannot; the file itself is on the disk
}

/// The content of a file; empty if there is none. Throws `file_failure` if it is there and cannot be read.
[[nodiscard]] inline std::optional<std::string> read_whole(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    if (errno == ENOENT) return std::nullopt;
    throw file_failure(path, "cannot be read", errno);
  }
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (in.bad() || std::filesystem::is_directory(path)) throw file_failure(path, "cannot be read", EIO);
  return text;
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
  files::descriptor file_;
};

}  // namespace remat_plan
