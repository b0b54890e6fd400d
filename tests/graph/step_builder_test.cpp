// SPDX-License-Identifier: BSL-1.0
#include "remat/graph/step_builder.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/cost/models.hpp"
#include "remat/execute/launch_plan.hpp"
#include "remat/problem/problem.hpp"
#include "support/run_step.hpp"

using namespace remat;
using namespace remat::detail;

namespace {

using kernel = std::function<void(const host_call&)>;
using builder = step_builder<kernel>;

/// Each element of output `i` is `value(element)`, or has it added; an output that nobody needs is skipped.
template <class T, class F>
void put(const host_call& c, std::size_t i, const F& value) {
  const auto out = c.output<T>(i);
  for (std::size_t e = 0; e < out.size(); ++e) {
    const volatile T contribution = value(e);  // rounded before it is added
    out[e] = c.adds[i] ? out[e] + contribution : contribution;
  }
}

template <class T>
step_builder_options<kernel> standard() {
  step_builder_options<kernel> o;
  o.kernels.one = [](const host_call& c) { put<T>(c, 0, [](std::size_t) { return T{1}; }); };
  o.kernels.zero = [](const host_call& c) { put<T>(c, 0, [](std::size_t) { return T{0}; }); };
  o.kernels.sum = [](const host_call& c) {
    const auto x = c.input<T>(0);
    put<T>(c, 0, [&](std::size_t e) { return x[e]; });
  };
  return o;
}

/// Operations on vectors of `n` elements of T, with their rules.
template <class T>
struct maker {
  static constexpr std::size_t n = 3;
  builder b{"test"};

  tensor_id parameter(const std::string& name) { return b.parameter(name, n * sizeof(T)); }
  tensor_id vector(const std::string& name) { return b.activation(name, n * sizeof(T)); }

