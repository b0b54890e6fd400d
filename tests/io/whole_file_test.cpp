// SPDX-License-Identifier: BSL-1.0

#include "remat/io/detail/whole_file.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/io/detail/files.hpp"
#include "support/message_of.hpp"
#include "support/scratch_folder.hpp"

namespace {

namespace fs = std::filesystem;
using remat::detail::replace_file;

std::string content(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::size_t files_in(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

/// While an object lives no file may be larger than `most` bytes, as on a full disk.
class small_files {
 public:
  explicit small_files(rlim_t most) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{most, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  small_files(const small_files&) = delete;
  small_files& operator=(const small_files&) = delete;
  ~small_files() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST_CASE("a file is replaced whole, or stays as it was, and the reason is told") {
  const remat::test::scratch_folder folder("remat-whole-file");
  const std::string path = folder.file("f");
  CHECK(replace_file(path, "one").empty());
  CHECK(replace_file(path, "two").empty());
  CHECK(content(path) == "two");
  {
    const small_files full(4096);
    CHECK(replace_file(path, std::string(5000, 'x')) == "File too large");
  }
  CHECK(content(path) == "two");
  CHECK(files_in(folder.path()) == 1);
  CHECK(replace_file(folder.file("none/f"), "x") == "No such file or directory");
  CHECK(replace_file(path + "/f", "x") == "Not a directory");
  CHECK(replace_file(folder.path(), "x") == "Is a directory");
  CHECK(replace_file(folder.file(std::string(300, 'n')), "x") == "File name too long");
  CHECK(replace_file(folder.file(std::string(255, 'n')), "x").empty());
  CHECK(replace_file("/dev/full", "x") == "No space left on device");
}

TEST_CASE("symbolic links are followed; mode and descriptors stay what they are") {
  const remat::test::scratch_folder folder("remat-whole-file");
  const std::string path = folder.file("f"), link = folder.file("link"), loop = folder.file("loop");
  fs::create_symlink("f", link);
  CHECK(replace_file(link, "one").empty());  // the link leads nowhere yet
  chmod(path.c_str(), 0640);
  CHECK(replace_file(link, "two").empty());
  CHECK(fs::is_symlink(link));
  CHECK(content(path) == "two");
  struct stat now {};
  stat(path.c_str(), &now);
  CHECK((now.st_mode & 0777U) == 0640U);
  fs::create_symlink("loop", loop);
  CHECK(replace_file(loop, "x") == "Too many levels of symbolic links");
}

TEST_CASE("pipes, devices and open descriptors are written directly") {
  const remat::test::scratch_folder folder("remat-whole-file");
  CHECK(replace_file("/dev/null", "x").empty());
  CHECK(!fs::is_regular_file("/dev/null"));
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  CHECK(replace_file("/dev/fd/" + std::to_string(ends[1]), "one").empty());
  std::array<char, 8> got{};
  CHECK(read(ends[0], got.data(), got.size()) == 3);
  close(ends[0]);
  close(ends[1]);
  const std::string fifo = folder.file("fifo");
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  std::string heard;
  std::thread reader([&] { heard = content(fifo); });
  CHECK(replace_file(fifo, "two").empty());
  reader.join();
  CHECK(heard == "two");
  CHECK(fs::is_fifo(fifo));
  // A shell that has sent standard output to a file goes on writing behind the text.
  remat::detail::file_descriptor log(folder.file("log"), O_WRONLY | O_CREAT);
  REQUIRE(log.write("before "));
  CHECK(replace_file("/dev/fd/" + std::to_string(log.get()), "text ").empty());
  REQUIRE(log.write("after"));
  CHECK(content(folder.file("log")) == "before text after");
}

TEST_CASE("readers and several writers of one file meet whole files alone") {
  const remat::test::scratch_folder folder("remat-whole-file");
  const std::string path = folder.file("f");
  constexpr std::size_t writers = 3, rounds = 40, length = 20000;
  REQUIRE(replace_file(path, std::string(length, 'a')).empty());
  std::vector<std::string> failed(writers);
  std::vector<std::thread> threads;
  for (std::size_t w = 0; w < writers; ++w)
    threads.emplace_back([&, w] {
      for (std::size_t i = 0; i < rounds; ++i)
        failed[w] += replace_file(path, std::string(length + w, static_cast<char>('a' + w)));
    });
  for (std::size_t i = 0; i < rounds; ++i) {
    const std::string text = content(path);
    REQUIRE(text.size() >= length);
    CHECK(text == std::string(length + static_cast<std::size_t>(text[0] - 'a'), text[0]));
  }
  for (std::thread& t : threads) t.join();
  for (const std::string& why : failed) CHECK(why.empty());
  CHECK(files_in(folder.path()) == 1);
}

TEST_CASE("a user without permission is told so, and a file that is protected stays") {
  if (geteuid() != 0) return;  // a test as root can become another user
  const remat::test::scratch_folder folder("remat-whole-file");
  chmod(folder.path().c_str(), 0777);
  const std::string locked = folder.file("locked"), own = folder.file("own"), open = locked + "/open";
  REQUIRE(replace_file(own, "one").empty());
  fs::create_directory(locked);
  REQUIRE(replace_file(open, "one").empty());
  chmod(open.c_str(), 0666);
  chmod(locked.c_str(), 0755);
  const pid_t child = fork();
  if (child == 0) {
    if (setuid(65534) != 0) _exit(9);
    const bool right = replace_file(locked + "/new", "x") == "Permission denied" &&
                       replace_file(own, "x") == "Permission denied" &&
                       replace_file(open, "x").find("Permission denied: its folder takes no new file") == 0;
    _exit(right ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(content(own) == "one");
  CHECK(content(open) == "one");
}

TEST_CASE("messages about files have the system's reason") {
  const remat::test::scratch_folder folder("remat-whole-file");
  const std::string loop = folder.file("loop"), path = folder.file("f");
  fs::create_symlink("loop", loop);
  const auto write = [&](const std::string& to, const std::string& text) {
    return remat::test::message_of<remat::bad_file>([&] {
      remat::detail::write_text(to, text);
      return 0;
    });
  };
  CHECK(write(path, "one").empty());
  CHECK(write(loop, "x") == loop + ": cannot be written: Too many levels of symbolic links");
  {
    const small_files full(4096);
    CHECK(write(path, std::string(5000, 'x')) == path + ": cannot be written: File too large");
  }
  CHECK(content(path) == "one");
  const auto read = [](const std::string& from) {
    return remat::test::message_of<remat::bad_file>([&] { return remat::detail::open_to_read(from); });
  };
  CHECK(read(loop) == loop + ": cannot be opened for reading: Too many levels of symbolic links");
  CHECK(read(folder.file("none")) == folder.file("none") + ": there is no such file");
  const std::string long_name = folder.file(std::string(300, 'n'));
  CHECK(read(long_name) == long_name + ": cannot be opened for reading: File name too long");
}

}  // namespace
