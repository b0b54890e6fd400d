// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/render/detail/report_graph.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "remat/core/detail/linkage.hpp"

namespace REMAT_NAMESPACE::detail {

namespace report_graph {

constexpr std::uint32_t none = operation_hierarchy::none;

/// Fills one `described_graph`; see `describe_graph`.
class describer {
 public:
  describer(const problem& p, const name_lookup& names, const operation_hierarchy& h)
      : graph_(p.graph()), names_(names), h_(h) {}

  [[nodiscard]] described_graph describe() {
    describe_operations();
    make_nodes();
    make_edges();
    place_forward();
    place_backward();
    make_tree();
    write_groups();
    count_kinds();
    find_layers();
    return std::move(out_);
  }

 private:
  /// A group while the tree is built. Parents stand before their children.
  struct tree_node {
    std::string label{};
    std::uint32_t parent = none;
    std::vector<std::uint32_t> children{};
  };

  [[nodiscard]] const std::string& name(std::uint32_t o) const { return out_.names[out_.name_of[o]]; }

  void describe_operations() {
    const std::uint32_t n = graph_.num_operations;
    std::unordered_map<std::string, std::uint32_t> places;
    out_.kind.assign(n, 'x');
    for (std::size_t i = 0; i < h_.order.size(); ++i) out_.kind[h_.order[i]] = i < h_.num_forward ? 'f' : 'b';
    for (std::uint32_t o = 0; o < n; ++o) {
      std::string name = names_.operation(static_cast<op_id>(o));
      const auto [entry, is_new] = places.try_emplace(name, static_cast<std::uint32_t>(out_.names.size()));
      if (is_new) out_.names.push_back(std::move(name));
      out_.name_of.push_back(entry->second);
      out_.time.push_back(graph_.time[o]);
      std::int64_t bytes = 0;
      for (const std::uint32_t t : graph_.outputs[o]) bytes += graph_.bytes[t];
      out_.bytes.push_back(bytes);
      if (out_.kind[o] != 'x' && !graph_.phase.empty()) {
        if (graph_.phase[o] == op_phase::loss) out_.kind[o] = 'l';
        if (graph_.phase[o] == op_phase::forward) out_.kind[o] = 'f';
        if (graph_.phase[o] == op_phase::backward) out_.kind[o] = 'b';
      }
      modules_.push_back(names_.module ? names_.module(static_cast<op_id>(o)) : std::string());
    }
  }

  /// The longest dotted path that begins the modules of all of these operations which have one.
  template <class Operations>
  [[nodiscard]] std::string common_module(const Operations& operations) const {
    std::string common;
    bool is_first = true;
    for (const std::uint32_t o : operations) {
      const std::string& module = modules_[o];
      if (module.empty()) continue;
      if (std::exchange(is_first, false)) {
        common = module;
        continue;
      }
      while (!common.empty() && (module.compare(0, common.size(), common) != 0 ||
                                 (module.size() > common.size() && module[common.size()] != '.'))) {
        const std::size_t point = common.rfind('.');
        common.resize(point == std::string::npos ? 0 : point);
      }
      if (common.empty()) break;
    }
    return common;
  }
  /// "blocks.3: operations 12 to 40".
  template <class Operations>
  [[nodiscard]] std::string label_of(const Operations& operations) const {
    const auto [least, most] = std::minmax_element(operations.begin(), operations.end());
    std::string text = common_module(operations);
    if (!text.empty()) text += ": ";
    text += *least == *most ? "operation " + std::to_string(*least)
                            : "operations " + std::to_string(*least) + " to " + std::to_string(*most);
    return text;
  }

