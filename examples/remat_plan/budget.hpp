// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "shared/trimmed.hpp"

namespace remat_plan {

/// A non-negative decimal number, exactly as written.
struct decimal {
  std::string whole{};     ///< digits before the point, without leading zeros
  std::string fraction{};  ///< digits behind it, without trailing zeros
  bool point = false;      ///< whether a point was written

  /// Reads "12", "0.5", ".5", "12.50"; no sign, no exponent.
  [[nodiscard]] static std::optional<decimal> parse(std::string_view text) {
    const auto digits = [](std::string_view s) { return s.find_first_not_of("0123456789") == std::string_view::npos; };
    decimal out;
    const std::size_t point = text.find('.');
    out.point = point != std::string_view::npos;
    const std::string_view whole = text.substr(0, point);
    const std::string_view fraction = out.point ? text.substr(point + 1) : std::string_view{};
    if ((whole.empty() && fraction.empty()) || !digits(whole) || !digits(fraction)) return std::nullopt;
    if (out.point && fraction.empty()) return std::nullopt;
    out.whole = whole.substr(std::min(whole.find_first_not_of('0'), whole.size()));
    out.fraction = fraction.substr(0, fraction.find_last_not_of('0') + 1);
    return out;
  }

  /// This number divided by 100.
  [[nodiscard]] decimal percent() const {
    decimal out;
    const std::string padded = (whole.size() < 2 ? std::string(2 - whole.size(), '0') : std::string()) + whole;
    out.whole = padded.substr(0, padded.size() - 2);
    out.whole.erase(0, std::min(out.whole.find_first_not_of('0'), out.whole.size()));
    out.fraction = padded.substr(padded.size() - 2) + fraction;
    out.fraction.erase(out.fraction.find_last_not_of('0') + 1);
    out.point = true;
    return out;
  }

  [[nodiscard]] bool at_most_one() const { return whole.empty() || (whole == "1" && fraction.empty()); }

  /// ⌊this × `unit`⌋ for `unit` ≥ 0, exact for any number of digits; nothing if the product is over 2^63 − 1.
  [[nodiscard]] std::optional<std::int64_t> times(std::int64_t unit) const {
    __extension__ using wide = unsigned __int128;
    constexpr wide most = static_cast<wide>(std::numeric_limits<std::int64_t>::max());
    const wide u = static_cast<wide>(unit);
    // Horner from the last digit, rounding down every time: ⌊(d·u + x) / 10⌋ = ⌊(d·u + ⌊x⌋) / 10⌋.
    wide part = 0;
    for (std::size_t i = fraction.size(); i-- > 0;) part = (static_cast<wide>(fraction[i] - '0') * u + part) / 10;
    wide count = 0;
    for (const char d : whole) {
      count = count * 10 + static_cast<wide>(d - '0');
      if (count > most) return std::nullopt;
    }
    const wide total = count * u + part;
    if (total > most) return std::nullopt;
    return static_cast<std::int64_t>(total);
  }
};

/// A budget in bytes; or, in `wrong`, the reason why the text is not a budget. `hint` is for the user if the text may
/// mean something else; it may be empty.
struct parsed_budget {
  std::int64_t bytes = 0;
  std::string wrong{}, hint{};
};

/// A number, and what stands behind it; spaces around both are left out.
struct number_with_suffix {
  std::optional<decimal> number{};
  std::string_view suffix{};
  bool is_negative = false;  ///< the text begins with a minus sign

