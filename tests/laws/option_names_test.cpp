// SPDX-License-Identifier: BSL-1.0
// Law: `visit_options` of a solver's options visits every scalar field that the solver's header declares, in the
// header's order, so that each can be set from a command line.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "laws/solvers.hpp"

using namespace remat;

namespace {

/// The text of the header `method/NAME.hpp`.
std::string header(const std::string& name) {
  const std::filesystem::path path =
      std::filesystem::path(REMAT_TEST_DATA) / "../../include/remat/method" / (name + ".hpp");
  std::ifstream in(path);
  REQUIRE_MESSAGE(in.good(), path.string());
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// The names of the scalar fields that the header declares in `struct NAME`.
std::vector<std::string> declared(const std::string& text, const std::string& name) {
  const std::size_t begin = text.find("struct " + name + " {");
  REQUIRE(begin != std::string::npos);
  const std::string body = text.substr(begin, text.find("\n};", begin) - begin);
  const std::regex field(
      R"(\n  (bool|double|std::u?int(8|16|32|64)_t|std::size_t|rotor_form|hiremate_partition|hiremate_top|sub_method) (\w+) = )");
  std::vector<std::string> out;
  for (std::sregex_iterator at(body.begin(), body.end(), field), end; at != end; ++at) out.push_back((*at)[3]);
  return out;
}

template <class Options>
void check_names(const std::string& file, const std::string& name) {
  CAPTURE(name);
  std::vector<std::string> visited;
  Options options;
  Options::visit_options(options, [&](const char* option, auto&, const char* text) {
    visited.emplace_back(option);
    CHECK(std::string(text).size() > 3);
    CHECK(std::string(text).find('\n') == std::string::npos);
  });
  CHECK_FALSE(visited.empty());
  CHECK(visited == declared(header(file), name));
}

}  // namespace

TEST_CASE("every scalar option can be reached by its name") {
  check_names<no_remat_options>("no_remat", "no_remat_options");
  check_names<evict_options>("evict", "evict_options");
  check_names<twremat_options>("twremat", "twremat_options");
  check_names<rotor_options>("rotor", "rotor_options");
  check_names<rockmate_options>("rockmate", "rockmate_options");
  check_names<refined_options>("refined", "refined_options");
  check_names<exact_options>("exact", "exact_options");
  check_names<chen_greedy_options>("chen", "chen_greedy_options");
  check_names<revolve_options>("revolve", "revolve_options");
  check_names<checkmate_options>("checkmate", "checkmate_options");
  check_names<hiremate_options>("hiremate_options", "hiremate_options");
  check_names<automatic_options>("automatic", "automatic_options");
  // Without a scalar field, there is nothing to visit.
  CHECK(declared(header("chen"), "chen_sqrt_options").empty());
}

TEST_CASE("the fields can be read and written") {
  rotor_options options;
  options.slots = 77;
  const rotor_options& constant = options;
  std::uint32_t slots = 0;
  rotor_options::visit_options(constant, [&](const std::string& name, const auto& field, const char*) {
    if (name == "slots") slots = static_cast<std::uint32_t>(field);
  });
  CHECK(slots == 77);
  rotor_options::visit_options(options, [](const std::string& name, auto& field, const char*) {
    if (name == "slots") field = std::remove_reference_t<decltype(field)>(5);
  });
  CHECK(options.slots == 5);
}