  /// The nodes of the picture: operations, or the forward and the backward of each group of the top level.
  void make_nodes() {
    out_.node_of.assign(graph_.num_operations, none);
    if (h_.order.size() <= described_graph::most_drawn_operations) {
      forward_nodes_ = h_.num_forward;
      for (const std::uint32_t o : h_.order) {
        out_.node_of[o] = static_cast<std::uint32_t>(out_.nodes.size());
        out_.nodes.push_back({0, 0, out_.kind[o], o, 1, {}});
      }
      return;
    }
    const auto children = h_.children[0];
    const auto most =
        static_cast<std::uint32_t>(std::min<std::size_t>(children.size(), described_graph::most_drawn_groups));
    forward_nodes_ = most;
    std::vector<std::vector<std::uint32_t>> members(std::size_t{2} * most);
    std::size_t place = 0;
    for (std::size_t i = 0; i < children.size(); ++i) {
      const std::size_t unit = i * most / children.size();
      const std::size_t size = h_.is_group(children[i]) ? h_.forward(h_.group_at(children[i])).size() : 1;
      for (std::size_t k = 0; k < size; ++k) members[unit].push_back(h_.order[place++]);
    }
    for (std::size_t unit = 0; unit < most; ++unit)
      for (const std::uint32_t o : members[unit]) out_.node_of[o] = static_cast<std::uint32_t>(unit);
    for (std::size_t i = h_.num_forward; i < h_.order.size(); ++i) {
      const std::uint32_t o = h_.order[i];
      const std::uint32_t unit = most + (h_.anchor[o] == none ? most - 1 : out_.node_of[h_.anchor[o]]);
      members[unit].push_back(o);
    }
    for (const std::vector<std::uint32_t>& of_unit : members) {
      if (of_unit.empty()) continue;  // no backward is anchored there
      for (const std::uint32_t o : of_unit) out_.node_of[o] = static_cast<std::uint32_t>(out_.nodes.size());
      out_.nodes.push_back({0, 0, out_.kind[of_unit.front()], of_unit.front(),
                            static_cast<std::uint32_t>(of_unit.size()), label_of(of_unit)});
    }
  }

  void make_edges() {
    std::set<std::pair<std::uint32_t, std::uint32_t>> ends;
    for (std::uint32_t t = 0; t < graph_.num_tensors; ++t)
      for (const std::uint32_t producer : graph_.producers[t])
        for (const std::uint32_t consumer : graph_.consumers[t]) {
          const std::uint32_t from = out_.node_of[producer], to = out_.node_of[consumer];
          if (from != none && to != none && from != to) ends.emplace(from, to);
        }
    for (const auto& [from, to] : ends) out_.edges.push_back({from, to});
  }

  /// The first free row of a column, `wanted` first, then upwards.
  [[nodiscard]] std::int32_t take_row(std::uint32_t column, std::int32_t wanted) {
    std::set<std::int32_t>& used = used_rows_[column];
    while (!used.insert(wanted).second) ++wanted;
    return wanted;
  }

  void place_forward() {
    std::vector<std::vector<std::uint32_t>> reads(forward_nodes_), readers(forward_nodes_);
    for (const auto& [from, to] : out_.edges)
      if (from < to && to < forward_nodes_) {
        reads[to].push_back(from);
        readers[from].push_back(to);
      }
    auto& nodes = out_.nodes;
    for (std::uint32_t i = 0; i < forward_nodes_; ++i)
      for (const std::uint32_t from : reads[i]) nodes[i].column = std::max(nodes[i].column, nodes[from].column + 1);
    // A node that reads nothing stands right before its first reader.
    for (std::uint32_t i = forward_nodes_; i-- > 0;) {
      if (!reads[i].empty() || readers[i].empty()) continue;
      std::uint32_t first = none;
      for (const std::uint32_t to : readers[i]) first = std::min(first, nodes[to].column);
      nodes[i].column = first == 0 ? 0 : first - 1;
    }
    for (std::uint32_t i = 0; i < forward_nodes_; ++i) {
      const described_graph::node* before = nullptr;  // the latest that it reads, of several the lowest
      for (const std::uint32_t from : reads[i]) {
        const described_graph::node& node = nodes[from];
        if (before == nullptr || node.column > before->column ||
            (node.column == before->column && node.row < before->row))
          before = &node;
      }
      const std::int32_t wanted = before != nullptr ? before->row : i != 0 && !readers[i].empty() ? 1 : 0;
      nodes[i].row = take_row(nodes[i].column, wanted);
    }
  }

