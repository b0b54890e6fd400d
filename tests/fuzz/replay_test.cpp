// SPDX-License-Identifier: BSL-1.0
// Each line of tests/data/fuzz/TARGET.txt is an input: first what the fuzzers found wrong and hand-made ones, then few
// that reach every branch which the fuzzers have found. \n, \\ and \xNN stand for bytes.
#include <doctest/doctest.h>

#include <cstddef>
#include <fstream>
#include <string>

#include "fuzz/targets.hpp"

using namespace remat::test;

namespace {

std::string unescaped(const std::string& line) {
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\') {
      out += line[i];
    } else if (line.at(++i) == 'x') {
      out += static_cast<char>(std::stoi(line.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else {
      out += line[i] == 'n' ? '\n' : line[i];
    }
  }
  return out;
}

}  // namespace

TEST_CASE("each input of the corpus is read or refused as promised") {
  for (const fuzz::target& target : fuzz::targets) {
    const std::string path = REMAT_TEST_DATA + ("/fuzz/" + std::string(target.name)) + ".txt";
    CAPTURE(path);
    std::ifstream in(path);
    std::size_t lines = 0, accepted = 0;
    for (std::string line; std::getline(in, line);) {
      ++lines;
      CAPTURE(line);
      fuzz::outcome what{};
      CHECK_NOTHROW(what = target.run(unescaped(line)));
      accepted += what == fuzz::outcome::accepted;
    }
    CHECK(lines >= 10);
    CHECK(accepted > 0);
  }
}
