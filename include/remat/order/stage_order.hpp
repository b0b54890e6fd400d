// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <queue>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace remat {

/// A few operations that run one after the other, each once, and the tensors among what they touch whose memory depends
/// on the order: such a tensor is there from the first of them that touches it, or from the start, until the last has,
/// or to the end.
class operation_sequence {
 public:
  static constexpr std::uint32_t longest = 2000;

  /// Empties it. `standing`: the bytes in use before the first of the operations.
  void reset(std::int64_t standing) {
    start_ = standing;
    tensors_.clear();
    nodes_.clear();
    touches_.clear();
  }
  /// \returns the tensor's number, from 0. A tensor that is `there` at the start is among the standing bytes.
  std::uint32_t add_tensor(std::int64_t bytes, bool there, bool stays) {
    tensors_.push_back({bytes, 0, there, stays});
    return static_cast<std::uint32_t>(tensors_.size() - 1);
  }
  /// The next operation; `own` bytes are in use beside its tensors while it runs.
  void add_operation(std::int64_t own) {
    nodes_.push_back({own, static_cast<std::uint32_t>(touches_.size()), static_cast<std::uint32_t>(touches_.size())});
  }
  /// The operation that was added last writes or reads a tensor.
  void touch(std::uint32_t tensor, bool writes) {
    touches_.push_back({tensor, writes});
    ++nodes_.back().end;
    ++tensors_[tensor].touchers;
  }

  [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(nodes_.size()); }

  /// The most bytes in use while the operations run in that order, which holds each once. O(touches) time.
  [[nodiscard]] std::int64_t peak(std::span<const std::uint32_t> order) const {
    memory now(*this);
    for (const std::uint32_t i : order) now.run(i);
    return now.peak;
  }

  /// The order of least peak that is found: the given one if no other is better. An operation that reads a tensor stays
  /// behind all that write it. Exact for up to 64 operations where no more than `most_states` sets of those that may
  /// have run have to be looked at, else by list schedules; `longest` operations and more keep their order.
  /// O(most_states · operations + operations² + touches) time.
  [[nodiscard]] std::vector<std::uint32_t> least_peak_order(std::size_t most_states) const {
    std::vector<std::uint32_t> order(size());
    for (std::uint32_t i = 0; i < size(); ++i) order[i] = i;
    std::int64_t best = peak(order);
    const std::int64_t bound = least_peak();
    if (size() < 2 || size() >= longest || best <= bound) return order;
    const precedence dag = find_precedence();
    if (size() > 64 || !exact(dag, order, best, bound, most_states))
      for (const bool by_peak : {true, false}) {
        std::vector<std::uint32_t> other = list_order(dag, by_peak);
        const std::int64_t its = peak(other);
        if (its >= best) continue;
        best = its;
        order.swap(other);
        if (best <= bound) break;
      }
    return order;
  }

 private:
  struct tensor {
    std::int64_t bytes;
    std::uint32_t touchers;
    bool there, stays;
  };
  struct node {
    std::int64_t own;
    std::uint32_t begin, end;  // in touches_
  };
  struct touched {
    std::uint32_t tensor;
    bool writes;
  };

  [[nodiscard]] std::span<const touched> touches(std::uint32_t i) const {
    return std::span<const touched>(touches_).subspan(nodes_[i].begin, nodes_[i].end - nodes_[i].begin);
  }

  /// Memory while the operations run.
  struct memory {
    const operation_sequence& of;
    std::vector<std::uint32_t> left;
    std::int64_t bytes, peak;

    explicit memory(const operation_sequence& s) : of(s), left(s.tensors_.size()), bytes(s.start_), peak(s.start_) {
      for (std::size_t t = 0; t < left.size(); ++t) left[t] = s.tensors_[t].touchers;
    }
    /// While operation i runs, and after it.
    [[nodiscard]] std::pair<std::int64_t, std::int64_t> look(std::uint32_t i) const {
      std::int64_t during = bytes, closed = 0;
      for (const touched& k : of.touches(i)) {
        const tensor& t = of.tensors_[k.tensor];
        if (!t.there && left[k.tensor] == t.touchers) during += t.bytes;
        if (!t.stays && left[k.tensor] == 1) closed += t.bytes;
      }
      return {during + of.nodes_[i].own, during - closed};
    }
    void run(std::uint32_t i) {
      const auto [during, after] = look(i);
      peak = std::max(peak, during);
      bytes = after;
      for (const touched& k : of.touches(i)) --left[k.tensor];
    }
  };

  /// What the start, the end, and each operation needs in every order.
  [[nodiscard]] std::int64_t least_peak() const {
    std::int64_t end = start_, staying = start_;
    for (const tensor& t : tensors_) {
      if (t.there && !t.stays) staying -= t.bytes;
      if (t.there != t.stays) end += t.stays ? t.bytes : -t.bytes;
    }
    std::int64_t least = std::max(start_, end);
    for (const node& n : nodes_) {
      std::int64_t during = staying + n.own;
      for (std::uint32_t k = n.begin; k < n.end; ++k) {
        const tensor& t = tensors_[touches_[k].tensor];
        if (!(t.there && t.stays)) during += t.bytes;
      }
      least = std::max(least, during);
    }
    return least;
  }

