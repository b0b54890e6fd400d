# SPDX-License-Identifier: BSL-1.0
"""bench/pytorch/torch_equal_peak.py, which needs no PyTorch: python3 -B tests/bench/torch_equal_peak_test.py"""
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "bench", "pytorch"))
from torch_equal_peak import Configuration, Plan, configurations, nearest, read_plans  # noqa: E402

SIZES = dict(layers=4, width=64, heads=4, context=32, batch=2, vocabulary=100)
HEADER = "device,products,layers,width,heads,context,batch,vocabulary,budget,arena_bytes,step_ms,result\n"


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

    def test_runs_of_these_sizes_that_have_an_arena(self):
        text = HEADER + (
            '"NVIDIA, a device",own,4,64,4,32,2,100,none,1000,2.5,baseline\n'
            '"NVIDIA, a device",own,4,64,4,32,2,100,0.5,600,3.5,same\n'
            '"NVIDIA, a device",own,4,64,4,32,2,100,0.1,,,infeasible\n'
            '"NVIDIA, a device",own,8,64,4,32,2,100,0.5,1200,7,same\n'
        )
        self.assertEqual(self.read(text), [Plan("none", 1000, 2.5), Plan("0.5", 600, 3.5)])

    def test_other_sizes_are_an_error_that_names_them(self):
        with self.assertRaisesRegex(ValueError, "no run with --layers 4 --width 64"):
            self.read(HEADER + '"x",own,8,64,4,32,2,100,0.5,1200,7,same\n')

    def test_another_file_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "has no column layers"):
            self.read("a,b\n1,2\n")


if __name__ == "__main__":
    unittest.main()
