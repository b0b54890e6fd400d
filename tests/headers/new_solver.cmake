# SPDX-License-Identifier: BSL-1.0
# cmake -DCOMPILER=… -DPROJECT=… -DSCRATCH=… -P new_solver.cmake: a solver that is added to a copy of the library by its
# header, two lines of method/registry.hpp (an include and its row) and its line in the list of public headers keeps the
# rules of the headers, and the list of all solvers has it.
cmake_minimum_required(VERSION 3.25)

file(REMOVE_RECURSE "${SCRATCH}")
file(MAKE_DIRECTORY "${SCRATCH}/include" "${SCRATCH}/docs")
file(COPY "${PROJECT}/include/remat" DESTINATION "${SCRATCH}/include")
file(COPY "${PROJECT}/docs/README.md" "${PROJECT}/docs/CHANGELOG.md" "${PROJECT}/docs/references.bib" DESTINATION "${SCRATCH}/docs")

file(WRITE "${SCRATCH}/include/remat/method/listed.hpp" [=[
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string_view>
#include <tuple>

#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE {

/// Options of `listed`.
struct listed_options {
  run_control run{};  ///< limits, seed, threads, progress

  /// The records of the settings.
  static constexpr auto records() { return std::tuple{}; }
};

/// The listed order, if it fits.
struct listed_solver {
  using options_type = listed_options;                ///< The options of this solver.
  static constexpr std::string_view name = "listed";  ///< The solver's name in tables and progress reports.

  /// Returns the listed order if it is within the budget of `p`.
  [[nodiscard]] solution operator()(const problem& p, const listed_options& options = {}) const {
    run_clock clock(options.run, name);
    solution best;
    settled_by_listed_order(p, best, name);
    conclude(p, best, clock, stop_reason::none);
    return best;
  }
};
/// The solver as a function object: `listed(p, options)`.
inline constexpr listed_solver listed{};

}  // namespace REMAT_NAMESPACE
]=])

# insert(FILE BEFORE LINE): one line before the first place of BEFORE.
set(edits 0)
function(insert file before line)
  file(READ "${SCRATCH}/${file}" text)
  string(FIND "${text}" "${before}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "${file} lacks: ${before}")
  endif()
  string(SUBSTRING "${text}" 0 ${at} head)
  string(SUBSTRING "${text}" ${at} -1 tail)
  file(WRITE "${SCRATCH}/${file}" "${head}${line}\n${tail}")
  math(EXPR edits "${edits} + 1")
  set(edits ${edits} PARENT_SCOPE)
endfunction()
insert(include/remat/method/registry.hpp "#include \"remat/method/no_remat.hpp\"" "#include \"remat/method/listed.hpp\"")
insert(include/remat/method/registry.hpp "      solver_row(chen_sqrt" "      solver_row(listed, {.page = \"listed\"}),")
insert(docs/README.md "| [method/no_remat.hpp]" "| [method/listed.hpp](../include/remat/method/listed.hpp) | `listed`: the listed order |")

foreach(gate layers hygiene umbrella)
  execute_process(COMMAND "${CMAKE_COMMAND}" "-DINCLUDE=${SCRATCH}/include/remat" -Dmost_public=76
    "-DCOMPONENTS=${PROJECT}/.cmake/remat-components.cmake" -P "${CMAKE_CURRENT_LIST_DIR}/${gate}.cmake"
    COMMAND_ERROR_IS_FATAL ANY)
endforeach()

file(WRITE "${SCRATCH}/main.cpp" [=[
#include <iostream>

#include "remat/method/registry.hpp"

int main() {
  remat::for_each_solver(remat::branch_and_bound, [](const auto& row) { std::cout << row.name << ' '; });
}
]=])
execute_process(COMMAND "${COMPILER}" -std=c++20 -DREMAT_SEPARATE_COMPILATION "-I${SCRATCH}/include" "${SCRATCH}/main.cpp"
  -o "${SCRATCH}/program" COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${SCRATCH}/program" OUTPUT_VARIABLE names COMMAND_ERROR_IS_FATAL ANY)
if(NOT names MATCHES "no_remat listed chen_sqrt .* auto ")
  message(FATAL_ERROR "the list of solvers is: ${names}")
endif()
if(edits GREATER 3)
  message(FATAL_ERROR "a new solver takes ${edits} lines in files that are there; 3 are enough")
endif()
message("a new solver is its header and ${edits} lines")
