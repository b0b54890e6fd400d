// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/io/hlo_text.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <unordered_map>
#include <utility>
#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/io/detail/files.hpp"
#include "remat/io/detail/foreign_format.hpp"
#include "remat/io/impl/hlo_syntax.hpp"

namespace REMAT_NAMESPACE {

namespace detail::hlo_text {

using hlo_syntax::computation;
using hlo_syntax::instruction;
using hlo_syntax::none;

/// The use of memory by an instruction.
enum class effect : std::uint8_t {
  parameter,
  constant,
  tuple,
  element,  // get-tuple-element
  alias,    // the memory of its first operand
  loop,     // while
  call,
  conditional,
  fusion,
  start,         // begins an asynchronous operation
  update,        // stands between start and done
  done,          // ends an asynchronous operation
  once,          // must not run again
  move,          // moves data, without arithmetic
  slice,         // reads no more than it writes
  update_slice,  // writes a part over its first operand
  scatter,       // … at several places
  arithmetic     // all others
};

[[nodiscard]] inline effect effect_of(std::string_view opcode) {
  const auto is = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), opcode) != names.end();
  };
  constexpr std::array<std::pair<std::string_view, effect>, 11> alone{{{"parameter", effect::parameter},
                                                                       {"constant", effect::constant},
                                                                       {"tuple", effect::tuple},
                                                                       {"get-tuple-element", effect::element},
                                                                       {"while", effect::loop},
                                                                       {"call", effect::call},
                                                                       {"conditional", effect::conditional},
                                                                       {"fusion", effect::fusion},
                                                                       {"dynamic-update-slice", effect::update_slice},
                                                                       {"scatter", effect::scatter},
                                                                       {"custom-call", effect::arithmetic}}};
  for (const auto& [name, what] : alone)
    if (name == opcode) return what;
  if (is({"bitcast", "opt-barrier", "optimization-barrier", "add-dependency", "domain"})) return effect::alias;
  if (is({"dynamic-slice", "slice", "gather"})) return effect::slice;
  if (is({"infeed", "outfeed", "rng", "rng-get-and-update-state"})) return effect::once;
  if (is({"copy", "broadcast", "transpose", "reshape", "concatenate", "pad", "iota", "reverse", "dynamic-reshape",
          "after-all", "partition-id", "replica-id", "get-dimension-size", "set-dimension-size", "all-gather",
          "all-to-all", "collective-permute", "collective-broadcast"}))
    return effect::move;
  if (opcode.ends_with("-start") || is({"send", "recv"})) return effect::start;
  if (opcode.ends_with("-update")) return effect::update;
  return opcode.ends_with("-done") ? effect::done : effect::arithmetic;
}

/// Figures of one run.
struct work {
  double flops = 0, traffic = 0;
};

/// An array of one computation.
struct array {
  enum class owner : std::uint8_t { operation, parameter, constant };
  std::int64_t bytes = 0;
  std::uint32_t instruction = none, number = 0;  // the instruction, and the number among its leaves
  owner of = owner::operation;
  bool is_donated = false, is_result = false, is_read = false, is_final = false;
  std::uint32_t made_by = none;   // the instruction in a called computation that makes what it holds, if that is known
  std::uint32_t ended_by = none;  // the instruction that ends what makes it, if another computation began that
};

struct operation {
  std::uint32_t instruction = none;
  std::vector<std::uint32_t> inputs{}, outputs{};
  std::vector<std::pair<std::uint32_t, std::uint32_t>> in_place{};  // an operand's array and the output over it
  std::int64_t workspace = 0;
  work done{};
  bool once = false, joined = false;
  std::uint32_t into = none;  // if it is joined: the operation that writes over its results
};

/// One computation in its listed order.
struct listing {
  std::vector<array> arrays{};
  std::vector<operation> operations{};
  std::vector<std::uint32_t> results{};  // arrays
};

/// The figures of a computation that its callers need.
struct summary {
  std::int64_t workspace = 0;
  work done{};
  bool once = false;
  std::vector<std::uint32_t> from{};     // one for each result: the leaf of the parameters that it is, or `none`
  std::vector<std::uint32_t> over{};     // … over which it is written in place, or `none`
  std::vector<std::uint32_t> made_by{};  // … the instruction that makes what it holds, or `none`
  std::vector<double> traffic{};         // one for each leaf of the parameters: bytes that are read
  double written = 0;                    // bytes of the results that are written
};

/// Turns a module into operations on arrays.
class lowering {
 public:
  explicit lowering(const hlo_syntax::module& m)
      : module_(m),
        called_(m.instructions.size()),
        array_of_(m.leaves.size(), none),
        operation_of_(m.instructions.size(), none),
        summaries_(m.computations.size()) {}

  hlo_module run() {
    for (const std::uint32_t c : callees_first()) {
      listing list = list_operations(c);
      for (const std::uint32_t r : list.results) list.arrays[r].is_result = true;
      if (c == module_.entry) {
        mark_donated(list);
        drop_unread(list);
        join_in_place(list);
        return to_graph(list);
      }
      summarize(c, list);
    }
    return {};
  }

 private:
  // ---- which computation calls which --------------------------------------------------------------------------------

  /// The computations that an attribute names.
  void add_called(const instruction& i, std::string_view key, std::vector<std::uint32_t>& out) const {
    const std::string_view value = module_.find(i, key);
    hlo_syntax::cursor in(value);
    for (in.skip(); !in.at_end(); in.skip()) {
      const char* const at = in.at();
      const std::string_view name = in.name();
      if (name.empty()) {
        in.advance();  // a brace or a comma
        continue;
      }
      const auto found = module_.computation_of.find(name);
      if (found == module_.computation_of.end())
        module_.fail(at, "there is no computation " + printable(name) + "; expected the name of one in the module");
      out.push_back(found->second);
    }
  }
  /// All computations that an instruction calls; `while`: the body, then the condition.
  [[nodiscard]] std::vector<std::uint32_t> called_by(const instruction& i) const {
    std::vector<std::uint32_t> all;
    if (i.wrapped != none) return {i.wrapped};
    if (i.attributes.size() == 0) return all;
    for (const char* const key : {"body", "condition", "to_apply", "calls", "branch_computations", "true_computation",
                                  "false_computation", "called_computations"})
      add_called(i, key, all);
    return all;
  }

  /// The computations that the entry needs, each after those that it calls.
  std::vector<std::uint32_t> callees_first() {
    enum : std::uint8_t { unseen, open, finished };
    std::vector<std::uint8_t> state(module_.computations.size(), unseen);
    std::vector<std::uint32_t> order;
    struct visit {
      std::uint32_t computation, next_instruction, next_call;
    };
    std::vector<visit> stack;
    const auto enter = [&](std::uint32_t c) {
      state[c] = open;
      stack.push_back({c, module_.computations[c].instructions.begin, 0});
    };
    enter(module_.entry);
    while (!stack.empty()) {
      visit& v = stack.back();
      if (v.next_instruction == module_.computations[v.computation].instructions.end) {
        state[v.computation] = finished;
        order.push_back(v.computation);
        stack.pop_back();
        continue;
      }
      const std::uint32_t caller = v.next_instruction;
      if (v.next_call == 0) called_[caller] = called_by(module_.instructions[caller]);
      if (v.next_call == called_[caller].size()) {
        ++v.next_instruction;
        v.next_call = 0;
        continue;
      }
      const std::uint32_t callee = called_[caller][v.next_call++];
      if (state[callee] == open)
        module_.fail(module_.instructions[caller], "calls computation " + printable(module_.computations[callee].name) +
                                                       ", which calls it; expected no recursion");
      if (state[callee] == unseen) enter(callee);
    }
    return order;
  }

