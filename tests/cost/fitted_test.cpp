// SPDX-License-Identifier: BSL-1.0
#include "remat/cost/fitted.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/graph/concepts.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/io/json.hpp"
#include "remat/problem/problem.hpp"

namespace {

using remat::cost_fit_options;
using remat::cost_sample;
using remat::cost_terms;
using remat::fit_cost;
using remat::fit_source;
using remat::fitted_cost;
using remat::kind_fit;
using remat::op_id;
using graph = remat::training_graph;

static_assert(remat::cost_model<fitted_cost<>, graph>);

constexpr double not_known = std::numeric_limits<double>::quiet_NaN();

fitted_cost<> fit(const std::vector<cost_sample>& samples, const cost_fit_options& options = {}) {
  return fit_cost(std::span<const cost_sample>(samples), options);
}

/// Samples of a kind whose works are spread over five decades and whose times are `terms` times noise.
std::vector<cost_sample> sampled(const std::string& kind, const cost_terms& terms, int n, double noise,
                                 std::mt19937_64& random) {
  std::uniform_real_distribution<double> decade(4, 9), error(-noise, noise);
  std::vector<cost_sample> out;
  for (int i = 0; i < n; ++i) {
    const remat::operation_work w{std::pow(10, decade(random)), std::pow(10, decade(random) - 1)};
    out.push_back({kind, w, terms(w) * (1 + error(random)), ""});
  }
  return out;
}

graph with_operation(const std::string& name, double flops, double bytes) {
  graph g;
  remat::operation_spec o;
  o.name = name;
  o.flops = flops;
  o.bytes_accessed = bytes;
  g.add_operation(o);
  return g;
}

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const remat::error& e) {
    return e.what();
  }
  return "";
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

}  // namespace

TEST_CASE("terms that made the times are found again, each kind its own") {
  std::mt19937_64 random(1);
  const std::vector<cost_terms> truth{{2e-6, 3e-11, 1e-9}, {0, 5e-12, 0}, {0, 0, 4e-10}, {7e-5, 0, 0}, {1e-6, 0, 2e-9}};
  std::vector<cost_sample> samples;
  for (std::size_t k = 0; k < truth.size(); ++k) {
    const auto more = sampled("kind " + std::to_string(k), truth[k], 24, 0, random);
    samples.insert(samples.end(), more.begin(), more.end());
  }
  std::shuffle(samples.begin(), samples.end(), random);
  for (const auto weighting : {remat::fit_weighting::relative, remat::fit_weighting::absolute})
    for (const bool select : {true, false}) {
      CAPTURE(select);
      cost_fit_options options;
      options.weighting = weighting;
      options.select = select;
      const fitted_cost<> model = fit(samples, options);
      REQUIRE(model.kinds().size() == truth.size());
      // Seconds of the shortest operation weigh little beside those of the longest.
      const double tolerance = weighting == remat::fit_weighting::relative ? 1e-6 : 1e-3;
      for (std::size_t k = 0; k < truth.size(); ++k) {
        CAPTURE(k);
        const kind_fit& f = model.of("kind " + std::to_string(k));
        CHECK(f.source == fit_source::own);
        CHECK(f.samples == 24);
        CHECK(f.sizes == 24);
        CHECK(f.terms.latency == doctest::Approx(truth[k].latency).epsilon(tolerance).scale(1e-6));
        CHECK(f.terms.flops == doctest::Approx(truth[k].flops).epsilon(tolerance).scale(1e-12));
        CHECK(f.terms.bytes == doctest::Approx(truth[k].bytes).epsilon(tolerance).scale(1e-11));
        CHECK(f.r_squared == doctest::Approx(1));
        if (weighting == remat::fit_weighting::relative) {
          CHECK(f.largest_relative_error < 1e-6);
          if (select) CHECK(f.held_out_error < 1e-6);
        }
      }
      CHECK(model.pooled().samples == samples.size());
      CHECK(model.pooled().r_squared < 1);
    }
}

TEST_CASE("with noise the errors at sizes left out are near the noise") {
  std::mt19937_64 random(2);
  const cost_terms truth{5e-6, 3e-11, 1e-9};
  const fitted_cost<> model = fit(sampled("mm", truth, 60, 0.05, random));
  const kind_fit& f = model.of("mm");
  CHECK(f.held_out_error > 0.01);
  CHECK(f.held_out_error < 0.04);  // the mean of |U(−5 %, 5 %)| is 2.5 %
  CHECK(f.largest_relative_error < 0.08);
  CHECK(f.r_squared > 0.99);
  for (const cost_sample& s : sampled("mm", truth, 100, 0, random))
    CHECK(f.terms(s.work) == doctest::Approx(s.seconds).epsilon(0.06));
}

