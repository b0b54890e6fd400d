// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/schedule/check.hpp"

#include <algorithm>
#include <type_traits>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/detail/words.hpp"
#include "remat/core/error.hpp"
#include "remat/graph/detail/label.hpp"
#include "remat/schedule/detail/engine_clocks.hpp"

namespace REMAT_NAMESPACE {

REMAT_INLINE std::string check_report::message() const {
  const std::string o = detail::label(operation), t = detail::label(tensor);
  const std::string step = "step " + std::to_string(at) + ": ";
  switch (what) {
    case violation::none:
      return "valid";
    case violation::no_such_operation:
      return step + "there is no " + o;
    case violation::no_such_tensor:
      return step + "there is no " + t;
    case violation::runs_twice:
      return step + o + " may run only once";
    case violation::input_not_there:
      return step + o + " reads " + t + ", which is not there";
    case violation::adds_twice:
      return step + o + " adds to " + t + " twice";
    case violation::free_not_allocated:
      return step + "free of " + t + ", which is not allocated";
    case violation::effect_missing:
      return "at the end: " + o + ", which has no outputs, did not run exactly once";
    case violation::output_missing:
      return "at the end: final output " + t + " is not there";
    case violation::over_budget:
      return "the peak, " + detail::count_of(peak_bytes, "byte") + ", is over the budget";
    case violation::copy_without_link:
      return step + t + " is copied, but the problem has no link";
    case violation::copy_of_resident:
      return step + t + " is copied, but it is always resident";
    case violation::offload_not_there:
      return step + "offload of " + t + ", which is not there";
    case violation::offload_on_host:
      return step + "offload of " + t + ", which is on the host already";
    case violation::prefetch_not_on_host:
      return step + "prefetch of " + t + ", which is not on the host";
    case violation::prefetch_allocated:
      return step + "prefetch of " + t + ", which is allocated";
    case violation::drop_not_on_host:
      return step + "drop of " + t + ", which is not on the host";
    case violation::over_host_budget:
      return "the host's peak, " + detail::count_of(host_peak_bytes, "byte") + ", is over the host's budget";
  }
  return "unknown";
}

namespace detail::schedule_checking {

static_assert(problem_building::max_tensors == step::max_tensors);

/// Replaces `engine_clocks` where nothing can be copied.
struct no_clocks {
  explicit no_clocks(const problem&) {}
};

/// The clocks of the engines of a problem with a link.
struct clocks_of_link : engine_clocks {
  explicit clocks_of_link(const problem& p) : engine_clocks(p.graph(), *p.link()) {}
};

/// Runs the steps of a schedule one by one. `HasLink`: the problem has a link. Without one there is one engine, and
/// what copies need costs nothing.
template <bool HasLink>
class checker {
 public:
  explicit checker(const problem& p)
      : graph_(p.graph()),
        budget_(p.budget()),
        host_budget_(p.host_budget()),
        clocks_(p),
        tensors_(graph_.num_tensors),
        run_at_(graph_.outputs.values.size(), 0),
        runs_(graph_.num_operations, 0) {
    for (std::size_t t = 0; t < tensors_.size(); ++t) tensors_[t].unreadable = graph_.always_resident[t] == 0;
  }

  /// Runs all `steps`, and calls `observe(i, bytes)`, if it is set, after each legal one.
  check_report run(std::span<const step> steps, const std::function<void(std::size_t, std::int64_t)>& observe) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const step x = steps[i];
      if (!(!x.is_compute() ? run_free(i, x) : run_compute(i, x.operation()))) return ended();
      if (observe) observe(i, memory_at_step_);
    }
    finish(steps.size());
    return ended();
  }

 private:
  struct tensor_state {
    std::uint32_t allocation = 0;  // how often it has been allocated
    std::uint32_t unreadable = 1;  // producers that have not run since; 1 also while it is not allocated
    bool allocated = false;
    bool on_host = false;
  };

