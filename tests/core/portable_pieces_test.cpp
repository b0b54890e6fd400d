// SPDX-License-Identifier: BSL-1.0
#include "remat/core/detail/portable_pieces.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/detail/byte_stream.hpp"
#include "remat/core/error.hpp"
#include "remat/core/run.hpp"
#include "support/half_elsewhere.hpp"

using namespace remat;

namespace {

/// A text repeated `times` times, with a prefix that all pieces share.
std::string repeated(const std::string& prefix, const std::pair<std::string, std::uint32_t>& question) {
  std::string out = prefix;
  for (std::uint32_t i = 0; i < question.second; ++i) out += question.first;
  return out;
}

piece_kind repeating() {
  return detail::portable_kind<std::pair<std::string, std::uint32_t>>("repeat", [](detail::byte_reader& in) {
    return [prefix = in.get<std::string>()](const auto& question, const run_control&) {
      return repeated(prefix, question);
    };
  });
}

/// Runs ten pieces by `crew`. Answers longer than `most` are refused if they come from elsewhere.
std::vector<std::string> run_ten(crew* crew, std::size_t most) {
  const std::string prefix = "> ";
  const auto question = [](std::size_t i) { return std::pair(std::string("ab"), static_cast<std::uint32_t>(i)); };
  std::vector<std::string> answers(10);
  piece_list pieces;
  pieces.count = answers.size();
  pieces.limits = [](std::size_t, std::size_t) { return run_control{}; };
  pieces.run = [&](std::size_t i, const run_control&) { answers[i] = repeated(prefix, question(i)); };
  detail::let_others_run<std::string>(
      pieces, "repeat", [&](detail::byte_writer& out) { out.put(prefix); }, question,
      [&](std::size_t i, std::string answer) {
        if (answer.size() > most) throw error("too long");
        answers[i] = std::move(answer);
      });
  run_control control;
  control.crew = crew;
  run_pieces(pieces, control);
  return answers;
}

}  // namespace

TEST_CASE("pieces give the same answers here and in another process") {
  test::half_elsewhere others({repeating()});
  const std::vector<std::string> here = run_ten(nullptr, 0);
  CHECK(here[3] == "> ababab");
  CHECK(run_ten(&others, 100) == here);
  CHECK(others.sent["repeat"] > 0);
}

TEST_CASE("the answer of another process may be refused") {
  test::half_elsewhere others({repeating()});
  CHECK_THROWS_WITH_AS(run_ten(&others, 0), "too long", error);
}
