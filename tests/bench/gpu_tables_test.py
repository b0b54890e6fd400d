# SPDX-License-Identifier: BSL-1.0
"""bench/pytorch/gpu_tables.py: the pages have the tables of the recorded rows, and rows that change are noticed."""
import contextlib
import io
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, os.fspath(ROOT / "bench" / "pytorch"))
import gpu_tables  # noqa: E402


def run(*arguments):
    """The exit status, or its text, of the script with these arguments."""
    sys.argv = ["gpu_tables.py", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            gpu_tables.main()
    except SystemExit as end:
        return end.code
    return 0


class Tables(unittest.TestCase):
    def test_the_pages_are_as_the_rows(self):
        self.assertEqual(run("--check"), 0)

    def test_a_row_that_changes_is_noticed_and_written_once(self):
        with tempfile.TemporaryDirectory() as folder:
            figures, docs = pathlib.Path(folder) / "gpu", pathlib.Path(folder) / "docs"
            shutil.copytree(ROOT / "docs" / "figures" / "gpu", figures)
            docs.mkdir()
            for page in ("cuda.md", "pytorch.md"):
                shutil.copy(ROOT / "docs" / page, docs)
            rows = (figures / "checkpoints.csv").read_text().replace("first 4,11691041792,77.3529", "first 4,11691041792,78.7529")
            (figures / "checkpoints.csv").write_text(rows)
            places = ("--figures", figures, "--docs", docs)
            self.assertIn("cuda.md differ", run("--check", *places))
            self.assertEqual(run(*places), 0)
            self.assertIn("| 78.75 |", (docs / "cuda.md").read_text())
            self.assertEqual(run("--check", *places), 0)
            self.assertEqual((docs / "pytorch.md").read_text(), (ROOT / "docs" / "pytorch.md").read_text())

    def test_a_baseline_that_is_recorded_is_taken_and_another_extrapolated(self):
        rows = [{"checkpoints": f"first {k}", "checkpoints_bytes": str(1000 - 50 * k)} for k in (2, 4, 7)]
        rows.append({"checkpoints": "first 12 by 2", "checkpoints_bytes": "1"})  # on no line
        found, about = gpu_tables.baseline_bytes(rows)
        self.assertAlmostEqual(found, 1000)
        self.assertTrue(about)
        self.assertEqual(gpu_tables.baseline_bytes([{**rows[0], "baseline_bytes": "990"}, *rows]), (990, False))


if __name__ == "__main__":
    unittest.main()