  // ---- one computation ----------------------------------------------------------------------------------------------

  [[nodiscard]] const instruction& at(std::uint32_t i) const { return module_.instructions[i]; }
  [[noreturn]] void fail(const instruction& i, const std::string& message) const { module_.fail(i, message); }

  void require_operands(const instruction& i, std::size_t least) const {
    if (i.operands.size() < least)
      fail(i, "has " + std::to_string(i.operands.size()) + " operands; expected " + std::to_string(least));
  }
  void require_arrays(const instruction& i, std::size_t found, const std::string& of) const {
    if (found != i.leaves.size())
      fail(i, "has a shape of " + std::to_string(i.leaves.size()) + " arrays; expected " + std::to_string(found) +
                  ", as " + of);
  }
  /// The arrays of an instruction that has come.
  [[nodiscard]] std::vector<std::uint32_t> arrays_of(const instruction& i) const {
    return {array_of_.begin() + i.leaves.begin, array_of_.begin() + i.leaves.end};
  }
  /// The array of an instruction that has one; otherwise `none`.
  [[nodiscard]] std::uint32_t only_array(const instruction& i) const {
    return i.leaves.size() == 1 ? array_of_[i.leaves.begin] : none;
  }
  [[nodiscard]] std::vector<std::uint32_t> operand_arrays(const instruction& i) {
    constexpr std::uint64_t most_reads = std::uint64_t{1} << 28U;
    std::vector<std::uint32_t> all;
    for (std::uint32_t k = 0; k < i.operands.size(); ++k) {
      const instruction& from = module_.operand(i, k);
      reads_ += from.leaves.size();
      if (reads_ > most_reads) fail(i, "is too much: the module reads more than 2^28 arrays; expected fewer");
      all.insert(all.end(), array_of_.begin() + from.leaves.begin, array_of_.begin() + from.leaves.end);
    }
    return all;
  }
  /// The leaves of the parameters of computation `c`, in the order of their numbers.
  [[nodiscard]] std::vector<std::uint32_t> parameter_leaves(std::uint32_t c) const {
    std::vector<std::uint32_t> all;
    for (const std::uint32_t p : module_.computations[c].parameters)
      for (std::uint32_t l = at(p).leaves.begin; l < at(p).leaves.end; ++l) all.push_back(l);
    return all;
  }
  std::uint32_t add_array(listing& list, std::uint32_t i, std::uint32_t number, array::owner of) {
    list.arrays.push_back({module_.leaves[at(i).leaves.begin + number].bytes, i, number, of});
    return static_cast<std::uint32_t>(list.arrays.size() - 1);
  }
  /// Gives leaf `number` of an instruction an array of its own, which `o` makes.
  void make(listing& list, operation& o, std::uint32_t i, std::uint32_t number) {
    const std::uint32_t a = add_array(list, i, number, array::owner::operation);
    array_of_[at(i).leaves.begin + number] = a;
    o.outputs.push_back(a);
  }
  void make_all(listing& list, operation& o, std::uint32_t i) {
    for (std::uint32_t k = 0; k < at(i).leaves.size(); ++k) make(list, o, i, k);
  }
  void set_aliases(const instruction& i, const std::vector<std::uint32_t>& arrays, const std::string& of) {
    require_arrays(i, arrays.size(), of);
    std::copy(arrays.begin(), arrays.end(), array_of_.begin() + i.leaves.begin);
  }
  /// The leaves of element `k` of a tuple, as a part of `module::leaves`.
  [[nodiscard]] hlo_syntax::part element(const instruction& tuple, std::uint32_t k) const {
    const std::uint32_t first = tuple.children.begin + k;
    const std::uint32_t begin = module_.children[first];
    const std::uint32_t end = first + 1 == tuple.children.end ? tuple.leaves.size() : module_.children[first + 1];
    return {tuple.leaves.begin + begin, tuple.leaves.begin + end};
  }
  [[nodiscard]] std::vector<std::uint32_t> arrays_in(hlo_syntax::part leaves) const {
    return {array_of_.begin() + leaves.begin, array_of_.begin() + leaves.end};
  }

  listing list_operations(std::uint32_t c) {
    listing list;
    const computation& in = module_.computations[c];
    for (std::uint32_t i = in.instructions.begin; i < in.instructions.end; ++i) add(list, i);
    list.results = arrays_of(at(in.root));
    return list;
  }

  void add(listing& list, std::uint32_t number) {
    const instruction& i = at(number);
    operation o;
    o.instruction = number;
    const effect what = effect_of(i.opcode);
    switch (what) {
      case effect::parameter:
      case effect::constant: {
        const auto of = what == effect::parameter ? array::owner::parameter : array::owner::constant;
        for (std::uint32_t k = 0; k < i.leaves.size(); ++k)
          array_of_[i.leaves.begin + k] = add_array(list, number, k, of);
        if (what == effect::constant) constant_bytes_ += module_.bytes(i);
        return;
      }
      case effect::tuple:
        return set_aliases(i, operand_arrays(i), "its operands");
      case effect::element: {
        require_operands(i, 1);
        const instruction& from = module_.operand(i, 0);
        if (!from.is_tuple || i.number >= from.children.size())
          fail(i, "has the index " + std::to_string(i.number) + ", and " + printable(from.name) + " has " +
                      std::to_string(from.is_tuple ? from.children.size() : 0) + " elements; expected one of these");
        return set_aliases(i, arrays_in(element(from, static_cast<std::uint32_t>(i.number))), "the element");
      }
      case effect::alias:
        require_operands(i, 1);
        return set_aliases(i, arrays_of(module_.operand(i, 0)), "its first operand");
      case effect::update:
        if (add_update(list, o, number)) break;
        return;
      default:
        break;
    }
    o.inputs = operand_arrays(i);
    switch (what) {
      case effect::loop:
        add_loop(list, o, number);
        break;
      case effect::call:
        add_call(list, o, number);
        break;
      case effect::start:
        add_start(list, o, number);
        break;
      case effect::done:
        add_done(list, o, number);
        break;
      case effect::update:
        break;
      default:
        make_all(list, o, number);
        add_figures(o, i, what);
    }
    const bool is_custom = i.opcode == "custom-call" && module_.find(i, "custom_call_has_side_effect") == "true";
    o.once = o.once || what == effect::once || is_custom;
    constexpr double most_work = 1e30;
    if (!(o.done.flops <= most_work && o.done.traffic <= most_work))
      fail(i, "does more than 1e30 flops, or moves more bytes; expected less");
    keep_possible(o);
    for (std::uint32_t k = i.after.begin; k < i.after.end; ++k) read_token(list, o, module_.operands[k]);
    for (std::size_t k = 0, inputs = o.inputs.size(); k < inputs; ++k)
      if (const std::uint32_t end = list.arrays[o.inputs[k]].ended_by; end != none) read_token(list, o, end);
    std::sort(o.inputs.begin(), o.inputs.end());
    o.inputs.erase(std::unique(o.inputs.begin(), o.inputs.end()), o.inputs.end());
    for (const std::uint32_t a : o.inputs) list.arrays[a].is_read = true;
    operation_of_[number] = static_cast<std::uint32_t>(list.operations.size());
    list.operations.push_back(std::move(o));
  }

