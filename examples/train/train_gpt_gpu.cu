// SPDX-License-Identifier: BSL-1.0
// Trains a GPT on a CUDA device, with and without rematerialization, and compares the runs bit for bit.
#include <cuda_runtime.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "measure_link/cuda_copies.cuh"
#include "measure_link/link_measurement.hpp"
#include "remat/cost/models.hpp"
#include "remat/execute/cuda.cuh"
#include "remat/execute/cuda_profile.cuh"
#include "remat/execute/fit_arena.hpp"
#include "remat/execute/launch_plan.hpp"
#include "remat/memory/plan.hpp"
#include "remat/method/no_remat.hpp"
#include "remat/method/offload.hpp"
#include "remat/method/refined.hpp"
#include "remat/method/registry.hpp"
#include "remat/problem/problem.hpp"
#include "remat/render/table.hpp"
#include "remat/schedule/lifetime.hpp"
#include "shared/cuda_device.cuh"
#include "shared/whole_file.hpp"
#include "train/cuda_backend.cuh"
#include "train/elements.cuh"
#include "train/gpt.hpp"
#include "train/gpu_options.hpp"
#include "train/keep_busy.cuh"
#include "train/products.cuh"
#include "train/step_times.hpp"
#include "train/text.hpp"

namespace {

using namespace remat;

using train::gpu::options;

// ---- parameters and Adam, outside of the step ----

/// Writes the initial values, and their nearest elements to `bound` if that is another array.
template <class T>
__global__ void start(float* values, T* bound, std::size_t n, std::uint64_t seed, float mean, float deviation) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride) {
    const std::uint64_t bits = cuda_kernel_seed(seed + i, op_id{0});
    const float u = (static_cast<float>(bits >> 40) + 0.5F) * 0x1p-24F,
                v = static_cast<float>(bits & 0xffffff) * 0x1p-24F;
    values[i] = mean + deviation * sqrtf(-2 * logf(u)) * cosf(6.2831853F * v);
    if constexpr (!std::is_same_v<T, float>) bound[i] = train::gpu::to_element<T>(values[i]);
  }
}

/// `bound`: as for `start`.
template <class T>
__global__ void adam(float* values, T* bound, float* first, float* second, const T* gradient, std::size_t n, float rate,
                     float unbias_first, float unbias_second) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride) {
    const float g = train::gpu::to_float(gradient[i]);
    first[i] = 0.9F * first[i] + 0.1F * g;
    second[i] = 0.999F * second[i] + 0.001F * g * g;
    values[i] -= rate * (first[i] * unbias_first) / (sqrtf(second[i] * unbias_second) + 1e-8F);
    if constexpr (!std::is_same_v<T, float>) bound[i] = train::gpu::to_element<T>(values[i]);
  }
}

using step_type = built_step<train::cuda_kernel>;

/// The step with its kernels, the tensors that are bound, and the parameters.
struct gpt_step {
  step_type step;
  train::gpt ids;
  std::vector<train::parameter> parameters;
};

template <class T>
gpt_step make_step(const options& o, const train::cuda_backend_options& kernels,
                   const std::shared_ptr<train::gpu::products>& products) {
  train::network<train::cuda_backend<T>> net("gpt", train::cuda_backend<T>(products, kernels));
  const train::gpt ids = train::make_gpt(net, o.sizes);
  return {net.build(ids.loss), ids, std::move(net.parameters)};
}

/// The device memory beside the arena: parameters, their moments, and the text of all training steps.
struct state {
  const step_type& step;
  std::vector<train::parameter> parameters;
  train::gpt ids;
  bool is_bf16;
  std::vector<cuda_memory> values, first, second;  // single precision
  std::vector<cuda_memory> rounded;                // what the step reads in place of `values`, if it is in bfloat16
  cuda_memory tokens, targets, all_tokens, all_targets, losses;

