// SPDX-License-Identifier: BSL-1.0
// Measures the operations of a training step on the host, plans the step with the measured times for several budgets,
// and compares the predicted times with the clock. Then predicts a batch that was not measured, by a cost model fitted
// to two smaller batches. All times are processor time, which other programs on the machine disturb least. With a link
// to the host, tensors may be copied there: the copies run on threads of their own, and their time is predicted only.
//
//     profile-and-plan [gpt|unet|mlp] [BATCH] [--link out=SPEED,in=SPEED,latency=TIME] [--host-budget BYTES]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <iostream>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/detail/words.hpp"
#include "remat/core/error.hpp"
#include "remat/cost/fitted.hpp"
#include "remat/execute/host.hpp"
#include "remat/execute/launch_plan.hpp"
#include "remat/execute/profile.hpp"
#include "remat/graph/step_builder.hpp"
#include "remat/method/offload.hpp"
#include "remat/problem/problem.hpp"
#include "remat/render/table.hpp"
#include "remat_plan/link.hpp"
#include "shared/program.hpp"
#include "train/gpt.hpp"
#include "train/host_image_backend.hpp"
#include "train/unet.hpp"

namespace {

using train::host_image_backend;
using kernel = host_image_backend::kernel;
using network = train::network<host_image_backend>;

/// Memory of parameters and inputs, aligned to 64 bytes: Eigen's products then give the same bits each time.
class buffer {
 public:
  explicit buffer(std::size_t bytes)
      : bytes_(bytes), data_(static_cast<std::byte*>(::operator new(bytes, alignment))) {}
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {data_.get(), bytes_}; }
  template <class T>
  [[nodiscard]] std::span<T> as() const noexcept {
    return {reinterpret_cast<T*>(data_.get()), bytes_ / sizeof(T)};
  }

 private:
  static constexpr std::align_val_t alignment{64};
  struct free {
    void operator()(std::byte* p) const noexcept { ::operator delete(p, alignment); }
  };
  std::size_t bytes_;
  std::unique_ptr<std::byte, free> data_;
};

/// A training step with its kernels, its parameters and its inputs.
struct model {
  remat::training_graph graph{};
  remat::kernel_table<remat::host_call> kernels{};
  std::vector<buffer> memory{};
  std::vector<remat::tensor_binding> bindings{};
};

model make_model(std::string_view name, std::int64_t batch) {
  network net{std::string(name)};
  remat::tensor_id loss{};
  if (name == "gpt") {
    loss =
        train::make_gpt(net, {.batch = batch, .context = 64, .width = 128, .heads = 4, .layers = 4, .vocabulary = 64})
            .loss;
  } else if (name == "unet") {
    loss = train::make_unet(net, {.batch = batch, .side = 64, .channels = 8, .depth = 3}).loss;
  } else if (name == "mlp") {
    constexpr std::int64_t width = 256, features = 64, layers = 12;
    train::matrix x{net.builder.input("x", batch * features * 4), batch, features};
    const remat::tensor_id targets = net.builder.input("targets", batch * features * 4);
    for (std::int64_t i = 0; i < layers; ++i) {
      x = train::dense(net, "layer" + std::to_string(i) + ".linear", x, i + 1 < layers ? width : features, true, 1.4F);
      if (i + 1 < layers) x = train::gelu(net, "layer" + std::to_string(i) + ".gelu", x);
    }
    loss = train::mean_squared_error(net, "loss", x, targets);
  } else {
    throw remat::bad_argument("there is no model " + std::string(name) + "; there are gpt, unet and mlp");
  }
  const auto step = net.build(loss);
  model m;
  m.graph = step.graph;
  m.kernels = remat::kernel_table<remat::host_call>(step.kernels);
  m.memory.reserve(m.graph.num_tensors());
  const auto values = train::initial_values(net.parameters, 1);
  std::mt19937_64 random(2);
  std::size_t next = 0;
  for (std::size_t t = 0; t < m.graph.num_tensors(); ++t) {
    const auto id = static_cast<remat::tensor_id>(t);
    if (!m.graph.always_resident(id)) continue;
    const buffer& b = m.memory.emplace_back(static_cast<std::size_t>(m.graph.bytes(id)));
    if (next < net.parameters.size() && net.parameters[next].id == id) {
      std::memcpy(b.bytes().data(), values[next].data(), b.bytes().size());
      ++next;
    } else if (name == "gpt") {
      for (std::int32_t& token : b.as<std::int32_t>()) token = static_cast<std::int32_t>(random() % 64);
    } else {
      for (float& x : b.as<float>()) x = static_cast<float>(random() % 2);  // right for masks too
    }
    m.bindings.push_back({id, b.bytes()});
  }
  return m;
}