  /// Lets `o` read an array of no bytes that the operation of instruction `before` makes, if it has one.
  void read_token(listing& list, operation& o, std::uint32_t before) {
    if (operation_of_[before] == none) return;
    operation* const made = &list.operations[operation_of_[before]];
    const auto is_token = [&](std::uint32_t a) { return list.arrays[a].number == none; };
    auto token = std::find_if(made->outputs.begin(), made->outputs.end(), is_token);
    if (token == made->outputs.end()) {
      list.arrays.push_back({0, before, none});
      token = made->outputs.insert(token, static_cast<std::uint32_t>(list.arrays.size() - 1));
    }
    o.inputs.push_back(*token);
  }

  /// Drops the pairs of an operand that the operation reads a second time: it cannot write over that.
  static void keep_possible(operation& o) {
    if (o.in_place.empty()) return;
    std::vector<std::uint32_t> read = o.inputs;
    std::sort(read.begin(), read.end());
    const auto is_twice = [&](const auto& pair) {
      const auto [first, last] = std::equal_range(read.begin(), read.end(), pair.first);
      return last - first != 1;
    };
    o.in_place.erase(std::remove_if(o.in_place.begin(), o.in_place.end(), is_twice), o.in_place.end());
  }

  // ---- instructions that call ---------------------------------------------------------------------------------------

  /// The called computation at place `k`, whose parameters take `given` arrays; if `others_follow`, perhaps more.
  const summary& callee(std::uint32_t number, std::size_t k, std::size_t given, const char* expected,
                        bool others_follow = false) {
    const instruction& i = at(number);
    if (k >= called_[number].size()) fail(i, std::string("names no computation; expected ") + expected);
    const std::uint32_t c = called_[number][k];
    const summary& s = summaries_[c];
    if (others_follow ? s.traffic.size() < given : s.traffic.size() != given)
      fail(i, "gives " + std::to_string(given) + " arrays to computation " + printable(module_.computations[c].name) +
                  "; expected " + std::to_string(s.traffic.size()) + ", as its parameters have");
    return s;
  }

  void add_loop(listing& list, operation& o, std::uint32_t number) {
    const instruction& i = at(number);
    const std::size_t n = o.inputs.size();
    const summary& body = callee(number, 0, n, "body=");
    const summary& condition = callee(number, 1, n, "condition=");
    require_arrays(i, n, "its operand");
    if (body.from.size() != n)
      fail(i, "has a body that returns " + std::to_string(body.from.size()) + " arrays; expected " + std::to_string(n));
    for (std::uint32_t k = 0; k < n; ++k) {
      if (body.from[k] == k) {  // passed through
        array_of_[i.leaves.begin + k] = o.inputs[k];
      } else {
        make(list, o, number, k);
        list.arrays[o.outputs.back()].made_by = body.made_by[k];
        o.in_place.emplace_back(o.inputs[k], o.outputs.back());
      }
    }
    o.workspace = std::max(body.workspace, condition.workspace);
    const double trips = trip_count(i);
    o.done = {trips * (body.done.flops + condition.done.flops), trips * (body.done.traffic + condition.done.traffic)};
    o.once = body.once || condition.once;
  }

  [[nodiscard]] double trip_count(const instruction& i) const {
    const std::string_view config = module_.find(i, "backend_config");
    const std::size_t at = config.find("known_trip_count");
    if (at == std::string_view::npos) return 1;
    const std::size_t digit = config.find_first_of("0123456789", at);
    if (digit == std::string_view::npos) return 1;
    return static_cast<double>(hlo_syntax::number_at(config.substr(digit)).value_or(1));
  }

  void add_call(listing& list, operation& o, std::uint32_t number) {
    const instruction& i = at(number);
    const summary& s = callee(number, 0, o.inputs.size(), "to_apply=");
    require_arrays(i, s.from.size(), "the computation returns");
    for (std::uint32_t k = 0; k < s.from.size(); ++k) {
      if (s.from[k] != none) {
        array_of_[i.leaves.begin + k] = o.inputs[s.from[k]];
      } else {
        make(list, o, number, k);
        list.arrays[o.outputs.back()].made_by = s.made_by[k];
        if (s.over[k] != none) o.in_place.emplace_back(o.inputs[s.over[k]], o.outputs.back());
      }
    }
    o.workspace = s.workspace;
    o.done = s.done;
    o.once = s.once;
  }

  /// One element of what a start returns is mostly the tuple of its operands.
  [[nodiscard]] bool returns_operands(const instruction& i, std::uint32_t k) const {
    if (i.children.size() < 2 || i.opcode == "recv") return false;
    const hlo_syntax::part first = element(i, k);
    std::vector<std::uint32_t> operands = operand_leaves(i);
    if (i.opcode == "send" || i.opcode == "copy-start")
      operands.resize(std::min<std::size_t>(operands.size(), first.size()));
    if (first.size() != operands.size()) return false;
    for (std::uint32_t l = 0; l < first.size(); ++l)
      if (module_.leaves[first.begin + l].bytes != module_.leaves[operands[l]].bytes) return false;
    return true;
  }
  [[nodiscard]] std::vector<std::uint32_t> operand_leaves(const instruction& i) const {
    std::vector<std::uint32_t> all;
    for (std::uint32_t k = 0; k < i.operands.size(); ++k)
      for (std::uint32_t l = module_.operand(i, k).leaves.begin; l < module_.operand(i, k).leaves.end; ++l)
        all.push_back(l);
    return all;
  }

  void add_start(listing& list, operation& o, std::uint32_t number) {
    const instruction& i = at(number);
    start_of_.emplace(number, number);
    const std::uint32_t place = i.opcode == "copy-start" ? 1 : 0;
    hlo_syntax::part passed{}, results = i.leaves;
    if (returns_operands(i, place)) {
      passed = element(i, place);
      results = element(i, 1 - place);
    }
    for (std::uint32_t l = i.leaves.begin; l < i.leaves.end; ++l) {
      if (l >= passed.begin && l < passed.end)
        array_of_[l] = o.inputs[l - passed.begin];
      else
        make(list, o, number, l - i.leaves.begin);
    }
    const bool is_sent = i.opcode == "send" || i.opcode == "recv";
    if (i.opcode == "async-start" || i.opcode == "call-start" || i.wrapped != none) {
      const summary& s = callee(number, 0, o.inputs.size(), "calls=", true);
      o.workspace = s.workspace;
      o.done = s.done;
      o.once = s.once;
    } else {  // the figures are those of the instruction that it begins
      instruction begun = i;
      if (begun.opcode.ends_with("-start")) begun.opcode.remove_suffix(std::string_view("-start").size());
      begun.leaves = results;
      add_figures(o, begun, is_sent ? effect::move : effect_of(begun.opcode));
    }
    o.once = o.once || is_sent;
  }

