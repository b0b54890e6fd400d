// SPDX-License-Identifier: BSL-1.0
// What the CUDA executor costs for each launch, eager and replayed, beside a hand-written loop over the same kernels,
// streams and events; and what a capture costs. Prints a table; --csv FILE writes the same as CSV. --quick takes fewer
// samples; --device only prints the versions of driver and runtime, and the device. It needs nothing but the driver.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "command_line.hpp"
#include "remat/cost/models.hpp"
#include "remat/execute/cuda.cuh"
#include "remat/execute/launch_plan.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/simplify.hpp"
#include "shared/cuda_device.cuh"

namespace {

using namespace remat;

// ---- kernels ----

template <int = 0>
__global__ void nothing() {}
/// Keeps one multiprocessor busy for some cycles of its clock.
template <int = 0>
__global__ void spin(long long cycles) {
  const long long begun = clock64();
  while (clock64() - begun < cycles) {
  }
}
template <int = 0>
__global__ void count(unsigned* runs) {
  atomicAdd(runs, 1U);
}

/// What each operation launches: one block of one thread.
struct kernel {
  enum class kind : std::uint8_t { empty, short_spin, counted };
  kind what = kind::empty;
  unsigned* runs = nullptr;  // of counted

  static constexpr long long cycles = 10'000;  // 5 to 7 µs on today's devices

  void enqueue(cudaStream_t stream) const {
    switch (what) {
      case kind::empty:
        nothing<><<<1, 1, 0, stream>>>();
        break;
      case kind::short_spin:
        spin<><<<1, 1, 0, stream>>>(cycles);
        break;
      case kind::counted:
        count<><<<1, 1, 0, stream>>>(runs);
        break;
    }
  }
  void operator()(const cuda_call& c) const { enqueue(c.stream); }
};

// ---- the step, as a plan and by hand ----

/// `columns` chains side by side; each operation reads the last tensors of its own chain and of the next one.
training_graph grid(std::uint32_t rows, std::uint32_t columns) {
  training_graph g("grid");
  for (std::uint32_t t = 0; t < rows * columns; ++t) g.add_tensor({"", 256});
  for (std::uint32_t r = 0; r < rows; ++r)
    for (std::uint32_t c = 0; c < columns; ++c) {
      operation_spec o;
      if (r > 0)
        for (const std::uint32_t from : {c, (c + 1) % columns})
          if (from != c || o.inputs.empty()) o.inputs.push_back(static_cast<tensor_id>((r - 1) * columns + from));
      o.outputs = {static_cast<tensor_id>(r * columns + c)};
      o.seconds = 1e-5;
      g.add_operation(std::move(o));
    }
  for (std::uint32_t c = 0; c < columns; ++c) g.add_final_output(static_cast<tensor_id>((rows - 1) * columns + c));
  return g;
}

/// The loop that somebody would write for exactly this plan: its launches, waits and events, and nothing else.
class hand_written {
 public:
  hand_written(const launch_plan& plan, kernel k) : kernel_(k) {
    for (std::uint32_t s = 1; s < plan.num_streams(); ++s) {
      own_.push_back(make_cuda_stream());
      ends_.push_back(make_cuda_event());
    }
    for (std::uint32_t e = 0; e < plan.num_events(); ++e) events_.push_back(make_cuda_event());
    begun_ = make_cuda_event();
    for (std::size_t i = 0; i < plan.size(); ++i) {
      const launch& l = plan.launches()[i];
      work w;
      w.stream = l.stream;
      for (const std::uint32_t e : plan.waits(i)) w.waits.push_back(events_[e].get());
      if (l.event != launch::no_event) w.event = events_[l.event].get();
      work_.push_back(std::move(w));
    }
  }

