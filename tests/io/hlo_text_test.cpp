// SPDX-License-Identifier: BSL-1.0
// Each kind of instruction in a small module, with the sizes, the peak, the flops and the bytes that it has by hand.
#include "remat/io/hlo_text.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "remat/bound/least_memory.hpp"
#include "remat/core/error.hpp"
#include "remat/cost/models.hpp"
#include "remat/hierarchy/partition.hpp"
#include "remat/io/json.hpp"
#include "remat/method/automatic.hpp"
#include "remat/problem/problem.hpp"
#include "remat/render/dot.hpp"
#include "remat/render/trace_json.hpp"
#include "remat/schedule/lifetime.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/solution.hpp"

namespace {
using namespace remat;  // NOLINT: a test

/// The graph of a module whose entry computation has these lines.
hlo_module module_of(const std::string& lines, const std::string& before = "", const std::string& head = "") {
  return parse_hlo("HloModule m, is_scheduled=true" + head + "\n\n" + before + "\nENTRY %main {\n" + lines + "}\n",
                   "m.txt");
}

std::int64_t peak_of(const hlo_module& m) { return problem(m.graph, unit_cost{}).graph().baseline_peak; }

/// The operation of this name.
op_id find(const hlo_module& m, std::string_view name) {
  for (std::size_t o = 0; o < m.graph.num_operations(); ++o)
    if (m.graph.name(static_cast<op_id>(o)) == name) return static_cast<op_id>(o);
  FAIL("no operation has the name " << name);
  return {};
}

std::vector<std::string> names(const hlo_module& m) {
  std::vector<std::string> all;
  for (std::size_t o = 0; o < m.graph.num_operations(); ++o) all.emplace_back(m.graph.name(static_cast<op_id>(o)));
  return all;
}

std::int64_t output_bytes(const hlo_module& m, std::string_view name) {
  std::int64_t sum = 0;
  for (const tensor_id t : m.graph.outputs(find(m, name))) sum += m.graph.bytes(t);
  return sum;
}

/// The message for a text that is refused.
std::string refusal(const std::string& text) {
  try {
    (void)parse_hlo(text, "m.txt");
  } catch (const bad_file& e) {
    return e.what();
  }
  return "accepted";
}
std::string refusal_of(const std::string& lines, const std::string& before = "") {
  return refusal("HloModule m\n" + before + "ENTRY %main {\n" + lines + "}\n");
}

const std::string body_and_condition = R"(
%body (s: (s32[], f32[100], f32[100])) -> (s32[], f32[100], f32[100]) {
  %s = (s32[], f32[100]{0}, f32[100]{0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %x = f32[100]{0} get-tuple-element(%s), index=1
  %w = f32[100]{0} get-tuple-element(%s), index=2
  %a = f32[100]{0} multiply(%x, %w)
  %b = f32[100]{0} tanh(%a)
  %y = f32[100]{0} add(%a, %b)
  ROOT %r = (s32[], f32[100]{0}, f32[100]{0}) tuple(%next, %y, %w)
}

%condition (s.1: (s32[], f32[100], f32[100])) -> pred[] {
  %s.1 = (s32[], f32[100]{0}, f32[100]{0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%s.1), index=0
  %n = s32[] constant(7)
  ROOT %less = pred[] compare(%i.1, %n), direction=LT
}
)";

}  // namespace

TEST_CASE("sizes follow from element type, dimensions and packing, not from layouts") {
  const hlo_module m = module_of(R"(
    %p = f32[8,16]{1,0:T(8,128)} parameter(0)
    %a = pred[3] constant({1, 0, 1})
    %b = bf16[8,16]{1,0:T(8,128)(2,1)} convert(%p)
    %c = c128[2] custom-call(%p), custom_call_target="c"
    %d = s4[9]{0} custom-call(%p), custom_call_target="d"
    %e = s4[9]{0:E(4)} custom-call(%p), custom_call_target="e"
    %f = f8e4m3b11fnuz[5] custom-call(%p), custom_call_target="f"
    %g = f32[<=8,4] custom-call(%p), custom_call_target="g"
    %h = f32[1000]{0:S(5)} custom-call(%p), custom_call_target="h"
    %i = f32[0,7] custom-call(%p), custom_call_target="i"
    ROOT %t = (token[], u64[3]) custom-call(%a, /*index=1*/%b, %c, %d, %e, %f, %g, %h, %i), custom_call_target="t"
)");
  CHECK(m.parameter_bytes == 512);
  CHECK(m.constant_bytes == 3);
  CHECK(output_bytes(m, "b") == 256);
  CHECK(output_bytes(m, "c") == 32);
  CHECK(output_bytes(m, "d") == 9);
  CHECK(output_bytes(m, "e") == 5);
  CHECK(output_bytes(m, "f") == 5);
  CHECK(output_bytes(m, "g") == 128);
  CHECK(output_bytes(m, "h") == 0);  // on the host
  CHECK(output_bytes(m, "i") == 0);
  CHECK(output_bytes(m, "t") == 24);
  CHECK(m.output_bytes == 24);
  CHECK(peak_of(m) == 256 + 32 + 9 + 5 + 5 + 128 + 24);
  CHECK(m.graph.name() == "m");
  CHECK(m.is_scheduled);
}

TEST_CASE("tuples are several tensors, and views are no operations") {
  const hlo_module m = module_of(R"(
    %p = f32[10] parameter(0)
    %two = (f32[10], (s32[4], f32[20])) custom-call(%p), custom_call_target="two"
    %inner = (s32[4], f32[20]) get-tuple-element(%two), index=1
    %b = f32[20] get-tuple-element(%inner), index=1
    %c = f32[4,5] bitcast(%b)
    %a = f32[10] get-tuple-element(%two), index=0
    %d = f32[4,5] tanh(%c)
    %again = (f32[10], f32[4,5]) tuple(%a, %d)
    %kept = (f32[10], f32[4,5]) opt-barrier(%again)
    ROOT %e = f32[4,5] get-tuple-element(%kept), index=1
)");
  CHECK(names(m) == std::vector<std::string>{"two", "d"});
  REQUIRE(m.graph.outputs(find(m, "two")).size() == 3);
  CHECK(m.graph.name(m.graph.outputs(find(m, "two"))[2]) == "two{2}");
  CHECK(output_bytes(m, "two") == 40 + 16 + 80);
  CHECK(m.graph.inputs(find(m, "d"))[0] == m.graph.outputs(find(m, "two"))[2]);
  CHECK(peak_of(m) == 80 + 80);  // of two{0} and two{1}, nobody needs any
}

TEST_CASE("names may come without percent signs, operands with shapes, and metadata with tables") {
  const hlo_module m = parse_hlo(R"(// a comment
HloModule jit_f, is_scheduled=true, entry_computation_layout={(f32[2]{0})->f32[2]{0}}

FileNames
1 "a {file}.py"

StackFrames
1 {file_location_id=1 parent_frame_id=1}


fused {
  p0 = f32[2]{0} parameter(0)
  ROOT n = f32[2]{0} negate(p0)
}, execution_thread="main"

ENTRY main.5 (x: f32[2]) -> f32[2] {
  x = f32[2]{0} parameter(0), sharding={replicated}
  ROOT y = f32[2]{0} fusion(f32[2]{0} x), kind=kLoop, calls=fused, metadata={op_name="jit(f)/neg } \" {" stack_frame_id=1}
}
)",
                                 "m.txt");
  CHECK(names(m) == std::vector<std::string>{"y"});
  CHECK(m.graph.flops(find(m, "y")) == 2);
  CHECK(m.graph.bytes_accessed(find(m, "y")) == 16);
  CHECK_FALSE(parse_hlo("HloModule m\nENTRY e { ROOT p = s8[1] parameter(0) }", "m").is_scheduled);
}

TEST_CASE("a loop is one operation: its body's peak is workspace, and what it passes through is an alias") {
  const hlo_module m = module_of(R"(
    %x = f32[100] parameter(0)
    %w = f32[100] parameter(1)
    %zero = s32[] constant(0)
    %c = s32[] copy(%zero)
    %v = f32[100] exponential(%w)
    %t = (s32[], f32[100], f32[100]) tuple(%c, %x, %v)
    %loop = (s32[], f32[100], f32[100]) while(%t), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"7"}}
    %y = f32[100] get-tuple-element(%loop), index=1
    %z = f32[100] get-tuple-element(%loop), index=2
    ROOT %sum = f32[100] add(%y, %z)
)",
                                 body_and_condition);
  CHECK(names(m) == std::vector<std::string>{"v", "loop", "sum"});  // the counter's copy is a part of the loop
  const op_id loop = find(m, "loop");
  CHECK(m.graph.workspace(loop) == 800);  // a and b; y lies where x was
  CHECK(output_bytes(m, "loop") == 404);  // the counter and y; v is passed through
  CHECK(m.graph.flops(loop) == 7 * (301 + 1));
  CHECK(m.graph.bytes_accessed(loop) == 7 * (12 + 1200 + 800 + 1200 + 9) + 8);
  CHECK(m.graph.inputs(find(m, "sum")).size() == 2);
  CHECK(peak_of(m) == 400 + 404 + 800);
}

