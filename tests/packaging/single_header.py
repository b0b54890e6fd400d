# SPDX-License-Identifier: BSL-1.0
"""The single header is made, and compiles alone: single_header.py COMPILER…

The first compiler also links and runs examples/compiler_explorer.cpp with the header that it needs."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "docs/packaging/single_header.py"
COMPILERS = sys.argv[1:]
FLAGS = ["-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]


def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True)


class SingleHeader(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def make(self, *arguments):
        return run(sys.executable, "-B", SCRIPT, "-o", self.folder / "remat.hpp", *arguments)

    def made(self, *arguments):
        made = self.make(*arguments)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertNotRegex((self.folder / "remat.hpp").read_text(encoding="utf-8"), r'(?m)^\s*#\s*include\s*"')

    def program(self, name="compiler_explorer"):
        """An example, with the single header in place of the library's."""
        text = (ROOT / f"examples/{name}.cpp").read_text(encoding="utf-8")
        text, replaced = re.subn(r'#include "remat/[^"]+"', '#include "remat.hpp"', text)
        self.assertEqual(replaced, 1, "the example includes one header of the library")
        path = self.folder / "program.cpp"
        path.write_text(text, encoding="utf-8")
        return path

    def test_all_of_it_compiles_alone(self):
        self.made()
        text = (self.folder / "remat.hpp").read_text(encoding="utf-8")
        for header in (ROOT / "include/remat/method").glob("*.hpp"):  # CBC's needs a package
            self.assertEqual(text.count(f"// ---- remat/method/{header.name}\n"), int(header.name != "cbc.hpp"), header.name)
        program = self.program()
        for compiler in COMPILERS:
            for device in [], ["-D__CUDA_ARCH__=900"]:  # as nvcc compiles it for the host, and for the device
                done = run(compiler, *FLAGS, *device, "-fsyntax-only", program)
                self.assertEqual(done.returncode, 0, done.stderr[:4000])

    def test_one_solver_runs(self):
        self.made("remat/method/exact.hpp")
        done = run(COMPILERS[0], *FLAGS, self.program(), "-o", self.folder / "program", "-pthread")
        self.assertEqual(done.returncode, 0, done.stderr[:4000])
        expected = (ROOT / "examples/compiler_explorer.expected").read_text(encoding="utf-8")
        self.assertEqual(run(self.folder / "program").stdout, expected)

    def test_a_leaf_runs(self):
        self.made("remat/adjoint.hpp")
        self.assertLess((self.folder / "remat.hpp").stat().st_size, 100_000)
        done = run(COMPILERS[0], *FLAGS, self.program("adjoint"), "-o", self.folder / "program")
        self.assertEqual(done.returncode, 0, done.stderr[:4000])
        expected = (ROOT / "examples/adjoint.expected").read_text(encoding="utf-8")
        self.assertEqual(run(self.folder / "program").stdout, expected)

    def test_it_refuses_the_compiled_form(self):
        self.made("remat/version.hpp")
        program = self.folder / "program.cpp"
        program.write_text('#include "remat.hpp"\nstatic_assert(REMAT_VERSION > 0);\n', encoding="utf-8")
        self.assertEqual(run(COMPILERS[0], *FLAGS, "-fsyntax-only", program).returncode, 0)
        done = run(COMPILERS[0], *FLAGS, "-DREMAT_SEPARATE_COMPILATION", "-fsyntax-only", program)
        self.assertIn("the single header has no compiled form", done.stderr)

    def test_leaves_run_without_exceptions(self):
        for leaf in "arena", "order":
            self.made(f"remat/{leaf}.hpp")
            self.assertLess((self.folder / "remat.hpp").stat().st_size, 160_000)
            for compiler in COMPILERS:
                done = run(compiler, *FLAGS, "-fno-exceptions", "-fno-rtti", self.program(leaf), "-o", self.folder / "program")
                self.assertEqual(done.returncode, 0, done.stderr[:4000])
                expected = (ROOT / f"examples/{leaf}.expected").read_text(encoding="utf-8")
                self.assertEqual(run(self.folder / "program").stdout, expected)

    def test_leaves_made_one_by_one_stand_in_one_file(self):
        for leaf in "adjoint", "arena", "order":
            made = run(sys.executable, "-B", SCRIPT, "-o", self.folder / f"{leaf}.hpp", f"remat/{leaf}.hpp")
            self.assertEqual(made.returncode, 0, made.stderr)
        program = self.folder / "program.cpp"
        text = '#include "adjoint.hpp"\n#include "arena.hpp"\n#include "order.hpp"\n'
        program.write_text(text + "int main() { return remat::arena_planner{}.plan({}).ok() ? 0 : 1; }\n", encoding="utf-8")
        for compiler in COMPILERS:
            done = run(compiler, *FLAGS, program, "-o", self.folder / "program")
            self.assertEqual(done.returncode, 0, done.stderr[:4000])
            self.assertEqual(run(self.folder / "program").returncode, 0)
        older = self.folder / "arena.hpp"
        text = older.read_text(encoding="utf-8")
        number = re.search(r"REMAT_SINGLE_VERSION_\w+", text)[0]
        older.write_text(text.replace(number, "REMAT_SINGLE_VERSION_0_0_1"), encoding="utf-8")
        done = run(COMPILERS[0], *FLAGS, "-fsyntax-only", program)
        self.assertIn("two single headers of different versions of remat", done.stderr)

    def test_it_says_why_the_result_cannot_be_written(self):
        missing = self.folder / "missing" / "remat.hpp"
        made = run(sys.executable, "-B", SCRIPT, "-o", missing, "remat/version.hpp")
        self.assertEqual((made.returncode, made.stderr), (1, f"{missing}: cannot be written: No such file or directory\n"))

    def test_it_names_a_header_that_is_missing(self):
        made = self.make("remat/nothing.hpp")
        self.assertNotEqual(made.returncode, 0)
        self.assertIn("the command line: there is no header remat/nothing.hpp in ", made.stderr)

    def test_it_refuses_an_include_within_a_condition(self):
        (self.folder / "own.hpp").write_text('#pragma once\n#ifdef OWN\n#include "remat/version.hpp"\n#endif\n', encoding="utf-8")
        made = self.make("own.hpp", "-I", self.folder)
        self.assertNotEqual(made.returncode, 0)
        self.assertIn("own.hpp:3: remat/version.hpp is included under #ifdef OWN", made.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
