// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace remat_plan {

/// SHA-256 of `text` (FIPS 180-4) in 64 hexadecimal digits, as `sha256sum` prints it. The constants are computed: they
/// are the first 32 bits behind the point of the roots of the first primes.
class sha256 {
 public:
  [[nodiscard]] static std::string of(std::string_view text) {
    static const tables constants;
    std::array<std::uint32_t, 8> hash = constants.start;
    std::string padded(text);
    padded += '\x80';
    padded.append((120 - padded.size() % 64) % 64, '\0');
    const std::uint64_t bits = std::uint64_t{text.size()} * 8;
    for (int shift = 56; shift >= 0; shift -= 8) padded += static_cast<char>(bits >> shift & 0xFFU);
    for (std::size_t at = 0; at < padded.size(); at += 64) add_block(constants, hash, padded.data() + at);

    std::string out;
    for (const std::uint32_t word : hash)
      for (int shift = 28; shift >= 0; shift -= 4) out += "0123456789abcdef"[word >> shift & 0xFU];
    return out;
  }

 private:
  struct tables {
    std::array<std::uint32_t, 8> start{};
    std::array<std::uint32_t, 64> round{};

    tables() {
      std::size_t found = 0;
      for (std::uint64_t n = 2; found < round.size(); ++n) {
        bool prime = true;
        for (std::uint64_t d = 2; d * d <= n && prime; ++d) prime = n % d != 0;
        if (!prime) continue;
        if (found < start.size()) start[found] = fraction_of_root(n, 2);
        round[found++] = fraction_of_root(n, 3);
      }
    }

    /// The first 32 bits behind the point of the root of `n`, by bisection in whole numbers: ⌊(n · 2^(32 k))^(1/k)⌋.
    static std::uint32_t fraction_of_root(std::uint64_t n, unsigned degree) {
      __extension__ using wide = unsigned __int128;
      std::uint64_t low = 0, high = std::uint64_t{1} << 37;  // the root of 311, the last prime, is below 2^5
      while (high - low > 1) {
        const std::uint64_t middle = low + (high - low) / 2;
        wide power = middle;
        for (unsigned k = 1; k < degree; ++k) power *= middle;
        if (power <= wide{n} << (32 * degree))
          low = middle;
        else
          high = middle;
      }
      return static_cast<std::uint32_t>(low);
    }
  };

  static void add_block(const tables& constants, std::array<std::uint32_t, 8>& hash, const char* block) {
    std::array<std::uint32_t, 64> w{};
    for (std::size_t i = 0; i < 64; ++i) w[i / 4] = w[i / 4] << 8 | static_cast<unsigned char>(block[i]);
    for (std::size_t i = 16; i < 64; ++i) {
      const std::uint32_t a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + w[i - 7] +
             (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
    }
    std::array<std::uint32_t, 8> v = hash;
    for (std::size_t i = 0; i < 64; ++i) {
      const std::uint32_t a = v[0], e = v[4];
      const std::uint32_t first = v[7] + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                                  ((e & v[5]) ^ (~e & v[6])) + constants.round[i] + w[i];
      const std::uint32_t second =
          (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
      v = {first + second, v[0], v[1], v[2], v[3] + first, v[4], v[5], v[6]};
    }
    for (std::size_t i = 0; i < 8; ++i) hash[i] += v[i];
  }
};

}  // namespace remat_plan
