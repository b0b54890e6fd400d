# SPDX-License-Identifier: BSL-1.0
"""bench/pytorch/torch_equal_peak.py, which needs no PyTorch: python3 -B tests/bench/torch_equal_peak_test.py"""
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "bench", "pytorch"))
from torch_equal_peak import (  # noqa: E402
    COLUMNS,
    Configuration,
    Measured,
    Plan,
    Refused,
    configurations,
    nearest,
    quartiles,
    read_plans,
    rows_of,
    warm_up_steps,
)

SIZES = dict(layers=4, width=64, heads=4, context=32, batch=2, vocabulary=100)
HEADER = "device,products,layers,width,heads,context,batch,vocabulary,streams,mode,budget,arena_bytes,step_ms,result\n"


class Configurations(unittest.TestCase):
    def test_each_block_is_run_once_in_its_order(self):
        for layers in (1, 2, 5, 12):
            found = configurations(layers)
            self.assertEqual(len(set(found)), len(found))
            for c in found:
                parts = c.segments(layers)
                self.assertEqual([i for begin, end, _ in parts for i in range(begin, end)], list(range(layers)))
                self.assertEqual(sum(end - begin for begin, end, checkpointed in parts if checkpointed), c.blocks)
                self.assertTrue(all(end - begin <= c.segment for begin, end, _ in parts))

    def test_names_tell_them_apart(self):
        self.assertEqual(len({c.name for c in configurations(12)}), len(configurations(12)))
        self.assertEqual(Configuration(0).name, "none")
        self.assertEqual(Configuration(12, 3).name, "first 12 by 3")


class Nearest(unittest.TestCase):
    peaks = {Configuration(0): 1000, Configuration(1): 800, Configuration(2): 600}

    def test_the_nearest_peak_above_or_below(self):
        for size, blocks in ((5000, 0), (910, 0), (890, 1), (701, 1), (610, 2), (1, 2)):
            self.assertEqual(nearest(Plan("x", size, 1.0), self.peaks), Configuration(blocks), size)

    def test_of_two_as_near_the_smaller(self):
        self.assertEqual(nearest(Plan("x", 900, 1.0), self.peaks), Configuration(1))

    def test_nothing_has_run(self):
        with self.assertRaisesRegex(ValueError, "each was out of memory"):
            nearest(Plan("x", 1, 1.0), {})


class Plans(unittest.TestCase):
    def read(self, text, sizes=None):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plans.csv")
            with open(path, "w") as file:
                file.write(text)
            return read_plans(path, sizes or SIZES)

    def test_runs_of_these_sizes_on_one_stream_that_have_an_arena(self):
        text = HEADER + (
            '"NVIDIA, a device",own,4,64,4,32,2,100,1,eager,none,1000,2,baseline\n'
            '"NVIDIA, a device",own,4,64,4,32,2,100,1,eager,0.5,600,3.75,same\n'
            '"NVIDIA, a device",own,4,64,4,32,2,100,1,eager,0.1,,,infeasible\n'
            '"NVIDIA, a device",own,4,64,4,32,2,100,1,eager,none,1000,3,baseline again\n'
            '"NVIDIA, a device",own,4,64,4,32,2,100,1,graph,none,1000,2,baseline\n'
            '"NVIDIA, a device",own,4,64,4,32,2,100,1,graph,0.5,600,2.5,same\n'
            '"NVIDIA, a device",own,4,64,4,32,2,100,2,graph,0.5,700,1,same\n'
            '"NVIDIA, a device",own,8,64,4,32,2,100,1,eager,0.5,1200,7,same\n'
        )
        # A run with a link to the host is left out; a file may have no such column.
        lines = [line.rsplit(",", 1) for line in text.splitlines()]
        lines = [f"{a},link_out,{b}" if b == "result" else f"{a},,{b}" for a, b in lines]
        lines.append('"NVIDIA, a device",own,4,64,4,32,2,100,1,graph,0.5,600,9,5e10,same')
        self.assertEqual(self.read("\n".join(lines)), self.read(text))
        # Over the mean of 2 and 3, and over the 2 of the same mode.
        self.assertEqual(self.read(text), [Plan("0.5", 600, 3.75, "eager", 0.5), Plan("0.5", 600, 2.5, "graph", 0.25)])

    def test_without_a_baseline_in_the_mode_there_is_no_overhead(self):
        text = HEADER + (
            '"x",own,4,64,4,32,2,100,1,eager,none,1000,2,baseline\n'
            '"x",own,4,64,4,32,2,100,1,graph,0.5,600,2.5,not compared\n'
        )
        self.assertEqual(self.read(text), [Plan("0.5", 600, 2.5, "graph", None)])

    def test_other_sizes_are_an_error_that_names_them(self):
        with self.assertRaisesRegex(ValueError, "no run with --layers 4 --width 64"):
            self.read(HEADER + '"x",own,8,64,4,32,2,100,1,eager,0.5,1200,7,same\n')

    def test_another_file_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "has no column layers"):
            self.read("a,b\n1,2\n")


