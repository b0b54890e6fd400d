// SPDX-License-Identifier: BSL-1.0
#include "train/trainer.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "remat/method/evict.hpp"
#include "train/gpt.hpp"
#include "train/host_backend.hpp"
#include "train/text.hpp"

using namespace remat;

namespace {

train::training_task small_gpt() {
  const auto text = std::make_shared<train::text>(train::generated_text(2000, 3));
  train::network<train::host_backend> net("gpt");
  const train::gpt g = train::make_gpt(net, {4, 16, 8, 2, 2, text->vocabulary, 0.1F});
  train::training_task task;
  task.step = net.build(g.loss);
  task.parameters = net.parameters;
  task.inputs = {g.tokens, g.targets};
  task.load = [text](std::uint64_t step, std::span<train::aligned_buffer> inputs) {
    train::load_text(*text, step, 16, inputs[0].values<std::int32_t>(), inputs[1].values<std::int32_t>());
  };
  return task;
}

train::training_options half_of(const train::training_task& task) {
  train::training_options o;
  o.steps = 30;
  o.budget = train::baseline_peak(task) * 6 / 10;
  o.solve = [](const problem& p) { return evict(p); };
  return o;
}

}  // namespace

TEST_CASE("training gives the same bits with less memory, on one thread and on two") {
  const train::training_task task = small_gpt();
  train::training_options plain;
  plain.steps = 30;
  const train::training_record reference = train::train_on_host(task, plain);
  REQUIRE(reference.trained);
  CHECK(reference.recomputed == 0);
  CHECK(reference.losses.size() == 30);
  CHECK(reference.gradients.size() == task.parameters.size());
  CHECK(train::loss_fell(reference.losses));
  for (const std::uint32_t threads : {1U, 2U}) {
    train::training_options o = half_of(task);
    o.threads = threads;
    const train::training_record less = train::train_on_host(task, o);
    REQUIRE(less.trained);
    CHECK(less.recomputed > 0);
    CHECK(less.peak_bytes <= o.budget);
    CHECK(less.arena_bytes <= o.budget);
    CHECK(less.arena_bytes < reference.arena_bytes);
    CHECK(train::same_bits(reference, less));
  }
}

TEST_CASE("a kernel that does not do the same again is noticed") {
  train::training_task task = small_gpt();
  // What an operation of the forward pass writes depends on how often it has run in its step. Which of them run twice
  // is the plan's choice, which goes by measured times.
  const auto runs = std::make_shared<std::vector<std::uint32_t>>(task.step.kernels.size(), 0U);
  for (std::size_t o = 0; o < task.step.kernels.size(); ++o)
    if (task.step.graph.phase(static_cast<op_id>(o)) == op_phase::forward)
      task.step.kernels[o] = [kernel = task.step.kernels[o], runs, o](const host_call& c) {
        kernel(c);
        if ((*runs)[o]++ > 0) c.output<float>(0)[0] += 1;
      };
  task.load = [load = task.load, runs](std::uint64_t step, std::span<train::aligned_buffer> inputs) {
    std::fill(runs->begin(), runs->end(), 0U);
    load(step, inputs);
  };
  train::training_options o = half_of(task);
  const train::training_record less = train::train_on_host(task, o);
  train::training_options plain;
  plain.steps = o.steps;
  const train::training_record reference = train::train_on_host(task, plain);
  REQUIRE(less.trained);
  REQUIRE(less.recomputed > 0);
  CHECK(!train::same_bits(reference, less));
  CHECK(train::same_bits(reference, train::train_on_host(task, plain)));
}

TEST_CASE("a budget that no schedule keeps to is said so") {
  const train::training_task task = small_gpt();
  train::training_options o = half_of(task);
  o.budget = 1000;
  const train::training_record r = train::train_on_host(task, o);
  CHECK(!r.trained);
  CHECK(!r.message.empty());
}

TEST_CASE("records differ in any bit") {
  train::training_record a;
  a.losses = {1, 0.0F};
  a.gradient_hashes = {7};
  a.gradients = {{1}};
  a.parameters = {{2}, {3}};
  train::training_record b = a;
  CHECK(train::same_bits(a, b));
  b.losses[1] = -0.0F;
  CHECK(!train::same_bits(a, b));
  b = a;
  b.gradient_hashes[0] = 8;
  CHECK(!train::same_bits(a, b));
  b = a;
  b.gradients[0][0] = std::nextafter(1.0F, 2.0F);
  CHECK(!train::same_bits(a, b));
  b = a;
  b.parameters[1].push_back(0);
  CHECK(!train::same_bits(a, b));
}

TEST_CASE("Adam's first steps") {
  train::adam optimizer(0.1F);
  std::vector<float> x{1, 2};
  optimizer.update(0, 1, x, std::vector<float>{0.5F, -3});
  // Whatever the gradient's size, the first step is the rate.
  CHECK(x[0] == doctest::Approx(0.9));
  CHECK(x[1] == doctest::Approx(2.1));
  optimizer.update(0, 2, x, std::vector<float>{0.5F, 3});
  CHECK(x[0] == doctest::Approx(0.8));
  // first moment (0.9 · 0.1 · −3 + 0.1 · 3) / (1 − 0.81), second (0.999 · 0.001 · 9 + 0.001 · 9) / (1 − 0.998001)
  CHECK(x[1] == doctest::Approx(2.1 - 0.1 * (0.03 / 0.19) / 3));
}

TEST_CASE("text: each letter's target is the next") {
  const train::text t = train::to_numbers("abcab");
  CHECK(t.vocabulary == 3);
  CHECK(t.letters == std::vector<std::int32_t>{0, 1, 2, 0, 1});
  const train::text g = train::generated_text(500, 1);
  CHECK(g.letters.size() >= 500);
  CHECK(g.letters == train::generated_text(500, 1).letters);
  CHECK(g.letters != train::generated_text(500, 2).letters);
  std::vector<std::int32_t> tokens(20), targets(20);
  train::load_text(g, 4, 10, tokens, targets);
  for (std::size_t i = 0; i < 20; ++i)
    if (i % 10 != 9) CHECK(targets[i] == tokens[i + 1]);
}
