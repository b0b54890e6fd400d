// SPDX-License-Identifier: BSL-1.0
// A graph of your own type, planned to the proven optimum: one header of the library, and no file. It prints the
// schedule of each budget: F3 is the forward of layer 3, B3 its backward, L the loss; what runs again is in brackets.
// On Compiler Explorer, the include is that of the single header (README.md of this folder).
#include <cstdint>
#include <iostream>
#include <vector>

#include "remat/method/exact.hpp"

// Operations 0 … n − 1 are forwards, n is the loss, n + 1 … 2n are backwards, the last layer's first. Operation o
// writes tensor o + 1; tensor 0 is the input.
struct network {
  std::uint32_t layers;

  std::size_t num_operations() const { return 2 * layers + 1; }
  std::size_t num_tensors() const { return num_operations() + 1; }
  std::vector<remat::tensor_id> inputs(remat::op_id o) const {
    const auto i = static_cast<std::uint32_t>(o);
    if (i <= layers) return {remat::tensor_id{i}};
    return {remat::tensor_id{2 * layers - i}, remat::tensor_id{i}};  // what the forward read, and the gradient
  }
  std::vector<remat::tensor_id> outputs(remat::op_id o) const {
    return {remat::tensor_id{static_cast<std::uint32_t>(o) + 1}};
  }
  std::vector<remat::tensor_id> final_outputs() const {
    return {remat::tensor_id{static_cast<std::uint32_t>(num_operations())}};
  }
  std::int64_t bytes(remat::tensor_id) const { return 1'000'000; }
};
struct one_for_each {
  double time(const network&, remat::op_id) const { return 1; }
};

int main() {
  const network net{8};
  const remat::problem step(net, one_for_each{});
  for (std::int64_t budget = step.graph().baseline_peak; budget > 0; budget -= 2'000'000) {
    const remat::solution s = remat::exact(step.with_budget(budget));
    std::cout << budget / 1'000'000 << " MB: " << (s.plan ? "time " : "no schedule exists\n");
    if (!s.plan) break;
    std::cout << s.time << ", at least " << s.lower_bound << ":";
    std::vector<bool> ran(net.num_operations());
    for (const remat::step& x : s.plan->steps) {
      if (x.is_free()) continue;
      const auto i = static_cast<std::uint32_t>(x.operation());
      const char* name = i < net.layers ? "F" : i == net.layers ? "L" : "B";
      std::cout << (ran[i] ? " [" : " ") << name;
      if (i != net.layers) std::cout << (i < net.layers ? i : 2 * net.layers - i);
      std::cout << (ran[i] ? "]" : "");
      ran[i] = true;
    }
    std::cout << '\n';
  }
}
