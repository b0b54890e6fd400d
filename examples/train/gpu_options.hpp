// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// The command line of train-gpt-gpu. It needs no CUDA, so that it is tested everywhere.

#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "remat/problem/problem.hpp"
#include "remat/render/table.hpp"
#include "remat_plan/budget.hpp"
#include "remat_plan/link.hpp"
#include "train/gpt.hpp"

namespace train::gpu {

/// Who computes matrix products: cuBLAS if it is found, cuBLAS or nobody, the example's own kernel.
enum class matmul : std::uint8_t { any, cublas, own };

/// The numbers of the step: single precision; the same with products and attention in TF32; bfloat16 in all tensors but
/// statistics and the loss, with parameters in single precision beside the step.
enum class precision : std::uint8_t { single, tf32, bf16 };
[[nodiscard]] constexpr const char* name_of(precision p) {
  return p == precision::single ? "single" : p == precision::tf32 ? "tf32" : "bf16";
}

inline constexpr const char* usage = R"(Trains a GPT on a CUDA device, with and without rematerialization.
  --layers N --width N --heads N --context N --batch N --vocabulary N   the network
  --dropout X        rate (0.1)
  --budget X,Y,…     of the arena: parts of the baseline's (0.5, 50%) or bytes (123456, 2GiB) (0.8,0.6,0.4)
  --solver NAME      evict, refined or offload (refined; offload with a link)
  --link LIST        let schedules copy tensors to the host at these speeds: out=SPEED,in=SPEED,latency=TIME in bytes
                     and seconds, or measure: the program measures them first
  --host-budget X    bytes of those copies (unlimited)
  --seconds X        for each solve (5)
  --steps N          of training, at least 3 (20); the times of the first fifth do not count
  --streams N        that the operations of a step run on (1)
  --graph            capture the step and replay it, in every run but the one that measures the operations
  --matmul NAME      matrix products: cublas, own, or any: cuBLAS if it is found (any)
  --workspace N      KiB that cuBLAS is given in each product, part of the arena (0: what NVIDIA recommends, 32 MiB
                     from compute capability 9.0 on, 4 MiB before)
  --precision NAME   single; tf32: products and attention of single precision in TF32, those of --matmul own excepted;
                     or bf16: all tensors but statistics and the loss in bfloat16, Adam in single precision (tf32)
  --no-baseline      leave out the run without rematerialization (if it does not fit); nothing is compared then
  --csv FILE         append a line for each run, below a header if the file is new
  --times FILE       write when each launch of each plan began and ended, beside the simulated times
)";

struct options {
  gpt_sizes sizes{8, 512, 768, 12, 12, 0, 0.1F};
  std::vector<std::string> budgets{"0.8", "0.6", "0.4"};
  std::string solver, csv, times;  // no solver: see `solver_of`
  double seconds = 5;
  std::size_t steps = 20;
  std::uint32_t streams = 1;
  std::int64_t workspace = 0;  // KiB; 0: recommended_workspace
  matmul products = matmul::any;
  precision numbers = precision::tf32;
  bool graph = false, baseline = true, help = false;
  bool measure_link = false;             // `link` is what the program measures
  std::optional<remat::host_link> link;  // in bytes per second
  std::int64_t host_budget = remat::problem::unlimited;
};

/// The solver's name: `refined`, or `offload` if schedules may copy, unless the user chose one.
[[nodiscard]] inline std::string solver_of(const options& o) {
  if (!o.solver.empty()) return o.solver;
  return o.link || o.measure_link ? "offload" : "refined";
}

/// The KiB of workspace that the documentation of cuBLAS recommends for devices of this compute capability.
[[nodiscard]] inline std::int64_t recommended_workspace(int major) { return major >= 9 ? 32 * 1024 : 4 * 1024; }

/// A number in [least, most]. Throws `std::invalid_argument` that names the option.
[[nodiscard]] inline double number_in(std::string_view name, const std::string& text, double least, double most) {
  std::size_t used = 0;
  double x = 0;
  try {
    x = std::stod(text, &used);
  } catch (const std::exception&) {
  }
  if (used != text.size() || used == 0 || !(x >= least && x <= most))
    throw std::invalid_argument(std::string(name) + " is " + text + "; it must be a number from " +
                                remat::format_number(least) + " to " + remat::format_number(most));
  return x;
}
[[nodiscard]] inline std::int64_t whole_in(std::string_view name, const std::string& text, double least, double most) {
  const double x = number_in(name, text, least, most);
  if (x != static_cast<double>(static_cast<std::int64_t>(x)))
    throw std::invalid_argument(std::string(name) + " is " + text + "; it must be a whole number");
  return static_cast<std::int64_t>(x);
}