  /// The start behind an instruction that begins, goes on with, or hands on what `from` names; `none` if it is not in
  /// this computation.
  [[nodiscard]] std::uint32_t start_behind(const listing& list, std::uint32_t from) const {
    if (const auto found = start_of_.find(from); found != start_of_.end()) return found->second;
    for (std::uint32_t l = at(from).leaves.end; l > at(from).leaves.begin; --l)  // results stand behind operands
      if (const auto found = start_of_.find(list.arrays[array_of_[l - 1]].instruction); found != start_of_.end())
        return found->second;
    return none;
  }
  /// True if another computation may have begun what `from` holds: it comes from the caller, or from what is called.
  [[nodiscard]] bool is_carried(const listing& list, std::uint32_t from) const {
    const instruction& i = at(from);
    if (i.leaves.size() == 0) return false;
    const array& last = list.arrays[array_of_[i.leaves.end - 1]];
    const hlo_syntax::part entry = module_.computations[module_.entry].instructions;
    if (last.of == array::owner::parameter) return from < entry.begin || from >= entry.end;
    const effect maker = effect_of(at(last.instruction).opcode);
    return maker == effect::loop || maker == effect::call || maker == effect::conditional;
  }
  /// True if the results of `begun`, ((operands), results, …), are not yet bound.
  [[nodiscard]] bool has_no_results(const instruction& begun) const {
    return begun.children.size() > 1 && element(begun, 1).size() == 0;
  }

  /// An update hands on what it is given. It may bind operands, which then stay until the end, and results. True if it
  /// makes some.
  bool add_update(listing& list, operation& o, std::uint32_t number) {
    const instruction& i = at(number);
    require_operands(i, 1);
    const instruction& begun = module_.operand(i, 0);
    const std::uint32_t start = start_behind(list, module_.operands[i.operands.begin]);
    if (start != none) start_of_.emplace(number, start);
    const std::vector<std::uint32_t> before = arrays_of(begun);
    o.inputs = operand_arrays(i);
    const std::vector<std::uint32_t> late(o.inputs.begin() + static_cast<std::ptrdiff_t>(before.size()),
                                          o.inputs.end());
    if (start != none) bound_[start].insert(bound_[start].end(), late.begin(), late.end());
    const bool binds_results = has_no_results(begun) && !has_no_results(i);
    if (late.empty() && !binds_results) {
      set_aliases(i, before, "its operand");
      return false;
    }
    const std::uint32_t operands = begun.children.size() > 1 ? element(begun, 0).size() : 0;
    const std::uint32_t results = binds_results && i.children.size() > 1 ? element(i, 1).size() : 0;
    require_arrays(i, before.size() + late.size() + results, "its operand, with what it binds");
    std::uint32_t leaf = i.leaves.begin;
    for (std::uint32_t k = 0; k < operands; ++k) array_of_[leaf++] = before[k];
    for (const std::uint32_t a : late) array_of_[leaf++] = a;
    for (std::uint32_t k = 0; k < results; ++k, ++leaf) make(list, o, number, leaf - i.leaves.begin);
    for (std::size_t k = operands; k < before.size(); ++k) array_of_[leaf++] = before[k];
    return binds_results;
  }

  /// A second producer of what the start has begun to make, so that the operands stay until now. If the start is in
  /// another computation, the result is what was handed on, and its readers run after this.
  void add_done(listing& list, operation& o, std::uint32_t number) {
    const instruction& i = at(number);
    require_operands(i, 1);
    const instruction& begun = module_.operand(i, 0);
    const std::uint32_t first = start_behind(list, module_.operands[i.operands.begin]);
    const bool is_elsewhere = first == none;
    if (is_elsewhere && !is_carried(list, module_.operands[i.operands.begin]))
      fail(i, "ends " + printable(begun.name) + "; expected an operation that a start began");
    hlo_syntax::part result = begun.leaves;
    const bool is_last_token = i.opcode == "send-done" || i.opcode == "recv-done";
    const bool makes_all = i.opcode == "send-done" || (!is_last_token && has_no_results(begun));
    if (begun.is_tuple && i.leaves.size() != begun.leaves.size()) {
      const std::uint32_t place =
          begun.children.size() > 1 && i.opcode != "copy-done" && i.opcode != "recv-done" ? 1 : 0;
      if (begun.children.size() > 0) result = element(begun, place);
    }
    if (!makes_all && (is_last_token ? result.size() + 1 < i.leaves.size() : result.size() != i.leaves.size()))
      fail(i, "has a shape of " + std::to_string(i.leaves.size()) + " arrays, which " + printable(begun.name) +
                  " does not begin; expected those of the operation that it ends");
    for (std::uint32_t k = 0; k < i.leaves.size(); ++k) {
      if (makes_all || (is_last_token && k + 1 == i.leaves.size())) {
        make(list, o, number, k);
        continue;
      }
      const std::uint32_t a = array_of_[result.begin + k];
      array_of_[i.leaves.begin + k] = a;
      if (is_elsewhere) list.arrays[a].ended_by = number;
      if (is_elsewhere || list.arrays[a].of != array::owner::operation) continue;
      if (list.arrays[a].is_read)
        fail(i,
             "ends an operation whose result is read above; expected " + printable(i.opcode) + " before its readers");
      o.outputs.push_back(a);
    }
    std::sort(o.outputs.begin(), o.outputs.end());
    o.outputs.erase(std::unique(o.outputs.begin(), o.outputs.end()), o.outputs.end());
    o.once = is_last_token;
    if (is_elsewhere) return;
    std::vector<std::uint32_t> used = operand_arrays(at(first));
    if (const auto late = bound_.find(first); late != bound_.end())
      used.insert(used.end(), late->second.begin(), late->second.end());
    o.inputs.insert(o.inputs.end(), used.begin(), used.end());
    const auto is_made = [&](std::uint32_t a) { return std::binary_search(o.outputs.begin(), o.outputs.end(), a); };
    o.inputs.erase(std::remove_if(o.inputs.begin(), o.inputs.end(), is_made), o.inputs.end());
  }

  // ---- flops and bytes ----------------------------------------------------------------------------------------------

  /// The figures of `i`, which is the operation's instruction, or the one that it begins.
  void add_figures(operation& o, const instruction& i, effect what) {
    const double written = static_cast<double>(module_.bytes(i));
    o.done = {0, written};
    for (std::uint32_t k = 0; k < i.operands.size(); ++k)
      o.done.traffic += static_cast<double>(module_.bytes(module_.operand(i, k)));
    const std::vector<std::uint32_t>& calls = called_[o.instruction];
    const double applied = calls.empty() ? 1 : std::max(1.0, summaries_[calls[0]].done.flops);
    const double elements = module_.elements(i);
    switch (what) {
      case effect::move:
        return;
      case effect::slice:
        o.done.traffic = 2 * written;
        return;
      case effect::update_slice:
        require_operands(i, 2);
        o.done.traffic = 2 * static_cast<double>(module_.bytes(module_.operand(i, 1)));
        if (const std::uint32_t over = only_array(module_.operand(i, 0)); over != none && o.outputs.size() == 1)
          o.in_place.emplace_back(over, o.outputs[0]);
        return;
      case effect::scatter: {
        const std::uint32_t written_over = i.leaves.size();
        require_operands(i, 2 * written_over + 1);
        o.done = {};
        for (std::uint32_t k = 0; k < written_over; ++k) {
          const instruction& update = module_.operand(i, written_over + 1 + k);
          o.done.flops += module_.elements(update) * applied;
          o.done.traffic += 3 * static_cast<double>(module_.bytes(update));
          if (const std::uint32_t over = only_array(module_.operand(i, k)); over != none)
            o.in_place.emplace_back(over, o.outputs[k]);
        }
        return;
      }
      case effect::fusion:
        return add_fusion(o);
      case effect::conditional:
        return add_branches(o);
      default:
        break;
    }
    if (i.opcode == "dot") {
      o.done.flops = 2 * elements * summed(i, module_.find(i, "lhs_contracting_dims"));
    } else if (i.opcode == "convolution") {
      o.done.flops = convolution_flops(i);
    } else if (i.opcode == "reduce") {
      require_operands(i, 1);
      o.done.flops = module_.elements(module_.operand(i, 0)) * applied;
    } else if (i.opcode == "reduce-window" || i.opcode == "select-and-scatter") {
      require_operands(i, 1);
      double window = 1;
      for (const std::int64_t size : window_sizes(i, "size")) window *= static_cast<double>(size);
      o.done.flops = i.opcode == "reduce-window" ? elements * window * applied
                                                 : module_.elements(module_.operand(i, 0)) * 2 * applied;
    } else if (i.opcode == "sort") {
      o.done.flops = elements * std::max(1.0, std::log2(std::max(1.0, elements)));
    } else if (i.opcode == "map") {
      o.done.flops = elements * applied;
    } else if (i.opcode == "custom-call") {
      add_custom_call(o);
    } else {
      o.done.flops = elements;
    }
  }