  /// Backward nodes stand below their anchors, those that run first on top.
  void place_backward() {
    std::map<std::uint32_t, std::int32_t> lowest;  // column → the row that was taken last
    for (std::size_t i = forward_nodes_; i < out_.nodes.size(); ++i) {
      described_graph::node& node = out_.nodes[i];
      const std::uint32_t anchor = h_.anchor[node.first];
      const std::uint32_t above = anchor == none ? none : out_.node_of[anchor];
      node.column = above != none         ? out_.nodes[above].column
                    : forward_nodes_ != 0 ? out_.nodes[forward_nodes_ - 1].column
                                          : 0;
      node.row = --lowest.try_emplace(node.column, -1).first->second;
    }
  }

  void make_tree() {
    leaf_of_.assign(graph_.num_operations, none);
    std::size_t named = 0;
    for (const std::uint32_t o : h_.order) named += !module_in_name(name(o)).empty();
    out_.by_module = 2 * named >= h_.order.size() && named != 0;
    if (!out_.by_module) {
      make_tree_of_groups();
      return;
    }
    make_tree_of_modules(false);
    if (tree_.size() <= described_graph::most_groups) return;
    tree_.clear();
    make_tree_of_modules(true);
  }

  void make_tree_of_groups() {
    for (const std::uint32_t o : h_.order) leaf_of_[o] = h_.group_of[o];
    for (std::uint32_t g = 0; g < h_.groups.size(); ++g) {
      tree_.push_back({g == 0 ? "The whole step" : label_of(h_.forward(g)), h_.groups[g].parent, {}});
      if (g != 0) tree_[h_.groups[g].parent].children.push_back(g);
    }
  }

  /// With `join`, the modules that differ in numbers alone are one: blocks.0 to blocks.624.
  void make_tree_of_modules(bool join) {
    std::map<std::pair<std::uint32_t, std::string>, std::uint32_t> places;
    std::map<std::uint32_t, std::pair<std::string, std::string>>
        ranges;  // joined module → its least and largest number
    const auto less = [](const std::string& a, const std::string& b) {
      return a.size() != b.size() ? a.size() < b.size() : a < b;
    };
    tree_.push_back({"The whole step", none, {}});
    std::vector<std::uint32_t> order = h_.order;
    std::sort(order.begin(), order.end());
    for (const std::uint32_t o : order) {
      std::string_view path = module_in_name(name(o));
      if (path.empty()) path = "(no module)";
      std::uint32_t at = 0;
      while (true) {
        const std::size_t end = path.find('.');
        const std::string part(path.substr(0, end));
        const bool joined = join && part.find_first_not_of("0123456789") == std::string::npos;
        const auto [entry, is_new] =
            places.try_emplace({at, joined ? "*" : part}, static_cast<std::uint32_t>(tree_.size()));
        if (is_new) {
          tree_[at].children.push_back(entry->second);
          tree_.push_back({part, at, {}});
        }
        at = entry->second;
        if (joined) {
          auto& [least, most] = ranges.try_emplace(at, part, part).first->second;
          least = std::min(least, part, less);
          most = std::max(most, part, less);
        }
        if (end == std::string_view::npos) break;
        path.remove_prefix(end + 1);
      }
      leaf_of_[o] = at;
    }
    for (const auto& [at, range] : ranges)
      if (range.first != range.second) tree_[at].label = range.first + " to " + range.second + ", together";
  }