  bool fail(violation what, std::size_t at, op_id o, tensor_id t) {
    report_.what = what;
    report_.at = at;
    report_.operation = o;
    report_.tensor = t;
    return false;
  }

  /// `free`. One comparison tells that a step is a free of a tensor that exists: the codes of copies are larger.
  bool run_free(std::size_t i, step x) {
    const std::uint32_t t = x.code() - step::free(tensor_id{}).code();
    if (t >= graph_.num_tensors) return run_copy(i, x);
    if (!tensors_[t].allocated) return fail(violation::free_not_allocated, i, {}, x.tensor());
    if constexpr (HasLink) clocks_.free(t);
    tensors_[t].allocated = false;
    tensors_[t].unreadable = 1;
    memory_ -= graph_.bytes[t];
    memory_at_step_ = memory_;
    return true;
  }

  /// `offload`, `prefetch` and `drop`; and `free` of a tensor that does not exist. Not inlined: computes and frees are
  /// many, and keep the registers.
  [[gnu::noinline]] bool run_copy(std::size_t i, step x) {
    const tensor_id id = x.tensor();
    const auto t = static_cast<std::uint32_t>(index(id));
    if (t >= graph_.num_tensors) return fail(violation::no_such_tensor, i, {}, id);
    if constexpr (HasLink) {
      if (graph_.always_resident[t] != 0) return fail(violation::copy_of_resident, i, {}, id);
      tensor_state& now = tensors_[t];
      if (x.kind() == step_kind::offload) {
        if (now.unreadable != 0) return fail(violation::offload_not_there, i, {}, id);
        if (now.on_host) return fail(violation::offload_on_host, i, {}, id);
        offload(i, t);
      } else if (x.kind() == step_kind::prefetch) {
        if (!now.on_host) return fail(violation::prefetch_not_on_host, i, {}, id);
        if (now.allocated) return fail(violation::prefetch_allocated, i, {}, id);
        prefetch(i, t);
      } else {
        if (!now.on_host) return fail(violation::drop_not_on_host, i, {}, id);
        clocks_.drop(t);
        now.on_host = false;
        host_memory_ -= graph_.bytes[t];
      }
      memory_at_step_ = memory_;
      return true;
    } else {
      return fail(violation::copy_without_link, i, {}, id);
    }
  }

  void offload(std::size_t i, std::uint32_t t) {
    clocks_.offload(t);
    tensors_[t].on_host = true;
    host_memory_ += graph_.bytes[t];
    if (host_memory_ > report_.host_peak_bytes) {
      report_.host_peak_bytes = host_memory_;
      report_.host_peak_step = i;
    }
    ++report_.copies;
  }

  /// The tensor is readable with all its contributions, so none may be added to it.
  void prefetch(std::size_t i, std::uint32_t t) {
    clocks_.prefetch(t);
    tensor_state& now = tensors_[t];
    now.allocated = true;
    now.unreadable = 0;
    ++now.allocation;
    for (const std::uint32_t o : graph_.producers[t]) {
      const auto row = graph_.outputs[o];  // ascending
      const auto place = std::lower_bound(row.begin(), row.end(), t) - row.begin();
      run_at_[graph_.outputs.begin[o] + static_cast<std::size_t>(place)] = now.allocation;
    }
    memory_ += graph_.bytes[t];
    if (memory_ > report_.peak_bytes) {
      report_.peak_bytes = memory_;
      report_.peak_step = i;
    }
    ++report_.copies;
  }