/// The kind of an operation, by its name: operations that run the same kernel are of one kind. For instance,
/// "block2.qkv backward input" is of the kind "linear backward input".
struct kernel_kind {
  std::string operator()(const remat::training_graph& g, remat::op_id o) const {
    std::string_view name = g.name(o);
    for (const char* own : {"one", "zero", "sum"})  // the builder's
      if (name.substr(0, name.find(' ')) == own) return own;
    if (const auto dot = name.rfind('.'); dot != std::string_view::npos) name.remove_prefix(dot + 1);
    const auto space = std::min(name.find(' '), name.size());
    std::string_view base = name.substr(0, space);
    const std::string_view rest = name.substr(space);
    for (const char* suffix : {"_a", "_b", "1", "2"})
      if (base.size() > 2 && base.substr(base.size() - std::strlen(suffix)) == suffix)
        base.remove_suffix(std::strlen(suffix));
    for (const char* linear : {"qkv", "projection", "expand", "contract"})
      if (base == linear) base = "linear";
    if (base == "head") base = g.name() == "unet" ? "convolution" : "linear";
    return std::string(base) + std::string(rest);
  }
};

/// The processor time of this thread, in seconds.
double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// A `host_executor` of one thread that measures processor time. On an idle machine, `make_planned` or a
/// `host_executor` with `timing` will do: they measure wall clock.
class clocked_executor {
 public:
  struct launch_time {
    std::chrono::duration<double> duration{};
  };
  struct run_report {
    remat::run_status status{};
    double seconds = 0;
    std::span<const launch_time> times{};
  };

  clocked_executor(remat::launch_plan plan, const model& m)
      : executor_(std::move(plan), [this, &m](const remat::host_call& call) { run_one(m, call); }) {
    for (const remat::tensor_binding& b : m.bindings) executor_.bind(b.tensor, b.memory);
  }
  [[nodiscard]] const remat::launch_plan& plan() const { return executor_.plan(); }
  run_report run(std::uint64_t seed, const std::stop_token& stop = {}) {
    times_.assign(plan().size(), {});
    next_ = 0;
    const double begun = processor_seconds();
    const remat::run_status status = executor_.run(seed, stop).status;
    return {status, processor_seconds() - begun, times_};
  }

 private:
  void run_one(const model& m, const remat::host_call& call) {
    const double begun = processor_seconds();
    m.kernels(call);
    while (plan().launches()[next_].is_copy()) ++next_;
    times_[next_++].duration = std::chrono::duration<double>(processor_seconds() - begun);
  }
  std::vector<launch_time> times_;  // of each launch; copies have none
  std::size_t next_ = 0;
  remat::host_executor<kernel> executor_;
};

/// Measures the operations under the listed order.
remat::profile_report profile_listed(const model& m) {
  const remat::problem p(m.graph, remat::unit_cost{});
  const remat::schedule s = remat::listed_order(p);
  clocked_executor e(remat::launch_plan(m.graph, p, s), m);
  return remat::profile(e);
}

std::string number(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}
std::string milliseconds(double seconds) { return number("%.2f ms", seconds * 1e3); }
std::string percent(double part) { return std::isnan(part) ? "-" : number("%.1f %%", part * 100); }
std::string megabytes(std::int64_t bytes) { return number("%.2f MB", static_cast<double>(bytes) * 1e-6); }

constexpr auto right = remat::text_table::align::right;

/// A link to the host, if there is one, and the bytes that copies may take there.
struct host_memory {
  std::optional<remat::host_link> link{};
  std::int64_t budget = remat::problem::unlimited;
};

std::int64_t copied_bytes(const remat::problem& p, const remat::schedule& plan) {
  std::int64_t bytes = 0;
  for (const remat::step s : plan.steps)
    if (s.kind() == remat::step_kind::offload) bytes += p.graph().bytes[index(s.tensor())];
  return bytes;
}

void plan_at_budgets(const model& m, const host_memory& host) {
  const std::int64_t baseline = remat::problem(m.graph, remat::unit_cost{}).graph().baseline_peak;
  const auto solve = [](const remat::problem& p) {  // without a link, by `refined`
    return remat::offload(p, {.run = {.time_limit = std::chrono::seconds(1)}});
  };
  std::vector<remat::text_table::column> columns{{"budget", right}, {"peak", right}, {"arena", right}};
  if (host.link) columns.insert(columns.end(), {{"copied", right}, {"on the host", right}});
  columns.insert(columns.end(), {{"overhead", right}, {"predicted", right}, {"measured", right}, {"off by", right}});
  remat::text_table table(columns);
  std::string why;
  for (const int part : {100, 90, 80, 70, 60, 50, 40}) {
    remat::planning_options options;
    options.budget = baseline * part / 100;
    options.link = host.link;
    options.host_budget = host.budget;
    const auto step = remat::profile_and_plan(
        m.graph, [&](remat::launch_plan plan, bool) { return std::make_unique<clocked_executor>(std::move(plan), m); },
        solve, options);
    if (!step.ready()) {
      table.row({number("%.0f %%", part), "none"});
      why = "none: " + step.message + '\n';
      continue;
    }
    const double measured = remat::profile(*step.executor).step_seconds;
    std::vector<std::string> row{number("%.0f %%", part), megabytes(step.peak_bytes), megabytes(step.arena_bytes)};
    if (host.link) {
      row.push_back(megabytes(copied_bytes(*step.instance, step.plan)));
      row.push_back(megabytes(step.host_arena_bytes));
    }
    row.push_back(percent(step.predicted_seconds / step.baseline_seconds - 1));
    row.push_back(milliseconds(step.predicted_seconds));
    row.push_back(milliseconds(measured));
    row.push_back(percent(step.predicted_seconds / measured - 1));
    table.row(row);
  }
  table.write(std::cout);
  std::cout << why;
}