TEST_CASE("a loop's start is written over if it can be made just before") {
  const std::string loop = R"(
    %t = (s32[], f32[100], f32[100]) tuple(%c, %x, %w)
    %loop = (s32[], f32[100], f32[100]) while(%t), condition=%condition, body=%body
    ROOT %y = f32[100] get-tuple-element(%loop), index=1
)";
  const std::string head = R"(
    %w = f32[100] parameter(0)
    %zero = s32[] constant(0)
    %c = s32[] copy(%zero)
)";
  const hlo_module joined =
      module_of(head + "%x = f32[100] broadcast(%zero), dimensions={}\n" + loop, body_and_condition);
  CHECK(names(joined) == std::vector<std::string>{"loop"});
  CHECK(peak_of(joined) == 404 + 800);
  // 1,000 bytes would have to stay until the loop: operand and result count.
  const hlo_module apart = module_of(head + "%big = f32[250] custom-call(%w), custom_call_target=\"b\"\n" +
                                         "%x = f32[100] slice(%big), slice={[0:100]}\n" + loop,
                                     body_and_condition);
  CHECK(names(apart) == std::vector<std::string>{"big", "x", "loop"});
  CHECK(peak_of(apart) == 400 + 404 + 800);
  // A second reader needs what was there before.
  const hlo_module read_twice = module_of(head + "%x = f32[100] broadcast(%zero), dimensions={}\n" + R"(
    %t = (s32[], f32[100], f32[100]) tuple(%c, %x, %w)
    %loop = (s32[], f32[100], f32[100]) while(%t), condition=%condition, body=%body
    %y = f32[100] get-tuple-element(%loop), index=1
    ROOT %z = f32[100] add(%x, %y)
)",
                                          body_and_condition);
  CHECK(names(read_twice) == std::vector<std::string>{"x", "loop", "z"});
}

TEST_CASE("the peak is that of the listed order if copies stand far from what writes over them") {
  const std::string head = R"(
    %p = f32[1000] parameter(0)
    %u = f32[1] parameter(1)
    %i = s32[] parameter(2)
    %a = f32[1000] exponential(%p)
    %c = f32[1000] copy(%a)
)";
  const std::string large = R"(
    %big = f32[5000] custom-call(%a), custom_call_target="b"
    %small = f32[1] slice(%big), slice={[0:1]}
)";
  const std::string writes = "%d = f32[1000] dynamic-update-slice(%c, %u, %i)\n";
  const std::string end = "ROOT %t = (f32[1000], f32[1]) tuple(%d, %small)\n";
  const hlo_module early = module_of(head + large + writes + end);
  CHECK(names(early) == std::vector<std::string>{"a", "c", "big", "small", "d"});
  CHECK(peak_of(early) == 4000 + 4000 + 20000);  // a, c and big
  // Nothing stands between, so the copy is a part of what writes over it.
  const hlo_module late = module_of(head + writes + large + end);
  CHECK(names(late) == std::vector<std::string>{"a", "d", "big", "small"});
  CHECK(peak_of(late) == 4000 + 4000 + 20000);
  // The copy stands far, but elsewhere than at the peak.
  const hlo_module beside = module_of(head + R"(
    %n = f32[1000] negate(%a)
    %d = f32[1000] dynamic-update-slice(%c, %u, %i)
    %big = f32[5000] custom-call(%n), custom_call_target="b"
    %small = f32[1] slice(%big), slice={[0:1]}
)" + end);
  CHECK(names(beside) == std::vector<std::string>{"a", "n", "d", "big", "small"});
  CHECK(peak_of(beside) == 4000 + 4000 + 20000);  // d, n and big
}

TEST_CASE("of copies that are in memory at the peak, those with room behind it stay where they are") {
  // Two copies wait while big is there; where the second one is written over, others take nearly as much.
  const hlo_module m = module_of(R"(
    %p = f32[1000] parameter(0)
    %u = f32[1] parameter(1)
    %i = s32[] parameter(2)
    %a = f32[1000] exponential(%p)
    %c1 = f32[1000] copy(%a)
    %c2 = f32[1000] copy(%a)
    %big = f32[5000] custom-call(%a), custom_call_target="b"
    %small = f32[1] slice(%big), slice={[0:1]}
    %d1 = f32[1000] dynamic-update-slice(%c1, %u, %i)
    %d2 = f32[1000] dynamic-update-slice(%c2, %small, %i)
    ROOT %r = f32[1000] add(%d1, %d2)
)");
  CHECK(names(m) == std::vector<std::string>{"a", "c1", "c2", "big", "small", "d1", "d2", "r"});
  CHECK(peak_of(m) == 3 * 4000 + 20000);
}