  tensor_id add(tensor_id x, tensor_id y) {
    const tensor_id z = vector("add");
    b.add({.name = "add",
           .inputs = {x, y},
           .outputs = {z},
           .kernel =
               [](const host_call& c) {
                 const auto p = c.input<T>(0), q = c.input<T>(1);
                 put<T>(c, 0, [&](std::size_t e) { return p[e] + q[e]; });
               },
           .pass_gradient_to = {x, y}});
    return z;
  }
  /// One backward operation for both gradients.
  tensor_id multiply(tensor_id x, tensor_id y) {
    const tensor_id z = vector("multiply");
    b.add({.name = "multiply",
           .inputs = {x, y},
           .outputs = {z},
           .kernel =
               [](const host_call& c) {
                 const auto p = c.input<T>(0), q = c.input<T>(1);
                 put<T>(c, 0, [&](std::size_t e) { return p[e] * q[e]; });
               },
           .backward = {{.inputs = {x, y, grad(z)}, .outputs = {grad(x), grad(y)}, .kernel = [](const host_call& c) {
                           const auto p = c.input<T>(0), q = c.input<T>(1), g = c.input<T>(2);
                           put<T>(c, 0, [&](std::size_t e) { return q[e] * g[e]; });
                           put<T>(c, 1, [&](std::size_t e) { return p[e] * g[e]; });
                         }}}});
    return z;
  }
  /// sin(rotated x); the cosine is saved, its gradient's place is used for a first backward operation's result.
  tensor_id sine(tensor_id x) {
    const tensor_id z = vector("sine"), cosine = b.saved("cosine", n * sizeof(T));
    b.add({.name = "sine",
           .inputs = {x},
           .outputs = {z, cosine},
           .kernel =
               [](const host_call& c) {
                 const auto p = c.input<T>(0);
                 put<T>(c, 0, [&](std::size_t e) { return std::sin(p[(e + 1) % n]); });
                 put<T>(c, 1, [&](std::size_t e) { return std::cos(p[(e + 1) % n]); });
               },
           .backward = {{.name = "sine backward, first",
                         .inputs = {cosine, grad(z)},
                         .outputs = {grad(cosine)},
                         .kernel =
                             [](const host_call& c) {
                               const auto p = c.input<T>(0), g = c.input<T>(1);
                               put<T>(c, 0, [&](std::size_t e) { return p[e] * g[e]; });
                             }},
                        {.name = "sine backward, second",
                         .inputs = {grad(cosine)},
                         .outputs = {grad(x)},
                         .kernel = [](const host_call& c) {
                           const auto g = c.input<T>(0);
                           put<T>(c, 0, [&](std::size_t e) { return g[(e + n - 1) % n]; });
                         }}}});
    return z;
  }
  /// Two outputs: x y and x − y, with a backward operation for each input.
  std::pair<tensor_id, tensor_id> both(tensor_id x, tensor_id y) {
    const tensor_id u = vector("product"), v = vector("difference");
    const auto rule = [](T sign) {
      return [sign](const host_call& c) {
        const auto other = c.input<T>(0), g = c.input<T>(1), h = c.input<T>(2);
        put<T>(c, 0, [&](std::size_t e) { return other[e] * g[e] + sign * h[e]; });
      };
    };
    b.add({.name = "both",
           .inputs = {x, y},
           .outputs = {u, v},
           .kernel =
               [](const host_call& c) {
                 const auto p = c.input<T>(0), q = c.input<T>(1);
                 put<T>(c, 0, [&](std::size_t e) { return p[e] * q[e]; });
                 put<T>(c, 1, [&](std::size_t e) { return p[e] - q[e]; });
               },
           .backward = {{.inputs = {y, grad(u), grad(v)}, .outputs = {grad(x)}, .kernel = rule(1)},
                        {.inputs = {x, grad(u), grad(v)}, .outputs = {grad(y)}, .kernel = rule(-1)}}});
    return {u, v};
  }
  tensor_id total(tensor_id x) {
    const tensor_id loss = b.activation("total", sizeof(T));
    b.add({.name = "total",
           .inputs = {x},
           .outputs = {loss},
           .kernel =
               [](const host_call& c) {
                 const auto p = c.input<T>(0);
                 put<T>(c, 0, [&](std::size_t) { return p[0] + 2 * p[1] - p[2]; });
               },
           .backward = {{.inputs = {grad(loss)}, .outputs = {grad(x)}, .kernel = [](const host_call& c) {
                           const T g = c.input<T>(0)[0];
                           put<T>(c, 0, [&](std::size_t e) { return e == 1 ? 2 * g : e == 2 ? -g : g; });
                         }}}});
    return loss;
  }

  /// A random network over three parameters and an input; returns the loss.
  tensor_id random(std::mt19937_64& engine, std::size_t operations) {
    std::vector<tensor_id> made{parameter("p"), parameter("q"), parameter("r"), b.input("x", n * sizeof(T))};
    // A few tensors are used often.
    const auto pick = [&] { return made[engine() % 3 == 0 ? engine() % 4 : engine() % made.size()]; };
    for (std::size_t i = 0; i < operations; ++i) switch (engine() % 5) {
        case 0:
          made.push_back(add(pick(), pick()));
          break;
        case 1:
          made.push_back(multiply(pick(), pick()));
          break;
        case 2: {
          const auto two = both(pick(), pick());
          made.push_back(two.first);
          made.push_back(two.second);
          break;
        }
        default:
          made.push_back(sine(pick()));
      }
    tensor_id sum = made.back();
    for (int i = 0; i < 3; ++i) sum = add(sum, pick());
    return total(sum);
  }
};

using runner = test::naive_runner<kernel_table<host_call>>;

template <class T>
void fill_residents(runner& run, const training_graph& g, std::mt19937_64& engine) {
  for (std::size_t t = 0; t < g.num_tensors(); ++t)
    if (const auto id = static_cast<tensor_id>(t); g.always_resident(id))
      for (T& v : run.values<T>(id)) v = static_cast<T>(static_cast<double>(engine() % 2000) / 1000.0 - 1);
}

std::vector<std::vector<std::byte>> final_outputs(runner& run, const training_graph& g) {
  std::vector<std::vector<std::byte>> out;
  for (const tensor_id t : g.final_outputs()) {
    const auto v = run.values<std::byte>(t);
    out.emplace_back(v.begin(), v.end());
  }
  return out;
}

/// The step of a random network; none if its loss depends on the input alone.
template <class T>
std::optional<built_step<kernel>> random_step(std::mt19937_64& engine, std::size_t operations) {
  maker<T> m;
  const tensor_id loss = m.random(engine, operations);
  auto options = standard<T>();
  options.unused_parameters = true;
  try {
    return m.b.build(loss, options);
  } catch (const bad_graph&) {
    return std::nullopt;
  }
}

const callable_cost one_each{[](op_id) { return 1.0; }};

}  // namespace