/// The bytes of a budget. Throws `std::invalid_argument` if the text is none.
[[nodiscard]] inline std::int64_t budget_bytes(const std::string& text, std::int64_t baseline_arena) {
  const remat_plan::parsed_budget b = remat_plan::parse_budget(text, baseline_arena);
  if (!b.wrong.empty()) throw std::invalid_argument("--budget " + text + " " + b.wrong);
  return b.bytes;
}

/// The budgets of a list with commas; each must be one for some baseline.
[[nodiscard]] inline std::vector<std::string> budgets_of(const std::string& list) {
  std::vector<std::string> out;
  std::size_t begin = 0;
  for (std::size_t end = 0; end != std::string::npos; begin = end + 1) {
    end = list.find(',', begin);
    out.push_back(list.substr(begin, end == std::string::npos ? end : end - begin));
    static_cast<void>(budget_bytes(out.back(), std::numeric_limits<std::int64_t>::max()));
  }
  return out;
}

/// Sets the option `name`, which takes a value. Throws `std::invalid_argument` if the name or the value is wrong.
inline void set_option(options& o, std::string_view name, const std::string& value) {
  const auto whole = [&](double least, double most = 1e6) { return whole_in(name, value, least, most); };
  if (name == "--layers")
    o.sizes.layers = whole(1);
  else if (name == "--width")
    o.sizes.width = whole(1);
  else if (name == "--heads")
    o.sizes.heads = whole(1);
  else if (name == "--context")
    o.sizes.context = whole(1);
  else if (name == "--batch")
    o.sizes.batch = whole(1);
  else if (name == "--vocabulary")
    o.sizes.vocabulary = whole(0);
  else if (name == "--dropout")
    o.sizes.dropout = static_cast<float>(number_in(name, value, 0, 0.9));
  else if (name == "--seconds")
    o.seconds = number_in(name, value, 0, 1e6);
  else if (name == "--steps")
    o.steps = static_cast<std::size_t>(whole(3));
  else if (name == "--workspace")
    o.workspace = whole(0);
  else if (name == "--streams")
    o.streams = static_cast<std::uint32_t>(whole(1, 64));
  else if (name == "--solver" && (value == "evict" || value == "refined" || value == "offload"))
    o.solver = value;
  else if (name == "--link" && value == "measure")
    o.measure_link = true;
  else if (name == "--link")
    o.link = remat_plan::reading::read_link("--link", value);
  else if (name == "--host-budget")
    o.host_budget = remat_plan::reading::read_host_budget("--host-budget", value);
  else if (name == "--matmul" && (value == "any" || value == "cublas" || value == "own"))
    o.products = value == "any" ? matmul::any : value == "cublas" ? matmul::cublas : matmul::own;
  else if (name == "--precision" && (value == "single" || value == "tf32" || value == "bf16"))
    o.numbers = value == "single" ? precision::single : value == "tf32" ? precision::tf32 : precision::bf16;
  else if (name == "--csv")
    o.csv = value;
  else if (name == "--times")
    o.times = value;
  else if (name == "--budget")
    o.budgets = budgets_of(value);
  else
    throw std::invalid_argument(std::string(name) + " " + value + " is no option; see --help");
}

/// Reads the arguments behind the program's name. Throws `std::invalid_argument` with one line about the first mistake.
[[nodiscard]] inline options parse(std::span<const char* const> arguments) {
  options o;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view name = arguments[i];
    if (name == "--help")
      o.help = true;
    else if (name == "--graph")
      o.graph = true;
    else if (name == "--no-baseline")
      o.baseline = false;
    else if (++i == arguments.size())
      throw std::invalid_argument(std::string(name) + " needs a value; see --help");
    else
      set_option(o, name, arguments[i]);
  }
  if (o.sizes.width % o.sizes.heads != 0) throw std::invalid_argument("--width must be a multiple of --heads");
  const bool copies = o.link || o.measure_link;
  remat_plan::reading::require_link_for_host_budget(copies, o.host_budget != remat::problem::unlimited);
  if (o.solver == "offload" && !copies)
    throw std::invalid_argument("--solver offload needs a --link; for instance --link measure");
  if (copies && o.streams != 1)
    throw std::invalid_argument("--streams must be 1 beside a --link: copies run on streams of their own");
  return o;
}

}  // namespace train::gpu