void predict_batch(std::string_view name, std::int64_t batch) {
  std::vector<remat::cost_sample> samples;
  for (const std::int64_t b : {batch / 4, batch / 2}) {
    const model m = make_model(name, b);
    const auto times = profile_listed(m).times;
    const auto more = remat::cost_samples(m.graph, times.seconds, kernel_kind{});
    samples.insert(samples.end(), more.begin(), more.end());
  }
  const auto fit = remat::fit_cost(std::span<const remat::cost_sample>(samples), {}, kernel_kind{});
  const model m = make_model(name, batch);
  const remat::profile_report measured = profile_listed(m);

  remat::text_table table({{"kind"},
                           {"terms from"},
                           {"samples", right},
                           {"sizes", right},
                           {"mean error", right},
                           {"held out", right},
                           {"share", right},
                           {"off by", right}});
  const remat::problem predicted(m.graph, fit), clocked(m.graph, measured.times);
  std::vector<double> errors;
  for (const remat::kind_fit& f : fit.kinds()) {
    double p = 0, c = 0;
    for (std::size_t o = 0; o < m.graph.num_operations(); ++o) {
      if (kernel_kind{}(m.graph, static_cast<remat::op_id>(o)) != f.kind) continue;
      p += predicted.graph().time[o];
      c += clocked.graph().time[o];
      errors.push_back(std::abs(predicted.graph().time[o] / clocked.graph().time[o] - 1));
    }
    table.row({f.kind, std::string(to_string(f.source)), std::to_string(f.samples), std::to_string(f.sizes),
               percent(f.mean_relative_error), percent(f.held_out_error), percent(c / clocked.graph().baseline_time),
               percent(p / c - 1)});
  }
  table.write(std::cout);
  std::cout << "\nstep: predicted " << milliseconds(predicted.graph().baseline_time) << ", measured "
            << milliseconds(measured.step_seconds) << " ("
            << percent(predicted.graph().baseline_time / measured.step_seconds - 1) << "); an operation is off by "
            << percent(remat::summarize(errors, remat::time_statistic::median)) << " in the median\n";
}

}  // namespace

int main(int argc, char** argv) {
  return shared::run_program("profile-and-plan", [&] {
    shared::command_line app("Measures the operations of a training step on the host, and plans with these times.",
                             "profile-and-plan");
    std::string name = "gpt";
    std::int64_t batch = 0;
    host_memory host;
    app.add_option("model", name, "gpt (the default), unet or mlp");
    shared::add_number(app, "batch", batch, "Samples of the training step, at least 4", std::int64_t{4},
                       std::int64_t{1} << 20);
    app.add_option_function<std::string>(
           "--link", [&](const std::string& text) { host.link = remat_plan::reading::read_link("--link", text); },
           "Allow copies to the host, in bytes per second: out=25e9,in=25e9,latency=1e-5")
        ->type_name("SPEC");
    app.add_option_function<std::string>(
           "--host-budget",
           [&](const std::string& text) { host.budget = remat_plan::reading::read_host_budget("--host-budget", text); },
           "The most bytes of copies on the host")
        ->type_name("BYTES");
    if (!app.read(argc, argv)) return 0;
    remat_plan::reading::require_link_for_host_budget(host.link.has_value(), host.budget != remat::problem::unlimited);
    if (batch == 0) batch = name == "mlp" ? 1024 : 8;
    {
      const model m = make_model(name, batch);
      const remat::profile_report r = profile_listed(m);
      std::cout << name << ", batch " << batch << ": " << remat::detail::count_of(m.graph.num_operations(), "operation")
                << ", a step takes " << milliseconds(r.step_seconds) << ", of it outside of kernels "
                << milliseconds(r.outside_seconds) << "\n\nplanned with measured times:\n\n";
      plan_at_budgets(m, host);
    }
    std::cout << "\nbatch " << batch << " as predicted from batches " << batch / 4 << " and " << batch / 2 << ":\n\n";
    predict_batch(name, batch);
    return 0;
  });
}
