// SPDX-License-Identifier: BSL-1.0
// Law: every scalar field of a solver's options has one record, in the order of the fields; the values of all presets
// are in range; docs/options.md says what the records say. `REMAT_WRITE_PAGES=1` writes the page anew.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "laws/solvers.hpp"
#include "remat/core/option.hpp"
#include "remat/method/registry.hpp"
#include "remat/mip/branch_and_bound.hpp"

using namespace remat;

namespace {

const std::filesystem::path root = std::filesystem::path(REMAT_TEST_DATA) / "../..";

std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path);
  REQUIRE_MESSAGE(in.good(), path.string());
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// True if the header `method/FILE.hpp` declares `struct NAME`.
bool has_struct(const std::string& file, const std::string& name) {
  return text_of(root / "include/remat/method" / (file + ".hpp")).find("struct " + name + " {") != std::string::npos;
}

/// The names of the scalar fields that the header `method/FILE.hpp` declares in `struct NAME`.
std::vector<std::string> declared(const std::string& file, const std::string& name) {
  const std::string text = text_of(root / "include/remat/method" / (file + ".hpp"));
  const std::size_t begin = text.find("struct " + name + " {");
  REQUIRE(begin != std::string::npos);
  const std::string body = text.substr(begin, text.find("\n};", begin) - begin);
  const std::regex field(
      R"(\n  (bool|double|std::u?int(8|16|32|64)_t|std::size_t|std::optional<std::uint32_t>|rotor_form|hiremate_partition|hiremate_top|sub_method) (\w+)( = |\{\};))");
  std::vector<std::string> out;
  for (std::sregex_iterator at(body.begin(), body.end(), field), end; at != end; ++at) out.push_back((*at)[3]);
  return out;
}

/// The page of all options, as the records have them.
class page {
 public:
  page() {
    text_
        << "<!-- Written by tests/laws/option_records_test.cpp from the records of the options. -->\n"
           "# Options of the solvers\n\n"
           "Each solver takes a struct of options. The fields below are its settings; `run` and the fields that are "
           "no\n"
           "numbers stand in the header. `remat-plan` sets them by `--option SOLVER.NAME=VALUE`, and lists them by\n"
           "`--list-options`. A value out of its range is refused with `bad_argument`.\n\n"
           "Presets are sets of values: `preset_options<rotor_options>(preset::fast)` in code, `--preset fast` on the\n"
           "command line. `balanced` is the default. `fast` takes less effort, for a first answer. `paper` has each\n"
           "named method as its paper has it. An empty cell means the default.\n";
  }

  template <class Options>
  void add(const std::string& solver, const std::string& file, const std::string& name) {
    CAPTURE(name);
    std::vector<std::string> recorded;
    text_ << "\n## " << solver << "\n\n`" << name << "` in [`remat/method/" << file << ".hpp`](../include/remat/method/"
          << file << ".hpp)\n\n| option | default | fast | paper | values | meaning |\n|---|---|---|---|---|---|\n";
    for (const option_description& o : describe_options<Options>()) {
      recorded.push_back(o.name);
      // A sentence that can be read without the option's name.
      CHECK(o.text.size() > 3);
      CHECK((o.text.front() >= 'A' && o.text.front() <= 'Z'));
      CHECK(o.text.back() == '.');
      CHECK(o.text.find('\n') == std::string::npos);
      const auto other = [&](const std::string& value) { return value == o.balanced ? "" : value; };
      text_ << "| `" << o.name << "` | " << o.balanced << " | " << other(o.fast) << " | " << other(o.paper) << " | "
            << o.range << " | " << o.text << " |\n";
    }
    CHECK_FALSE(recorded.empty());
    CHECK(recorded == declared(file, name));
    for (const auto& [values, preset_name] : enum_names<preset>::all) {
      CAPTURE(preset_name);
      CHECK_NOTHROW(require_valid_options(solver, preset_options<Options>(values)));
    }
  }

  [[nodiscard]] std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
};

}  // namespace

TEST_CASE("every scalar option has a record, and the page of options is that of the records") {
  page p;
  for_each_solver(branch_and_bound, [&]<class Row>(const Row& row) {
    using options = typename Row::options_type;
    const std::string header(row.traits.page), solver(row.name);
    const std::string name = (has_struct(header, solver + "_options") ? solver : header) + "_options";
    if (describe_options<options>().empty())  // no settings, and so no records
      CHECK(declared(header, name).empty());
    else
      p.add<options>(solver, header, name);
  });

  const std::filesystem::path file = root / "docs/options.md";
  if (std::getenv("REMAT_WRITE_PAGES") != nullptr) std::ofstream(file) << p.text();
  CHECK_MESSAGE(text_of(file) == p.text(), "docs/options.md is out of date: run this test with REMAT_WRITE_PAGES=1");
}