  state(const gpt_step& s, const options& o, const train::text& text)
      : step(s.step), parameters(s.parameters), ids(s.ids), is_bf16(o.numbers == train::gpu::precision::bf16) {
    for (const train::parameter& x : parameters) {
      for (auto* list : {&values, &first, &second}) list->emplace_back(static_cast<std::size_t>(x.size) * 4);
      if (is_bf16) rounded.emplace_back(static_cast<std::size_t>(x.size) * sizeof(train::gpu::bfloat16));
    }
    const auto rows = static_cast<std::size_t>(o.sizes.batch * o.sizes.context);
    std::vector<std::int32_t> a(rows * o.steps), b(rows * o.steps);
    // Letters are spread over the vocabulary.
    const auto spread = static_cast<std::int32_t>(std::max<std::int64_t>(1, o.sizes.vocabulary / text.vocabulary));
    for (std::size_t i = 0; i < o.steps; ++i)
      train::load_text(text, i, static_cast<std::size_t>(o.sizes.context), std::span(a).subspan(i * rows, rows),
                       std::span(b).subspan(i * rows, rows));
    for (auto* list : {&a, &b})
      for (std::int32_t& x : *list) x *= spread;
    tokens = cuda_memory(rows * 4);
    targets = cuda_memory(rows * 4);
    losses = cuda_memory(o.steps * 4);
    all_tokens = uploaded(a);
    all_targets = uploaded(b);
    // The copies may return before the device has the bytes, and streams that do not block are not ordered after them.
    throw_on_cuda_error(cudaStreamSynchronize(nullptr), "uploading text");
  }
  static cuda_memory uploaded(const std::vector<std::int32_t>& from) {
    cuda_memory m(from.size() * 4);
    throw_on_cuda_error(cudaMemcpy(m.data(), from.data(), m.size(), cudaMemcpyHostToDevice), "uploading text");
    return m;
  }

  /// Resets parameters and moments to the same initial values each time.
  void begin(cudaStream_t stream) const {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (is_bf16)
        begin_parameter<train::gpu::bfloat16>(i, stream);
      else
        begin_parameter<float>(i, stream);
      for (const auto* m : {&first[i], &second[i]})
        throw_on_cuda_error(cudaMemsetAsync(m->data(), 0, m->size(), stream), "clearing moments");
    }
    throw_on_cuda_error(cudaGetLastError(), "setting parameters");
  }
  template <class Executor>
  void bind_all(Executor& run) const {
    for (std::size_t i = 0; i < parameters.size(); ++i)
      run.bind(parameters[i].id, (is_bf16 ? rounded : values)[i].bytes());
    run.bind(ids.tokens, tokens.bytes());
    run.bind(ids.targets, targets.bytes());
  }
  void load(std::size_t step_number, cudaStream_t stream) const {
    copy(tokens.data(), all_tokens.data() + step_number * tokens.size(), tokens.size(), stream);
    copy(targets.data(), all_targets.data() + step_number * targets.size(), targets.size(), stream);
  }
  static void copy(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
    throw_on_cuda_error(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream), "copying");
  }
  template <class Executor>
  void update(const Executor& run, std::size_t step_number, cudaStream_t stream) const {
    const double n = static_cast<double>(step_number) + 1;
    const auto unbias_first = static_cast<float>(1 / (1 - std::pow(0.9, n)));
    const auto unbias_second = static_cast<float>(1 / (1 - std::pow(0.999, n)));
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const std::span<const std::byte> gradient = run.output(*step.gradient_of(parameters[i].id));
      if (is_bf16)
        update_parameter<train::gpu::bfloat16>(i, gradient, unbias_first, unbias_second, stream);
      else
        update_parameter<float>(i, gradient, unbias_first, unbias_second, stream);
    }
    throw_on_cuda_error(cudaGetLastError(), "Adam");
  }

 private:
  template <class T>
  [[nodiscard]] T* bound(std::size_t i) const {
    if constexpr (std::is_same_v<T, float>)
      return values[i].as<float>().data();
    else
      return rounded[i].as<T>().data();
  }
  template <class T>
  void begin_parameter(std::size_t i, cudaStream_t stream) const {
    const auto v = values[i].as<float>();
    start<T><<<train::gpu::blocks(v.size()), train::gpu::block, 0, stream>>>(
        v.data(), bound<T>(i), v.size(), kernel_seed(i, op_id{0}), parameters[i].mean, parameters[i].deviation);
  }
  template <class T>
  void update_parameter(std::size_t i, std::span<const std::byte> gradient, float unbias_first, float unbias_second,
                        cudaStream_t stream) const {
    const auto v = values[i].as<float>();
    adam<T><<<train::gpu::blocks(v.size()), train::gpu::block, 0, stream>>>(
        v.data(), bound<T>(i), first[i].as<float>().data(), second[i].as<float>().data(),
        reinterpret_cast<const T*>(gradient.data()), v.size(), 3e-4F, unbias_first, unbias_second);
  }
};