  /// The product of the dimensions of the first operand that `list` numbers.
  [[nodiscard]] double summed(const instruction& i, std::string_view list) const {
    require_operands(i, 1);
    const instruction& from = module_.operand(i, 0);
    double product = 1;
    for (const std::int64_t d : hlo_syntax::numbers_in(list)) {
      if (from.leaves.size() != 1 || d < 0 || d >= module_.leaves[from.leaves.begin].rank)
        fail(i, "sums over dimension " + std::to_string(d) + ", which " + printable(from.name) + " does not have");
      product *= static_cast<double>(
          module_.dimensions[module_.leaves[from.leaves.begin].dimensions + static_cast<std::uint32_t>(d)]);
    }
    return product;
  }

  /// The numbers of `key` in the attribute `window`, such as 3 and 3 of `window={size=3x3 pad=1_1x1_1}`.
  [[nodiscard]] std::vector<std::int64_t> window_sizes(const instruction& i, std::string_view key) const {
    const std::string_view window = module_.find(i, "window");
    for (std::size_t at = window.find(key); at != std::string_view::npos; at = window.find(key, at + 1)) {
      const std::size_t value = at + key.size();
      if (value >= window.size() || window[value] != '=' || (at > 0 && hlo_syntax::is_word(window[at - 1]))) continue;
      return hlo_syntax::numbers_in(window.substr(value, window.find_first_of(" }", value) - value));
    }
    return {};
  }

  /// Each element of the result sums, over the input features of a group, the places of the window that are in the
  /// input.
  [[nodiscard]] double convolution_flops(const instruction& i) const {
    require_operands(i, 2);
    const std::string_view labels = module_.find(i, "dim_labels");
    const std::size_t first = labels.find('_'), second = labels.find("->");
    if (first == std::string_view::npos || second == std::string_view::npos || second < first)
      fail(i, "has no dim_labels of the form b01f_01io->b01f");
    const std::string_view lhs = labels.substr(0, first), rhs = labels.substr(first + 1, second - first - 1),
                           out = labels.substr(second + 2);
    const auto dimension = [&](const instruction& of, std::string_view names, char name) -> std::int64_t {
      const std::size_t at = names.find(name);
      const hlo_syntax::leaf* const l = of.leaves.size() == 0 ? nullptr : &module_.leaves[of.leaves.begin];
      if (at == std::string_view::npos || l == nullptr || at >= l->rank)
        fail(i, "has dim_labels that do not fit the shape of " + printable(of.name));
      return module_.dimensions[l->dimensions + static_cast<std::uint32_t>(at)];
    };
    const instruction &input = module_.operand(i, 0), &kernel = module_.operand(i, 1);
    double flops = 2 * static_cast<double>(dimension(i, out, 'b')) * static_cast<double>(dimension(i, out, 'f')) *
                   static_cast<double>(dimension(kernel, rhs, 'i'));
    const std::vector<std::int64_t> strides = window_sizes(i, "stride"), pads = window_sizes(i, "pad"),
                                    input_dilation = window_sizes(i, "lhs_dilate"),
                                    kernel_dilation = window_sizes(i, "rhs_dilate");
    const auto given = [](const std::vector<std::int64_t>& values, std::size_t k, std::int64_t otherwise) {
      return k < values.size() ? values[k] : otherwise;
    };
    for (std::size_t d = 0; d < 10 && rhs.find(static_cast<char>('0' + d)) != std::string_view::npos; ++d) {
      const char name = static_cast<char>('0' + d);
      const std::int64_t results = dimension(i, out, name), places = dimension(kernel, rhs, name),
                         size = dimension(input, lhs, name);
      flops *= inside(results, places, size, given(strides, d, 1), given(pads, 2 * d, 0), given(input_dilation, d, 1),
                      given(kernel_dilation, d, 1));
    }
    return flops;
  }
  /// The number of pairs of a result and a place of the window that meet an element of the input, in one dimension.
  [[nodiscard]] static double inside(std::int64_t results, std::int64_t places, std::int64_t size, std::int64_t stride,
                                     std::int64_t pad, std::int64_t input_dilation, std::int64_t kernel_dilation) {
    const double all = static_cast<double>(results) * static_cast<double>(places);
    constexpr std::int64_t most = 1 << 30;
    const auto is_usual = [&](std::int64_t n) { return n >= 0 && n < most; };
    if (all > 1e5 || input_dilation < 1 || !is_usual(stride) || !is_usual(pad + most / 2) ||
        !is_usual(kernel_dilation) || !is_usual(input_dilation))
      return all;
    double count = 0;
    for (std::int64_t r = 0; r < results; ++r)
      for (std::int64_t p = 0; p < places; ++p) {
        const std::int64_t at = r * stride + p * kernel_dilation - pad;
        count += at >= 0 && at % input_dilation == 0 && at / input_dilation < size;
      }
    return count;
  }

  /// The three convolutions of a layer do the same work: 2 · |output| · |kernel| / output features.
  [[nodiscard]] double library_convolution_flops(const instruction& i, bool makes_kernel, bool makes_input) const {
    const instruction& kernel = makes_kernel ? i : module_.operand(i, 1);
    const instruction& output = makes_kernel ? module_.operand(i, 1) : makes_input ? module_.operand(i, 0) : i;
    const std::string_view labels = module_.find(i, "dim_labels");
    const std::size_t feature = labels.find('o'), first = labels.find('_');
    if (kernel.leaves.size() == 0 || output.leaves.size() == 0 || feature >= labels.size() || first >= feature)
      return 0;
    const hlo_syntax::leaf &k = module_.leaves[kernel.leaves.begin], &out = module_.leaves[output.leaves.begin];
    const std::size_t d = feature - first - 1;
    if (d >= k.rank) return 0;
    const std::int64_t features = module_.dimensions[k.dimensions + static_cast<std::uint32_t>(d)];
    return 2 * module_.elements(out) * module_.elements(k) / static_cast<double>(std::max<std::int64_t>(features, 1));
  }