TEST_CASE("a called computation has the peak of its listed order, with arrays written over in place") {
  for (const bool is_early : {false, true}) {
    const std::string copy = "  %c = f32[1000] copy(%v)\n";
    const std::string large = R"(
  %big = f32[5000] custom-call(%v), custom_call_target="b"
  %small = f32[1] slice(%big), slice={[0:1]}
)";
    const hlo_module m = module_of(R"(
    %p = f32[1000] parameter(0)
    %i = s32[] parameter(1)
    ROOT %r = f32[1] call(%p, %i), to_apply=%f
)",
                                   "%f {\n  %v = f32[1000] parameter(0)\n  %k = s32[] parameter(1)\n" +
                                       (is_early ? copy + large : large + copy) + R"(
  %d = f32[1000] dynamic-update-slice(%c, %small, %k)
  ROOT %s = f32[1] slice(%d), slice={[0:1]}
}
)");
    CHECK(m.graph.workspace(find(m, "r")) == (is_early ? 24'004 : 20'004));
  }
}

TEST_CASE("calls and conditionals have the peak of what they call") {
  const std::string called = R"(
%small (p: f32[10]) -> f32[10] {
  %p = f32[10] parameter(0)
  ROOT %n = f32[10] negate(%p)
}
%large (p.1: f32[10]) -> f32[10] {
  %p.1 = f32[10] parameter(0)
  %l = f32[1000] broadcast(%p.1), dimensions={0}
  %m = f32[1000] tanh(%l)
  ROOT %s = f32[10] slice(%m), slice={[0:10]}
}
%both (p.2: f32[10], q: f32[5]) -> (f32[5], f32[10]) {
  %p.2 = f32[10] parameter(0)
  %q = f32[5] parameter(1)
  %r = f32[10] call(%p.2), to_apply=%large
  ROOT %t = (f32[5], f32[10]) tuple(%q, %r)
}
)";
  const hlo_module m = module_of(R"(
    %x = f32[10] parameter(0)
    %k = s32[] parameter(1)
    %five = f32[5] parameter(2)
    %g = f32[5] tanh(%five)
    %c = f32[10] conditional(%k, %x, %x), branch_computations={%small, %large}
    %called = (f32[5], f32[10]) call(%c, %g), to_apply=%both
    %same = f32[5] get-tuple-element(%called), index=0
    %d = f32[10] get-tuple-element(%called), index=1
    ROOT %t = (f32[5], f32[10]) tuple(%same, %d)
)",
                                 called);
  CHECK(names(m) == std::vector<std::string>{"g", "c", "called"});
  CHECK(m.graph.workspace(find(m, "c")) == 8000);
  CHECK(m.graph.flops(find(m, "c")) == 1000);
  CHECK(m.graph.workspace(find(m, "called")) == 8000);
  CHECK(m.graph.outputs(find(m, "called")).size() == 1);  // g is passed through
  CHECK(peak_of(m) == 20 + 40 + 40 + 8000);
}

TEST_CASE("a fusion is one operation, and counts the parts of arrays that it touches") {
  const std::string called = R"(
%row (stack: f32[50,100], i: s32[]) -> f32[100] {
  %stack = f32[50,100] parameter(0)
  %i = s32[] parameter(1)
  %zero = s32[] constant(0)
  %ds = f32[1,100] dynamic-slice(%stack, %i, %zero), dynamic_slice_sizes={1,100}
  %b = f32[100] bitcast(%ds)
  ROOT %n = f32[100] negate(%b)
}
%store (stack.1: f32[50,100], x: f32[100], i.1: s32[]) -> f32[50,100] {
  %stack.1 = f32[50,100] parameter(0)
  %x = f32[100] parameter(1)
  %i.1 = s32[] parameter(2)
  %zero.1 = s32[] constant(0)
  %b.1 = f32[1,100] bitcast(%x)
  ROOT %u = f32[50,100] dynamic-update-slice(%stack.1, %b.1, %i.1, %zero.1)
}
)";
  const hlo_module m = module_of(R"(
    %stack = f32[50,100] parameter(0)
    %i = s32[] parameter(1)
    %zero = f32[] constant(0)
    %x = f32[100] fusion(%stack, %i), kind=kLoop, calls=%row
    %empty = f32[50,100] broadcast(%zero), dimensions={}
    ROOT %y = f32[50,100] fusion(%empty, %x, %i), kind=kLoop, calls=%store
)",
                                 called);
  CHECK(names(m) == std::vector<std::string>{"x", "y"});  // y is written over empty, which is made just before
  CHECK(m.graph.flops(find(m, "x")) == 100);
  CHECK(m.graph.bytes_accessed(find(m, "x")) == 400 + 4 + 400);
  CHECK(peak_of(m) == 400 + 20000);
}

TEST_CASE("a fusion that reads its first operand elsewhere does not write over it") {
  for (const bool is_read : {false, true}) {
    const hlo_module m = module_of(R"(
    %i = s32[] parameter(0)
    %zero = f32[] constant(0)
    %empty = f32[50] broadcast(%zero), dimensions={}
    ROOT %y = f32[50] fusion(%empty, %i), kind=kLoop, calls=%store
)",
                                   std::string(R"(
%store (x: f32[50], i: s32[]) -> f32[50] {
  %x = f32[50] parameter(0)
  %i = s32[] parameter(1)
  %one = f32[1] )") + (is_read ? "slice(%x), slice={[49:50]}" : "constant({1})") +
                                       R"(
  ROOT %u = f32[50] dynamic-update-slice(%x, %one, %i)
}
)");
    CHECK(names(m).size() == (is_read ? 2 : 1));
    CHECK(peak_of(m) == (is_read ? 400 : 200));
  }
}

TEST_CASE("asynchronous pairs hold their result from the start and their operands until the end") {
  const std::string pair = R"(
    %p = f32[100] parameter(0)
    %x = f32[100] tanh(%p)
)";
  const std::string between = R"(
    %y = f32[10] slice(%p), slice={[0:10]}
)";
  for (const std::string& both :
       {std::string("%s = (f32[100], f32[100], u32[]) copy-start(%x)\n" + between + "%d = f32[100] copy-done(%s)\n"),
        std::string("%s = (f32[100], f32[100]) all-gather-start(%x), dimensions={0}\n" + between +
                    "%d = f32[100] all-gather-done(%s)\n"),
        std::string("%s = f32[100] all-reduce-start(%x), to_apply=%add\n" + between +
                    "%d = f32[100] all-reduce-done(%s)\n"),
        std::string("%s = (f32[100], f32[100], u32[], u32[]) collective-permute-start(%x)\n" + between +
                    "%d = f32[100] collective-permute-done(%s)\n"),
        std::string("%s = ((f32[100]), f32[100], s32[]) async-start(%x), calls=%one\n" + between +
                    "%u = ((f32[100]), f32[100], s32[]) async-update(%s), calls=%one\n" +
                    "%d = f32[100] async-done(%u), calls=%one\n")}) {
    CAPTURE(both);
    const hlo_module m = module_of(pair + both + "ROOT %t = (f32[100], f32[10]) tuple(%d, %y)\n", R"(
%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}
%one (v: f32[100]) -> f32[100] {
  %v = f32[100] parameter(0)
  ROOT %n = f32[100] negate(%v)
}
)");
    CHECK(names(m) == std::vector<std::string>{"x", "s", "y", "d"});
    const std::int64_t context = output_bytes(m, "s") - 400;
    CHECK(peak_of(m) == 400 + 400 + context + 40);
  }
}