TEST_CASE("no coefficient is negative, even where plain least squares wants one, and none does better") {
  // seconds = flops − bytes at the samples.
  const std::vector<cost_sample> falling{
      {"a", {10, 1}, 9, ""}, {"a", {10, 5}, 5, ""}, {"a", {20, 4}, 16, ""}, {"a", {30, 20}, 10, ""}};
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> unit(0, 1);
  std::vector<std::vector<cost_sample>> cases{falling};
  for (int i = 0; i < 60; ++i) {
    std::vector<cost_sample> noise;
    for (int j = 0; j < 3 + i % 6; ++j) noise.push_back({"a", {unit(random), unit(random)}, unit(random), ""});
    cases.push_back(noise);
  }
  for (const auto& samples : cases) {
    cost_fit_options options;
    options.weighting = remat::fit_weighting::absolute;
    options.robust = false;
    options.select = false;
    const cost_terms t = fit(samples, options).of("a").terms;
    CHECK(t.latency >= 0);
    CHECK(t.flops >= 0);
    CHECK(t.bytes >= 0);
    // Karush–Kuhn–Tucker: the gradient is 0 where a coefficient is positive, and not negative where it is 0. That is
    // sufficient, as the problem is convex.
    std::array<double, 3> gradient{}, scale{};
    for (const cost_sample& s : samples) {
      const std::array<double, 3> x{1, s.work.flops, s.work.bytes};
      for (std::size_t j = 0; j < 3; ++j) {
        gradient[j] += x[j] * (t(s.work) - s.seconds);
        scale[j] += std::abs(x[j] * s.seconds);
      }
    }
    const std::array<double, 3> value{t.latency, t.flops, t.bytes};
    for (std::size_t j = 0; j < 3; ++j) {
      CAPTURE(j);
      CHECK(gradient[j] >= -1e-6 * scale[j]);
      if (value[j] > 0) CHECK(gradient[j] <= 1e-6 * scale[j]);
    }
  }
}

TEST_CASE("units do not matter") {
  std::mt19937_64 random(4);
  auto samples = sampled("a", {5e-6, 3e-11, 1e-9}, 30, 0.1, random);
  const cost_terms t = fit(samples).of("a").terms;
  for (cost_sample& s : samples) {
    s.seconds *= 1024;
    s.work.flops *= 0x1p-30;
    s.work.bytes *= 0x1p20;
  }
  const cost_terms scaled = fit(samples).of("a").terms;
  CHECK(scaled.latency == doctest::Approx(t.latency * 1024).epsilon(1e-9));
  CHECK(scaled.flops == doctest::Approx(t.flops * 0x1p40).epsilon(1e-9));
  CHECK(scaled.bytes == doctest::Approx(t.bytes * 0x1p-10).epsilon(1e-9));
}

TEST_CASE("one measurement that is far off does not spoil a robust fit") {
  std::mt19937_64 random(5);
  const cost_terms truth{0, 3e-11, 0};
  auto samples = sampled("a", truth, 25, 0.01, random);
  samples[7].seconds *= 50;
  cost_fit_options plain;
  plain.robust = false;
  const auto off = [&](const cost_fit_options& o) { return std::abs(fit(samples, o).of("a").terms.flops / 3e-11 - 1); };
  CHECK(off({}) < 0.02);
  CHECK(off(plain) > 0.3);
}

TEST_CASE("small operations count as much as large ones") {
  std::vector<cost_sample> samples;
  for (int i = 1; i <= 20; ++i) samples.push_back({"a", {1e3 * i, not_known}, 1e-6 + 1e-7 * i, ""});
  samples.push_back({"a", {1e10, not_known}, 1.0, ""});
  samples.push_back({"a", {2e10, not_known}, 1.5, ""});
  for (const bool robust : {false, true}) {
    cost_fit_options options;
    options.robust = robust;
    const cost_terms relative = fit(samples, options).of("a").terms;
    CHECK(relative({1e4, not_known}) == doctest::Approx(2e-6).epsilon(0.1));
    CHECK(relative({1e10, not_known}) == doctest::Approx(1).epsilon(0.3));
    options.weighting = remat::fit_weighting::absolute;
    options.select = options.robust = options.bytes = false;
    CHECK(fit(samples, options).of("a").terms({1e4, not_known}) > 1e-3);
  }
}

