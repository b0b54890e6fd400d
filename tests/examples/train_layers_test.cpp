// SPDX-License-Identifier: BSL-1.0
#include "train/host_backend.hpp"
#include "train/host_image_backend.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "remat/cost/models.hpp"
#include "remat/execute/launch_plan.hpp"
#include "remat/problem/problem.hpp"
#include "support/run_step.hpp"
#include "train/gpt.hpp"
#include "train/unet.hpp"

using namespace remat;

namespace {

using network = train::network<train::host_image_backend>;
using train::image;
using train::matrix;

/// A network that ends in a loss, with values for its resident tensors that are not plain random numbers.
struct built {
  network net{"test"};
  tensor_id loss{};
  std::vector<std::pair<tensor_id, std::vector<std::int32_t>>> integers{};
  std::vector<std::pair<tensor_id, std::vector<float>>> floats{};
};

using runner = test::naive_runner<kernel_table<host_call>>;

void fill(runner& run, const built& b, const training_graph& g, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  for (std::size_t t = 0; t < g.num_tensors(); ++t)
    if (const auto id = static_cast<tensor_id>(t); g.always_resident(id))
      for (float& v : run.values<float>(id)) v = static_cast<float>(static_cast<double>(engine() % 2000) / 1000.0 - 1);
  for (const auto& [t, v] : b.integers) std::copy(v.begin(), v.end(), run.values<std::int32_t>(t).begin());
  for (const auto& [t, v] : b.floats) std::copy(v.begin(), v.end(), run.values<float>(t).begin());
}

/// A step that has run once, and its gradients.
class differentiated {
 public:
  explicit differentiated(const built& b)
      : step_(b.net.build(b.loss)), kernels_(step_.kernels), run_(step_.graph, kernels_) {
    fill(run_, b, step_.graph, 5);
    run_.run(7);
    for (const tensor_id t : step_.parameters) {
      const auto g = run_.values<float>(*step_.gradient_of(t));
      gradients_.emplace_back(g.begin(), g.end());
    }
  }

  /// Each gradient against finite differences.
  void check_differences(double h, double tolerance) {
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      const auto values = run_.values<float>(step_.parameters[i]);
      double error = 0, size = 0;
      for (std::size_t e = 0; e < values.size(); ++e) {
        const float old = values[e];
        values[e] = old + static_cast<float>(h);
        const double above = loss();
        values[e] = old - static_cast<float>(h);
        const double difference = (above - loss()) / (2 * h);
        values[e] = old;
        error += std::pow(difference - static_cast<double>(gradients_[i][e]), 2);
        size += difference * difference;
      }
      CAPTURE(step_.graph.name(step_.parameters[i]));
      CAPTURE(std::sqrt(size));
      CHECK(std::sqrt(error) <= tolerance * std::sqrt(size) + 2e-5);
      CHECK(size > 0);
    }
  }

  /// All gradients at once: how the loss changes along them, by about `change`.
  void check_direction(double change, double tolerance) {
    double square = 0;
    for (const auto& g : gradients_)
      for (const float v : g) square += static_cast<double>(v) * static_cast<double>(v);
    const auto move = [&](double by) {
      for (std::size_t i = 0; i < gradients_.size(); ++i) {
        const auto values = run_.values<float>(step_.parameters[i]);
        for (std::size_t e = 0; e < values.size(); ++e) values[e] += static_cast<float>(by) * gradients_[i][e];
      }
    };
    move(change / square / 2);
    const double above = loss();
    move(-change / square);
    CHECK(above - loss() == doctest::Approx(change).epsilon(tolerance));
    move(change / square / 2);
  }

  /// The bits of the gradients in other orders of the operations.
  void check_orders(const built& b) {
    fill(run_, b, step_.graph, 5);
    const problem p(step_.graph, callable_cost{[](op_id) { return 1.0; }});
    std::mt19937_64 engine(3);
    for (int i = 0; i < 10; ++i) {
      run_.run(test::random_order(p, engine), 7);
      for (std::size_t k = 0; k < gradients_.size(); ++k) {
        const auto g = run_.values<float>(*step_.gradient_of(step_.parameters[k]));
        CHECK(std::equal(g.begin(), g.end(), gradients_[k].begin(), gradients_[k].end()));
      }
    }
  }