  bool run_compute(std::size_t i, op_id id) {
    const flat_graph& g = graph_;
    const std::size_t o = index(id);
    if (o >= g.num_operations) return fail(violation::no_such_operation, i, id, {});
    if (runs_[o] != 0 && g.once[o] == flat_graph::once_as_marked) return fail(violation::runs_twice, i, id, {});
    for (const std::uint32_t t : g.inputs[o])
      if (tensors_[t].unreadable != 0) return fail(violation::input_not_there, i, id, static_cast<tensor_id>(t));
    for (std::uint32_t w = g.outputs.begin[o]; w < g.outputs.begin[o + 1]; ++w) {
      const std::uint32_t t = g.outputs.values[w];
      tensor_state& now = tensors_[t];
      if (!now.allocated) {
        now.allocated = true;
        now.unreadable = static_cast<std::uint32_t>(g.producers[t].size());
        ++now.allocation;
        memory_ += g.bytes[t];
        if constexpr (HasLink) clocks_.allocate(t);
      }
      if (run_at_[w] != now.allocation) {
        run_at_[w] = now.allocation;
        --now.unreadable;
      } else if (g.producers[t].size() > 1) {
        return fail(violation::adds_twice, i, id, static_cast<tensor_id>(t));
      }
    }
    memory_at_step_ = memory_ + g.workspace[o];
    if (memory_at_step_ > report_.peak_bytes) {
      report_.peak_bytes = memory_at_step_;
      report_.peak_step = i;
    }
    if constexpr (HasLink)
      clocks_.compute(static_cast<std::uint32_t>(o));
    else
      report_.time += g.time[o];
    ++report_.computes;
    report_.recomputes += runs_[o] != 0;
    ++runs_[o];
    return true;
  }

  const check_report& ended() {
    if constexpr (HasLink) report_.time = clocks_.end();
    return report_;
  }

  /// Judges the end of `num_steps` legal steps, and the budget.
  void finish(std::size_t num_steps) {
    for (std::uint32_t o = 0; o < graph_.num_operations; ++o)
      if (graph_.has_effect(o) && runs_[o] != 1) {
        fail(violation::effect_missing, num_steps, static_cast<op_id>(o), {});
        return;
      }
    for (const std::uint32_t t : graph_.final_outputs)
      if (tensors_[t].unreadable != 0) {
        fail(violation::output_missing, num_steps, {}, static_cast<tensor_id>(t));
        return;
      }
    if (report_.peak_bytes > budget_)
      fail(violation::over_budget, report_.peak_step, {}, {});
    else if (report_.host_peak_bytes > host_budget_)
      fail(violation::over_host_budget, report_.host_peak_step, {}, {});
  }

  const flat_graph& graph_;
  std::int64_t budget_;
  std::int64_t host_budget_;
  std::conditional_t<HasLink, clocks_of_link, no_clocks> clocks_;
  check_report report_;
  std::int64_t memory_ = 0;          // bytes of all allocated tensors
  std::int64_t memory_at_step_ = 0;  // the same with the workspace of the step
  std::int64_t host_memory_ = 0;     // bytes of all copies on the host
  std::vector<tensor_state> tensors_;
  // One entry for each write of `outputs.values`: the allocation of the tensor at the last run of the producer. A
  // producer has run since the tensor was allocated if this number is the tensor's present one.
  std::vector<std::uint32_t> run_at_;
  std::vector<std::uint32_t> runs_;  // each operation's runs so far
};

}  // namespace detail::schedule_checking

REMAT_INLINE check_report check(const problem& p, std::span<const step> steps,
                                const std::function<void(std::size_t, std::int64_t)>& observe) {
  if (p.link()) return detail::schedule_checking::checker<true>(p).run(steps, observe);
  return detail::schedule_checking::checker<false>(p).run(steps, observe);
}

REMAT_INLINE engine_times engine_times_of(const problem& p, std::span<const step> steps) {
  if (const check_report report = check(p, steps); !report.valid())
    throw bad_argument("only a legal schedule has times: " + report.message());
  const flat_graph& g = p.graph();
  engine_times out;
  out.steps.reserve(steps.size());
  // Without a link nothing is copied, and any link gives the same times.
  detail::engine_replay replay(g, p.link().value_or(host_link{}));
  for (const step x : steps) {
    const step_times now = replay.run(x);
    out.steps.push_back(now);
    if (const auto e = engine_of(x.kind())) out.busy[static_cast<std::size_t>(*e)] += now.end - now.begin;
  }
  out.makespan = replay.end();
  return out;
}

}  // namespace REMAT_NAMESPACE