  void run(cudaStream_t stream) {
    streams_.assign(1, stream);
    for (const cuda_stream& s : own_) streams_.push_back(s.get());
    if (!own_.empty()) throw_on_cuda_error(cudaEventRecord(begun_.get(), stream));
    for (const cuda_stream& s : own_) throw_on_cuda_error(cudaStreamWaitEvent(s.get(), begun_.get(), 0));
    for (const work& w : work_) {
      const cudaStream_t on = streams_[w.stream];
      for (const cudaEvent_t e : w.waits) throw_on_cuda_error(cudaStreamWaitEvent(on, e, 0));
      kernel_.enqueue(on);
      throw_on_cuda_error(cudaPeekAtLastError());
      if (w.event != nullptr) throw_on_cuda_error(cudaEventRecord(w.event, on));
    }
    for (std::size_t s = 0; s < own_.size(); ++s) {
      throw_on_cuda_error(cudaEventRecord(ends_[s].get(), own_[s].get()));
      throw_on_cuda_error(cudaStreamWaitEvent(stream, ends_[s].get(), 0));
    }
  }
  [[nodiscard]] cuda_graph capture(cudaStream_t stream) {
    throw_on_cuda_error(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    run(stream);
    cudaGraph_t graph{};
    throw_on_cuda_error(cudaStreamEndCapture(stream, &graph));
    return cuda_graph(graph);
  }

 private:
  struct work {
    std::uint32_t stream = 0;
    std::vector<cudaEvent_t> waits{};
    cudaEvent_t event = nullptr;
  };
  kernel kernel_;
  std::vector<cuda_stream> own_;
  std::vector<cuda_event> events_, ends_;
  cuda_event begun_;
  std::vector<work> work_;
  std::vector<cudaStream_t> streams_;
};

// ---- samples ----

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct quartiles {
  double first = 0, median = 0, third = 0;
  /// By the nearest rank. `samples` is not empty.
  explicit quartiles(std::vector<double> samples) {
    std::sort(samples.begin(), samples.end());
    const auto at = [&](std::size_t quarter) { return samples[(samples.size() - 1) * quarter / 4]; };
    first = at(1);
    median = at(2);
    third = at(3);
  }
};

/// Nanoseconds for each launch, of many runs: to enqueue them, and until the device has ended.
struct timed_runs {
  std::vector<double> enqueued, ended;

  template <class Run>
  void sample(cudaStream_t stream, std::size_t launches, Run&& run) {
    const double begin = seconds_now();
    run();
    const double returned = seconds_now();
    throw_on_cuda_error(cudaStreamSynchronize(stream));
    const double scale = 1e9 / static_cast<double>(launches);
    enqueued.push_back((returned - begin) * scale);
    ended.push_back((seconds_now() - begin) * scale);
  }
};

class report {
 public:
  explicit report(const std::string& file) {
    if (!file.empty() && (csv_ = std::fopen(file.c_str(), "w")) == nullptr)
      throw std::runtime_error("--csv " + file + " cannot be written");
    const char* const header =
        "measure,kernel,streams,launches,waits,who,median_ns,first_quartile_ns,third_quartile_ns,samples\n";
    if (csv_ != nullptr) std::fputs(header, csv_);
    std::printf("%-14s %-10s %7s %8s %6s  %-12s %10s %10s %10s\n", "measure", "kernel", "streams", "launches", "waits",
                "who", "median ns", "quartile 1", "quartile 3");
  }
  report(const report&) = delete;
  report& operator=(const report&) = delete;
  ~report() {
    if (csv_ != nullptr) std::fclose(csv_);
  }

  struct of_step {
    const char* kernel;
    std::uint32_t streams;
    std::size_t launches, waits;
  };
  void row(const char* measure, const of_step& s, const char* who, const std::vector<double>& samples) {
    const quartiles q(samples);
    std::printf("%-14s %-10s %7u %8zu %6zu  %-12s %10.1f %10.1f %10.1f\n", measure, s.kernel, s.streams, s.launches,
                s.waits, who, q.median, q.first, q.third);
    if (csv_ == nullptr) return;
    std::fprintf(csv_, "%s,%s,%u,%zu,%zu,%s,%.1f,%.1f,%.1f,%zu\n", measure, s.kernel, s.streams, s.launches, s.waits,
                 who, q.median, q.first, q.third, samples.size());
    std::fflush(csv_);
  }