std::vector<std::byte> fetched(std::span<const std::byte> device) {
  std::vector<std::byte> out(device.size());
  throw_on_cuda_error(cudaMemcpy(out.data(), device.data(), out.size(), cudaMemcpyDeviceToHost), "fetching");
  return out;
}

std::size_t free_memory() {
  std::size_t free = 0, total = 0;
  throw_on_cuda_error(cudaMemGetInfo(&free, &total), "asking for free memory");
  return free;
}

/// The result of a run: the losses of all training steps, the last gradients, and the parameters after the last step.
struct record {
  std::vector<float> losses;
  std::vector<std::vector<std::byte>> bytes;
  std::int64_t peak = 0, arena = 0, host_arena = 0;
  std::int64_t copied = 0;  // bytes between device and host in a step, both directions together
  std::int64_t taken = 0;   // device memory that is missing after the last step: the arena, streams, the graph
  train::quartiles step;    // milliseconds of loss and gradients
  double whole = 0;         // the median of milliseconds from step to step, with Adam and the copies of the text
  double simulated = 0;     // milliseconds of loss and gradients, by the times of the operations and the link
};

/// Events around each training step.
class step_events {
 public:
  explicit step_events(std::size_t steps) {
    for (auto* list : {&begun_, &ended_})
      for (std::size_t i = 0; i < steps; ++i) list->push_back(make_cuda_event(cudaEventDefault));
  }
  void begin(std::size_t i, cudaStream_t stream) const {
    throw_on_cuda_error(cudaEventRecord(begun_[i].get(), stream), "noting the time");
  }
  void end(std::size_t i, cudaStream_t stream) const {
    throw_on_cuda_error(cudaEventRecord(ended_[i].get(), stream), "noting the time");
  }
  /// Of the steps that count, into `r`. All must have ended.
  void read(record& r) const {
    std::vector<double> step, whole;
    for (std::size_t i = train::warm_up_steps(begun_.size()); i < begun_.size(); ++i) {
      step.push_back(between(begun_[i], ended_[i]));
      whole.push_back(between(begun_[i - 1], begun_[i]));
    }
    r.step = train::quartiles_of(step);
    r.whole = train::quartiles_of(whole).median;
  }

 private:
  static double between(const cuda_event& a, const cuda_event& b) {
    float ms = 0;
    throw_on_cuda_error(cudaEventElapsedTime(&ms, a.get(), b.get()), "reading the time");
    return static_cast<double>(ms);
  }
  std::vector<cuda_event> begun_, ended_;
};