  /// The rows of the table: the tree in depth-first order, without what is too deep.
  void write_groups() {
    if (tree_.empty()) return;
    std::vector<std::uint8_t> shown(tree_.size(), 0);
    std::vector<std::uint32_t> queue{0};
    shown[0] = 1;
    for (std::size_t next = 0; next < queue.size(); ++next) {
      const auto& children = tree_[queue[next]].children;
      if (queue.size() + children.size() > described_graph::most_groups) continue;
      for (const std::uint32_t child : children) {
        shown[child] = 1;
        queue.push_back(child);
      }
    }
    std::vector<described_graph::group> rows(tree_.size());
    std::vector<std::map<std::string_view, std::size_t>> own(tree_.size());
    for (const std::uint32_t o : h_.order) {
      std::uint32_t at = leaf_of_[o];
      while (!shown[at]) at = tree_[at].parent;
      ++own[at][plain_name(name(o))];
      described_graph::group& row = rows[at];
      const bool backward = out_.kind[o] == 'b';
      ++(backward ? row.backward : row.forward);
      (backward ? row.backward_time : row.forward_time) += out_.time[o];
      row.bytes += out_.bytes[o];
    }
    for (std::size_t i = tree_.size(); i-- > 1;) {
      described_graph::group& parent = rows[tree_[i].parent];
      parent.forward += rows[i].forward;
      parent.backward += rows[i].backward;
      parent.forward_time += rows[i].forward_time;
      parent.backward_time += rows[i].backward_time;
      parent.bytes += rows[i].bytes;
    }
    std::vector<std::pair<std::uint32_t, std::uint32_t>> stack{{0, 0}};  // node, depth
    while (!stack.empty()) {
      const auto [i, depth] = stack.back();
      stack.pop_back();
      rows[i].label = tree_[i].label;
      rows[i].depth = depth;
      rows[i].contents = contents(own[i]);
      out_.groups.push_back(std::move(rows[i]));
      for (auto child = tree_[i].children.rbegin(); child != tree_[i].children.rend(); ++child)
        if (shown[*child]) stack.emplace_back(*child, depth + 1);
    }
  }

  /// "12 × aten.mm, 3 × aten.add, 4 others"; the most frequent first.
  [[nodiscard]] static std::string contents(const std::map<std::string_view, std::size_t>& counts) {
    std::vector<std::pair<std::string_view, std::size_t>> rows(counts.begin(), counts.end());
    std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    std::string text;
    std::size_t others = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (i >= described_graph::most_contents) {
        others += rows[i].second;
        continue;
      }
      if (i != 0) text += ", ";
      if (rows[i].second > 1) text += std::to_string(rows[i].second) + " × ";
      text += rows[i].first;
    }
    if (others != 0) text += ", " + std::to_string(others) + " others";
    return text;
  }

  /// Layers are the modules, as deep as there are not too many; without modules, the groups of the top level.
  void find_layers() {
    const auto set = [&](const auto& name_of) {
      out_.layers.clear();
      out_.layer_of.clear();
      std::map<std::string, std::uint32_t> places;
      for (std::uint32_t o = 0; o < graph_.num_operations; ++o) {
        const auto [entry, is_new] = places.try_emplace(name_of(o), static_cast<std::uint32_t>(out_.layers.size()));
        if (is_new) out_.layers.push_back(entry->first);
        out_.layer_of.push_back(entry->second);
      }
    };
    std::size_t named = 0, deepest = 0;
    for (const std::string& module : modules_) {
      named += module.empty() ? 0 : 1;
      deepest = std::max(deepest, static_cast<std::size_t>(std::count(module.begin(), module.end(), '.')) + 1);
    }
    if (2 * named >= modules_.size() && named != 0) {
      for (std::size_t depth = std::min<std::size_t>(deepest, 8); depth > 0; --depth) {
        set([&](std::uint32_t o) {
          std::size_t end = 0;
          for (std::size_t d = 0; d < depth && end < modules_[o].size(); ++d)
            end = std::min(modules_[o].find('.', end + (d == 0 ? 0 : 1)), modules_[o].size());
          return modules_[o].empty() ? std::string("(no module)") : modules_[o].substr(0, end);
        });
        if (out_.layers.size() <= described_graph::most_layers) break;
      }
    } else {
      // The place of an operation in the forward is that of its anchor in the backward.
      std::vector<std::uint32_t> child_of(h_.groups.size(), none);
      for (std::uint32_t g = 1; g < h_.groups.size(); ++g)
        child_of[g] = h_.groups[g].parent == 0 ? g : child_of[h_.groups[g].parent];
      set([&](std::uint32_t o) {
        const std::uint32_t g = h_.group_of[o] == none ? none : child_of[h_.group_of[o]];
        return g == none ? std::string("(in no group)") : label_of(h_.forward(g));
      });
    }
    if (out_.layers.size() < 2 || out_.layers.size() > described_graph::most_layers) {
      out_.layers.clear();
      out_.layer_of.clear();
    }
  }