TEST_CASE("a start in XLA's short spelling, and with its operands in its shape, is the same operation") {
  const std::string called = R"(
%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}
%fused (v: f32[40,10]) -> f32[40] {
  %v = f32[40,10] parameter(0)
  %zero = f32[] constant(0)
  %e = f32[40,10] exponential(%v)
  ROOT %r = f32[40] reduce(%e, %zero), dimensions={1}, to_apply=%add
}
%wrapped_fusion (v.1: f32[40,10]) -> f32[40] {
  %v.1 = f32[40,10] parameter(0)
  ROOT %f = f32[40] fusion(%v.1), kind=kInput, calls=%fused
}
%wrapped_dot (l: f32[40,10], r.1: f32[10,7]) -> f32[40,7] {
  %l = f32[40,10] parameter(0)
  %r.1 = f32[10,7] parameter(1)
  ROOT %d = f32[40,7] dot(%l, %r.1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
%wrapped_print (v.2: f32[40,10]) -> f32[2] {
  %v.2 = f32[40,10] parameter(0)
  ROOT %p.2 = f32[2] custom-call(%v.2), custom_call_target="p", custom_call_has_side_effect=true
}
)";
  const auto read = [&](const std::string& start, const std::string& shape, const std::string& opcode) {
    return module_of("%p = f32[40,10] parameter(0)\n%w = f32[10,7] parameter(1)\n%x = f32[40,10] tanh(%p)\n%s = " +
                         start + "\n%n = f32[40,10] negate(%p)\n%d = " + shape + " " + opcode +
                         "-done(%s)\nROOT %t = (f32[40,10], " + shape + ") tuple(%n, %d)\n",
                     called);
  };
  struct row {
    std::string one, other, opcode, shape;
    std::int64_t peak;
    double flops, traffic;
    bool runs_once = false;
  };
  const row rows[] = {
      {"((f32[40,10]), f32[40], u32[]) async-start(%x), calls=%wrapped_fusion",
       "((f32[40,10]), f32[40], u32[]) fusion-start(%x), kind=kInput, calls=%fused", "fusion", "f32[40]",
       1600 + 1600 + 164, 800, 1760},
      {"((f32[40,10], f32[10,7]), f32[40,7], u32[]) async-start(%x, %w), calls=%wrapped_dot",
       "((f32[40,10], f32[10,7]), f32[40,7], u32[]) dot-start(%x, %w), lhs_contracting_dims={1}, "
       "rhs_contracting_dims={0}",
       "dot", "f32[40,7]", 1600 + 1600 + 1124, 5600, 3000},
      {"((f32[40,10]), f32[2], u32[]) async-start(%x), calls=%wrapped_print",
       "((f32[40,10]), f32[2], u32[]) custom-call-start(%x), custom_call_target=\"p\", "
       "custom_call_has_side_effect=true",
       "custom-call", "f32[2]", 1600 + 1600 + 12, 2, 1608, true},
      {"((f32[40,10]), f32[40,10], u32[]) all-reduce-start(%x), to_apply=%add",
       "f32[40,10] all-reduce-start(%x), to_apply=%add", "all-reduce", "f32[40,10]", 4800, 400, 3200},
      {"((f32[40,10]), f32[80,10]) all-gather-start(%x), dimensions={0}",
       "(f32[40,10], f32[80,10]) all-gather-start(%x), dimensions={0}", "all-gather", "f32[80,10]", 6400, 0, 4800},
  };
  for (const row& r : rows)
    for (const bool is_other : {false, true}) {
      const std::string& start = is_other ? r.other : r.one;
      CAPTURE(start);
      const bool has_context = start.find("u32[]") != std::string::npos;
      const hlo_module m = read(start, r.shape, start.find(" async-start") == std::string::npos ? r.opcode : "async");
      CHECK(names(m) == std::vector<std::string>{"x", "s", "n", "d"});
      CHECK(peak_of(m) - (r.opcode == "all-reduce" && has_context ? 4 : 0) == r.peak);
      CHECK(m.graph.workspace(find(m, "s")) == 0);
      CHECK(m.graph.flops(find(m, "s")) == r.flops);
      CHECK(m.graph.bytes_accessed(find(m, "s")) == r.traffic);
      CHECK(m.graph.recomputable(find(m, "s")) != r.runs_once);
    }
}

TEST_CASE("updates bind operands and results late, and operands stay until the end") {
  const std::string called = R"(
%sum (a: f32[100], b: f32[100]) -> f32[100] {
  %a = f32[100] parameter(0)
  %b = f32[100] parameter(1)
  ROOT %c = f32[100] add(%a, %b)
}
)";
  const std::string bound = "((f32[100], f32[100]), f32[100], s32[])";
  struct row {
    std::string start, update, done;
    std::vector<std::string> operations;
    std::int64_t peak;
  };
  // The operands x and y, the result and the context are in memory while the last operation runs.
  for (const row& r : {
           row{"((f32[100]), f32[100], s32[]) async-start(%x), calls=%sum",
               bound + " async-update(%s, %y)",
               "async-done(%u)",
               {"x", "s", "y", "d"},
               1204},
           row{"((f32[100]), (), s32[]) call-start(%x), to_apply=%sum",
               bound + " call-update(%s, %y)",
               "call-done(%u)",
               {"x", "s", "y", "u", "d"},
               1204},
           row{"((), f32[100], s32[]) async-start(), calls=%sum",
               bound + " async-update(%s, %x, %y)",
               "async-done(%u)",
               {"x", "s", "y", "d"},
               1204},
           row{"((f32[100]), (), s32[]) call-start(%x), to_apply=%sum",
               "((f32[100], f32[100]), (), s32[]) call-update(%s, %y)",
               "call-done(%u)",
               {"x", "s", "y", "d"},
               1204},
       }) {
    CAPTURE(r.start);
    const hlo_module m =
        module_of("%p = f32[100] parameter(0)\n%x = f32[100] tanh(%p)\n%s = " + r.start +
                      "\n%y = f32[100] negate(%p)\n%u = " + r.update + "\nROOT %d = f32[100] " + r.done + "\n",
                  called);
    CHECK(names(m) == r.operations);
    CHECK(peak_of(m) == r.peak);
    CHECK(m.graph.flops(find(m, "s")) == 100);
    const auto inputs = m.graph.inputs(find(m, "d"));
    for (const char* const name : {"x", "y"})
      CHECK(std::find(inputs.begin(), inputs.end(), m.graph.outputs(find(m, name))[0]) != inputs.end());
  }
  CHECK(refusal_of("%x = f32[100] parameter(0)\n%s = ((f32[100]), f32[100], s32[]) async-start(%x), calls=%sum\n%u = " +
                       bound + " async-update(%s, %x, %x)\n",
                   called)
            .find("async-update u has a shape of 4 arrays; expected 5, as its operand, with what it binds") !=
        std::string::npos);
}