record train_with(const state& s, const problem& p, const schedule& plan, const memory_plan& memory, const options& o,
                  const cuda_seed& seed) {
  const cuda_stream stream = make_cuda_stream();
  const step_events times(o.steps);
  const std::size_t before = free_memory();
  cuda_executor run(launch_plan(s.step.graph, p, plan.steps, memory, o.streams),
                    kernel_table<cuda_call>(s.step.kernels), {.seed = &seed});
  record r;
  r.peak = run.plan().peak_bytes();
  r.arena = run.plan().arena_bytes();
  r.host_arena = run.plan().host_arena_bytes();
  r.simulated = run.plan().assignment().makespan * 1e3;
  for (const launch& l : run.plan().launches())
    if (l.is_copy()) r.copied += run.plan().arguments()[l.first_input].bytes;
  s.bind_all(run);
  s.begin(stream.get());
  throw_on_cuda_error(cudaStreamSynchronize(stream.get()), "setting parameters");
  std::optional<cuda_captured_step> captured;
  for (std::size_t i = 0; i < o.steps; ++i) {
    s.load(i, stream.get());
    // The first step is eager: cuBLAS then loads its kernels, which a capture does not allow.
    if (o.graph && i == 1) captured.emplace(run.capture());
    times.begin(i, stream.get());
    if (captured)
      captured->launch(stream.get(), i);
    else
      run.run(stream.get(), i);
    times.end(i, stream.get());
    state::copy(s.losses.data() + i * 4, run.output(s.ids.loss).data(), 4, stream.get());
    s.update(run, i, stream.get());
  }
  throw_on_cuda_error(cudaStreamSynchronize(stream.get()), "training");
  r.taken = static_cast<std::int64_t>(before) - static_cast<std::int64_t>(free_memory());
  times.read(r);
  const std::vector<std::byte> losses = fetched(s.losses.bytes().first(o.steps * sizeof(float)));
  r.losses.resize(o.steps);
  std::memcpy(r.losses.data(), losses.data(), losses.size());
  for (const train::parameter& x : s.parameters) r.bytes.push_back(fetched(run.output(*s.step.gradient_of(x.id))));
  for (const cuda_memory& m : s.values) r.bytes.push_back(fetched(m.bytes()));
  return r;
}

schedule listed(const problem& p) {
  no_remat_options keep;
  const solution s = no_remat(p.with_budget(problem::unlimited), keep);
  if (!s.plan) throw std::runtime_error("the step has no schedule at all");
  return *s.plan;
}

/// A schedule whose arena is within `bytes`.
arena_solution solve(const problem& p, std::int64_t bytes, const options& o) {
  fit_arena_options fitting;
  fitting.budget = bytes;
  fitting.run.time_limit = std::chrono::nanoseconds(static_cast<std::int64_t>(o.seconds * 1e9));
  const std::string solver = train::gpu::solver_of(o);
  if (solver == "evict") return fit_arena(p, evict_with_copies, fitting);
  return solver == "offload" ? fit_arena(p, offload, fitting) : fit_arena(p, refined, fitting);
}

// ---- the report: a table for people, and lines of a CSV file ----

class report {
 public:
  report(const options& o, std::string device, std::string products)
      : options_(o), device_(std::move(device)), products_(std::move(products)) {
    if (o.csv.empty()) return;
    const bool fresh = !std::ifstream(o.csv).good();
    csv_.open(o.csv, std::ios::app);
    check();
    if (fresh)
      csv_ << "device,products,precision,workspace_kib,layers,width,heads,context,batch,vocabulary,streams,mode,steps,"
              "budget,budget_bytes,peak_bytes,arena_bytes,taken_bytes,step_ms,step_first_quartile_ms,"
              "step_third_quartile_ms,whole_ms,overhead,planned_overhead,last_loss,link_out,link_in,link_latency,"
              "host_arena_bytes,copied_bytes,simulated_ms,result\n";
  }