TEST_CASE("gradients of random networks are those of finite differences") {
  std::size_t sums = 0, zeros = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 engine(seed);
    const auto built = random_step<double>(engine, 1 + engine() % 9);
    if (!built) continue;
    const built_step<kernel>& step = *built;
    const problem valid(step.graph, one_each);
    const kernel_table<host_call> kernels(step.kernels);
    runner run(step.graph, kernels);
    fill_residents<double>(run, step.graph, engine);
    run.run();
    for (std::size_t o = 0; o < step.graph.num_operations(); ++o) {
      sums += step.graph.name(static_cast<op_id>(o)).substr(0, 4) == "sum ";
      zeros += step.graph.name(static_cast<op_id>(o)).substr(0, 5) == "zero ";
    }
    std::vector<std::vector<double>> gradients;
    for (const tensor_id p : step.parameters) {
      const auto g = run.values<double>(*step.gradient_of(p));
      gradients.emplace_back(g.begin(), g.end());
    }
    for (std::size_t i = 0; i < gradients.size(); ++i)
      for (std::size_t e = 0; e < maker<double>::n; ++e) {
        double& x = run.values<double>(step.parameters[i])[e];
        const double old = x, h = 1e-5;
        x = old + h;
        run.run();
        const double above = run.values<double>(step.loss)[0];
        x = old - h;
        run.run();
        const double difference = (above - run.values<double>(step.loss)[0]) / (2 * h);
        x = old;
        CAPTURE(seed);
        CHECK(std::abs(gradients[i][e] - difference) <= 1e-6 * (1 + std::abs(difference)));
      }
  }
  CHECK(sums > 100);
  CHECK(zeros > 10);
}

TEST_CASE("the bits of gradients do not depend on the order of the operations") {
  std::size_t pairs_seen = 0, pairs_in_both_orders = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    std::mt19937_64 engine(seed);
    const auto built = random_step<float>(engine, 12);
    if (!built) continue;
    const built_step<kernel>& step = *built;
    const problem p(step.graph, one_each);
    const kernel_table<host_call> kernels(step.kernels);
    runner run(step.graph, kernels);
    fill_residents<float>(run, step.graph, engine);
    run.run();
    const auto expected = final_outputs(run, step.graph);
    std::map<std::uint32_t, std::set<std::uint32_t>> first;  // tensor → which of its producers ran first
    for (int i = 0; i < 20; ++i) {
      const auto order = test::random_order(p, engine);
      run.run(order);
      CAPTURE(seed);
      CHECK(final_outputs(run, step.graph) == expected);
      std::set<std::uint32_t> seen;
      for (const op_id o : order)
        for (const std::uint32_t t : p.graph().outputs[index(o)])
          if (p.graph().producers[t].size() > 1 && seen.insert(t).second)
            first[t].insert(static_cast<std::uint32_t>(index(o)));
    }
    for (std::uint32_t t = 0; t < p.graph().num_tensors; ++t) CHECK(p.graph().producers[t].size() <= 2);
    pairs_seen += first.size();
    for (const auto& [t, who] : first) pairs_in_both_orders += who.size() > 1;
  }
  CHECK(pairs_in_both_orders > 100);
  CHECK(pairs_seen > pairs_in_both_orders);
}

