// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/graph/step_builder.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"

namespace remat {

/// One call of `build`: finds the gradients that are needed, then goes through the operations in reverse.
template <class Kernel>
class step_builder<Kernel>::reverse_walk {
 public:
  reverse_walk(const step_builder& builder, tensor_id loss, const step_builder_options<Kernel>& options)
      : b_(builder),
        loss_(loss),
        options_(options),
        needed_(builder.tensors_.size(), 0),
        sums_(builder.tensors_.size()) {
    for (const tensor_entry& t : b_.tensors_) specs_.push_back(t.spec);
    for (std::size_t t = 0; t < needed_.size(); ++t) needed_[t] = b_.tensors_[t].wanted;
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
    const std::size_t n = b_.operations_.size();
    for (std::size_t o = n; o-- > 0;) differentiate(static_cast<op_id>(o));
    built_step<Kernel> step;
    step.graph = training_graph(b_.name_);
    step.loss = loss_;
    step.gradients.resize(b_.tensors_.size());
    std::vector<tensor_id> outputs{loss_};
    for (std::size_t t = 0; t < b_.tensors_.size(); ++t) {
      const auto id = static_cast<tensor_id>(t);
      const tensor_entry& entry = b_.tensors_[t];
      const bool is_parameter = entry.spec.kind == tensor_kind::parameter;
      if (entry.wanted && id == loss_) value_of_gradient(id);
      if (entry.wanted && !sums_[t].exists()) {
        if (!options_.unused_parameters || !is_parameter)
          throw bad_graph((is_parameter ? "parameter " : "tensor ") + std::to_string(t) + " (" + entry.spec.name +
                          ") gets no gradient: the loss, " + b_.label(loss_) +
                          ", does not depend on it through operations that have a backward rule");
        continue;
      }
      if (!sums_[t].exists()) continue;
      step.gradients[t] = sums_[t].storage;
      if (sums_[t].own) specs_[index(sums_[t].storage)].name = "grad(" + entry.spec.name + ")";
      if (!entry.wanted) continue;
      if (is_parameter) step.parameters.push_back(id);
      if (!contains(outputs, sums_[t].storage)) outputs.push_back(sums_[t].storage);
    }
    for (tensor_spec& t : specs_) step.graph.add_tensor(std::move(t));
    for (std::size_t o = 0; o < n; ++o) {
      const forward_operation<Kernel>& f = b_.operations_[o];
      const op_phase phase =
          b_.tensors_[index(loss_)].producer == static_cast<op_id>(o) ? op_phase::loss : op_phase::forward;
      step.graph.add_operation({f.name, phase, f.inputs, f.outputs, f.flops, f.bytes_accessed,
                                std::numeric_limits<double>::quiet_NaN(), f.workspace, f.deterministic,
                                f.recomputable});
      step.kernels.push_back(f.kernel);
      step.origins.push_back(static_cast<op_id>(o));
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
    std::uint32_t producers = 0;  // of `storage`; a third is not allowed
    bool own = true;              // false where `storage` is the gradient of another tensor, too
    std::uint64_t last_rule = 0;  // the backward operation that contributed last
    [[nodiscard]] bool exists() const noexcept { return producers != 0; }
  };
  struct made_operation {
    operation_spec spec{};
    Kernel kernel{};
    std::optional<op_id> origin{};
  };

  tensor_id new_gradient(tensor_id of, const char* what) {
    specs_.push_back(
        {std::string(what) + "grad(" + specs_[index(of)].name + ")", specs_[index(of)].bytes, tensor_kind::gradient});
    return static_cast<tensor_id>(specs_.size() - 1);
  }

  void make(std::string name, std::vector<tensor_id> inputs, tensor_id output, double traffic, const Kernel& kernel) {
    made_operation m;
    m.spec.name = std::move(name);
    m.spec.phase = op_phase::backward;
    m.spec.inputs = std::move(inputs);
    m.spec.outputs = {output};
    m.spec.flops = 0;
    m.spec.bytes_accessed = traffic * static_cast<double>(specs_[index(output)].bytes);
    m.kernel = kernel;
    made_.push_back(std::move(m));
  }
  void add_to(tensor_id of, tensor_id from, tensor_id to, bool to_is_new) {
    make("sum grad(" + specs_[index(of)].name + ")", {from}, to, to_is_new ? 2 : 3, options_.kernels.sum);
  }

  /// Returns the tensor to which the backward operation of number `rule` writes its contribution to the gradient of
  /// `t`. Sums that must follow that operation are put off.
  tensor_id contribute(tensor_id t, std::uint64_t rule) {
    sum_so_far& s = sums_[index(t)];
    const bool same_rule = s.exists() && s.last_rule == rule;
    if (!s.exists()) {
      s = {new_gradient(t, "partial "), 1, true, rule};
    } else if (s.producers == 1 && !same_rule) {
      s.producers = 2;
      s.last_rule = rule;
    } else {
      const tensor_id old = s.storage;
      s = {new_gradient(t, "partial "), 2, true, rule};
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
      s = {new_gradient(t, "partial "), 2, true, 0};
      add_to(t, old, s.storage, true);
      add_to(t, from, s.storage, false);
    }
  }

  /// Returns the tensor that holds the gradient of `t`, for a rule that reads it.
  tensor_id value_of_gradient(tensor_id t) {
    sum_so_far& s = sums_[index(t)];
    if (!s.exists()) {
      const bool is_loss = t == loss_;
      s = {new_gradient(t, ""), 2, true, 0};
      make((is_loss ? "one " : "zero ") + specs_[index(s.storage)].name, {}, s.storage, 1,
           is_loss ? options_.kernels.one : options_.kernels.zero);
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
      for (const gradient& g : o.backward[k].outputs)
        live[k] = live[k] || (contains(o.inputs, g.of) ? needed_[index(g.of)] != 0 : contains(inner, g.of));
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
    made_operation m;
    m.origin = id;
    m.kernel = rule.kernel;
    m.spec = {rule.name.empty() ? o.name + " backward" : rule.name,
              op_phase::backward,
              {},
              {},
              rule.flops,
              rule.bytes_accessed,
              std::numeric_limits<double>::quiet_NaN(),
              rule.workspace,
              rule.deterministic,
              rule.recomputable};
    for (const backward_input& in : rule.inputs)
      m.spec.inputs.push_back(in.is_gradient ? value_of_gradient(in.tensor) : in.tensor);
    ++rule_;
    for (const gradient& g : rule.outputs) {
      if (contains(o.inputs, g.of) ? needed_[index(g.of)] != 0 : contains(inner, g.of)) {
        m.spec.outputs.push_back(contribute(g.of, rule_));
      } else {
        specs_.push_back({"no grad(" + specs_[index(g.of)].name + ")", 0, tensor_kind::gradient});
        m.spec.outputs.push_back(static_cast<tensor_id>(specs_.size() - 1));
      }
    }
    made_.push_back(std::move(m));
    for (const later_sum& l : after_) add_to(l.of, l.from, l.to, false);
    after_.clear();
  }

  static void check_kernels(const built_step<Kernel>& step) {
    if constexpr (requires(const Kernel& k) { static_cast<bool>(k); }) {
      std::size_t with = 0;
      std::optional<std::size_t> without;
      for (std::size_t o = 0; o < step.kernels.size(); ++o) {
        if (static_cast<bool>(step.kernels[o]))
          ++with;
        else if (!without)
          without = o;
      }
      if (with != 0 && without)
        throw bad_graph("operation " + std::to_string(*without) + " (" +
                        std::string(step.graph.name(static_cast<op_id>(*without))) + ") has no kernel" +
                        (step.origins[*without] ? "" : "; give it to build: step_builder_options::kernels"));
    }
  }

  struct later_sum {
    tensor_id of, from, to;
  };

  const step_builder& b_;
  tensor_id loss_;
  const step_builder_options<Kernel>& options_;
  std::vector<std::uint8_t> needed_;  // of a tensor: a wanted gradient depends on its gradient
  std::vector<sum_so_far> sums_;
  std::vector<tensor_spec> specs_;
  std::vector<made_operation> made_;
  std::vector<later_sum> after_;
  std::uint64_t rule_ = 0;
};

template <class Kernel>
void step_builder<Kernel>::want_gradient(tensor_id t) {
  if (index(t) >= tensors_.size())
    throw bad_graph("want_gradient: " + std::to_string(index(t)) + " is no tensor; there are " +
                    std::to_string(tensors_.size()));
  tensors_[index(t)].wanted = true;
}

template <class Kernel>
op_id step_builder<Kernel>::add(forward_operation<Kernel> o) {
  if (operations_.size() >= std::numeric_limits<std::uint32_t>::max() / 4) throw bad_graph("too many operations");
  const auto id = static_cast<op_id>(operations_.size());
  check(id, o);
  for (const tensor_id t : o.outputs) tensors_[index(t)].producer = id;
  operations_.push_back(std::move(o));
  return id;
}

template <class Kernel>
built_step<Kernel> step_builder<Kernel>::build(tensor_id loss, const step_builder_options<Kernel>& options) const {
  if (index(loss) >= tensors_.size())
    throw bad_graph("the loss " + std::to_string(index(loss)) + " is no tensor; there are " +
                    std::to_string(tensors_.size()));
  if (!tensors_[index(loss)].producer) throw bad_graph("the loss, " + label(loss) + ", is no output of an operation");
  return reverse_walk(*this, loss, options).finish();
}

template <class Kernel>
tensor_id step_builder<Kernel>::tensor(std::string name, std::int64_t bytes, tensor_kind kind) {
  if (bytes < 0)
    throw bad_graph("tensor " + std::to_string(tensors_.size()) + " (" + name + "): bytes is " + std::to_string(bytes) +
                    "; it must not be negative");
  if (tensors_.size() >= std::numeric_limits<std::uint32_t>::max() / 4) throw bad_graph("too many tensors");
  tensors_.push_back({{std::move(name), bytes, kind}, {}, false});
  return static_cast<tensor_id>(tensors_.size() - 1);
}

template <class Kernel>
void step_builder<Kernel>::check(op_id id, const forward_operation<Kernel>& o) const {
  const auto fail = [&](const std::string& what) {
    throw bad_graph("operation " + std::to_string(index(id)) + " (" + o.name + "): " + what);
  };
  const auto exists = [&](tensor_id t) {
    if (index(t) >= tensors_.size())
      fail(std::to_string(index(t)) + " is no tensor; there are " + std::to_string(tensors_.size()));
  };
  const auto kind = [&](tensor_id t) { return tensors_[index(t)].spec.kind; };
  if (o.workspace < 0) fail("workspace is " + std::to_string(o.workspace) + "; it must not be negative");
  for (const tensor_id t : o.inputs) {
    exists(t);
    if (kind(t) == tensor_kind::saved)
      fail("reads " + label(t) + ", which is saved for the backward of its own operation alone; make it an activation");
    if (kind(t) == tensor_kind::activation && !tensors_[index(t)].producer)
      fail("reads " + label(t) + ", which no operation before it writes");
  }
  for (std::size_t i = 0; i < o.outputs.size(); ++i) {
    const tensor_id t = o.outputs[i];
    exists(t);
    if (kind(t) != tensor_kind::activation && kind(t) != tensor_kind::saved)
      fail("writes " + label(t) + ", a parameter or an input; those have no producer");
    if (tensors_[index(t)].producer || std::find(o.outputs.begin(), o.outputs.begin() + static_cast<std::ptrdiff_t>(i),
                                                 t) != o.outputs.begin() + static_cast<std::ptrdiff_t>(i))
      fail("writes " + label(t) + ", which has a producer already");
  }
  check_rule(fail, exists, o);
  if (o.pass_gradient_to.empty()) return;
  if (o.outputs.size() != 1) fail("passes a gradient on, so it must have one output");
  for (const tensor_id t : o.pass_gradient_to) {
    exists(t);
    if (!contains(o.inputs, t)) fail("passes a gradient to " + label(t) + ", which is not among its inputs");
    if (bytes(t) != bytes(o.outputs[0]))
      fail("passes a gradient to " + label(t) + ", whose bytes differ from those of its output");
  }
}

template <class Kernel>
template <class Fail, class Exists>
void step_builder<Kernel>::check_rule(const Fail& fail, const Exists& exists,
                                      const forward_operation<Kernel>& o) const {
  std::vector<tensor_id> written;  // saved tensors whose gradient the rule has written
  for (const backward_operation<Kernel>& b : o.backward) {
    const std::string rule = b.name.empty() ? std::string("its backward ") : "its backward (" + b.name + ") ";
    if (b.workspace < 0) fail(rule + "has workspace " + std::to_string(b.workspace) + "; it must not be negative");
    if (b.outputs.empty()) fail(rule + "writes no gradient");
    for (const backward_input& in : b.inputs) {
      const tensor_id t = in.tensor;
      exists(t);
      if (!in.is_gradient) {
        if (!contains(o.inputs, t) && !contains(o.outputs, t))
          fail(rule + "reads " + label(t) + ", which is neither an input nor an output of the operation");
      } else if (!contains(o.outputs, t)) {
        fail(rule + "reads the gradient of " + label(t) + ", which is not among its outputs");
      } else if (tensors_[index(t)].spec.kind == tensor_kind::saved && !contains(written, t)) {
        fail(rule + "reads the gradient of the saved " + label(t) +
             ", which no operation of the rule before it writes");
      }
    }
    for (const gradient& g : b.outputs) {
      exists(g.of);
      if (contains(o.inputs, g.of)) continue;
      if (!contains(o.outputs, g.of) || tensors_[index(g.of)].spec.kind != tensor_kind::saved)
        fail(rule + "writes the gradient of " + label(g.of) + ", which is neither an input nor saved");
      if (contains(written, g.of)) fail(rule + "writes the gradient of the saved " + label(g.of) + " a second time");
    }
    for (const gradient& g : b.outputs)
      if (tensors_[index(g.of)].spec.kind == tensor_kind::saved) written.push_back(g.of);
  }
}

}  // namespace remat