TEST_CASE("what a start began may be carried through a loop, and ends in or behind it") {
  const std::string state = "(s32[], (f32[100], u32[], token[]), f32[100])";
  const std::string called = "%body {\n  %t = " + state + R"( parameter(0)
  %k = s32[] get-tuple-element(%t), index=0
  %before = (f32[100], u32[], token[]) get-tuple-element(%t), index=1
  %x = f32[100] get-tuple-element(%t), index=2
  %end = (f32[100], token[]) recv-done(%before), channel_id=1
  %got = f32[100] get-tuple-element(%end), index=0
  %y = f32[100] add(%got, %x)
  %tok = token[] after-all()
  %next = (f32[100], u32[], token[]) recv(%tok), channel_id=1
  %one = s32[] constant(1)
  %n = s32[] add(%k, %one)
  ROOT %o = )" + state + R"( tuple(%n, %next, %y)
}
%test {
  %t = )" + state + R"( parameter(0)
  %k = s32[] get-tuple-element(%t), index=0
  %l = s32[] constant(8)
  ROOT %c = pred[] compare(%k, %l), direction=LT
}
)";
  const hlo_module m = module_of(R"(
    %x = f32[100] parameter(0)
    %zero = s32[] constant(0)
    %e = f32[100] exponential(%x)
    %tok = token[] after-all()
    %first = (f32[100], u32[], token[]) recv(%tok), channel_id=1
    %i = )" + state + R"( tuple(%zero, %first, %e)
    %loop = )" + state + R"( while(%i), condition=%test, body=%body
    %last = (f32[100], u32[], token[]) get-tuple-element(%loop), index=1
    %end = (f32[100], token[]) recv-done(%last), channel_id=1
    %a = f32[100] get-tuple-element(%end), index=0
    %b = f32[100] get-tuple-element(%loop), index=2
    ROOT %r = f32[100] add(%a, %b)
)",
                                 called);
  CHECK(names(m) == std::vector<std::string>{"tok", "first", "loop", "end", "r"});
  CHECK_FALSE(m.graph.recomputable(find(m, "loop")));
  // The sum reads the received array only behind the operation that ends the receive.
  const auto inputs = m.graph.inputs(find(m, "r"));
  bool is_behind = false;
  for (const tensor_id t : m.graph.outputs(find(m, "end")))
    is_behind = is_behind || std::find(inputs.begin(), inputs.end(), t) != inputs.end();
  CHECK(is_behind);
  CHECK(peak_of(m) == 404 + (4 + 404 + 400));  // what the first receive holds, and what the loop returns
  CHECK(refusal_of("%p = (f32[2], token[]) parameter(0)\nROOT %d = (f32[2], token[]) recv-done(%p)\n")
            .find("recv-done d ends p; expected an operation that a start began") != std::string::npos);
}

TEST_CASE("metadata say from which line an operation comes, and what the framework calls it") {
  const hlo_module m = parse_hlo(R"(HloModule m, is_scheduled=true

FileNames
1 "/home/user/steps.py"
2 "other \"file\".py"

FunctionNames
1 "step"

FileLocations
1 {file_name_id=1 function_name_id=1 line=32 end_line=33 column=8 end_column=35}
2 {file_name_id=2 function_name_id=1 line=7 end_line=7 column=1 end_column=2}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=1}

fused {
  p = f32[100] parameter(0)
  ROOT n = f32[100] negate(p), metadata={op_name="jit(f)/neg" stack_frame_id=1}
}
body {
  t = (s32[], f32[100]) parameter(0)
  k = s32[] get-tuple-element(t), index=0
  x = f32[100] get-tuple-element(t), index=1
  one = s32[] constant(1)
  next = s32[] add(k, one)
  y = f32[100] tanh(x)
  ROOT o = (s32[], f32[100]) tuple(next, y)
}
test {
  t = (s32[], f32[100]) parameter(0)
  k = s32[] get-tuple-element(t), index=0
  l = s32[] constant(8)
  ROOT c = pred[] compare(k, l), direction=LT
}
ENTRY main {
  x = f32[100] parameter(0)
  zero = s32[] constant(0)
  a = f32[100] tanh(x), metadata={op_type="tanh" op_name="jit(f)/tanh \"}\"" source_file="model.py" source_line=12}
  b = f32[100] fusion(a), kind=kLoop, calls=fused
  c = f32[100] exponential(b), metadata={op_name="jit(f)/exp" stack_frame_id=2}
  d = f32[100] negate(c), metadata={op_name="jit(f)/none" stack_frame_id=9}
  i = (s32[], f32[100]) tuple(zero, d)
  w = (s32[], f32[100]) while(i), condition=test, body=body
  e = f32[100] get-tuple-element(w), index=1
  ROOT f = f32[100] add(c, e)
}
)",
                                 "m.txt");
  const auto source = [&](const char* name) { return std::string(m.graph.source(find(m, name))); };
  const auto scope = [&](const char* name) { return std::string(m.graph.scope(find(m, name))); };
  CHECK(source("a") == "model.py:12");
  CHECK(scope("a") == "jit(f)/tanh \"}\"");
  CHECK(source("b") == "/home/user/steps.py:32");  // of the root of the fusion
  CHECK(scope("b") == "jit(f)/neg");
  CHECK(source("c") == "other \"file\".py:7");
  CHECK(source("f").empty());
  REQUIRE(m.loops.size() == 1);
  CHECK(m.loops[0] == find(m, "w"));

  const problem p(m.graph, unit_cost{});
  const memory_profile profile = memory_profile_of(p, m.graph, listed_order(p));
  REQUIRE(profile.by_source.size() >= 2);
  std::int64_t sum = 0;
  for (const memory_profile::from_line& line : profile.by_source) sum += line.bytes;
  for (const memory_profile::resident& r : profile.at_peak)
    if (!r.name.starts_with("workspace of")) sum -= r.bytes;
  CHECK(sum == 0);
  const auto line = std::find_if(profile.by_source.begin(), profile.by_source.end(),
                                 [](const auto& l) { return l.source == "other \"file\".py:7"; });
  REQUIRE(line != profile.by_source.end());
  CHECK(line->bytes == 400);  // c waits for the sum while the loop runs
  CHECK(line->time == 1);

  // The JSON format carries both, and a graph without them has no table.
  const training_graph again = to_training_graph({to_json(m.graph), "m.json"});
  CHECK(again.source(find(m, "b")) == "/home/user/steps.py:32");
  CHECK(again.scope(find(m, "b")) == "jit(f)/neg");
  const hlo_module bare = module_of("%x = f32[10] parameter(0)\nROOT %y = f32[10] tanh(%x)\n");
  const problem q(bare.graph, unit_cost{});
  CHECK(memory_profile_of(q, bare.graph, listed_order(q)).by_source.empty());

  // Traces and pictures show them.
  std::ostringstream trace, picture;
  write_trace(trace, p, m.graph, listed_order(p));
  CHECK(trace.str().find(R"("source": "/home/user/steps.py:32")") != std::string::npos);
  CHECK(trace.str().find(R"("scope": "jit(f)/neg")") != std::string::npos);
  write_dot(picture, m.graph, p.graph(), h_partition(p.graph()));
  CHECK(picture.str().find("steps.py:32") != std::string::npos);
}

