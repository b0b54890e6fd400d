// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace train {

/// A text, each letter as a number in 0 … vocabulary − 1.
struct text {
  std::vector<std::int32_t> letters{};
  std::int64_t vocabulary = 0;
};

[[nodiscard]] inline text to_numbers(std::string_view from) {
  std::array<std::int32_t, 256> number{};
  for (const char c : from) number[static_cast<unsigned char>(c)] = 1;
  text t;
  for (std::int32_t& n : number)
    if (n != 0) n = static_cast<std::int32_t>(t.vocabulary++);
  for (const char c : from) t.letters.push_back(number[static_cast<unsigned char>(c)]);
  return t;
}

/// Sentences of a small grammar, together at least `letters` letters. Equal seeds give equal texts.
[[nodiscard]] inline text generated_text(std::size_t letters, std::uint64_t seed) {
  constexpr std::array<std::string_view, 6> adjectives{"small", "old", "quiet", "red", "clever", "distant"};
  constexpr std::array<std::string_view, 8> nouns{"cat",    "river",  "teacher", "bird",
                                                  "engine", "garden", "ship",    "child"};
  constexpr std::array<std::string_view, 6> verbs{"sees", "follows", "forgets", "paints", "carries", "answers"};
  constexpr std::array<std::string_view, 4> endings{". ", ", and then ", " again. ", " before night. "};
  std::mt19937_64 engine(seed);
  const auto pick = [&](const auto& words) { return words[engine() % words.size()]; };
  std::string out;
  const auto noun = [&] {
    out += engine() % 2 == 0 ? "the " : "a ";
    if (engine() % 2 == 0) (out += pick(adjectives)) += ' ';
    out += pick(nouns);
  };
  while (out.size() < letters) {
    noun();
    ((out += ' ') += pick(verbs)) += ' ';
    noun();
    out += pick(endings);
  }
  return to_numbers(out);
}

[[nodiscard]] inline text read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file || all.empty()) throw std::runtime_error(path + ": cannot be read, or is empty");
  return to_numbers(all);
}

/// Pieces of `context` letters; the target of each letter is the next one. Equal steps give equal pieces.
/// Precondition: the text has at least context + 2 letters.
inline void load_text(const text& from, std::uint64_t step, std::size_t context, std::span<std::int32_t> tokens,
                      std::span<std::int32_t> targets) {
  std::mt19937_64 engine(step);
  for (std::size_t begin = 0; begin < tokens.size(); begin += context) {
    const std::size_t at = engine() % (from.letters.size() - context - 1);
    for (std::size_t i = 0; i < context; ++i) {
      tokens[begin + i] = from.letters[at + i];
      targets[begin + i] = from.letters[at + i + 1];
    }
  }
}

}  // namespace train