  struct precedence {
    std::vector<std::vector<std::uint32_t>> after{};
    std::vector<std::uint32_t> before{};  // how many
  };
  [[nodiscard]] precedence find_precedence() const {
    std::vector<std::vector<std::uint32_t>> writers(tensors_.size());
    for (std::uint32_t i = 0; i < size(); ++i)
      for (const touched& k : touches(i))
        if (k.writes) writers[k.tensor].push_back(i);
    precedence dag;
    dag.after.resize(size());
    dag.before.assign(size(), 0);
    for (std::uint32_t i = 0; i < size(); ++i)
      for (const touched& k : touches(i))
        if (!k.writes)
          for (const std::uint32_t j : writers[k.tensor]) {
            dag.after[j].push_back(i);
            ++dag.before[i];
          }
    return dag;
  }

  /// Of the operations that may run next always the one that raises the peak least, or leaves the least memory.
  [[nodiscard]] std::vector<std::uint32_t> list_order(const precedence& dag, bool by_peak) const {
    std::vector<std::uint32_t> open = dag.before, ready, order;
    for (std::uint32_t i = 0; i < size(); ++i)
      if (open[i] == 0) ready.push_back(i);
    memory now(*this);
    while (!ready.empty()) {
      std::size_t best = 0;
      std::pair<std::pair<std::int64_t, std::int64_t>, std::uint32_t> least{};
      for (std::size_t r = 0; r < ready.size(); ++r) {
        const auto [during, after] = now.look(ready[r]);
        const auto first = by_peak ? std::max(during, now.peak) : after;
        const std::pair<std::pair<std::int64_t, std::int64_t>, std::uint32_t> key{{first, by_peak ? after : during},
                                                                                  ready[r]};
        if (r > 0 && least < key) continue;
        best = r;
        least = key;
      }
      const std::uint32_t i = ready[best];
      ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(best));
      now.run(i);
      order.push_back(i);
      for (const std::uint32_t j : dag.after[i])
        if (--open[j] == 0) ready.push_back(j);
    }
    return order;
  }

  /// Over the sets of operations that may have run, those of the least peak so far first. Returns whether `order`, of
  /// peak `best`, is one of the best now. Precondition: at most 64 operations.
  bool exact(const precedence& dag, std::vector<std::uint32_t>& order, std::int64_t& best, std::int64_t bound,
             std::size_t most_states) const {
    using ideal = std::uint64_t;
    struct reached {
      std::int64_t peak, bytes;  // bytes depend on the set alone
      std::uint32_t last;
      bool done;
    };
    struct entry {
      std::int64_t peak;
      int size;
      ideal x;
      // Of equal peak the larger set first: it is nearer to the end.
      bool operator<(const entry& b) const {
        return peak != b.peak ? peak > b.peak : size != b.size ? size < b.size : x < b.x;
      }
    };
    std::vector<ideal> need(size(), 0), touchers(tensors_.size(), 0);
    for (std::uint32_t i = 0; i < size(); ++i) {
      for (const std::uint32_t j : dag.after[i]) need[j] |= ideal{1} << i;
      for (const touched& k : touches(i)) touchers[k.tensor] |= ideal{1} << i;
    }
    const ideal all = size() == 64 ? ~ideal{0} : (ideal{1} << size()) - 1;
    std::unordered_map<ideal, reached> found;
    std::priority_queue<entry> queue;
    found[0] = {start_, start_, 0, false};
    queue.push({start_, 0, 0});
    while (!queue.empty()) {
      const entry e = queue.top();
      queue.pop();
      reached& here = found.at(e.x);
      if (here.done || e.peak > here.peak) continue;
      here.done = true;
      if (e.x == all) {
        order.clear();
        for (ideal x = all; x != 0; x &= ~(ideal{1} << order.back())) order.push_back(found.at(x).last);
        std::reverse(order.begin(), order.end());
        best = e.peak;
        return true;
      }
      if (found.size() > most_states) return false;
      const std::int64_t now = here.bytes;
      for (std::uint32_t i = 0; i < size(); ++i) {
        const ideal me = ideal{1} << i;
        if ((e.x & me) != 0 || (need[i] & ~e.x) != 0) continue;
        std::int64_t during = now, closed = 0;
        for (const touched& k : touches(i)) {
          const tensor& t = tensors_[k.tensor];
          if (!t.there && (touchers[k.tensor] & e.x) == 0) during += t.bytes;
          if (!t.stays && (touchers[k.tensor] & ~(e.x | me)) == 0) closed += t.bytes;
        }
        const std::int64_t then = std::max({e.peak, during + nodes_[i].own, bound});
        if (then >= best) continue;
        const auto [place, fresh] = found.try_emplace(e.x | me, reached{then, during - closed, i, false});
        if (!fresh) {
          if (place->second.peak <= then) continue;
          place->second.peak = then;
          place->second.last = i;
        }
        queue.push({then, e.size + 1, e.x | me});
      }
    }
    return true;  // nothing is below `best`
  }

  std::int64_t start_ = 0;
  std::vector<tensor> tensors_;
  std::vector<node> nodes_;
  std::vector<touched> touches_;
};

}  // namespace remat