class Rows(unittest.TestCase):
    """`measure` has no GPU: a step takes 1000 bytes less 100 for each checkpointed block, and 10 ms and 1 ms more."""

    def setUp(self):
        self.calls, self.said = [], []

    def measure(self, configuration, mode, short):
        if not short:
            self.calls.append((mode, configuration.blocks))
        ms = 10.0 + configuration.blocks if mode == "eager" else 5.0 + configuration.blocks
        return Measured(1000 - 100 * configuration.blocks, ms, ms - 1, ms + 1)

    def rows(self, plans, measure=None):
        return list(rows_of(plans, 4, measure or self.measure, self.said.append))

    def test_overheads_are_over_the_own_baseline_of_the_mode(self):
        rows = self.rows([Plan("0.8", 800, 2.0, "eager", 0.1), Plan("0.8", 800, 1.0, "graph", 0.3)])
        self.assertEqual([tuple(r) for r in rows], [tuple(COLUMNS)] * 2)
        self.assertEqual([r["checkpoints"] for r in rows], ["first 2", "first 2"])
        self.assertEqual([r["plan_overhead"] for r in rows], [0.1, 0.3])
        self.assertAlmostEqual(rows[0]["checkpoints_overhead"], 0.2)
        self.assertAlmostEqual(rows[1]["checkpoints_overhead"], 0.4)
        self.assertEqual([r["baseline_bytes"] for r in rows], [1000, 1000])

    def test_the_baseline_comes_first_and_last_in_each_mode(self):
        self.rows([Plan("0.8", 800, 2.0), Plan("0.6", 600, 2.0), Plan("0.8", 800, 1.0, "graph")])
        self.assertEqual(
            self.calls,
            [("eager", 0), ("eager", 2), ("eager", 4), ("eager", 0), ("graph", 0), ("graph", 2), ("graph", 0)],
        )

    def test_a_step_that_cannot_be_captured_leaves_the_eager_rows(self):
        def measure(configuration, mode, short):
            if mode == "graph":
                raise Refused("no")
            return self.measure(configuration, mode, short)

        rows = self.rows([Plan("0.8", 800, 1.0, "graph"), Plan("0.8", 800, 2.0)], measure)
        self.assertEqual([r["mode"] for r in rows], ["eager"])
        self.assertIn("graph: PyTorch does not capture this step: no", self.said)

    def test_without_memory_for_the_baseline_there_is_no_overhead(self):
        def measure(configuration, mode, short):
            return self.measure(configuration, mode, short) if configuration.blocks else None

        rows = self.rows([Plan("0.8", 800, 2.0, "eager", None)], measure)
        self.assertEqual([(r["checkpoints"], r["checkpoints_overhead"]) for r in rows], [("first 2", None)])


class Times(unittest.TestCase):
    def test_quartiles(self):
        self.assertEqual(quartiles([5, 1, 4, 2, 3]), (2, 3, 4))
        self.assertEqual(quartiles([4, 2]), (2.5, 3, 3.5))
        self.assertEqual(quartiles([7]), (7, 7, 7))

    def test_a_fifth_does_not_count_and_at_least_two(self):
        self.assertEqual([warm_up_steps(n) for n in (3, 10, 20)], [2, 2, 4])


if __name__ == "__main__":
    unittest.main()
