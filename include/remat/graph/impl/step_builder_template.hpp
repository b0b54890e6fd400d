// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/graph/step_builder.hpp"

#include "remat/core/error.hpp"

namespace REMAT_NAMESPACE {

/// One call of `build`: finds the gradients that are needed, then goes through the operations in reverse.
template <class Kernel>
class step_builder<Kernel>::reverse_walk {
 public:
  reverse_walk(const step_builder& builder, tensor_id loss, const step_builder_options<Kernel>& options)
      : b_(builder), loss_(loss), options_(options), needed_(b_.wanted_), sums_(b_.num_tensors()) {
    for (const forward_operation<Kernel>& o : b_.operations_) {
      bool any = false;
      const auto see = [&](tensor_id t) { any = any || (needed_[index(t)] && contains(o.inputs, t)); };
      for (const auto& rule : o.backward)
        for (const gradient& g : rule.outputs) see(g.of);
      for (const tensor_id t : o.pass_gradient_to) see(t);
      if (any)
        for (const tensor_id t : o.outputs) needed_[index(t)] = 1;
    }
    if (!needed_[index(loss)])
      throw bad_graph("the loss, " + b_.label(loss) +
                      ", depends on no parameter through operations that have a backward rule");
  }

  built_step<Kernel> finish() {
    for (std::size_t o = b_.operations_.size(); o-- > 0;) differentiate(static_cast<op_id>(o));
    built_step<Kernel> step;
    step.graph = b_.tensors_;
    step.loss = loss_;
    const std::vector<tensor_id> outputs = collect_gradients(step);
    for (tensor_spec& t : gradients_) step.graph.add_tensor(std::move(t));
    for (std::size_t i = 0; i < b_.operations_.size(); ++i) {
      const forward_operation<Kernel>& f = b_.operations_[i];
      const auto o = static_cast<op_id>(i);
      const op_phase phase = b_.producer_[index(loss_)] == o ? op_phase::loss : op_phase::forward;
      step.graph.add_operation(spec_of(f, f.name, phase, f.inputs, f.outputs));
      step.kernels.push_back(f.kernel);
      step.origins.push_back(o);
    }
    for (made_operation& m : made_) {
      step.graph.add_operation(std::move(m.spec));
      step.kernels.push_back(std::move(m.kernel));
      step.origins.push_back(m.origin);
    }
    for (const tensor_id t : outputs) step.graph.add_final_output(t);
    check_kernels(step);
    return step;
  }

 private:
  /// The sum of the contributions to the gradient of one tensor so far.
  struct sum_so_far {
    tensor_id storage{};
    std::uint32_t producers = 0;  // number of producers of `storage`; a third is not allowed
    bool own = true;              // false if `storage` is the gradient of another tensor, too
    std::uint64_t last_rule = 0;  // the backward operation that contributed last
    [[nodiscard]] bool exists() const noexcept { return producers != 0; }
  };
  struct made_operation {
    operation_spec spec{};
    Kernel kernel{};
    std::optional<op_id> origin{};
  };
  struct later_sum {
    tensor_id of, from, to;
  };

  /// Returns the operation of the graph for a forward operation or an operation of a backward rule.
  template <class Operation>
  static operation_spec spec_of(const Operation& o, std::string name, op_phase phase, std::vector<tensor_id> inputs,
                                std::vector<tensor_id> outputs) {
    return {.name = std::move(name),
            .phase = phase,
            .inputs = std::move(inputs),
            .outputs = std::move(outputs),
            .flops = o.flops,
            .bytes_accessed = o.bytes_accessed,
            .workspace = o.workspace,
            .deterministic = o.deterministic,
            .recomputable = o.recomputable};
  }

  [[nodiscard]] std::string gradient_name(tensor_id of) const { return "grad(" + std::string(b_.name(of)) + ")"; }
  [[nodiscard]] bool is_needed(const gradient& g, const forward_operation<Kernel>& o,
                               const std::vector<tensor_id>& inner) const {
    return contains(o.inputs, g.of) ? needed_[index(g.of)] != 0 : contains(inner, g.of);
  }