  /// A run: `overhead` is that of its median over the first baseline's, nothing without one: then the times of the
  /// operations are estimates, and so are the simulated ones. `planned` is the overhead that the solver found.
  void row(const std::string& budget, std::int64_t bytes, const record& r, std::optional<double> overhead,
           double planned, const std::string& result) {
    table_.row({budget, format_bytes(r.peak), format_bytes(r.arena), format_bytes(r.taken),
                format_fixed(r.step.median, 3) + " ms", format_fixed((r.step.third - r.step.first) / 2, 3),
                format_fixed(r.whole, 3) + " ms", overhead ? format_percent(*overhead) : "–", format_percent(planned),
                format_fixed(r.simulated, 3) + " ms", format_bytes(r.copied),
                format_fixed(static_cast<double>(r.losses.back()), 4), result});
    if (!csv_.is_open()) return;
    begin_line(budget, bytes);
    csv_ << r.peak << ',' << r.arena << ',' << r.taken << ',' << r.step.median << ',' << r.step.first << ','
         << r.step.third << ',' << r.whole << ',';
    if (overhead) csv_ << *overhead;
    csv_ << ',' << planned << ',' << r.losses.back() << ',';
    write_link();
    csv_ << r.host_arena << ',' << r.copied << ',' << r.simulated << ',' << result << '\n' << std::flush;
    check();
  }
  void no_schedule(const std::string& budget, std::int64_t bytes, std::string_view status) {
    table_.row({budget, "no schedule: " + std::string(status)});
    if (!csv_.is_open()) return;
    begin_line(budget, bytes);
    csv_ << ",,,,,,,,,,";
    write_link();
    csv_ << ",,," << status << '\n' << std::flush;
    check();
  }
  void print() const {
    std::ostringstream out;
    table_.write(out);
    std::fputs(out.str().c_str(), stdout);
  }

 private:
  /// Throws if the file, to which each run adds a line, cannot be written.
  void check() {
    if (!csv_) throw shared::file_failure("--csv " + options_.csv, "cannot be written", std::strerror(errno));
  }
  void begin_line(const std::string& budget, std::int64_t bytes) {
    const train::gpt_sizes& s = options_.sizes;
    csv_ << '"' << device_ << "\"," << products_ << ',' << train::gpu::name_of(options_.numbers) << ','
         << options_.workspace << ',' << s.layers << ',' << s.width << ',' << s.heads << ',' << s.context << ','
         << s.batch << ',' << s.vocabulary << ',' << options_.streams << ',' << (options_.graph ? "graph" : "eager")
         << ',' << options_.steps << ',' << budget << ',' << bytes << ',';
  }

  void write_link() {
    if (const auto& link = options_.link)
      csv_ << link->out << ',' << link->in << ',' << link->latency << ',';
    else
      csv_ << ",,,";
  }

  using align = text_table::align;
  options options_;
  std::string device_, products_;
  std::ofstream csv_;
  text_table table_{{{"budget", align::right},
                     {"peak", align::right},
                     {"arena", align::right},
                     {"taken", align::right},
                     {"a step", align::right},
                     {"±", align::right},
                     {"with Adam", align::right},
                     {"overhead", align::right},
                     {"planned", align::right},
                     {"simulated", align::right},
                     {"copied", align::right},
                     {"last loss", align::right},
                     {"bits"}}};
};

bool same_bits(const record& a, const record& b) {
  return a.bytes == b.bytes && a.losses.size() == b.losses.size() &&
         std::memcmp(a.losses.data(), b.losses.data(), a.losses.size() * sizeof(float)) == 0;
}

/// Binds everything, and runs one step to its end: cuBLAS then loads its kernels, which a capture does not allow.
template <class Executor>
void run_first_step(const state& s, Executor& run, cudaStream_t stream) {
  s.bind_all(run);
  s.begin(stream);
  s.load(0, stream);
  run.run(stream);
  throw_on_cuda_error(cudaStreamSynchronize(stream), "the first step");
}

/// Measures each operation, with nothing recomputed, on one stream: medians of replays.
profile_report measured(const state& s, const problem& p, const schedule& plan, const memory_plan& memory,
                        const cuda_seed& seed) {
  const cuda_stream stream = make_cuda_stream();
  cuda_executor run(launch_plan(s.step.graph, p, plan.steps, memory, 1), kernel_table<cuda_call>(s.step.kernels),
                    {.timing = true, .seed = &seed});
  run_first_step(s, run, stream.get());
  return profile(run);
}

/// The speeds of copies in both directions at the same time, as a schedule uses them.
host_link measured_link() {
  const measure_link::options how{.largest = std::size_t{1} << 26, .runs = 3};
  measure_link::cuda_copies copies(how.largest);
  return measure_link::measure(copies, how).together;
}