  void add_custom_call(operation& o) const {
    const instruction& i = at(o.instruction);
    const std::string_view config = module_.find(i, "backend_config"), target = module_.find(i, "custom_call_target");
    const auto names = [&](std::string_view part) { return target.find(part) != std::string_view::npos; };
    if (names("matmul") || names("gemm")) {
      const std::string_view key = "lhs_contracting_dimensions";
      const std::size_t at = config.find(key);
      const std::size_t open = at == std::string_view::npos ? at : config.find('[', at);
      if (open != std::string_view::npos && i.operands.size() > 0 && i.leaves.size() > 0)
        o.done.flops = 2 * module_.elements(module_.leaves[i.leaves.begin]) *
                       summed(i, config.substr(open, config.find(']', open) - open));
    } else if (names("conv") && i.operands.size() > 1 && !module_.find(i, "dim_labels").empty()) {
      o.done.flops = library_convolution_flops(i, names("BackwardFilter"), names("BackwardInput"));
    } else {
      o.done.flops = module_.elements(i);
    }
    // output_to_operand_aliasing={{0}: (1, {})}: element 0 lies in the memory of operand 1.
    const std::vector<std::int64_t> pairs = hlo_syntax::numbers_in(module_.find(i, "output_to_operand_aliasing"));
    if (i.is_tuple ? pairs.size() != 2 : pairs.size() != 1) return;  // one pair of whole arrays
    const std::int64_t output = i.is_tuple ? pairs[0] : 0, input = pairs.back();
    if (output >= static_cast<std::int64_t>(o.outputs.size()) || input >= static_cast<std::int64_t>(i.operands.size()))
      return;
    if (const std::uint32_t over = only_array(module_.operand(i, static_cast<std::uint32_t>(input))); over != none)
      o.in_place.emplace_back(over, o.outputs[static_cast<std::size_t>(output)]);
  }

  void add_fusion(operation& o) {
    const instruction& i = at(o.instruction);
    const summary& s = callee(o.instruction, 0, o.inputs.size(), "calls=");
    require_arrays(i, s.from.size(), "its computation returns");
    o.done = {s.done.flops, s.written};
    for (const double bytes : s.traffic) o.done.traffic += bytes;
    for (std::uint32_t k = 0; k < s.over.size(); ++k)
      if (s.over[k] != none) o.in_place.emplace_back(o.inputs[s.over[k]], o.outputs[k]);
    o.once = s.once;
  }

  void add_branches(operation& o) {
    const instruction& i = at(o.instruction);
    const std::vector<std::uint32_t>& branches = called_[o.instruction];
    if (branches.empty()) fail(i, "names no computation; expected branch_computations=");
    require_operands(i, branches.size() + 1);
    o.done = {};
    for (std::uint32_t b = 0; b < branches.size(); ++b) {
      const summary& s = callee(o.instruction, b, module_.operand(i, b + 1).leaves.size(), "branch_computations=");
      require_arrays(i, s.from.size(), "its branches return");
      o.workspace = std::max(o.workspace, s.workspace);
      o.done.flops = std::max(o.done.flops, s.done.flops);
      o.done.traffic = std::max(o.done.traffic, s.done.traffic);
      o.once = o.once || s.once;
    }
  }

  // ---- what a listing needs -----------------------------------------------------------------------------------------

  /// The producers and readers of each array, by the numbers of operations. A result is read at the end.
  struct uses {
    static constexpr std::uint32_t at_end = none - 1;
    explicit uses(const listing& list)
        : producer(list.arrays.size(), none),
          producers(list.arrays.size(), 0),
          readers(list.arrays.size(), 0),
          last(list.arrays.size(), none) {
      for (std::uint32_t o = 0; o < list.operations.size(); ++o) {
        if (list.operations[o].joined) continue;
        for (const std::uint32_t a : list.operations[o].inputs) ++readers[a], last[a] = o;
        for (const std::uint32_t a : list.operations[o].outputs) ++producers[a], producer[a] = o;
      }
      for (const std::uint32_t a : list.results) ++readers[a], last[a] = at_end;
    }
    std::vector<std::uint32_t> producer, producers, readers, last;
  };

  /// True for what is in memory all the time and not counted.
  [[nodiscard]] static bool is_resident(const array& a) { return a.of != array::owner::operation && !a.is_donated; }

  enum class list_kind : std::uint8_t { entry, called };

  /// The memory while each operation of the listed order runs, its workspace included. If `in_place`, an array that is
  /// written over, and read by nobody later, hands its place on to the result; else both count. Parameters and results
  /// of a called computation do not count: its caller counts them.
  [[nodiscard]] static std::vector<std::int64_t> memory_of(const listing& list, list_kind kind, bool in_place) {
    const uses u(list);
    const auto size = static_cast<std::uint32_t>(list.operations.size());
    std::vector<std::uint32_t> first(list.arrays.size(), none), place(list.arrays.size());
    for (std::uint32_t a = 0; a < place.size(); ++a) place[a] = a;
    for (std::uint32_t n = 0; n < size; ++n) {
      const operation& o = list.operations[n];
      if (o.joined) continue;
      for (const std::uint32_t a : o.outputs) first[a] = std::min(first[a], n);
      for (const auto& [from, to] : o.in_place)
        if (in_place && list.arrays[from].of == array::owner::operation && u.last[from] == n && first[to] == n &&
            list.arrays[from].bytes == list.arrays[to].bytes)
          place[to] = place[from];
    }
    struct stay {
      std::uint32_t first = none, last = 0;
      bool is_counted = true;
    };
    std::vector<stay> stays(list.arrays.size());  // a row for each place
    for (std::uint32_t a = 0; a < place.size(); ++a) {
      const array& x = list.arrays[a];
      stay& s = stays[place[a]];
      const bool is_callers = kind == list_kind::called && (x.of != array::owner::operation || x.is_result);
      if (is_resident(x) || is_callers) s.is_counted = false;
      if (first[a] == none && !(x.is_donated && u.last[a] != none)) continue;  // joined, or never there
      s.first = std::min(s.first, first[a] == none ? 0 : first[a]);
      for (const std::uint32_t n : {u.producer[a], u.last[a]})
        if (n != none) s.last = std::max(s.last, std::min(n, size));
    }
    std::vector<std::int64_t> all(size + std::size_t{2}, 0);  // changes, then sums
    for (std::uint32_t a = 0; a < place.size(); ++a) {
      if (!stays[a].is_counted || stays[a].first == none) continue;
      all[stays[a].first] += list.arrays[a].bytes;
      all[stays[a].last + std::size_t{1}] -= list.arrays[a].bytes;
    }
    std::int64_t memory = 0;
    for (std::uint32_t n = 0; n < size; ++n) {
      memory += all[n];
      all[n] = list.operations[n].joined ? 0 : memory + list.operations[n].workspace;
    }
    all.resize(size);
    return all;
  }
  [[nodiscard]] static std::int64_t largest(const std::vector<std::int64_t>& memory) {
    return memory.empty() ? 0 : *std::max_element(memory.begin(), memory.end());
  }