  tensor_id new_gradient(tensor_id of, const char* prefix, std::int64_t bytes) {
    gradients_.push_back({prefix + gradient_name(of), bytes, tensor_kind::gradient});
    return static_cast<tensor_id>(b_.num_tensors() + gradients_.size() - 1);
  }
  tensor_id new_partial(tensor_id of) { return new_gradient(of, "partial ", b_.bytes(of)); }

  /// Makes an operation for the gradient of `of` that comes from no rule. `traffic`: its reads and writes of the
  /// tensor.
  void make(const char* what, tensor_id of, std::vector<tensor_id> inputs, tensor_id output, double traffic,
            const Kernel& kernel) {
    made_.push_back({{.name = what + gradient_name(of),
                      .phase = op_phase::backward,
                      .inputs = std::move(inputs),
                      .outputs = {output},
                      .flops = 0,
                      .bytes_accessed = traffic * static_cast<double>(b_.bytes(of))},
                     kernel,
                     {}});
  }
  void add_to(tensor_id of, tensor_id from, tensor_id to, bool to_is_new) {
    make("sum ", of, {from}, to, to_is_new ? 2 : 3, options_.kernels.sum);
  }

  /// Returns the tensor to which the backward operation of number `rule` writes its contribution to the gradient of
  /// `t`. Sums that must follow that operation are put off.
  tensor_id contribute(tensor_id t, std::uint64_t rule) {
    sum_so_far& s = sums_[index(t)];
    const bool same_rule = s.exists() && s.last_rule == rule;
    if (!s.exists()) {
      s = {new_partial(t), 1, true, rule};
    } else if (s.producers == 1 && !same_rule) {
      s.producers = 2;
      s.last_rule = rule;
    } else {
      const tensor_id old = s.storage;
      s = {new_partial(t), 2, true, rule};
      if (same_rule)
        after_.push_back({t, old, s.storage});
      else
        add_to(t, old, s.storage, true);
    }
    return s.storage;
  }

  /// Adds the tensor `from` to the gradient of `t`, without an operation of its own.
  void pass(tensor_id t, tensor_id from) {
    sum_so_far& s = sums_[index(t)];
    if (!s.exists()) {
      s = {from, 2, false, 0};
    } else if (s.producers == 1) {
      add_to(t, from, s.storage, false);
      s.producers = 2;
    } else {
      const tensor_id old = s.storage;
      s = {new_partial(t), 2, true, 0};
      add_to(t, old, s.storage, true);
      add_to(t, from, s.storage, false);
    }
  }

  /// Returns the tensor that holds the gradient of `t`, for a rule that reads it.
  tensor_id value_of_gradient(tensor_id t) {
    sum_so_far& s = sums_[index(t)];
    if (!s.exists()) {
      const bool is_loss = t == loss_;
      s = {new_gradient(t, "", b_.bytes(t)), 2, true, 0};
      make(is_loss ? "one " : "zero ", t, {}, s.storage, 1, is_loss ? options_.kernels.one : options_.kernels.zero);
    }
    return s.storage;
  }

  void differentiate(op_id id) {
    const forward_operation<Kernel>& o = b_.operations_[index(id)];
    if (std::none_of(o.outputs.begin(), o.outputs.end(),
                     [&](tensor_id t) { return t == loss_ || sums_[index(t)].exists(); }))
      return;
    std::vector<std::uint8_t> live(o.backward.size(), 0);
    std::vector<tensor_id> inner;  // saved tensors whose gradients later operations of the rule read
    for (std::size_t k = o.backward.size(); k-- > 0;) {
      for (const gradient& g : o.backward[k].outputs) live[k] = live[k] || is_needed(g, o, inner);
      if (!live[k]) continue;
      for (const backward_input& in : o.backward[k].inputs)
        if (in.is_gradient) inner.push_back(in.tensor);
    }
    for (std::size_t k = 0; k < o.backward.size(); ++k)
      if (live[k]) emit(id, o, o.backward[k], inner);
    for (const tensor_id t : o.pass_gradient_to)
      if (needed_[index(t)]) pass(t, value_of_gradient(o.outputs[0]));
  }