TEST_CASE("what a loop stacks up has the line that makes the parts") {
  const std::string state = "(s32[], f32[100], f32[8,100])";
  const hlo_module m = module_of(R"(
    %x = f32[100] parameter(0)
    %zero = s32[] constant(0)
    %none = f32[] constant(0)
    %stack = f32[8,100] broadcast(%none), dimensions={}
    %i = )" + state + R"( tuple(%zero, %x, %stack)
    %w = )" + state + R"( while(%i), condition=%test, body=%body, metadata={source_file="m.py" source_line=9}
    %e = f32[8,100] get-tuple-element(%w), index=2
    ROOT %f = f32[8,100] negate(%e), metadata={source_file="m.py" source_line=20}
)",
                                 "%body {\n  %t = " + state + R"( parameter(0)
  %k = s32[] get-tuple-element(%t), index=0
  %x = f32[100] get-tuple-element(%t), index=1
  %s = f32[8,100] get-tuple-element(%t), index=2
  %one = s32[] constant(1)
  %zero = s32[] constant(0)
  %next = s32[] add(%k, %one)
  %y = f32[100] tanh(%x), metadata={source_file="m.py" source_line=5}
  %z = f32[100] negate(%y), metadata={source_file="m.py" source_line=6}
  %r = f32[1,100] reshape(%z), metadata={source_file="m.py" source_line=7}
  %d = f32[8,100] dynamic-update-slice(%s, %r, %k, %zero), metadata={source_file="m.py" source_line=8}
  ROOT %o = )" + state + R"( tuple(%next, %y, %d)
}
%test {
  %t = )" + state + R"( parameter(0)
  %k = s32[] get-tuple-element(%t), index=0
  %l = s32[] constant(8)
  ROOT %c = pred[] compare(%k, %l), direction=LT
}
)");
  const auto outputs = m.graph.outputs(find(m, "w"));
  REQUIRE(outputs.size() == 3);
  CHECK(m.graph.source(find(m, "w")) == "m.py:9");
  CHECK(m.graph.source(outputs[1]) == "m.py:5");
  CHECK(m.graph.source(outputs[2]) == "m.py:7");
  const problem p(m.graph, unit_cost{});
  const memory_profile profile = memory_profile_of(p, m.graph, listed_order(p));
  REQUIRE(profile.by_source.size() >= 2);
  const auto stacked = std::find_if(profile.by_source.begin(), profile.by_source.end(),
                                    [](const auto& l) { return l.source == "m.py:7"; });
  REQUIRE(stacked != profile.by_source.end());
  CHECK(stacked->bytes == 3200);
  CHECK(stacked->time == 1);  // one run of the loop
  CHECK(to_training_graph({to_json(m.graph), "m.json"}).source(outputs[2]) == "m.py:7");
}

TEST_CASE("the groups of a mesh are a value with blanks") {
  for (const char* const groups :
       {"mesh['data'=2,'model'=2] {'model'}", "mesh['data'=2,'model'=2], device_ids=([2,2]T(1,0)) {'data','model'}",
        "mesh['data'=4] {'data':(1)2}"}) {
    CAPTURE(groups);
    const hlo_module m =
        module_of("%x = f32[10] parameter(0)\nROOT %r = f32[10] all-reduce(%x), replica_groups=" + std::string(groups) +
                      ", to_apply=%add, metadata={op_name=\"r\"}\n",
                  "%add {\n  %a = f32[] parameter(0)\n  %b = f32[] parameter(1)\n"
                  "  ROOT %c = f32[] add(%a, %b)\n}\n");
    CHECK(names(m) == std::vector<std::string>{"r"});
    CHECK(m.graph.flops(find(m, "r")) == 10);
  }
}

TEST_CASE("products and convolutions count what they sum over") {
  const hlo_module m = module_of(R"(
    %a = f32[4,8,16] parameter(0)
    %b = f32[4,16,32] parameter(1)
    %dot = f32[4,8,32] dot(%a, %b), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}
    %x = f32[2,5,5,3] parameter(2)
    %k = f32[3,3,3,7] parameter(3)
    %a2 = f32[8,16] parameter(4)
    %b2 = f32[16,32] parameter(5)
    %zero = f32[] constant(0)
    %conv = f32[2,5,5,7] convolution(%x, %k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
    %half = f32[2,2,2,7] convolution(%x, %k), window={size=3x3 stride=2x2}, dim_labels=b01f_01io->b01f
    %m = f32[8,32] custom-call(%a2, %b2), custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"]}}}
    %r = f32[2] reduce(%x, %zero), dimensions={1,2,3}, to_apply=%add
    ROOT %t = (f32[4,8,32], f32[2,5,5,7], f32[2,2,2,7], f32[8,32], f32[2]) tuple(%dot, %conv, %half, %m, %r)
)",
                                 R"(
%add (p: f32[], q: f32[]) -> f32[] {
  %p = f32[] parameter(0)
  %q = f32[] parameter(1)
  ROOT %c = f32[] add(%p, %q)
}
)");
  CHECK(m.graph.flops(find(m, "dot")) == 2 * 4 * 8 * 32 * 16);
  CHECK(m.graph.bytes_accessed(find(m, "dot")) == 4 * (4 * 8 * 16 + 4 * 16 * 32 + 4 * 8 * 32));
  CHECK(m.graph.flops(find(m, "conv")) == 2 * 2 * 7 * 3 * 13 * 13);  // 13 of 15 places in each dimension are inside
  CHECK(m.graph.flops(find(m, "half")) == 2 * 2 * 7 * 3 * 6 * 6);
  CHECK(m.graph.flops(find(m, "m")) == 2 * 8 * 32 * 16);
  CHECK(m.graph.flops(find(m, "r")) == 150);
}

TEST_CASE("control predecessors run before, by an array of no bytes") {
  const std::string lines = R"(
    %p = f32[100]{0} parameter(0)
    %a = f32[100]{0} tanh(%p)
    %v = f32[100]{0} bitcast(%a)
    %b = f32[100]{0} exponential(%p), control-predecessors={%a, %v}
    %c = f32[100]{0} negate(%p), control-predecessors={%a}
    ROOT %t = (f32[100]{0}, f32[100]{0}) tuple(%b, %c)
)";
  const hlo_module m = module_of(lines);
  CHECK(names(m) == std::vector<std::string>{"a", "b", "c"});
  REQUIRE(m.graph.outputs(find(m, "a")).size() == 2);
  const tensor_id token = m.graph.outputs(find(m, "a"))[1];
  CHECK(m.graph.bytes(token) == 0);
  for (const char* const name : {"b", "c"}) {
    const auto inputs = m.graph.inputs(find(m, name));
    CHECK(std::find(inputs.begin(), inputs.end(), token) != inputs.end());
  }
  CHECK(problem(m.graph, unit_cost{}).graph().needed[0]);  // nobody reads what it computes
  CHECK(refusal_of("%p = f32[] parameter(0)\n ROOT %a = f32[] tanh(%p), control-predecessors={%p, %q}\n")
            .find("line 4, column 54: there is no instruction q above") != std::string::npos);
}