 private:
  double loss() {
    run_.run(7);
    return static_cast<double>(run_.values<float>(step_.loss)[0]);
  }

  built_step<network::kernel> step_;
  kernel_table<host_call> kernels_;
  runner run_;
  std::vector<std::vector<float>> gradients_;
};

void check(const built& b, double h = 1e-2, double tolerance = 4e-3) {
  differentiated d(b);
  d.check_differences(h, tolerance);
  d.check_orders(b);
}

/// Two layers that read the same matrix, whose gradient is thus a sum of two, with a squared error behind them.
built twice(std::int64_t rows, std::int64_t columns,
            const std::function<matrix(network&, const std::string&, matrix)>& layer) {
  built b;
  const matrix x = b.net.make_parameter("x", rows, columns, 0, 1);
  const matrix y = train::add(b.net, "add", layer(b.net, "first", x), layer(b.net, "second", x));
  const tensor_id target = b.net.builder.input("target", y.size() * 4);
  b.loss = train::mean_squared_error(b.net, "loss", y, target);
  return b;
}

built twice_image(std::int64_t batch, std::int64_t channels, std::int64_t height, std::int64_t width,
                  const std::function<image(network&, const std::string&, image)>& layer) {
  return twice(batch * channels, height * width, [&](network& net, const std::string& name, matrix x) {
    return layer(net, name, {x.id, batch, channels, height, width}).as_matrix();
  });
}

/// Numbers that are at least 0.05 apart, and from 0: nothing that compares them changes its mind in a difference.
std::vector<float> apart(std::size_t size, std::uint64_t seed) {
  std::vector<float> v;
  for (std::size_t i = 0; i < size; ++i)
    v.push_back(0.05F * (static_cast<float>(i) - 0.5F * static_cast<float>(size)) + 0.025F);
  std::mt19937_64 engine(seed);
  for (std::size_t i = size; i > 1; --i) std::swap(v[i - 1], v[engine() % i]);
  return v;
}

}  // namespace

TEST_CASE("linear layers") {
  check(twice(5, 3, [](network& net, const std::string& name, matrix x) { return train::dense(net, name, x, 4); }));
  check(twice(1, 7,
              [](network& net, const std::string& name, matrix x) { return train::dense(net, name, x, 2, false); }));
  built b;  // one weight and one bias for several layers, more rows than a block of a product has
  matrix x = b.net.make_parameter("x", 300, 2, 0, 1);
  const matrix w = b.net.make_parameter("w", 2, 2, 0, 1), bias = b.net.make_parameter("b", 1, 2, 0, 1);
  for (int i = 0; i < 3; ++i) x = train::linear(b.net, "linear", x, w, bias);
  b.loss = train::mean_squared_error(b.net, "loss", x, b.net.builder.input("target", 2400));
  check(b);
}

TEST_CASE("relu and gelu") {
  built b = twice(5, 6, [](network& net, const std::string& name, matrix x) { return train::relu(net, name, x); });
  b.floats.emplace_back(b.net.parameters[0].id, apart(30, 1));
  check(b);
  check(twice(5, 60, [](network& net, const std::string& name, matrix x) { return train::gelu(net, name, x); }));
}

TEST_CASE("the exponential and the hyperbolic tangent are those of the standard library") {
  for (float x = -86.5F; x < 88; x += 0.0371F) {
    CHECK(train::host::exponential(x) == doctest::Approx(std::exp(static_cast<double>(x))).epsilon(4e-7));
    CHECK(std::abs(static_cast<double>(train::host::hyperbolic_tangent(x)) - std::tanh(static_cast<double>(x))) < 3e-7);
  }
  CHECK(train::host::exponential(-1000) == 0);
  CHECK(std::isfinite(train::host::exponential(1000)));
}