 private:
  std::FILE* csv_ = nullptr;
};

// ---- what is measured ----

/// A step with its plan, and all ways to run it.
class bench {
 public:
  bench(std::uint32_t streams, std::size_t samples, report& out)
      : graph_(grid(launches / streams, streams)),
        p_(graph_, measured_cost{}),
        streams_(streams),
        samples_(samples),
        out_(out) {}

  /// Runs every variant once with a kernel that counts. Throws if one does not run each launch once.
  void verify() {
    cuda_memory memory(sizeof(unsigned));
    unsigned* const runs = memory.as<unsigned>().data();
    const kernel k{kernel::kind::counted, runs};
    const auto expect = [&](const char* who, const std::function<void()>& run) {
      throw_on_cuda_error(cudaMemset(runs, 0, sizeof(unsigned)));
      throw_on_cuda_error(cudaDeviceSynchronize());
      run();
      throw_on_cuda_error(cudaDeviceSynchronize());
      unsigned found = 0;
      throw_on_cuda_error(cudaMemcpy(&found, runs, sizeof found, cudaMemcpyDeviceToHost));
      if (found != launches)
        throw std::runtime_error(std::string(who) + " ran " + std::to_string(found) + " kernels instead of " +
                                 std::to_string(launches));
    };
    hand_written by_hand(plan(), k);
    cuda_executor run(plan(), k);
    expect("the hand-written loop", [&] { by_hand.run(stream_.get()); });
    expect("the executor", [&] { run.run(stream_.get()); });
    // Captured now that the kernel is loaded.
    const cuda_graph_exec graph = make_cuda_graph_exec(by_hand.capture(stream_.get()));
    const cuda_captured_step captured = run.capture();
    expect("the hand-written loop's graph", [&] { throw_on_cuda_error(cudaGraphLaunch(graph.get(), stream_.get())); });
    expect("the captured step", [&] { captured.launch(stream_.get()); });
  }

  void eager(kernel::kind kind) {
    const kernel k{kind};
    hand_written by_hand(plan(), k);
    cuda_executor functor(plan(), k);
    kernel_table<cuda_call> table(graph_);
    for (std::uint32_t o = 0; o < launches; ++o) table[static_cast<op_id>(o)] = k;
    cuda_executor with_table(plan(), std::move(table));
    timed_runs hand, one, many;
    for (std::size_t i = 0; i < samples_ + warm_up; ++i) {
      if (i == warm_up) hand = one = many = {};
      hand.sample(stream_.get(), launches, [&] { by_hand.run(stream_.get()); });
      one.sample(stream_.get(), launches, [&] { functor.run(stream_.get()); });
      many.sample(stream_.get(), launches, [&] { with_table.run(stream_.get()); });
    }
    const auto s = step_of(kind);
    rows("eager", s, "hand-written", hand);
    rows("eager", s, "executor", one);
    rows("eager", s, "kernel_table", many);
  }

  void replayed(kernel::kind kind) {
    const kernel k{kind};
    hand_written by_hand(plan(), k);
    cuda_executor run(plan(), k);
    const cuda_graph_exec graph = make_cuda_graph_exec(by_hand.capture(stream_.get()));
    const cuda_captured_step captured = run.capture();
    timed_runs hand, ours;
    for (std::size_t i = 0; i < samples_ + warm_up; ++i) {
      if (i == warm_up) hand = ours = {};
      hand.sample(stream_.get(), launches, [&] { throw_on_cuda_error(cudaGraphLaunch(graph.get(), stream_.get())); });
      ours.sample(stream_.get(), launches, [&] { captured.launch(stream_.get()); });
    }
    const auto s = step_of(kind);
    rows("replay", s, "hand-written", hand);
    rows("replay", s, "executor", ours);
  }