  /// Joins producers of operands to the operations that write over them, but no more of them than the listed order
  /// allows: its peak, with the arrays that lie in one place counted once, does not become lower.
  static void join_in_place(listing& list) {
    const listing listed = list;
    std::vector<std::uint8_t> is_apart(list.operations.size(), 0);
    join_all_but(list, is_apart);
    const std::vector<std::int64_t> memory = memory_of(listed, list_kind::entry, true);
    if (memory.empty()) return;
    const auto most = static_cast<std::uint32_t>(std::max_element(memory.begin(), memory.end()) - memory.begin());
    if (largest(memory_of(list, list_kind::entry, false)) >= memory[most]) return;
    // Producers whose results are in memory at that peak stay where they are: first those with room at the operation
    // that writes over them, since operand and result both count while it runs.
    std::vector<std::uint32_t> early;
    std::vector<std::int64_t> apart(list.operations.size(), 0);
    for (std::uint32_t p = 0; p <= most; ++p) {
      const operation& o = list.operations[p];
      if (!o.joined || o.into <= most) continue;
      early.push_back(p);
      apart[p] = memory[o.into];
      for (const std::uint32_t x : o.outputs) apart[p] += list.arrays[x].bytes;
    }
    std::stable_sort(early.begin(), early.end(), [&](auto x, auto y) { return apart[x] < apart[y]; });
    for (std::size_t first = 0, count = 1; first < early.size(); first += count, count *= 2) {
      for (std::size_t k = first; k < std::min(first + count, early.size()); ++k) is_apart[early[k]] = 1;
      list = listed;
      join_all_but(list, is_apart);
      if (largest(memory_of(list, list_kind::entry, false)) >= memory[most]) return;
    }
  }

  /// Joins the producer of an operand to the operation that writes over it, if it could as well run just before, and is
  /// not to stay apart.
  static void join_all_but(listing& list, const std::vector<std::uint8_t>& is_apart) {
    uses u(list);
    // The last operation that reads an array, or may write over it.
    std::vector<std::uint32_t> read_by(list.arrays.size(), none), written_by(list.arrays.size(), none);
    for (std::uint32_t w = 0; w < list.operations.size(); ++w) {
      operation& over = list.operations[w];
      std::vector<std::uint32_t> producers;
      for (const auto& [operand, output] : over.in_place) {
        if (u.producers[operand] != 1 || list.arrays[operand].bytes != list.arrays[output].bytes) continue;
        written_by[operand] = w;
        producers.push_back(u.producer[operand]);
      }
      if (producers.empty()) continue;
      std::sort(producers.begin(), producers.end(), std::greater<>());  // a copy before what it copies
      producers.erase(std::unique(producers.begin(), producers.end()), producers.end());
      for (const std::uint32_t a : over.inputs) read_by[a] = w;
      for (const std::uint32_t p : producers) {
        operation& producer = list.operations[p];
        const auto is_free = [&](std::uint32_t a) { return u.readers[a] == 1 && u.last[a] == w && written_by[a] == w; };
        if (producer.once || is_apart[p] || !std::all_of(producer.outputs.begin(), producer.outputs.end(), is_free))
          continue;
        // Later, its outputs take less memory until here, and inputs that nobody else needs more.
        std::int64_t more = 0;
        for (const std::uint32_t a : producer.inputs)
          more += u.last[a] >= w || is_resident(list.arrays[a]) ? 0 : list.arrays[a].bytes;
        for (const std::uint32_t a : producer.outputs) more -= list.arrays[a].bytes;
        if (more > 0) continue;
        producer.joined = true;
        producer.into = w;
        for (const std::uint32_t a : producer.outputs) read_by[a] = none;
        for (const std::uint32_t a : producer.inputs) {
          if (read_by[a] == w)
            --u.readers[a];
          else
            over.inputs.push_back(a);
          read_by[a] = w;
          u.last[a] = std::max(u.last[a], w);
        }
        over.workspace = std::max(over.workspace, producer.workspace);
        over.done.flops += producer.done.flops;
        over.done.traffic += producer.done.traffic;
      }
      over.inputs.erase(std::remove_if(over.inputs.begin(), over.inputs.end(), [&](auto a) { return read_by[a] != w; }),
                        over.inputs.end());
      std::sort(over.inputs.begin(), over.inputs.end());
    }
  }

  void summarize(std::uint32_t c, const listing& list) {
    summary& s = summaries_[c];
    s.workspace = largest(memory_of(list, list_kind::called, true));
    for (const operation& o : list.operations) {
      s.done.flops += o.done.flops;
      s.done.traffic += o.done.traffic;
      s.once = s.once || o.once;
    }
    summarize_ends(c, list, uses(list), s);
  }

  /// Notes the traffic of parameters and results, and which results are parameters or lie over them.
  void summarize_ends(std::uint32_t c, const listing& list, const uses& u, summary& s) const {
    const std::vector<std::uint32_t> leaves = parameter_leaves(c);
    std::vector<std::uint32_t> place(list.arrays.size(), none);  // place of a parameter's array among the leaves
    for (std::uint32_t k = 0; k < leaves.size(); ++k) place[array_of_[leaves[k]]] = k;
    std::vector<double> read(list.arrays.size(), 0);
    std::vector<std::uint32_t> over(list.arrays.size(), none);  // the parameter over which an array is written
    std::vector<double> written(list.arrays.size(), -1);
    for (const operation& o : list.operations) {
      const effect what = effect_of(at(o.instruction).opcode);
      const bool is_part = what == effect::slice || what == effect::update_slice || what == effect::scatter;
      const std::uint32_t in_part =
          is_part && at(o.instruction).operands.size() > 0 ? only_array(module_.operand(at(o.instruction), 0)) : none;
      for (std::size_t k = 0; k < o.inputs.size(); ++k) {
        const std::uint32_t a = o.inputs[k];
        read[a] += a == in_part ? o.done.traffic / 2 : static_cast<double>(list.arrays[a].bytes);
      }
      for (const auto& [from, to] : o.in_place) {
        if (u.readers[from] == 1) over[to] = list.arrays[from].of == array::owner::parameter ? place[from] : over[from];
        if (is_part) written[to] = o.done.traffic / 2;
      }
    }
    for (std::uint32_t k = 0; k < leaves.size(); ++k) {
      const std::uint32_t a = array_of_[leaves[k]];
      s.traffic.push_back(std::min(read[a], static_cast<double>(list.arrays[a].bytes)));
    }
    for (const std::uint32_t a : list.results) {
      s.from.push_back(list.arrays[a].of == array::owner::parameter ? place[a] : none);
      s.over.push_back(over[a]);
      s.made_by.push_back(u.producer[a] == none ? none : maker_of(list, list.operations[u.producer[a]], a));
      s.written += written[a] >= 0 ? written[a] : static_cast<double>(list.arrays[a].bytes);
    }
  }

  /// The instruction that makes what array `a` holds. An operation that writes a part over an array, as a loop that
  /// stacks what it keeps, holds what the largest other array that it reads holds.
  [[nodiscard]] static std::uint32_t maker_of(const listing& list, const operation& o, std::uint32_t a) {
    const auto over =
        std::find_if(o.in_place.begin(), o.in_place.end(), [&](const auto& pair) { return pair.second == a; });
    if (over == o.in_place.end() || o.outputs.size() != 1) return o.instruction;
    const array* part = nullptr;
    for (const std::uint32_t x : o.inputs) {
      const array& read = list.arrays[x];
      if (x != over->first && read.of == array::owner::operation && (part == nullptr || read.bytes > part->bytes))
        part = &read;
    }
    if (part == nullptr) return o.instruction;
    return part->made_by == none ? part->instruction : part->made_by;
  }

  // ---- the entry ----------------------------------------------------------------------------------------------------