TEST_CASE("donated parameters count, and make room for the outputs in their place") {
  const hlo_module m = module_of(R"(
    %w = f32[100] parameter(0)
    %s = (f32[10], f32[20]) parameter(1)
    %x = f32[100] parameter(2)
    %g = f32[100] multiply(%w, %x)
    %new = f32[100] subtract(%w, %g)
    %old = f32[20] get-tuple-element(%s), index=1
    %next = f32[20] negate(%old)
    ROOT %t = (f32[100], f32[20]) tuple(%new, %next)
)",
                                 "", ", input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {1}, must-alias) }");
  CHECK(names(m) == std::vector<std::string>{"donated parameters", "g", "new", "next"});
  CHECK(m.donated_bytes == 480);
  CHECK(m.parameter_bytes == 400 + 120 + 400);
  CHECK_FALSE(m.graph.recomputable(find(m, "donated parameters")));
  CHECK(peak_of(m) == 480 + 400 + 400);  // w, s{1}, g and new
}

TEST_CASE("effects run once, and so does what calls them") {
  const hlo_module m = module_of(R"(
    %x = f32[10] parameter(0)
    %tok = token[] after-all()
    %out = token[] outfeed(%x, %tok), outfeed_shape=f32[10]
    %in = (f32[10], token[]) infeed(%tok)
    %fed = f32[10] get-tuple-element(%in), index=0
    %e = () custom-call(%x), custom_call_target="print", custom_call_has_side_effect=true
    %c = f32[10] call(%x), to_apply=%draw
    ROOT %s = f32[10] add(%fed, %c)
)",
                                 R"(
%draw (p: f32[10]) -> f32[10] {
  %p = f32[10] parameter(0)
  %lo = f32[] constant(0)
  %hi = f32[] constant(1)
  ROOT %r = f32[10] rng(%lo, %hi), distribution=rng_uniform
}
)");
  CHECK(m.graph.outputs(find(m, "out")).empty());
  CHECK(m.graph.outputs(find(m, "e")).empty());
  for (const char* const name : {"in", "c", "e", "out"}) CHECK_FALSE(m.graph.recomputable(find(m, name)));
  CHECK(m.graph.recomputable(find(m, "s")));
  CHECK(peak_of(m) >= 0);
}

TEST_CASE("what is unknown is an operation of its operands and its shape") {
  const hlo_module m = module_of(R"(
    %x = f32[10] parameter(0)
    ROOT %y = (f32[3], s8[2]) some-new-thing(%x), what={[1,2]<=[2]T(1,0)}, how="}", why=a_b->c, thus=1
)");
  CHECK(names(m) == std::vector<std::string>{"y"});
  CHECK(output_bytes(m, "y") == 14);
  CHECK(m.graph.bytes_accessed(find(m, "y")) == 54);
}

TEST_CASE("constants may stand among operands, and results of asynchronous operations may be known late") {
  const hlo_module m = module_of(R"(
    %x = f32[10] broadcast(f32[] constant(0), s8[2]{0} constant({1, 2})), dimensions={}
    %s = ((f32[10]), (), s32[]) async-start(%x), calls=%twice
    %u = ((f32[10]), (f32[10], f32[10]), s32[]) async-update(%s)
    ROOT %d = (f32[10], f32[10]) async-done(%u)
)",
                                 R"(
%twice (p: f32[10]) -> (f32[10], f32[10]) {
  %p = f32[10] parameter(0)
  ROOT %t = (f32[10], f32[10]) tuple(%p, %p)
}
)");
  CHECK(names(m) == std::vector<std::string>{"x", "s", "u", "d"});
  CHECK(m.constant_bytes == 6);
  CHECK(m.graph.inputs(find(m, "x")).size() == 2);
  CHECK(m.graph.final_outputs().size() == 2);
}

TEST_CASE("computations may be nested to any depth, and a long module is read in linear time") {
  std::string before = "%c0 (p: f32[4]) -> f32[4] {\n  %p = f32[4] parameter(0)\n  ROOT %n = f32[4] negate(%p)\n}\n";
  constexpr int depth = 20'000;
  for (int k = 1; k < depth; ++k)
    before += "%c" + std::to_string(k) +
              " (p: f32[4]) -> f32[4] {\n  %p = f32[4] parameter(0)\n  %a = f32[4] call(%p), " + "to_apply=%c" +
              std::to_string(k - 1) + "\n  ROOT %n = f32[4] negate(%a)\n}\n";
  const hlo_module m = module_of(
      "%p = f32[4] parameter(0)\nROOT %r = f32[4] call(%p), to_apply=%c" + std::to_string(depth - 1) + "\n", before);
  CHECK(m.graph.workspace(find(m, "r")) == 16 * (depth - 1));
  CHECK(m.graph.flops(find(m, "r")) == 4 * depth);
}

