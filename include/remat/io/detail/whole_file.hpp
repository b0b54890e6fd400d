// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#if __has_include(<unistd.h>)  // POSIX
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdio>

#include "remat/core/detail/splitmix64.hpp"
#else
#include <fstream>
#endif

namespace REMAT_NAMESPACE::detail {

namespace whole_file {

namespace fs = std::filesystem;

/// The system's words for an error number: "No space left on device".
[[nodiscard]] inline std::string reason_of(int error) { return std::generic_category().message(error); }

/// ": No space left on device"; empty if no reason is known.
[[nodiscard]] inline std::string because(int error) { return error == 0 ? "" : ": " + reason_of(error); }

}  // namespace whole_file

#if __has_include(<unistd.h>)

/// An open file, closed at the end of the object's life. A negative descriptor: it could not be opened.
class file_descriptor {
 public:
  explicit file_descriptor(int descriptor) noexcept : descriptor_(descriptor) {}
  file_descriptor(const std::filesystem::path& path, int flags)
      : file_descriptor(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  file_descriptor(const file_descriptor&) = delete;
  file_descriptor& operator=(const file_descriptor&) = delete;
  ~file_descriptor() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  [[nodiscard]] int get() const noexcept { return descriptor_; }
  [[nodiscard]] bool is_open() const noexcept { return descriptor_ >= 0; }
  /// Returns false, with the reason in `errno`, if the system has lost what was written.
  [[nodiscard]] bool close() noexcept {
    const int descriptor = descriptor_;
    descriptor_ = -1;
    return ::close(descriptor) == 0;
  }
  [[nodiscard]] bool write(std::string_view text) noexcept {
    while (!text.empty()) {
      const ssize_t written = ::write(descriptor_, text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(written));
    }
    return true;
  }
  /// Waits until the file is on the disk, if the file system can tell.
  [[nodiscard]] bool sync() noexcept {
    return ::fsync(descriptor_) == 0 || errno == EINVAL || errno == ENOSYS || errno == ENOTSUP;
  }

 private:
  int descriptor_;
};

namespace whole_file {

/// The number of the descriptor of this process that a path such as "/proc/self/fd/1" or "/dev/fd/1" stands for; -1 for
/// any other path.
[[nodiscard]] inline int own_descriptor(const fs::path& path) {
  const std::string name = path.filename().string();
  int number = -1;
  const auto read = std::from_chars(name.data(), name.data() + name.size(), number);
  if (read.ec != std::errc{} || read.ptr != name.data() + name.size() || number < 0) return -1;
  std::error_code error;
  const fs::path folder = fs::canonical(path.parent_path(), error);
  if (error) return -1;
  for (const char* const own : {"/proc/self/fd", "/dev/fd"})
    if (folder == fs::canonical(own, error) && !error) return number;
  return -1;
}

/// Makes a file of a name that no file has beside `path`, and returns its name. Empty, with the reason in `errno`, if
/// none can be made.
[[nodiscard]] inline fs::path name_beside(const fs::path& path, int& descriptor) {
  static std::atomic<std::uint64_t> count = 0;
  constexpr int attempts = 100;
  for (int i = 0; i < attempts; ++i) {
    const auto now = static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
    std::uint64_t state = now ^ (static_cast<std::uint64_t>(::getpid()) << 40U) ^ (count++ << 56U);
    fs::path beside = path.parent_path() / (".remat-" + std::to_string(splitmix64(state)));
    descriptor = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0) return beside;
    if (errno != EEXIST) break;
  }
  return {};
}

}  // namespace whole_file

/// The file that symbolic links lead to from `path`, whether or not it is there. Links that name a descriptor of this
/// process, such as /dev/stdout, are followed to "/proc/self/fd/1" and no further.
[[nodiscard]] inline std::filesystem::path end_of_links(std::filesystem::path path) {
  std::error_code error;
  constexpr int most_links = 40;
  for (int i = 0; i < most_links && std::filesystem::is_symlink(path, error); ++i) {
    if (whole_file::own_descriptor(path) >= 0) break;
    path = path.parent_path() / std::filesystem::read_symlink(path, error);
  }
  return path;
}

/// Replaces the file at `path` by `text`. Returns the system's reason if that fails; the old file then stays as it was.
///
/// A reader sees the old file or the new one, also if the disk is full, the process is killed or the power fails. The
/// text goes into a file of another name in the same folder, which then takes the name. Symbolic links are followed,
/// and the new file has the mode of the old one, and its owner if the system allows that. A descriptor of this process
/// (/dev/stdout), a pipe and a device are written directly.
[[nodiscard]] inline std::string replace_file(const std::filesystem::path& path, std::string_view text) {
  namespace parts = whole_file;
  const auto reason = [] { return parts::reason_of(errno); };
  const auto write_directly = [&](file_descriptor file) {
    return file.is_open() && file.write(text) && file.close() ? std::string() : reason();
  };
  const std::filesystem::path target = end_of_links(path);
  if (const int own = parts::own_descriptor(target); own >= 0)
    return write_directly(file_descriptor(::fcntl(own, F_DUPFD_CLOEXEC, 0)));
  struct stat old {};
  const bool exists = ::stat(target.c_str(), &old) == 0;
  if (!exists && errno != ENOENT) return reason();
  if (exists && !S_ISREG(old.st_mode)) return write_directly(file_descriptor(target, O_WRONLY));
  if (exists && ::faccessat(AT_FDCWD, target.c_str(), W_OK, AT_EACCESS) != 0) return reason();

  int descriptor = -1;
  const std::filesystem::path beside = parts::name_beside(target, descriptor);
  if (beside.empty())
    return reason() + (exists ? ": its folder takes no new file, which would replace the old one" : "");
  file_descriptor file(descriptor);
  if (exists) {
    if (old.st_uid != ::geteuid() || old.st_gid != ::getegid()) [[maybe_unused]]
      const int kept = ::fchown(descriptor, old.st_uid, old.st_gid);
    (void)::fchmod(descriptor, old.st_mode & 07777U);
  }
  if (!file.write(text) || !file.sync() || !file.close() || std::rename(beside.c_str(), target.c_str()) != 0) {
    std::string why = reason();
    ::unlink(beside.c_str());
    return why;
  }
  // The name is safe from a power cut when the folder is on the disk. Some file systems cannot tell.
  file_descriptor folder(target.has_parent_path() ? target.parent_path() : ".", O_RDONLY | O_DIRECTORY);
  if (folder.is_open()) (void)folder.sync();
  return {};
}

#else

[[nodiscard]] inline std::filesystem::path end_of_links(std::filesystem::path path) { return path; }

[[nodiscard]] inline std::string replace_file(const std::filesystem::path& path, std::string_view text) {
  const std::filesystem::path beside = path.string() + ".new";
  std::ofstream out(beside, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  std::error_code error;
  if (out) std::filesystem::rename(beside, path, error);
  if (out && !error) return {};
  std::string why = error ? error.message() : whole_file::reason_of(errno);
  std::filesystem::remove(beside, error);
  return why;
}

#endif

}  // namespace REMAT_NAMESPACE::detail
