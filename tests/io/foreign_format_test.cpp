// SPDX-License-Identifier: BSL-1.0
#include "remat/io/detail/foreign_format.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/io/hlo_text.hpp"
#include "remat/io/json.hpp"
#include "remat/io/text.hpp"
#include "support/message_of.hpp"

namespace {

using namespace std::string_view_literals;

}  // namespace

TEST_CASE("every reader names what a file is, if it is no text") {
  const std::vector<std::pair<std::string_view, std::string_view>> cases{
      {"\x1F\x8B\x08\0"sv, "is compressed by gzip; expected its content (gunzip)"},
      {"PK\x03\x04\0\0"sv, "is a zip archive, as PyTorch writes .pt and .pt2; expected text"},
      {"\x80\x02}q\0"sv, "is a Python pickle; expected text"},
      {"\xFF\xFE{\0"sv, "is text in UTF-16; expected UTF-8"},
      {"{\0\"\0"sv, "is text in UTF-16; expected UTF-8"},
      {"\0{\0\""sv, "is text in UTF-16; expected UTF-8"},
      {"\n\xC5\x01\n\x08jit_step"sv,
       "is a protocol buffer, as XLA's .hlo.pb; expected the module's text (--xla_dump_hlo_as_text)"},
      {"\n\x08jit_step\x12"sv,
       "is a protocol buffer, as XLA's .hlo.pb; expected the module's text (--xla_dump_hlo_as_text)"}};
  for (const auto& one : cases) {
    const std::string_view text = one.first, says = one.second;
    CAPTURE(says);
    const std::string expected = "f: " + std::string(says);
    CHECK(remat::test::message_of<remat::bad_file>([&] { return remat::json_document(text, "f"); }) == expected);
    CHECK(remat::test::message_of<remat::bad_file>([&] { return remat::parse_hlo(text, "f"); }) == expected);
    CHECK(remat::test::message_of<remat::bad_file>([&] { return remat::parse_intervals(text, "f"); }) == expected);
  }
  for (const std::string_view text :
       {""sv, "\n"sv, "\n{}"sv, "\n\n{}"sv, "\n\t{}"sv, "{}"sv, "HloModule m"sv, "id,lower"sv})
    CHECK(remat::detail::foreign_format(text).empty());
}

TEST_CASE("a byte order mark is no part of a text") {
  CHECK(remat::json_document("\xEF\xBB\xBF{}", "f").root().size() == 0);
  CHECK(remat::is_hlo_text("\xEF\xBB\xBFHloModule m"));
  const std::string module = "HloModule m\nENTRY e {\n  ROOT p = f32[2] parameter(0)\n}\n";
  CHECK(remat::parse_hlo("\xEF\xBB\xBF" + module, "f").graph.num_tensors() ==
        remat::parse_hlo(module, "f").graph.num_tensors());
}