TEST_CASE("what little was measured is not taken for more than it is") {
  SUBCASE("one sample in all: proportional to its bytes, nothing left out to tell how well") {
    const fitted_cost<> model = fit({{"a", {100, 50}, 2e-3, ""}});
    const kind_fit& f = model.of("a");
    CHECK(f.sizes == 1);
    CHECK(std::isnan(f.held_out_error));
    CHECK(f.terms({100, 50}) == doctest::Approx(2e-3));
    CHECK(f.terms({200, 100}) == doctest::Approx(4e-3));
    CHECK(f.r_squared == 1);
  }
  SUBCASE("a kind at one size takes the slopes of all kinds, and meets its time") {
    std::mt19937_64 random(6);
    auto samples = sampled("many", {0, 3e-11, 0}, 20, 0, random);
    for (int i = 0; i < 12; ++i) samples.push_back({"once", {1e6, 1e6}, 6e-5, ""});
    const kind_fit f = fit(samples).of("once");
    CHECK(f.source == fit_source::scaled);
    CHECK(f.samples == 12);
    CHECK(f.sizes == 1);
    CHECK(f.terms({1e6, 1e6}) == doctest::Approx(6e-5));
    CHECK(f.terms({2e6, 2e6}) == doctest::Approx(12e-5));
  }
  SUBCASE("a kind that was not measured takes the pooled terms") {
    std::mt19937_64 random(7);
    const fitted_cost<> model = fit(sampled("a", {0, 3e-11, 0}, 20, 0, random));
    CHECK(model.of("never").source == fit_source::pooled);
    CHECK(model.time(with_operation("never", 1e9, 1), op_id{0}) == doctest::Approx(3e-2));
  }
  SUBCASE("collinear columns: any of them tells the same") {
    std::vector<cost_sample> samples;
    for (int i = 1; i <= 9; ++i) samples.push_back({"a", {3.0 * i, 6.0 * i}, 1e-3 * i, ""});
    for (const bool select : {true, false}) {
      cost_fit_options options;
      options.select = select;
      const cost_terms t = fit(samples, options).of("a").terms;
      CHECK(t({30, 60}) == doctest::Approx(1e-2));
      CHECK((t.flops == 0 || t.bytes == 0));
    }
  }
  SUBCASE("no flops at all: the bytes and the latency decide") {
    std::vector<cost_sample> samples;
    for (int i = 1; i <= 9; ++i) samples.push_back({"a", {0, 100.0 * i}, 1e-6 + 1e-7 * i, ""});
    const cost_terms t = fit(samples).of("a").terms;
    CHECK(t.flops == 0);
    CHECK(t.latency == doctest::Approx(1e-6));
    CHECK(t.bytes == doctest::Approx(1e-9));
    cost_fit_options flops_alone;
    flops_alone.latency = flops_alone.bytes = false;
    const kind_fit f = fit(samples, flops_alone).of("a");
    CHECK(f.terms({0, 100}) == 0);  // says so rather than divide by zero
    CHECK(f.mean_relative_error == doctest::Approx(1));
  }
  SUBCASE("all times zero") {
    const fitted_cost<> model = fit({{"a", {1, 1}, 0, ""}, {"a", {2, 1}, 0, ""}, {"b", {2, 7}, 0, ""}});
    for (const kind_fit& f : model.kinds()) {
      CHECK(f.terms({5, 5}) == 0);
      CHECK(f.r_squared == 1);
      CHECK(f.mean_relative_error == 0);
    }
  }
}

TEST_CASE("work that is not known leaves its term to others, and is asked for where it is needed") {
  std::mt19937_64 random(8);
  auto samples = sampled("mm", {0, 3e-11, 0}, 20, 0, random);
  for (int i = 1; i <= 5; ++i) samples.push_back({"view", {not_known, 10.0 * i}, 1e-6, "operation 20 (view)"});
  const fitted_cost<> model = fit(samples);
  CHECK(model.of("mm").terms.flops == doctest::Approx(3e-11));
  CHECK(model.of("view").terms.flops == 0);
  CHECK(model.pooled().terms.flops == 0);  // a "view" could not be predicted by it
  CHECK(model.time(with_operation("view", not_known, 20), op_id{0}) == doctest::Approx(1e-6));
  CHECK_THROWS_AS((void)model.time(with_operation("mm", not_known, 20), op_id{0}), remat::bad_cost);
  const std::string message = message_of([&] { (void)model.time(with_operation("mm", not_known, 20), op_id{0}); });
  CHECK(contains(message, "operation 0 (mm) has no flops"));
  // Problems are built with it, and refused with that message.
  CHECK(message_of([&] { remat::problem(with_operation("mm", not_known, 20), model); }) == message);

  cost_fit_options all;
  all.select = false;
  CHECK_THROWS_AS((void)fit(samples, all), remat::bad_cost);
  CHECK(contains(message_of([&] { (void)fit(samples, all); }), "operation 20 (view): flops"));
}