TEST_CASE("dropout") {
  check(
      twice(5, 60, [](network& net, const std::string& name, matrix x) { return train::dropout(net, name, x, 0.3F); }));
  std::size_t kept = 0;
  for (std::uint64_t i = 0; i < 100000; ++i) kept += train::dropout_keeps(11, i, 0.3F);
  CHECK(kept > 69000);
  CHECK(kept < 71000);
}

TEST_CASE("layer norm") {
  check(twice(4, 11, [](network& net, const std::string& name, matrix x) { return train::layer_norm(net, name, x); }),
        1e-2, 6e-3);
}

TEST_CASE("attention") {
  check(twice(10, 12,
              [](network& net, const std::string& name, matrix x) { return train::attention(net, name, x, 2, 2); }));
}

TEST_CASE("embedding and cross entropy") {
  built b;
  const tensor_id tokens = b.net.builder.input("tokens", 24), targets = b.net.builder.input("targets", 24);
  const matrix x = train::embedding(b.net, "embedding", tokens, {2, 3, 5, 4});
  b.loss = train::cross_entropy(b.net, "loss", x, targets);
  b.integers = {{tokens, {4, 0, 2, 2, 0, 2}}, {targets, {1, 0, 3, 2, 2, 1}}};
  check(b);
}

TEST_CASE("convolutions") {
  check(twice_image(2, 3, 4, 5, [](network& net, const std::string& name, image x) {
    return train::convolution(net, name, x, 2, 3);
  }));
  check(twice_image(1, 2, 3, 2, [](network& net, const std::string& name, image x) {
    return train::convolution(net, name, x, 3, 1);
  }));
  check(twice_image(1, 2, 2, 3, [](network& net, const std::string& name, image x) {
    return train::convolution(net, name, x, 2, 5);
  }));
}

TEST_CASE("group norm") {
  check(twice_image(2, 4, 3, 2,
                    [](network& net, const std::string& name, image x) { return train::group_norm(net, name, x, 2); }),
        1e-2, 6e-3);
}

TEST_CASE("pools, upsampling, concatenation") {
  built b = twice_image(2, 2, 4, 6,
                        [](network& net, const std::string& name, image x) { return train::max_pool(net, name, x); });
  b.floats.emplace_back(b.net.parameters[0].id, apart(96, 2));
  check(b);
  check(twice_image(2, 1, 4, 6,
                    [](network& net, const std::string& name, image x) { return train::average_pool(net, name, x); }));
  check(twice_image(2, 2, 2, 3,
                    [](network& net, const std::string& name, image x) { return train::upsample(net, name, x); }));
  check(twice_image(2, 2, 2, 3, [](network& net, const std::string& name, image x) {
    return train::concatenate(net, name, x, train::convolution(net, name + ".other", x, 1, 1));
  }));
}

TEST_CASE("binary cross entropy") {
  built b;
  const matrix x = b.net.make_parameter("x", 6, 4, 0, 1);
  const tensor_id targets = b.net.builder.input("targets", 96);
  b.loss = train::binary_cross_entropy(b.net, "loss", {x.id, 2, 3, 2, 2}, targets);
  std::vector<float> masks;
  for (int i = 0; i < 24; ++i) masks.push_back(i % 3 == 0 ? 1.0F : 0.0F);
  b.floats.emplace_back(targets, masks);
  check(b);
}

TEST_CASE("a small GPT and a small U-Net") {
  built b;
  const train::gpt g = train::make_gpt(b.net, {2, 4, 8, 2, 2, 5, 0.2F});
  b.loss = g.loss;
  b.integers = {{g.tokens, {4, 0, 2, 2, 0, 2, 1, 1}}, {g.targets, {1, 0, 3, 2, 2, 1, 4, 4}}};
  check(b, 1e-2, 2e-2);

  built c;
  const train::unet u = train::make_unet(c.net, {1, 8, 4, 2});
  c.loss = u.loss;
  // Somewhere relu bends, or the largest of four changes, within each single difference.
  differentiated d(c);
  d.check_direction(1e-3, 0.03);
  d.check_orders(c);
}