TEST_CASE("a text that breaks the format is refused with its place and what would be right") {
  CHECK(refusal("") == "m.txt: line 1, column 1: is empty; expected a text that begins with HloModule");
  CHECK(
      refusal("module @jit_f {") ==
      "m.txt: line 1, column 1: is `module @jit_f {`; expected a text that begins with HloModule, as --xla_dump_to and "
      "compiled.as_text() write it");
  CHECK(refusal("HloModule m\n") ==
        "m.txt: line 2, column 1: the text has no computation with the word ENTRY; expected the whole module, to its "
        "end");
  CHECK(refusal("HloModule m\nENTRY e {\n  ROOT x = f32[2] parameter(0)\n}\n\nHloModule n\nENTRY e {\n}\n") ==
        "m.txt: line 6, column 1: a second HloModule begins here; expected one module in a file");
  CHECK(refusal("HloModule m\nHloModule {\n  p = f32[] parameter(0)\n}\nENTRY e {\n  x = f32[2] parameter(0)\n}\n") ==
        "accepted");  // a computation of that name
  CHECK(refusal("HloModule m\nENTRY %e {\n  %x = f32[2] parameter(0)\n") ==
        "m.txt: line 4, column 1: the text ends; expected an instruction, `%name = shape opcode(…)`, or } at the end "
        "of the "
        "computation");
  CHECK(refusal_of("  ROOT %y = f32[2] add(%x, %x)\n") ==
        "m.txt: line 3, column 24: there is no instruction x above in this computation; expected the name of one");
  CHECK(refusal_of("  %x = f33[2] parameter(0)\n") ==
        "m.txt: line 3, column 8: is `f33`; expected a shape, such as f32[8,16]{1,0} or (f32[], s32[2])");
  CHECK(refusal_of("  %x = f32[?] parameter(0)\n") ==
        "m.txt: line 3, column 12: is `?] parameter(0)`; expected a dimension, a whole number, or <= and its bound");
  CHECK(refusal_of("  %x = f32[9000000000,9000000000] parameter(0)\n") ==
        "m.txt: line 3, column 8: the arrays of the module have more than 2^61 bytes together; expected less");
  CHECK(refusal_of("  %x = f32[2]{0 parameter(0)\n") ==
        "m.txt: line 3, column 14: `{` is not closed on its line; expected a layout");
  CHECK(refusal_of("  %x = f32[2] parameter(0), m={(}\n") ==
        "m.txt: line 3, column 33: `}` is not closed or opens nothing; expected its partner");
  CHECK(refusal_of("  %x = f32[2] parameter(1)\n") ==
        "m.txt: line 3, column 4: parameter x has no number below 1, the count of parameters of the computation; "
        "expected "
        "parameter(0), parameter(1), …");
  CHECK(refusal_of("  %x = f32[2] parameter(0)\n  %x = f32[2] negate(%x)\n") ==
        "m.txt: line 4, column 4: there are two instructions of the name x; expected one");
  CHECK(refusal_of("  %x = f32[2] parameter(0)\n  %y = f32[2] get-tuple-element(%x), index=0\n") ==
        "m.txt: line 4, column 4: get-tuple-element y has the index 0, and x has 0 elements; expected one of these");
  CHECK(refusal_of("  %x = f32[2] parameter(0)\n  %y = f32[2] fusion(%x), kind=kLoop\n") ==
        "m.txt: line 4, column 4: fusion y names no computation; expected calls=");
  CHECK(refusal_of("  %x = f32[2] parameter(0)\n  %y = f32[2] fusion(%x), calls=%none\n") ==
        "m.txt: line 4, column 33: there is no computation none; expected the name of one in the module");
  CHECK(refusal_of("  %x = f32[2] parameter(0)\n  %y = f32[2] call(%x), to_apply=%b\n",
                   "%b {\n %p = f32[2] parameter(0)\n %q = f32[2] call(%p), to_apply=%b\n}\n") ==
        "m.txt: line 4, column 3: call q calls computation b, which calls it; expected no recursion");
  CHECK(refusal_of("  %x = (f32[2], f32[2]) parameter(0)\n  %y = f32[2] call(%x), to_apply=%b\n",
                   "%b {\n %p = f32[2] parameter(0)\n}\n") ==
        "m.txt: line 7, column 4: call y gives 2 arrays to computation b; expected 1, as its parameters have");
  CHECK(refusal_of("  %x = (f32[2]) parameter(0)\n  %y = f32[2] get-tuple-element(%x)\n") ==
        "m.txt: line 4, column 4: get-tuple-element y has no index; expected index=0 or another number");
  CHECK(refusal_of("  %x = f32[2] parameter(0)\n  %y = f32[2] copy-done(%x)\n") ==
        "m.txt: line 4, column 4: copy-done y ends x; expected an operation that a start began");
  CHECK(refusal_of("  %x = f32[2] parameter(0)\n  %y = f32[2] dot(%x, %x), lhs_contracting_dims={1}\n") ==
        "m.txt: line 4, column 4: dot y sums over dimension 1, which x does not have");
  CHECK(
      refusal(
          "HloModule m, input_output_alias={ {0}: (3, {}, may-alias) }\nENTRY %e {\n %x = f32[2] parameter(0)\n}\n") ==
      "m.txt: line 1, column 40: names no parameter of the entry computation; expected a number below 1");
}

TEST_CASE("the graphs of XLA's own tests have their known answers") {
  const auto graph = [](const std::string& name) {
    return read_training_step(std::string(REMAT_TEST_DATA) + "/xla/" + name + ".json").instance;
  };
  const auto solved = [](const problem& p) { return automatic(p, {.run = {.work_limit = 200'000}}); };
  const auto computes = [](const solution& s) {
    std::size_t count = 0;
    for (const step& one : s.plan->steps) count += one.is_compute();
    return count;
  };
  {  // one operation runs again
    const problem p = graph("SingleComputation").with_budget(14'336);
    const solution s = solved(p);
    REQUIRE(s.plan.has_value());
    CHECK(computes(s) == p.graph().num_operations + 1);
    CHECK(s.status == solve_status::optimal);
  }
  {  // nothing runs again, but in another order
    const problem p = graph("DuplicateOperandLoopFusion").with_budget(276'480);
    CHECK(p.graph().baseline_peak > 276'480);
    const solution s = solved(p);
    REQUIRE(s.plan.has_value());
    CHECK(computes(s) == p.graph().num_operations);
  }
  struct row {
    const char* name;
    std::int64_t budget, least;
  };
  for (const row& r :
       {row{"PeakFirstRematerializationWorks", 102'400, 1'052'672}, row{"EarlyUsePreserved", 256'000, 262'144},
        row{"RemovesMultiBranchDeadIndirectUserTree", 256'000, 262'144}}) {
    CAPTURE(r.name);
    const problem p = graph(r.name).with_budget(r.budget);
    CHECK(solved(p).status == solve_status::infeasible);
    CHECK(least_memory_bound(p).bytes >= r.least);
  }
  {  // copies to the host cost less time than computing again
    const problem p = graph("BasicSuccessfulHostOffload").with_budget(12'288);
    const solution again = solved(p), copied = solved(p.with_link({4096e3, 4096e3, 0}));
    REQUIRE(again.plan.has_value());
    REQUIRE(copied.plan.has_value());
    CHECK(again.time == 6.0);
    CHECK(copied.time < 4.6);
    CHECK(copied.plan->has_copies());
  }
}

TEST_CASE("a training step that JAX compiled needs the memory that XLA says") {
  // bench/hlo/dump_jax.py wrote it; compiled.memory_analysis() said these bytes.
  constexpr std::int64_t arguments = 6'553'600, outputs = 2'359'324, alias = 2'359'296, temp = 69'534'120;
  const hlo_module m = read_hlo(std::string(REMAT_TEST_DATA) + "/hlo/jax-rnn.hlo.txt");
  CHECK(m.is_scheduled);
  CHECK(m.graph.name() == "jit_step");
  CHECK(m.parameter_bytes == arguments);
  CHECK(m.donated_bytes == alias);
  CHECK(m.output_bytes + 3 * 8 == outputs);  // XLA counts the pointers of the tuple
  const problem p(m.graph, default_cost(m.graph));
  const double ours = static_cast<double>(p.graph().baseline_peak + arguments - alias),
               xla = static_cast<double>(arguments + outputs - alias + temp);
  CHECK(ours == doctest::Approx(xla).epsilon(0.03));
  CHECK(p.graph().baseline_peak > m.donated_bytes);
}

TEST_CASE("a file that is missing is named") {
  CHECK_THROWS_WITH(read_hlo("/no/such/module.hlo"), "/no/such/module.hlo: there is no such file");
  CHECK(is_hlo_text(" \n// made by hand\nHloModule m"));
  CHECK_FALSE(is_hlo_text("{\"format\": \"training-graph\"}"));
}
