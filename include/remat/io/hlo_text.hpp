// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/graph/training_graph.hpp"

namespace REMAT_NAMESPACE {

/// The entry computation of an HLO module as a graph to plan, and the memory that lies outside of the graph.
struct hlo_module {
  training_graph graph;              ///< the operations in the listed order; names are those of the instructions
  bool is_scheduled = false;         ///< the text says `is_scheduled=true`: the listed order is the order of XLA's run
  std::int64_t parameter_bytes = 0;  ///< all parameters of the entry computation, the donated ones included
  std::int64_t donated_bytes = 0;    ///< parameters in whose place XLA may write outputs (`input_output_alias`)
  std::int64_t constant_bytes = 0;   ///< the constants of all computations that run
  std::int64_t output_bytes = 0;     ///< the arrays that the entry computation returns
  std::vector<op_id> loops{};        ///< the operations that are loops, ascending: a schedule runs each as a whole
};

/// True if `text` begins as the text of an HLO module does: with the word `HloModule`, after blanks and comments.
[[nodiscard]] bool is_hlo_text(std::string_view text);

/// Reads the text of an HLO module: a file of `--xla_dump_to`, or what `compiled.as_text()` returns in JAX.
///
///     const hlo_module module = read_hlo("module_0001.jit_step.cpu_after_optimizations.txt");
///     const problem p(module.graph, default_cost(module.graph));
///     const solution s = automatic(p.with_budget(p.graph().baseline_peak / 2));
///
/// The graph is the entry computation, in the listed order. An array is a tensor; of a tuple, each array is one. `file`
/// is the name for messages.
///
/// - **Sizes** are those of the element type and the shape. A dynamic dimension counts with its bound. Layouts change a
///   size in two cases: packed elements (`E(4)`), and memory on the host (`S(5)`), which counts no bytes. Padding to
///   tiles is not counted.
/// - **Parameters and constants** are always in memory, and no budget counts them. A donated parameter is counted: the
///   operation `donated parameters` makes all of them at the start, and the step may free or replace them. It cannot
///   run again.
/// - **Aliases** take no memory and no time, and are no operations: `tuple`, `get-tuple-element`, `bitcast`,
///   `opt-barrier`, and elements that a `while` or a `call` passes through unchanged.
/// - **A fusion** is one operation. `while`, `call` and `conditional` are one operation each; the workspace is the peak
///   of the called computation in its listed order, without parameters and results.
/// - **In place**: a `while`, a `dynamic-update-slice`, a `scatter`, and a fusion that ends in one, write over an
///   operand. If the producer of the operand can run just before without more memory, it becomes a part of the
///   operation, and the operand takes no memory of its own. Otherwise operand and result both count while it runs. A
///   producer stays where it is listed if the peak of the listed order were lower without its result.
/// - **Asynchronous pairs** (`…-start`, `…-done`) are two operations that both produce the result: it is in memory from
///   the start, and the operands stay until the end. An update may bind operands and results. If the start is in
///   another computation (a receive that a `while` carries on), the readers of its result run after the end.
/// - **XLA's short spelling** of a start, such as `fusion-start`, has the figures of the long one, `async-start` that
///   calls a computation of one fusion.
/// - **Costs**: the `flops` of `dot` and `convolution` follow from the dimensions that they sum over, those of a fusion
///   from its computation, those of a `while` also from its known trip count (1 if it is not known), and those of
///   others from elements. `bytes_accessed` is what is read and written; of an array that is read or written in part,
///   that part.
/// - **Run once**: `infeed`, `outfeed`, `send`, `recv`, `rng`, custom calls with side effects, and what calls one.
/// - An instruction that is not known here is an operation of its operands and its shape.
/// - **Control predecessors** run before: the instruction reads an array of no bytes that each of them makes.
///
/// - **Metadata**: the `source` of an operation is `source_file:source_line`, or the innermost frame of its stack; its
///   `scope` is `op_name`. An instruction without metadata has those of the root of what it calls. A result of a
///   `while` or a `call` has the `source` of the instruction that makes it there; of an array that a loop stacks up,
///   that of the parts.
///
/// Shardings are not read. There is no way back from a schedule to HLO.
///
/// Throws `bad_file` for text that breaks the format, with line and column, and the correct form. O(text) time and
/// memory, but for sorting the operands of an instruction; computations may be nested to any depth.
[[nodiscard]] hlo_module parse_hlo(std::string_view text, const std::string& file);

/// Reads the text of an HLO module from a file. Throws `bad_file` also if the file cannot be read. See `parse_hlo`.
[[nodiscard]] hlo_module read_hlo(const std::filesystem::path& path);

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/io/impl/hlo_text.hpp"
#endif