TEST_CASE("what nobody needs is left out, or has no bytes") {
  maker<float> m;
  const tensor_id x = m.b.input("x", 12), w = m.parameter("w");
  const tensor_id dead = m.sine(w);
  const tensor_id y = m.multiply(x, w);
  const tensor_id loss = m.total(m.sine(y));
  const built_step<kernel> step = m.b.build(loss, standard<float>());
  const training_graph& g = step.graph;
  CHECK(step.loss == loss);
  CHECK(step.parameters == std::vector{w});
  CHECK(!step.gradient_of(dead));
  CHECK(!step.gradient_of(x));
  REQUIRE(step.gradient_of(w).has_value());
  CHECK(g.name(*step.gradient_of(w)) == "grad(w)");
  CHECK(g.kind(*step.gradient_of(w)) == tensor_kind::gradient);
  CHECK(g.bytes(*step.gradient_of(w)) == 12);
  const auto outputs = g.final_outputs();
  CHECK(std::vector(outputs.begin(), outputs.end()) == std::vector{loss, *step.gradient_of(w)});

  std::vector<std::string> names;
  for (std::size_t o = 0; o < g.num_operations(); ++o) names.emplace_back(g.name(static_cast<op_id>(o)));
  CHECK(names == std::vector<std::string>{"sine", "multiply", "sine", "total", "one grad(total)", "total backward",
                                          "sine backward, first", "sine backward, second", "multiply backward"});
  CHECK(step.origin(op_id{2}) == op_id{2});
  CHECK(!step.origin(op_id{4}));
  CHECK(step.origin(op_id{7}) == op_id{2});
  CHECK(step.origin(op_id{8}) == op_id{1});
  CHECK(g.phase(op_id{2}) == op_phase::forward);
  CHECK(g.phase(op_id{3}) == op_phase::loss);
  CHECK(g.phase(op_id{4}) == op_phase::backward);
  // The gradient of x is an output of the last operation, of zero bytes.
  REQUIRE(g.outputs(op_id{8}).size() == 2);
  CHECK(g.bytes(g.outputs(op_id{8})[0]) == 0);
  CHECK(g.outputs(op_id{8})[1] == *step.gradient_of(w));

  // It is made where it is asked for.
  m.b.want_gradient(x);
  const built_step<kernel> more = m.b.build(loss, standard<float>());
  REQUIRE(more.gradient_of(x).has_value());
  CHECK(more.graph.bytes(*more.gradient_of(x)) == 12);
  CHECK(more.parameters == std::vector{w});
  CHECK(more.graph.final_outputs().size() == 3);
}

TEST_CASE("an operation of which no gradient is needed is left out") {
  maker<float> m;
  const tensor_id x = m.b.input("x", 12), frozen = m.b.parameter("frozen", 12, false), w = m.parameter("w");
  const tensor_id first = m.sine(m.multiply(x, frozen));  // leads to no parameter with a gradient
  const auto two = m.both(first, w);
  const built_step<kernel> step = m.b.build(m.total(two.second), standard<float>());
  CHECK(!step.gradient_of(first));
  CHECK(!step.gradient_of(frozen));
  REQUIRE(step.gradient_of(two.first).has_value());  // zeros: the loss ignores it
  std::size_t backward = 0, zeros = 0;
  for (std::size_t o = 0; o < step.graph.num_operations(); ++o) {
    backward += step.graph.name(static_cast<op_id>(o)) == "both backward";
    zeros += step.graph.name(static_cast<op_id>(o)) == "zero grad(product)";
  }
  CHECK(backward == 1);
  CHECK(zeros == 1);
}

