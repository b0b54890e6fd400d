// SPDX-License-Identifier: BSL-1.0
#include "remat/mip/detail/child_process.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using remat::detail::child_output;
using remat::detail::child_process;

void write_text(const child_output& out, std::string_view text) { out.write(text.data(), text.size()); }

/// Everything that the child writes.
std::string read_all(child_process& child) {
  std::vector<char> bytes;
  while (child.wait(std::chrono::milliseconds(1000)) && child.read(bytes)) {
  }
  (void)child.read(bytes);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

TEST_CASE("the parent reads what the child writes, however long") {
  child_process child;
  REQUIRE(child.start(
      [](const child_output& out) {
        for (int i = 0; i < 1000; ++i) write_text(out, std::string(300, static_cast<char>('a' + i % 26)));
      },
      0));
  const std::string text = read_all(child);
  CHECK(text.size() == 300'000);
  CHECK(text.substr(299, 2) == "ab");
  child.kill();
  CHECK(child.has_exited());
  CHECK(child.ending().empty());
}

TEST_CASE("how a child ends: exceptions, exit and signals") {
  const struct {
    void (*body)(const child_output&);
    const char* ending;
  } rows[] = {{[](const child_output&) { throw std::runtime_error("no"); }, " (exit status 1)"},
              {[](const child_output&) { std::exit(0); }, " (exit status 3)"},
              {[](const child_output&) { std::abort(); }, " (signal 6)"}};
  for (const auto& row : rows) {
    child_process child;
    REQUIRE(child.start(row.body, 0));
    CHECK(read_all(child).empty());
    for (int i = 0; i < 1000 && !child.has_exited(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(child.ending() == row.ending);
  }
}

TEST_CASE("a child that never ends is killed at once") {
  child_process child;
  REQUIRE(child.start(
      [](const child_output& out) {
        write_text(out, "x");
        for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
      },
      0));
  std::vector<char> bytes;
  CHECK(child.wait(std::chrono::milliseconds(1000)));
  CHECK(child.read(bytes));
  const auto start = std::chrono::steady_clock::now();
  child.kill();
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::milliseconds(500));
  CHECK(child.ending() == " (signal 9)");
}

TEST_CASE("a command of the shell: its output, its exit status") {
  child_process child;
  REQUIRE(child.start_command("echo out; echo err >&2; exit 3", 0));
  CHECK(read_all(child) == "out\nerr\n");
  for (int i = 0; i < 1000 && !child.has_exited(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(child.ending() == " (exit status 3)");
}

TEST_CASE("a command ends with all of its processes, whether it is killed or has left some behind") {
  for (const char* command : {"sleep 1000 | sleep 1000", "sleep 1000 & sleep 1000 & wait", "sleep 1000 & exit 0"}) {
    CAPTURE(command);
    child_process child;
    REQUIRE(child.start_command(command, 0));
    if (std::string_view(command).ends_with("exit 0"))
      for (int i = 0; i < 5000 && !child.has_exited(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    child.kill();
    // The pipe closes when the last process that could write to it has ended.
    CHECK(read_all(child).empty());
    std::vector<char> bytes;
    bool open = true;
    for (int i = 0; i < 5000 && open; ++i) {
      open = child.read(bytes);
      if (open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    CHECK_FALSE(open);
  }
}