  void count_kinds() {
    std::map<std::pair<char, std::string_view>, described_graph::kind_row> rows;
    for (std::uint32_t o = 0; o < graph_.num_operations; ++o) {
      const std::string_view plain = plain_name(name(o));
      described_graph::kind_row& row = rows[{out_.kind[o], plain}];
      row.kind = out_.kind[o];
      row.name = plain;
      ++row.count;
      row.time += out_.time[o];
      row.bytes += out_.bytes[o];
    }
    for (auto& entry : rows) out_.kinds.push_back(std::move(entry.second));
    std::stable_sort(out_.kinds.begin(), out_.kinds.end(),
                     [](const auto& a, const auto& b) { return a.time > b.time; });
    if (out_.kinds.size() <= described_graph::most_kinds) return;
    described_graph::kind_row rest{'-',
                                   "(" + std::to_string(out_.kinds.size() - described_graph::most_kinds) + " others)"};
    for (std::size_t i = described_graph::most_kinds; i < out_.kinds.size(); ++i) {
      rest.count += out_.kinds[i].count;
      rest.time += out_.kinds[i].time;
      rest.bytes += out_.kinds[i].bytes;
    }
    out_.kinds.resize(described_graph::most_kinds);
    out_.kinds.push_back(std::move(rest));
  }

  const flat_graph& graph_;
  const name_lookup& names_;
  const operation_hierarchy& h_;
  described_graph out_;
  std::vector<std::string> modules_;  // each operation's module; empty: not known
  std::uint32_t forward_nodes_ = 0;   // the first nodes are forward
  std::map<std::uint32_t, std::set<std::int32_t>> used_rows_;
  std::vector<tree_node> tree_;
  std::vector<std::uint32_t> leaf_of_;  // operation → its node of the tree
};

}  // namespace report_graph

REMAT_INLINE std::string_view module_in_name(std::string_view name) {
  constexpr std::string_view words = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.";
  const std::size_t end = name.find_first_not_of(words);
  if (end == std::string_view::npos || end == 0 || name.substr(end, 2) != ": ") return {};
  return name.substr(0, end);
}

REMAT_INLINE std::string_view plain_name(std::string_view name) {
  const std::string_view module = module_in_name(name);
  if (!module.empty()) name.remove_prefix(module.size() + 2);
  if (const std::size_t line = name.rfind(" ("); line != std::string_view::npos && line != 0 && name.back() == ')')
    name = name.substr(0, line);
  return name;
}

REMAT_INLINE std::string name_pattern(std::string_view name) {
  const std::string_view module = module_in_name(name);
  const std::size_t end = module.empty() ? name.size() : module.size();
  std::string out;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const bool digit = i < end && name[i] >= '0' && name[i] <= '9';
    if (!digit)
      out += name[i];
    else if (out.empty() || out.back() != '*')
      out += '*';
  }
  return out;
}

REMAT_INLINE described_graph describe_graph(const problem& p, const name_lookup& names, const operation_hierarchy& h) {
  return report_graph::describer(p, names, h).describe();
}

}  // namespace REMAT_NAMESPACE::detail