  void emit(op_id id, const forward_operation<Kernel>& o, const backward_operation<Kernel>& rule,
            const std::vector<tensor_id>& inner) {
    std::vector<tensor_id> inputs, outputs;
    for (const backward_input& in : rule.inputs)
      inputs.push_back(in.is_gradient ? value_of_gradient(in.tensor) : in.tensor);
    ++rule_;
    for (const gradient& g : rule.outputs)
      outputs.push_back(is_needed(g, o, inner) ? contribute(g.of, rule_) : new_gradient(g.of, "no ", 0));
    made_.push_back({spec_of(rule, rule.name.empty() ? o.name + " backward" : rule.name, op_phase::backward,
                             std::move(inputs), std::move(outputs)),
                     rule.kernel, id});
    for (const later_sum& l : after_) add_to(l.of, l.from, l.to, false);
    after_.clear();
  }

  /// Fills in `parameters` and `gradients`, and returns the final outputs.
  std::vector<tensor_id> collect_gradients(built_step<Kernel>& step) {
    std::vector<tensor_id> outputs{loss_};
    if (b_.wanted_[index(loss_)]) value_of_gradient(loss_);
    step.gradients.resize(b_.num_tensors());
    for (std::size_t i = 0; i < b_.num_tensors(); ++i) {
      const auto t = static_cast<tensor_id>(i);
      const bool is_parameter = b_.tensors_.kind(t) == tensor_kind::parameter;
      if (!sums_[i].exists()) {
        if (b_.wanted_[i] && !(options_.unused_parameters && is_parameter))
          throw bad_graph((is_parameter ? "parameter " : "tensor ") + std::to_string(i) + " (" +
                          std::string(b_.name(t)) + ") gets no gradient: the loss, " + b_.label(loss_) +
                          ", does not depend on it through operations that have a backward rule");
        continue;
      }
      const tensor_id storage = sums_[i].storage;
      step.gradients[i] = storage;
      if (sums_[i].own) gradients_[index(storage) - b_.num_tensors()].name = gradient_name(t);
      if (!b_.wanted_[i]) continue;
      if (is_parameter) step.parameters.push_back(t);
      if (!contains(outputs, storage)) outputs.push_back(storage);
    }
    return outputs;
  }

  static void check_kernels(const built_step<Kernel>& step) {
    if constexpr (requires(const Kernel& k) { static_cast<bool>(k); }) {
      const auto is_given = [](const Kernel& k) { return static_cast<bool>(k); };
      const auto first = step.kernels.begin(), last = step.kernels.end();
      const auto without = std::find_if_not(first, last, is_given);
      if (without == last || std::none_of(first, last, is_given)) return;
      const auto o = static_cast<op_id>(without - first);
      throw bad_graph(detail::label(step.graph, o) + " has no kernel" +
                      (step.origin(o) ? "" : "; give it to build: step_builder_options::kernels"));
    }
  }