TEST_CASE("a gradient that is passed on is not copied, unless something is added to it") {
  maker<float> m;
  const tensor_id p = m.parameter("p"), q = m.parameter("q");
  const tensor_id s = m.sine(p);
  const tensor_id y = m.add(s, q);
  SUBCASE("one use") {
    const built_step<kernel> step = m.b.build(m.total(y), standard<float>());
    CHECK(step.gradient_of(q) == step.gradient_of(y));
    CHECK(step.gradient_of(s) == step.gradient_of(y));
    CHECK(step.graph.num_operations() == 7);
  }
  SUBCASE("two uses") {
    const tensor_id z = m.multiply(y, q);
    const built_step<kernel> step = m.b.build(m.total(z), standard<float>());
    CHECK(step.gradient_of(q) != step.gradient_of(y));
    CHECK(step.graph.num_operations() == 4 + 1 + 2 + 1 + 2);  // one sum
  }
}

TEST_CASE("a graph can be built without kernels, but not with some of them") {
  builder b("plan");
  const tensor_id w = b.parameter("w", 4), y = b.activation("y", 4);
  b.add({.name = "f",
         .inputs = {w},
         .outputs = {y},
         .flops = 7,
         .workspace = 3,
         .deterministic = false,
         .backward = {{.inputs = {grad(y)}, .outputs = {grad(w)}, .flops = 9, .recomputable = false}}});
  const built_step<kernel> step = b.build(y);
  CHECK(step.graph.name() == "plan");
  CHECK(step.graph.num_operations() == 3);
  CHECK(step.graph.flops(op_id{0}) == 7);
  CHECK(step.graph.workspace(op_id{0}) == 3);
  CHECK(!step.graph.deterministic(op_id{0}));
  CHECK(step.graph.flops(op_id{2}) == 9);
  CHECK(!step.graph.recomputable(op_id{2}));
  CHECK_THROWS_WITH_AS((void)b.build(y, standard<float>()), "operation 0 (f) has no kernel", bad_graph);

  builder c;
  const tensor_id v = c.parameter("v", 4), z = c.activation("z", 4);
  const kernel nothing = [](const host_call&) {};
  c.add({.name = "f",
         .inputs = {v},
         .outputs = {z},
         .kernel = nothing,
         .backward = {{.inputs = {grad(z)}, .outputs = {grad(v)}, .kernel = nothing}}});
  CHECK_THROWS_WITH_AS((void)c.build(z),
                       "operation 1 (one grad(z)) has no kernel; give it to build: step_builder_options::kernels",
                       bad_graph);

  // Kernels that cannot be asked whether they are there are left alone.
  struct opaque {};
  step_builder<opaque> d;
  const tensor_id u = d.parameter("u", 4), a = d.activation("a", 4);
  d.add({.name = "f", .inputs = {u}, .outputs = {a}, .backward = {{.outputs = {grad(u)}}}});
  CHECK(d.build(a).graph.num_operations() == 2);  // the rule does not read the loss's gradient
}