/// Writes when each launch of a plan began and ended, measured beside simulated: one line a launch, in milliseconds.
class launch_times {
 public:
  explicit launch_times(const options& o) : options_(o) {
    if (o.times.empty()) return;
    csv_ << "budget,launch,kind,label,bytes,simulated_start_ms,simulated_ms,start_ms,ms\n";
    shared::write_whole(o.times, csv_.str());
  }

  /// Runs the plan three times, replayed if the others are, and writes the times of the last run.
  void write(const std::string& budget, const state& s, const problem& p, const schedule& plan,
             const memory_plan& memory, const cuda_seed& seed) {
    if (options_.times.empty()) return;
    const cuda_stream stream = make_cuda_stream();
    cuda_executor run(launch_plan(s.step.graph, p, plan.steps, memory, options_.streams),
                      kernel_table<cuda_call>(s.step.kernels), {.timing = true, .seed = &seed});
    run_first_step(s, run, stream.get());
    std::optional<cuda_captured_step> captured;
    if (options_.graph) captured.emplace(run.capture());
    for (int i = 0; i < 2; ++i)
      if (captured)
        captured->launch(stream.get());
      else
        run.run(stream.get());
    throw_on_cuda_error(cudaStreamSynchronize(stream.get()), "noting times");

    const std::vector<cuda_launch_time> measured = run.times();
    const std::span<const double> starts = run.plan().assignment().start;
    for (std::size_t i = 0; i < measured.size(); ++i) {
      const launch& l = run.plan().launches()[i];
      std::int64_t bytes = 0;
      double simulated = 0;
      std::string label;
      if (l.is_copy()) {
        const launch_argument& copied = run.plan().arguments()[l.first_input];
        bytes = copied.bytes;
        simulated = l.kind() == step_kind::offload ? p.link()->time_out(bytes) : p.link()->time_in(bytes);
        label = run.plan().label(copied.tensor);
      } else {
        simulated = p.graph().time[index(l.operation)];
        label = run.plan().label(l.operation);
      }
      csv_ << budget << ',' << i << ',' << to_string(l.kind()) << ",\"" << label << "\"," << bytes << ','
           << starts[i] * 1e3 << ',' << simulated * 1e3 << ',' << measured[i].start << ',' << measured[i].duration
           << '\n';
    }
    shared::write_whole(options_.times, csv_.str());
  }

 private:
  options options_;
  std::ostringstream csv_;  // the whole file
};

struct planned {
  std::string budget;
  std::int64_t bytes = 0;
  arena_solution found;
};

/// Plans the step for each budget, while the device is kept busy.
std::vector<planned> plan_all(const problem& p, std::int64_t baseline_arena, const options& o) {
  const train::gpu::keep_busy busy;
  std::vector<planned> out;
  for (const std::string& budget : o.budgets) {
    const std::int64_t bytes = train::gpu::budget_bytes(budget, baseline_arena);
    out.push_back({budget, bytes, solve(p, bytes, o)});
  }
  return out;
}