TEST_CASE("bad input is refused with what would be right") {
  const std::vector<cost_sample> good{{"a", {1, 1}, 1, ""}};
  CHECK_THROWS_AS((void)fit({}), remat::bad_argument);
  CHECK_THROWS_AS((void)fit_cost(with_operation("a", 1, 1), std::vector<double>{not_known}), remat::bad_argument);
  CHECK_THROWS_AS((void)fit_cost(with_operation("a", 1, 1), std::vector<double>{1, 1}), remat::bad_argument);
  cost_fit_options options;
  options.folds = 1;
  CHECK_THROWS_AS((void)fit(good, options), remat::bad_argument);
  options = {};
  options.shortest = 0;
  CHECK_THROWS_AS((void)fit(good, options), remat::bad_argument);
  options = {};
  options.latency = options.flops = options.bytes = false;
  CHECK_THROWS_AS((void)fit(good, options), remat::bad_argument);
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {-1.0, infinity}) {
    CHECK_THROWS_AS((void)fit({{"a", {1, 1}, bad, ""}}), remat::bad_cost);
    CHECK_THROWS_AS((void)fit({{"a", {bad, 1}, 1, ""}}), remat::bad_cost);
    CHECK_THROWS_AS((void)fit({{"a", {1, bad}, 1, ""}}), remat::bad_cost);
    CHECK(contains(message_of([&] { (void)fit_cost(with_operation("mm", 1, 1), std::vector<double>{bad}); }),
                   "operation 0 (mm): the measured time"));
  }
  CHECK_THROWS_AS((void)fit({{"a", {1, 1}, not_known, ""}}), remat::bad_cost);
  // Nothing that may be used is known of every operation.
  options = {};
  options.latency = false;
  CHECK_THROWS_AS((void)fit({{"a", {not_known, not_known}, 1, ""}}, options), remat::bad_cost);
  // … of one kind each: kinds are told apart, what was not measured is refused.
  const fitted_cost<> model = fit({{"a", {1, not_known}, 1, ""}, {"b", {not_known, 1}, 1, ""}}, options);
  CHECK(model.time(with_operation("a", 2, not_known), op_id{0}) == doctest::Approx(2));
  CHECK(contains(message_of([&] { (void)model.time(with_operation("c", 2, 2), op_id{0}); }), "(c) was not measured"));
}

TEST_CASE("the bytes of tensors stand in for bytes that the graph does not state") {
  graph g;
  const auto x = g.add_tensor({.name = "x", .bytes = 40, .kind = remat::tensor_kind::input});
  const auto y = g.add_tensor({.name = "y", .bytes = 2});
  remat::operation_spec o;
  o.name = "copy";
  o.inputs = {x};
  o.outputs = {y};
  g.add_operation(o);
  CHECK(remat::stated_work{}(g, op_id{0}).bytes == 42);
  CHECK(std::isnan(remat::stated_work{}(g, op_id{0}).flops));
  CHECK(remat::stated_work{}(with_operation("a", 1, 7), op_id{0}).bytes == 7);
}

TEST_CASE("kinds by a callable, samples of several graphs") {
  const auto initial = [](const graph& g, op_id o) { return std::string(g.name(o).substr(0, 2)); };
  const graph small = with_operation("mm 1", 1e6, 1e4), large = with_operation("mm 2", 1e9, 1e6);
  auto samples = remat::cost_samples(small, std::vector<double>{1e-3}, initial);
  const auto more = remat::cost_samples(large, std::vector<double>{1.0}, initial);
  samples.insert(samples.end(), more.begin(), more.end());
  const auto model = fit_cost(std::span<const cost_sample>(samples), {}, initial);
  REQUIRE(model.kinds().size() == 1);
  CHECK(model.kinds()[0].kind == "mm");
  CHECK(model.time(with_operation("mm 3", 3e6, 3e4), op_id{0}) == doctest::Approx(3e-3));
}