  /// Marks the parameters that input_output_alias and buffer_donor name: `{ {0}: (2, {1}, may-alias) }` is element 1 of
  /// parameter 2.
  void mark_donated(listing& list) const {
    const std::vector<std::uint32_t>& parameters = module_.computations[module_.entry].parameters;
    for (const std::string_view all : {module_.aliases, module_.donors}) {
      for (std::size_t open = all.find('('); open != std::string_view::npos; open = all.find('(', open + 1)) {
        const std::string_view one = all.substr(open, all.find(')', open) - open);
        const std::vector<std::int64_t> path = hlo_syntax::numbers_in(one);
        if (path.empty() || path[0] < 0 || path[0] >= static_cast<std::int64_t>(parameters.size()))
          module_.fail(one.data(), "names no parameter of the entry computation; expected a number below " +
                                       std::to_string(parameters.size()));
        const instruction& p = at(parameters[static_cast<std::size_t>(path[0])]);
        hlo_syntax::part leaves = p.leaves;
        if (path.size() > 1 && p.is_tuple) {
          if (path[1] < 0 || path[1] >= static_cast<std::int64_t>(p.children.size()))
            module_.fail(one.data(), "names no element of the parameter " + printable(p.name));
          leaves = element(p, static_cast<std::uint32_t>(path[1]));
        }
        for (std::uint32_t l = leaves.begin; l < leaves.end; ++l) list.arrays[array_of_[l]].is_donated = true;
      }
    }
  }

  /// An operation that is there for its effect alone has no outputs.
  static void drop_unread(listing& list) {
    const uses u(list);
    const auto is_unread = [&](std::uint32_t a) { return u.readers[a] == 0; };
    for (operation& o : list.operations)
      if (o.once && std::all_of(o.outputs.begin(), o.outputs.end(), is_unread)) o.outputs.clear();
  }

  [[nodiscard]] std::string name_of(const array& a) const {
    std::string name(at(a.instruction).name);
    if (a.number == none) return name + " has run";
    if (at(a.instruction).is_tuple) name += "{" + std::to_string(a.number) + "}";
    return name;
  }

  /// The metadata of an instruction, or if it has none, of the root of what it calls: a fusion of the compiler's own.
  [[nodiscard]] std::string_view metadata_of(std::uint32_t i) const {
    constexpr int deepest = 4;
    for (int depth = 0;; i = module_.computations[called_[i].front()].root) {
      const std::string_view found = module_.find(at(i), "metadata");
      if (!found.empty() || called_[i].empty() || ++depth > deepest) return found;
    }
  }

  /// The line of the user's program: that of the metadata, or of the innermost frame of their stack.
  [[nodiscard]] std::string source_of(std::string_view metadata) const {
    const auto row = [](const auto& table, std::string_view number) {
      const auto found = table.find(hlo_syntax::number_at(number).value_or(-1));
      return found == table.end() ? std::string_view() : found->second;
    };
    std::string_view file = hlo_syntax::field_of(metadata, "source_file");
    std::string_view line = hlo_syntax::field_of(metadata, "source_line");
    if (const std::string_view frame = hlo_syntax::field_of(metadata, "stack_frame_id");
        file.empty() && !frame.empty()) {
      const std::string_view place =
          row(module_.locations, hlo_syntax::field_of(row(module_.frames, frame), "file_location_id"));
      file = row(module_.files, hlo_syntax::field_of(place, "file_name_id"));
      line = hlo_syntax::field_of(place, "line");
    }
    std::string source = hlo_syntax::unquoted(file);
    if (!source.empty() && !line.empty()) source.append(":").append(line);
    return source;
  }

  hlo_module to_graph(listing& list) const {
    hlo_module out;
    out.graph = training_graph(std::string(module_.name));
    out.is_scheduled = module_.is_scheduled;
    out.constant_bytes = constant_bytes_;
    const uses u(list);
    std::vector<tensor_id> tensor_of(list.arrays.size());
    std::vector<tensor_id> donated;
    for (std::size_t a = 0; a < list.arrays.size(); ++a) {
      const array& x = list.arrays[a];
      if (x.of == array::owner::operation && u.producers[a] == 0) continue;  // written in place
      tensor_kind kind = u.producers[a] > 1 ? tensor_kind::gradient : tensor_kind::activation;
      if (is_resident(x)) kind = tensor_kind::input;
      std::string line = x.made_by == none ? std::string() : source_of(metadata_of(x.made_by));
      tensor_of[a] = out.graph.add_tensor({name_of(x), x.bytes, kind, std::move(line)});
      if (x.of == array::owner::parameter) out.parameter_bytes += x.bytes;
      if (x.is_donated) {
        out.donated_bytes += x.bytes;
        donated.push_back(tensor_of[a]);
      }
    }
    if (!donated.empty()) {
      operation_spec spec{"donated parameters"};
      spec.outputs = std::move(donated);
      spec.flops = spec.bytes_accessed = 0;
      spec.recomputable = false;
      out.graph.add_operation(std::move(spec));
    }
    const auto tensors = [&](const std::vector<std::uint32_t>& arrays) {
      std::vector<tensor_id> ids;
      for (const std::uint32_t a : arrays) ids.push_back(tensor_of[a]);
      return ids;
    };
    for (const operation& o : list.operations) {
      if (o.joined) continue;
      operation_spec spec{std::string(at(o.instruction).name)};
      spec.inputs = tensors(o.inputs);
      spec.outputs = tensors(o.outputs);
      spec.flops = o.done.flops;
      spec.bytes_accessed = o.done.traffic;
      spec.workspace = o.workspace;
      spec.recomputable = !o.once;
      const std::string_view metadata = metadata_of(o.instruction);
      spec.source = source_of(metadata);
      spec.scope = hlo_syntax::unquoted(hlo_syntax::field_of(metadata, "op_name"));
      const op_id id = out.graph.add_operation(std::move(spec));
      if (effect_of(at(o.instruction).opcode) == effect::loop) out.loops.push_back(id);
    }
    for (const std::uint32_t a : list.results) {
      out.output_bytes += list.arrays[a].bytes;
      if (!is_resident(list.arrays[a]) && !std::exchange(list.arrays[a].is_final, true))
        out.graph.add_final_output(tensor_of[a]);
    }
    return out;
  }

  const hlo_syntax::module& module_;
  std::vector<std::vector<std::uint32_t>> called_;  // computations, of each instruction
  std::vector<std::uint32_t> array_of_;             // one for each leaf: an array of its computation
  std::vector<std::uint32_t> operation_of_;  // one for each instruction: its operation in its computation, if any
  std::vector<summary> summaries_;
  std::unordered_map<std::uint32_t, std::uint32_t> start_of_{};  // the starts of instructions that begin or go on
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> bound_{};  // arrays that updates bind, of each start
  std::int64_t constant_bytes_ = 0;
  std::uint64_t reads_ = 0;
};

}  // namespace detail::hlo_text

REMAT_INLINE bool is_hlo_text(std::string_view text) {
  detail::hlo_syntax::cursor in(detail::without_byte_order_mark(text));
  in.skip();
  return in.take_text("HloModule");
}

REMAT_INLINE hlo_module parse_hlo(std::string_view text, const std::string& file) {
  detail::refuse_foreign_format(text, file);
  const detail::hlo_syntax::module module =
      detail::hlo_syntax::parser(detail::without_byte_order_mark(text), file).parse();
  return detail::hlo_text::lowering(module).run();
}

REMAT_INLINE hlo_module read_hlo(const std::filesystem::path& path) {
  std::ifstream in = detail::open_to_read(path);
  const std::string file = printable(path.string(), 4096);
  return parse_hlo(detail::read_text(in, file), file);
}

}  // namespace REMAT_NAMESPACE