  /// To capture a step, and to make its graph executable; and what comes before: the launch plan and the executor.
  void preparation() {
    const kernel k{};
    hand_written by_hand(plan(), k);
    cuda_executor run(plan(), k);
    std::vector<double> planned, made, hand_capture, hand_instance, capture, instance;
    const auto note = [](std::vector<double>& to, auto&& work) {
      const double begin = seconds_now();
      auto result = work();
      to.push_back((seconds_now() - begin) * 1e9 / launches);
      return result;
    };
    for (std::size_t i = 0; i < samples_; ++i) {
      launch_plan fresh = note(planned, [&] { return plan(); });
      static_cast<void>(note(made, [&] { return std::make_unique<cuda_executor<kernel>>(std::move(fresh), k); }));
      const cuda_graph graph = note(hand_capture, [&] { return by_hand.capture(stream_.get()); });
      static_cast<void>(note(hand_instance, [&] { return make_cuda_graph_exec(graph); }));
      const cuda_captured_step captured = note(capture, [&] { return run.capture(); });  // which instantiates, too
      static_cast<void>(note(instance, [&] { return make_cuda_graph_exec(captured.graph()); }));
    }
    for (std::size_t i = 0; i < capture.size(); ++i) capture[i] = std::max(0.0, capture[i] - instance[i]);
    const auto s = step_of(kernel::kind::empty);
    out_.row("launch plan", s, "executor", planned);
    out_.row("construction", s, "executor", made);
    out_.row("capture", s, "hand-written", hand_capture);
    out_.row("capture", s, "executor", capture);
    out_.row("instantiation", s, "hand-written", hand_instance);
    out_.row("instantiation", s, "executor", instance);
  }

  static constexpr std::uint32_t launches = 256;  // a device takes about a thousand before a launch has to wait

 private:
  static constexpr std::size_t warm_up = 5;

  [[nodiscard]] launch_plan plan() const {
    return launch_plan(graph_, p_, listed_order(p_), {.streams = streams_, .memory = {}});
  }
  [[nodiscard]] report::of_step step_of(kernel::kind kind) const {
    const launch_plan of = plan();
    std::size_t waits = 0;
    for (std::size_t i = 0; i < of.size(); ++i) waits += of.waits(i).size();
    return {kind == kernel::kind::empty ? "empty" : "spin", streams_, of.size(), waits};
  }
  void rows(const std::string& how, const report::of_step& s, const char* who, const timed_runs& t) {
    out_.row((how + " enqueue").c_str(), s, who, t.enqueued);
    out_.row((how + " end").c_str(), s, who, t.ended);
  }

  training_graph graph_;
  problem p_;
  std::uint32_t streams_;
  std::size_t samples_;
  report& out_;
  cuda_stream stream_ = make_cuda_stream();
};

void print_device() {
  int current = 0;
  cudaDeviceProp device{};
  throw_on_cuda_error(cudaGetDevice(&current), "asking for the device");
  throw_on_cuda_error(cudaGetDeviceProperties(&device, current), "asking for the device");
  std::printf("%s, compute capability %d.%d, %d multiprocessors, %.1f GiB\n", device.name, device.major, device.minor,
              device.multiProcessorCount, static_cast<double>(device.totalGlobalMem) / (1 << 30));
}

int run_all(std::size_t samples, const std::string& csv) {
  report out(csv);
  for (const std::uint32_t streams : {1U, 2U, 4U}) {
    bench b(streams, samples, out);
    b.verify();
    for (const kernel::kind kind : {kernel::kind::empty, kernel::kind::short_spin}) {
      b.eager(kind);
      b.replayed(kind);
    }
    b.preparation();
  }
  return 0;
}

int run(int argc, char** argv) {
  bool quick = false, only_device = false;
  std::string csv;
  ::bench::command_line app("cuda_bench",
                            "What the CUDA executor costs for each launch, eager and replayed, beside a hand-written "
                            "loop over the same kernels, streams and events; and what a capture costs. It needs a GPU, "
                            "and takes no graph.");
  app.add_flag("--quick", quick, "Take fewer samples");
  app.add_flag("--device", only_device, "Only print the versions of driver and runtime, and the device");
  app.text("--csv", csv, "Write the table as CSV, too", "FILE");
  if (!app.read(argc, argv)) return 0;
  if (!shared::found_cuda_device()) return shared::skipped;
  print_device();
  if (only_device) return 0;
  return run_all(quick ? 11 : 201, csv);
}

}  // namespace

int main(int argc, char** argv) {
  return shared::run_program("cuda_bench", [&] { return run(argc, argv); });
}
