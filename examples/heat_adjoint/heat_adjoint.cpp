// SPDX-License-Identifier: BSL-1.0
// heat-adjoint [STEPS [CELLS [SLOTS [FILE]]]]: the gradient of a nonlinear heat equation over many steps, with few
// states in memory and more in a file. It times a step and a write, plans, reverses the steps, and compares the
// gradient with finite differences. Exit status 1: they disagree.
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "remat/adjoint.hpp"

namespace {

using field = std::vector<double>;

/// u ← u + dt ∂(k(u) ∂u), with k(u) = 1 + u²; both ends are kept.
constexpr double dt = 0.1;
double conductivity(double a, double b) { return 1 + 0.25 * (a + b) * (a + b); }
void step(field& u, field& before) {
  before = u;
  for (std::size_t i = 1; i + 1 < u.size(); ++i)
    u[i] += dt * (conductivity(before[i], before[i + 1]) * (before[i + 1] - before[i]) -
                  conductivity(before[i - 1], before[i]) * (before[i] - before[i - 1]));
}
/// The gradient of a step's input from that of its output, `g`, at the input `u`.
void reverse_step(const field& u, field& g, field& after) {
  after = g;
  for (std::size_t i = 0; i + 1 < u.size(); ++i) {  // the flux between cells i and i + 1
    const double gain = dt * ((i > 0 ? after[i] : 0) - (i + 2 < u.size() ? after[i + 1] : 0));
    const double k = conductivity(u[i], u[i + 1]), slope = 0.5 * (u[i] + u[i + 1]) * (u[i + 1] - u[i]);
    g[i] += gain * (slope - k);
    g[i + 1] += gain * (slope + k);
  }
}

/// States in memory, and in a file that is deleted at the end.
class marcher {
 public:
  marcher(field start, const std::filesystem::path& path) : u_(std::move(start)), path_(path) {
    file_.open(path_, std::ios::binary | std::ios::in | std::ios::out | std::ios::trunc);
    if (!file_) throw std::runtime_error("cannot write " + path_.string());
  }
  ~marcher() {
    file_.close();
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  marcher(const marcher&) = delete;
  marcher& operator=(const marcher&) = delete;

  void advance(std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t i = first; i < last; ++i) step(u_, scratch_);
    steps_run += last - first;
  }
  void store(std::uint64_t, remat::adjoint_slot slot) {
    if (slot.tier == 0) {
      if (kept_.size() <= slot.index) kept_.resize(slot.index + std::size_t{1});
      kept_[slot.index] = u_;
      return;
    }
    file_.seekp(offset(slot));
    file_.write(reinterpret_cast<const char*>(u_.data()), bytes());
    if (!file_.flush()) throw std::runtime_error("cannot write " + path_.string());
    ++writes;
  }
  void restore(std::uint64_t, remat::adjoint_slot slot) {
    if (slot.tier == 0) {
      u_ = kept_[slot.index];
      return;
    }
    file_.seekg(offset(slot));
    if (!file_.read(reinterpret_cast<char*>(u_.data()), bytes()))
      throw std::runtime_error("cannot read " + path_.string());
    ++reads;
  }
  void reverse(std::uint64_t) {
    if (gradient.empty()) {  // the last step: the objective is half the sum of squares of its output
      gradient = u_;
      step(gradient, scratch_);
    }
    reverse_step(u_, gradient, scratch_);
  }

  field gradient;
  std::uint64_t steps_run = 0, writes = 0, reads = 0;

 private:
  [[nodiscard]] std::streamsize bytes() const { return static_cast<std::streamsize>(u_.size() * sizeof(double)); }
  [[nodiscard]] std::streamoff offset(remat::adjoint_slot slot) const { return std::streamoff{slot.index} * bytes(); }

  field u_, scratch_;
  std::vector<field> kept_;
  std::filesystem::path path_;
  std::fstream file_;
};

double objective(field u, std::uint64_t steps) {
  field scratch;
  for (std::uint64_t i = 0; i < steps; ++i) step(u, scratch);
  double sum = 0;
  for (const double x : u) sum += 0.5 * x * x;
  return sum;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

int run(std::uint64_t steps, std::size_t cells, std::uint32_t slots, const std::filesystem::path& path) {
  field start(cells);
  for (std::size_t i = 0; i < cells; ++i)
    start[i] = std::sin(9.0 * static_cast<double>(i) / static_cast<double>(cells));

  remat::adjoint_tier disk;
  {
    marcher probe(start, path);
    const auto begin = std::chrono::steady_clock::now();
    probe.advance(0, 100);
    const double step_seconds = seconds_since(begin) / 100;
    const auto between = std::chrono::steady_clock::now();
    for (std::uint32_t i = 0; i < 100; ++i) probe.store(0, {1, i});
    const double write_seconds = seconds_since(between) / 100;
    const auto after = std::chrono::steady_clock::now();
    for (std::uint32_t i = 0; i < 100; ++i) probe.restore(0, {1, i});
    disk = {1'000'000, write_seconds / step_seconds, seconds_since(after) / 100 / step_seconds};
  }
  remat::adjoint_sequence sequence(steps, {slots}, disk);
  std::printf("a write takes %.2f steps, a read %.2f; planned: %.3f steps forward and copies for each step\n",
              disk.write, disk.read, sequence.cost() / static_cast<double>(steps));
  marcher m(start, path);
  const auto begin = std::chrono::steady_clock::now();
  remat::run_adjoint(sequence, m);
  std::printf("%llu steps reversed in %.2f s: %llu run forward, %llu states written, %llu read\n",
              static_cast<unsigned long long>(steps), seconds_since(begin),
              static_cast<unsigned long long>(m.steps_run), static_cast<unsigned long long>(m.writes),
              static_cast<unsigned long long>(m.reads));

  // Along one direction: a central difference.
  field more = start, less = start;
  double product = 0;
  for (std::size_t i = 0; i < cells; ++i) {
    const double direction = std::cos(5.0 * static_cast<double>(i * i) / static_cast<double>(cells));
    constexpr double h = 1e-5;
    more[i] += h * direction;
    less[i] -= h * direction;
    product += direction * m.gradient[i];
  }
  const double difference = (objective(more, steps) - objective(less, steps)) / 2e-5;
  const double error = std::abs(product - difference) / std::max(1e-300, std::abs(difference));
  std::printf("along one direction: gradient %.10g, finite difference %.10g, relative error %.1e\n", product,
              difference, error);
  return error < 1e-5 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto number = [&](int k, unsigned long long otherwise) {
      return argc > k ? std::stoull(argv[k]) : otherwise;
    };
    const std::filesystem::path path =
        argc > 4 ? argv[4] : std::filesystem::temp_directory_path() / "heat-adjoint.states";
    return run(number(1, 100'000), number(2, 500), static_cast<std::uint32_t>(number(3, 10)), path);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "heat-adjoint: %s\n", e.what());
    return 2;
  }
}