  const step_builder& b_;
  tensor_id loss_;
  const step_builder_options<Kernel>& options_;
  std::vector<std::uint8_t> needed_;    // whether a wanted gradient depends on each tensor's gradient
  std::vector<sum_so_far> sums_;        // each tensor's sum so far
  std::vector<tensor_spec> gradients_;  // their ids follow those of the forward pass
  std::vector<made_operation> made_;
  std::vector<later_sum> after_;
  std::uint64_t rule_ = 0;
};

template <class Kernel>
void step_builder<Kernel>::want_gradient(tensor_id t) {
  if (index(t) >= num_tensors())
    throw bad_graph("want_gradient: " + std::to_string(index(t)) + " is no tensor; there are " +
                    std::to_string(num_tensors()));
  wanted_[index(t)] = 1;
}

template <class Kernel>
op_id step_builder<Kernel>::add(forward_operation<Kernel> o) {
  if (operations_.size() >= std::numeric_limits<std::uint32_t>::max() / 4) throw bad_graph("too many operations");
  const auto id = static_cast<op_id>(operations_.size());
  check(id, o);
  for (const tensor_id t : o.outputs) producer_[index(t)] = id;
  operations_.push_back(std::move(o));
  return id;
}

template <class Kernel>
built_step<Kernel> step_builder<Kernel>::build(tensor_id loss, const step_builder_options<Kernel>& options) const {
  if (index(loss) >= num_tensors())
    throw bad_graph("the loss " + std::to_string(index(loss)) + " is no tensor; there are " +
                    std::to_string(num_tensors()));
  if (!producer_[index(loss)]) throw bad_graph("the loss, " + label(loss) + ", is no output of an operation");
  return reverse_walk(*this, loss, options).finish();
}

template <class Kernel>
tensor_id step_builder<Kernel>::tensor(std::string name, std::int64_t bytes, tensor_kind kind) {
  const tensor_id t = tensors_.add_tensor({std::move(name), bytes, kind});
  producer_.emplace_back();
  wanted_.push_back(0);
  return t;
}

template <class Kernel>
void step_builder<Kernel>::check(op_id id, const forward_operation<Kernel>& o) const {
  const auto fail = [&](const std::string& what) { throw bad_graph(detail::label(id) + " (" + o.name + "): " + what); };
  const auto require_tensor = [&](tensor_id t) {
    if (index(t) >= num_tensors())
      fail(std::to_string(index(t)) + " is no tensor; there are " + std::to_string(num_tensors()));
  };
  const auto kind = [&](tensor_id t) { return tensors_.kind(t); };
  if (o.workspace < 0) fail("workspace is " + std::to_string(o.workspace) + "; it must not be negative");
  for (const tensor_id t : o.inputs) {
    require_tensor(t);
    if (kind(t) == tensor_kind::saved)
      fail("reads " + label(t) + ", which is saved for the backward of its own operation alone; make it an activation");
    if (kind(t) == tensor_kind::activation && !producer_[index(t)])
      fail("reads " + label(t) + ", which no operation before it writes");
  }
  for (auto t = o.outputs.begin(); t != o.outputs.end(); ++t) {
    require_tensor(*t);
    if (kind(*t) != tensor_kind::activation && kind(*t) != tensor_kind::saved)
      fail("writes " + label(*t) + ", a parameter or an input; those have no producer");
    if (producer_[index(*t)] || std::find(o.outputs.begin(), t, *t) != t)
      fail("writes " + label(*t) + ", which has a producer already");
  }
  std::vector<tensor_id> written;  // saved tensors whose gradient the rule has written
  for (const backward_operation<Kernel>& b : o.backward) {
    const std::string rule = b.name.empty() ? "its backward " : "its backward (" + b.name + ") ";
    if (b.workspace < 0) fail(rule + "has workspace " + std::to_string(b.workspace) + "; it must not be negative");
    if (b.outputs.empty()) fail(rule + "writes no gradient");
    for (const auto& [t, is_gradient] : b.inputs) {
      require_tensor(t);
      if (!is_gradient && !contains(o.inputs, t) && !contains(o.outputs, t))
        fail(rule + "reads " + label(t) + ", which is neither an input nor an output of the operation");
      if (is_gradient && !contains(o.outputs, t))
        fail(rule + "reads the gradient of " + label(t) + ", which is not among its outputs");
      if (is_gradient && kind(t) == tensor_kind::saved && !contains(written, t))
        fail(rule + "reads the gradient of the saved " + label(t) +
             ", which no operation of the rule before it writes");
    }
    for (const auto& [t] : b.outputs) {
      require_tensor(t);
      if (contains(o.inputs, t)) continue;
      if (!contains(o.outputs, t) || kind(t) != tensor_kind::saved)
        fail(rule + "writes the gradient of " + label(t) + ", which is neither an input nor saved");
      if (contains(written, t)) fail(rule + "writes the gradient of the saved " + label(t) + " a second time");
    }
    for (const auto& [t] : b.outputs)
      if (kind(t) == tensor_kind::saved) written.push_back(t);
  }
  if (!o.pass_gradient_to.empty() && o.outputs.size() != 1) fail("passes a gradient on, so it must have one output");
  for (const tensor_id t : o.pass_gradient_to) {
    require_tensor(t);
    if (!contains(o.inputs, t)) fail("passes a gradient to " + label(t) + ", which is not among its inputs");
    if (bytes(t) != bytes(o.outputs[0]))
      fail("passes a gradient to " + label(t) + ", whose bytes differ from those of its output");
  }
}

}  // namespace REMAT_NAMESPACE