  explicit number_with_suffix(std::string_view text) {
    text = shared::trimmed(text);
    is_negative = !text.empty() && text.front() == '-';
    const std::size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
    number = decimal::parse(text.substr(0, end));
    suffix = shared::trimmed(text.substr(end));
  }
};

/// A unit of bytes.
struct byte_unit {
  std::string_view name{};  ///< in small letters
  std::int64_t bytes = 0;
  std::string_view full{};  ///< the same unit with its B, if `name` lacks it and could be taken for another unit
};

/// `text` as bytes, with a unit or without. The B of a unit may be left out: 8G is 8GB, and 8Gi is 8GiB. `expected`
/// ends the reason why another text is wrong.
[[nodiscard]] inline parsed_budget parse_bytes(std::string_view text,
                                               std::string_view expected = "expected bytes (123456, 12GiB, 12GB)") {
  const auto wrong = [&](const std::string& why) { return parsed_budget{0, (why + "; ").append(expected), {}}; };
  if (text.find(',') != std::string_view::npos) return wrong("has a comma; write a decimal point");
  const auto [number, suffix, is_negative] = number_with_suffix(text);
  if (is_negative) return wrong("is negative");
  if (!number) return wrong(shared::trimmed(text).empty() ? "is empty" : "is not a number");
  constexpr std::array<byte_unit, 18> units{{{"", 1},
                                             {"b", 1},
                                             {"kb", 1000},
                                             {"mb", 1000000},
                                             {"gb", 1000000000},
                                             {"tb", 1000000000000},
                                             {"k", 1000, "kB"},
                                             {"m", 1000000, "MB"},
                                             {"g", 1000000000, "GB"},
                                             {"t", 1000000000000, "TB"},
                                             {"kib", std::int64_t{1} << 10},
                                             {"mib", std::int64_t{1} << 20},
                                             {"gib", std::int64_t{1} << 30},
                                             {"tib", std::int64_t{1} << 40},
                                             {"ki", std::int64_t{1} << 10},
                                             {"mi", std::int64_t{1} << 20},
                                             {"gi", std::int64_t{1} << 30},
                                             {"ti", std::int64_t{1} << 40}}};
  std::string lower(suffix);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  for (const byte_unit& unit : units) {
    if (lower != unit.name) continue;
    const bool is_fraction = suffix.empty() && number->point;
    if (is_fraction || (unit.bytes == 1 && !number->fraction.empty())) return wrong("is not a whole number of bytes");
    const std::optional<std::int64_t> bytes = number->times(unit.bytes);
    if (!bytes) return wrong("is over 2^63 - 1 bytes");
    if (unit.full.empty()) return {*bytes, {}, {}};
    std::string hint = "means " + std::to_string(*bytes) + " bytes: ";
    hint.append(suffix).append(" is ").append(unit.full).append(", powers of 1000; for powers of 1024 write ");
    return {*bytes, {}, hint.append(1, unit.full[0] == 'k' ? 'K' : unit.full[0]).append("iB")};
  }
  return wrong("ends in '" + std::string(suffix) + "', which is not a unit (B, kB, MB, GB, TB, KiB, MiB, GiB, TiB)");
}

/// `text` as bytes. With a decimal point or a percent sign and at most 1, a fraction of `baseline_bytes`, the
/// peak or arena of the baseline, rounded down; otherwise bytes, with a unit or without.
[[nodiscard]] inline parsed_budget parse_budget(std::string_view text, std::int64_t baseline_bytes) {
  constexpr const char* expected = "expected a fraction of the baseline (0.5, 50%) or bytes (123456, 12GiB, 12GB)";
  const auto [number, suffix, is_negative] = number_with_suffix(text);
  if (number && (suffix == "%" || (suffix.empty() && number->point))) {
    const decimal fraction = suffix == "%" ? number->percent() : *number;
    if (fraction.at_most_one()) return {fraction.times(baseline_bytes).value_or(baseline_bytes), {}, {}};
    const std::string why = suffix == "%" ? "is more than 100 %" : "has a decimal point but is more than 1";
    return {0, why + "; " + expected, {}};
  }
  parsed_budget budget = parse_bytes(text, expected);
  constexpr std::int64_t percents = 100;
  const std::int64_t bytes = budget.bytes;
  if (budget.wrong.empty() && suffix.empty() && bytes <= percents)
    budget.hint = "means " + std::to_string(bytes) + (bytes == 1 ? " byte; " : " bytes; ") +
                  "for a part of the baseline write " + std::to_string(bytes == 1 ? percents : bytes) + "% or " +
                  (bytes == 1 ? "1.0" : "a number with a decimal point");
  return budget;
}

}  // namespace remat_plan