namespace {

/// "FWD[__17_convolution_2]" → "FWD convolution": which kernel, in which direction.
std::string kernel_of(const graph& g, op_id o) {
  const std::string_view name = g.name(o);
  std::string_view base = name.substr(name.find('[') + 1);
  base = base.substr(0, base.find(']'));
  const auto begins = base.find_first_not_of("_0123456789");
  if (begins != std::string_view::npos) base.remove_prefix(begins);
  const auto digits = base.find_last_not_of("0123456789");
  if (digits != std::string_view::npos && digits + 1 < base.size() && base[digits] == '_')
    base = base.substr(0, digits);
  return std::string(name.substr(0, 3)) + " " + std::string(base);
}

/// The bytes of the tensors; and for products of matrices, m × k by k × n, 2 m k n flops from the sizes of the three.
remat::operation_work tensor_work(const graph& g, op_id o) {
  remat::operation_work w = remat::stated_work{}(g, o);
  w.flops = 0;
  const std::string_view name = g.name(o);
  if (name.find("mm") == std::string_view::npos && name.find("convolution") == std::string_view::npos) return w;
  std::vector<double> elements;
  for (const remat::tensor_id t : g.inputs(o)) elements.push_back(static_cast<double>(g.bytes(t)) / 4);
  const bool forward = name.substr(0, 3) == "FWD";
  if (forward)
    for (const remat::tensor_id t : g.outputs(o)) elements.push_back(static_cast<double>(g.bytes(t)) / 4);
  if (elements.size() < 3) return w;
  std::partial_sort(elements.begin(), elements.begin() + 3, elements.end(), std::greater<>());
  w.flops = (forward ? 2 : 4) * std::sqrt(elements[0] * elements[1] * elements[2]);
  return w;
}

struct held_out_result {
  std::size_t count = 0;
  double median = 0;  // relative error of an operation
  double total = 0;   // relative error of the sum
};

/// Leaves out every third size of each kind that has at least three, and predicts it.
template <class Work>
held_out_result hold_out(const graph& g, const Work& work) {
  struct size {
    std::string kind;
    double flops, bytes;
    bool operator<(const size& other) const {
      const auto known = [](double x) { return std::isnan(x) ? 0 : x; };
      return std::tuple(known(flops), bytes) < std::tuple(known(other.flops), other.bytes);
    }
  };
  std::map<std::string, std::set<size>> sizes;
  std::vector<size> of;
  for (std::size_t i = 0; i < g.num_operations(); ++i) {
    const auto w = work(g, op_id(i));
    of.push_back({kernel_of(g, op_id(i)), w.flops, w.bytes});
    sizes[of.back().kind].insert(of.back());
  }
  std::vector<double> seconds;
  std::vector<std::size_t> left_out;
  for (std::size_t i = 0; i < g.num_operations(); ++i) {
    const auto& all = sizes[of[i].kind];
    const bool leave = all.size() >= 3 && std::distance(all.begin(), all.find(of[i])) % 3 == 1;
    seconds.push_back(leave ? not_known : g.measured_seconds(op_id(i)));
    if (leave) left_out.push_back(i);
  }
  const auto model = fit_cost(g, seconds, {}, kernel_of, work);
  std::vector<double> errors;
  double predicted = 0, measured = 0;
  for (const std::size_t i : left_out) {
    const double t = g.measured_seconds(op_id(i));
    predicted += model.time(g, op_id(i));
    measured += t;
    errors.push_back(std::abs(model.time(g, op_id(i)) - t) / t);
  }
  REQUIRE(!errors.empty());
  std::sort(errors.begin(), errors.end());
  return {errors.size(), errors[errors.size() / 2], predicted / measured - 1};
}

}  // namespace

TEST_CASE("measured graphs: sizes that were left out") {
  struct expected {
    std::string name;
    double median, total;  // at most: what it is, and about a fifth of that
  };
  const std::filesystem::path folder = std::filesystem::path(REMAT_TEST_DATA) / "graphs/rk";
  for (const expected& e :
       {expected{"resnet50", 0.25, 0.12}, expected{"unet", 0.25, 0.1}, expected{"mixer", 0.5, 0.45},
        expected{"transformer-encdec", 0.7, 0.5}, expected{"gpt2-like", 0.75, 0.2}, expected{"fno1d", 0.4, 0.3}}) {
    const graph g = remat::read_training_graph(folder / (e.name + ".json"));
    const held_out_result r = hold_out(g, tensor_work), bytes = hold_out(g, remat::stated_work{});
    MESSAGE(e.name << ": " << r.count << " of " << g.num_operations() << " left out, median error " << r.median
                   << ", of the sum " << r.total << "; by bytes alone " << bytes.count << ", " << bytes.median << ", "
                   << bytes.total);
    CAPTURE(e.name);
    CHECK(r.median < e.median);
    CHECK(std::abs(r.total) < e.total);
  }
}