TEST_CASE("what cannot be differentiated is refused, by name") {
  builder b;
  const tensor_id x = b.input("x", 4), w = b.parameter("w", 4), y = b.activation("y", 4), z = b.activation("z", 8),
                  s = b.saved("s", 4);
  const auto refuse = [&](forward_operation<kernel> o, const char* why) {
    o.name = "f";
    CHECK_THROWS_WITH_AS(b.add(std::move(o)), why, bad_graph);
  };
  const tensor_id none{99};
  refuse({.inputs = {none}}, "operation 0 (f): 99 is no tensor; there are 5");
  refuse({.outputs = {none}}, "operation 0 (f): 99 is no tensor; there are 5");
  refuse({.inputs = {y}}, "operation 0 (f): reads tensor 2 (y), which no operation before it writes");
  refuse({.inputs = {s}},
         "operation 0 (f): reads tensor 4 (s), which is saved for the backward of its own operation alone; make it an "
         "activation");
  refuse({.outputs = {x}}, "operation 0 (f): writes tensor 0 (x), a parameter or an input; those have no producer");
  refuse({.outputs = {y, y}}, "operation 0 (f): writes tensor 2 (y), which has a producer already");
  refuse({.workspace = -1}, "operation 0 (f): workspace is -1; it must not be negative");
  refuse({.inputs = {w}, .outputs = {y}, .backward = {{.inputs = {grad(w)}, .outputs = {grad(w)}}}},
         "operation 0 (f): its backward reads the gradient of tensor 1 (w), which is not among its outputs");
  refuse({.inputs = {w}, .outputs = {y}, .backward = {{.name = "g", .inputs = {x}, .outputs = {grad(w)}}}},
         "operation 0 (f): its backward (g) reads tensor 0 (x), which is neither an input nor an output of the "
         "operation");
  refuse({.inputs = {w}, .outputs = {y}, .backward = {{.outputs = {grad(y)}}}},
         "operation 0 (f): its backward writes the gradient of tensor 2 (y), which is neither an input nor saved");
  refuse({.inputs = {w}, .outputs = {y}, .backward = {{.inputs = {grad(y)}}}},
         "operation 0 (f): its backward writes no gradient");
  refuse({.inputs = {w}, .outputs = {y}, .backward = {{.outputs = {grad(w)}, .workspace = -2}}},
         "operation 0 (f): its backward has workspace -2; it must not be negative");
  refuse({.inputs = {w}, .outputs = {y, s}, .backward = {{.inputs = {grad(s)}, .outputs = {grad(w)}}}},
         "operation 0 (f): its backward reads the gradient of the saved tensor 4 (s), which no operation of the rule "
         "before it writes");
  refuse({.inputs = {w},
          .outputs = {y, s},
          .backward = {{.outputs = {grad(s)}}, {.outputs = {grad(s)}}, {.inputs = {grad(s)}, .outputs = {grad(w)}}}},
         "operation 0 (f): its backward writes the gradient of the saved tensor 4 (s) a second time");
  refuse({.inputs = {w}, .outputs = {y, z}, .pass_gradient_to = {w}},
         "operation 0 (f): passes a gradient on, so it must have one output");
  refuse({.inputs = {w}, .outputs = {y}, .pass_gradient_to = {x}},
         "operation 0 (f): passes a gradient to tensor 0 (x), which is not among its inputs");
  refuse({.inputs = {w}, .outputs = {z}, .pass_gradient_to = {w}},
         "operation 0 (f): passes a gradient to tensor 1 (w), whose bytes differ from those of its output");
  CHECK(b.num_operations() == 0);

  CHECK_THROWS_WITH_AS(b.activation("t", -1), "tensor 5 (t): bytes is -1; it must not be negative", bad_graph);
  CHECK_THROWS_WITH_AS(b.want_gradient(none), "want_gradient: 99 is no tensor; there are 5", bad_graph);
  CHECK_THROWS_WITH_AS((void)b.build(none), "the loss 99 is no tensor; there are 5", bad_graph);
  CHECK_THROWS_WITH_AS((void)b.build(y), "the loss, tensor 2 (y), is no output of an operation", bad_graph);
  b.add({.name = "cut", .inputs = {w}, .outputs = {y}});
  CHECK_THROWS_WITH_AS((void)b.build(y),
                       "the loss, tensor 2 (y), depends on no parameter through operations that have a backward rule",
                       bad_graph);
  const tensor_id v = b.parameter("v", 4), loss = b.activation("loss", 4);
  b.add({.name = "g",
         .inputs = {y, v},
         .outputs = {loss},
         .backward = {{.inputs = {grad(loss)}, .outputs = {grad(v)}}, {.inputs = {grad(loss)}, .outputs = {grad(y)}}}});
  CHECK_THROWS_WITH_AS((void)b.build(loss),
                       "parameter 1 (w) gets no gradient: the loss, tensor 6 (loss), does not depend on it through "
                       "operations that have a backward rule",
                       bad_graph);
  const built_step<kernel> step = b.build(loss, {.kernels = {}, .unused_parameters = true});
  CHECK(step.parameters == std::vector{v});
  CHECK(step.graph.num_operations() == 4);  // the gradient of y leads nowhere
}