/// Runs the baseline, each budget, and the baseline again, in the same mode and on the same streams. Returns the exit
/// status.
int compare(options o) {
  int current = 0;
  cudaDeviceProp device{};
  throw_on_cuda_error(cudaGetDevice(&current), "asking for the device");
  throw_on_cuda_error(cudaGetDeviceProperties(&device, current), "asking for the device");
  if (o.workspace == 0) o.workspace = train::gpu::recommended_workspace(device.major);
  const train::text text = train::generated_text(200'000, 1);
  o.sizes.vocabulary = std::max(o.sizes.vocabulary, text.vocabulary);
  const cuda_seed seed;
  const bool tensor_cores = o.numbers != train::gpu::precision::single;
  const auto products = train::gpu::make_products(o.products, tensor_cores);
  train::cuda_backend_options kernels{seed.get(), o.workspace * 1024, tensor_cores};
  kernels.shared_bytes = std::max(kernels.shared_bytes, device.sharedMemPerBlockOptin);
  const gpt_step made = o.numbers == train::gpu::precision::bf16 ? make_step<train::gpu::bfloat16>(o, kernels, products)
                                                                 : make_step<float>(o, kernels, products);
  const step_type& step = made.step;
  const state s(made, o, text);
  std::int64_t parameter_bytes = 0;
  for (const train::parameter& x : made.parameters) parameter_bytes += x.size * 4;

  std::printf("%s, %s; products: %s; %zu operations, %s of parameters, %zu steps on %u stream%s%s\n\n", device.name,
              train::gpu::name_of(o.numbers), products->name().c_str(), step.graph.num_operations(),
              format_bytes(parameter_bytes).c_str(), o.steps, o.streams, o.streams == 1 ? "" : "s",
              o.graph ? ", replayed from graphs" : "");

  if (o.measure_link) o.link = measured_link();
  if (o.link)
    std::printf("link: %.2f GB/s out, %.2f GB/s in, latency %.1f us\n\n", o.link->out / 1e9, o.link->in / 1e9,
                o.link->latency * 1e6);

  problem p(step.graph, roofline_cost{});
  const schedule keep_all = listed(p);
  const memory_plan keep_all_memory = plan_memory(lifetimes_of(p, keep_all));
  report out(o, device.name, products->name());
  std::optional<record> reference;
  if (o.baseline) {
    const profile_report report = measured(s, p, keep_all, keep_all_memory, seed);
    std::printf(
        "operations: medians of %u replays; a replay takes %.3f ms, of which %.3f ms are outside of kernels\n\n",
        report.runs, report.step_seconds * 1e3, report.outside_seconds * 1e3);
    const std::vector<double>& times = report.times.seconds;  // NaN: of an operation that nothing needs
    p = problem(step.graph, callable_cost{[&](op_id op) {
                  const double seconds = times[index(op)];
                  return std::isnan(seconds) ? 0.0 : seconds;
                }});
  }
  const problem copying = o.link ? p.with_link(*o.link, o.host_budget) : p;
  const std::vector<planned> plans = plan_all(copying, keep_all_memory.arena_bytes, o);
  if (o.baseline) {
    reference = train_with(s, p, keep_all, keep_all_memory, o, seed);
    out.row("none", keep_all_memory.arena_bytes, *reference, 0.0, 0, "baseline");
  }

  launch_times times(o);
  if (o.baseline) times.write("none", s, p, keep_all, keep_all_memory, seed);
  std::size_t ran = 0, different = 0;
  for (const auto& [budget, bytes, found] : plans) {
    if (!found.plan) {
      out.no_schedule(budget, bytes, to_string(found.status));
      continue;
    }
    const record r = train_with(s, copying, *found.plan, *found.memory, o, seed);
    times.write(budget, s, copying, *found.plan, *found.memory, seed);
    ++ran;
    const bool same = reference && same_bits(r, *reference);
    if (reference && !same) ++different;
    std::optional<double> overhead;
    if (reference) overhead = r.step.median / reference->step.median - 1;
    out.row(budget, bytes, r, overhead, found.time / p.graph().baseline_time - 1,
            !reference ? "not compared"
            : same     ? "same"
                       : "DIFFERENT");
  }
  if (reference) {  // what clocks and temperature have changed meanwhile
    const record again = train_with(s, p, keep_all, keep_all_memory, o, seed);
    const bool same = same_bits(again, *reference);
    if (!same) ++different;
    out.row("none", keep_all_memory.arena_bytes, again, again.step.median / reference->step.median - 1, 0,
            same ? "baseline again" : "DIFFERENT");
  }
  out.print();
  if (reference && ran != 0 && different == 0)
    std::printf("\nLosses, gradients and parameters are the same, byte for byte, in %zu runs%s.\n", ran,
                o.graph ? ", replayed from graphs" : "");
  return ran != 0 && different == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::span<char*> arguments(argv, static_cast<std::size_t>(argc));
    const options o = train::gpu::parse(std::vector<const char*>(arguments.begin() + 1, arguments.end()));
    if (o.help) {
      std::fputs(train::gpu::usage, stdout);
      return 0;
    }
    if (!shared::found_cuda_device()) return shared::skipped;
    return compare(o);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
}
