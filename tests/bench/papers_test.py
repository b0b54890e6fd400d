# SPDX-License-Identifier: BSL-1.0
"""The scripts of bench/papers, each with a few rows: python3 -B tests/bench/papers_test.py REMAT_PLAN csv|svg

`csv` checks the tables, `svg` the pictures; `svg` is skipped, with a line that says so, where matplotlib is missing.
"""
import csv
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PAPERS = os.path.join(ROOT, "bench", "papers")
GRAPHS = os.path.join(ROOT, "tests", "data", "graphs")
sys.path.insert(0, PAPERS)
import figure  # noqa: E402

PROGRAM = ""
# Graphs that are solved in milliseconds, also without optimisation; the solvers that each table must have.
SCRIPTS = {
    "twremat_peak_vs_depth": (["rk/gpt2-like-2l"], {"no_remat", "chen_sqrt", "twremat", "auto"}),
    "rotor_makespan_vs_memory": (["rk/gpt2-like-2l", "../chains/homog-10"],
                                 {"no_remat", "chen_sqrt", "revolve", "rotor", "auto"}),
    "hiremate_overhead_vs_budget": (["rk/gpt2-like-2l"], {"hiremate", "rockmate", "checkmate", "twremat", "auto"}),
    "hiremate_time_vs_size": ([], {"hiremate", "rockmate", "rotor", "auto"}),
    "hilp_options": (["rk/gpt2-like-2l"], {"hiremate", "auto"}),
}


def fake_generator(folder):
    """A stand-in for make_stack that prints a bundled graph, and fails for other kinds than decoder."""
    path = os.path.join(folder, "make_stack")
    graph = os.path.join(GRAPHS, "rk", "gpt2-like-2l.json")
    with open(path, "w") as file:
        file.write(f"#!{sys.executable}\nimport sys\n"
                   f"sys.exit('no kind') if sys.argv[1] != 'decoder' else print(open({graph!r}).read())\n")
    os.chmod(path, 0o755)
    return path


def run(script, folder, *more):
    return subprocess.run([sys.executable, "-B", os.path.join(PAPERS, script + ".py"), folder, *more],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)


def run_quick(script, folder, *more):
    graphs = [os.path.join(GRAPHS, name + ".json") for name in SCRIPTS[script][0]]
    return run(script, folder, *graphs, "--program", PROGRAM, "--make-stack", fake_generator(folder), "--quick",
               "--work", "50", "--budgets", "0.6", *more)


def read(folder, script):
    with open(os.path.join(folder, script + ".csv"), newline="") as file:
        return list(csv.DictReader(file))


class Tables(unittest.TestCase):
    def check_table(self, rows, solvers):
        self.assertEqual(list(rows[0]), figure.COLUMNS)
        self.assertEqual({r["solver"] for r in rows}, solvers)
        for row in rows:
            self.assertIn(row["status"], ("optimal", "feasible", "infeasible", "timeout"), row)
            self.assertIsInstance(json.loads(row["statistics"]), dict)
            self.assertEqual((row["limit"], row["threads"]), ("work 50", "1"))
            self.assertGreater(int(row["operations"]), 0)
            if row["time"]:
                self.assertLessEqual(int(row["peak_bytes"]), int(row["budget_bytes"]))
                self.assertAlmostEqual(float(row["overhead"]), float(row["time"]) / float(row["baseline_time"]) - 1, 9)
        for solver in solvers - {"auto", "no_remat", "chen_sqrt", "revolve"}:
            self.assertTrue({r["variant"] for r in rows if r["solver"] == solver} >= {"own", "improved"}, solver)
        self.assertTrue(any(row["time"] for row in rows))

    def test_each_script_writes_its_table_and_goes_on_with_it(self):
        for script, (_, solvers) in SCRIPTS.items():
            with self.subTest(script), tempfile.TemporaryDirectory() as folder:
                first = run_quick(script, folder, "--csv-only")
                self.assertEqual(first.returncode, 0, first.stderr)
                rows = read(folder, script)
                self.check_table(rows, solvers)
                path = os.path.join(folder, script + ".csv")
                with open(path) as file:
                    text = file.read()
                with open(path, "w") as file:
                    file.write(text[:-5])  # as if it had been ended while it wrote the last row
                second = run_quick(script, folder, "--csv-only")
                self.assertEqual(second.returncode, 0, second.stderr)
                self.assertEqual(second.stderr.count("remat-plan "), 1, second.stderr)
                again = read(folder, script)
                self.assertEqual(len(again), len(rows))
                self.assertEqual(again[:-1], rows[:-1])

    def test_options_of_hiremate_vary_one_at_a_time(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(run_quick("hilp_options", folder, "--csv-only").returncode, 0)
            settings = {r["setting"] for r in read(folder, "hilp_options")}
        self.assertIn("", settings)
        self.assertGreaterEqual(len(settings), 5)
        alone = {name for name, _ in figure.PAPER["hiremate"]}
        for setting in settings - {""}:
            names = [word.partition("=")[0] for word in setting.split(" ")]
            self.assertLessEqual(len([n for n in names if n not in alone]), 1, setting)


    def test_a_row_that_was_cut_off_anywhere_is_solved_again(self):
        row = {name: "1" for name in figure.COLUMNS} | {"statistics": '{"tree":"min_fill","levels":[{"groups":2}]}'}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "table.csv")
            figure.Table(path).add(row)
            with open(path) as file:
                text = file.read()
            self.assertIsNotNone(figure.Table(path).find(row))
            for cut in range(len(text.splitlines()[0]) + 1, len(text) - 2):  # the quote, too, ends the last column
                with open(path, "w") as file:
                    file.write(text[:cut])
                self.assertIsNone(figure.Table(path).find(row), text[:cut])


class Errors(unittest.TestCase):
    def check_error(self, done, *words):
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def test_one_line_says_what_is_wrong(self):
        script = "rotor_makespan_vs_memory"
        toy = os.path.join(GRAPHS, "toy-skip-3.json")
        with tempfile.TemporaryDirectory() as folder:
            def run_it(*more):
                return run(script, folder, "--csv-only", "--work", "1", *more)

            self.check_error(run_it("--program", "/no/such/program"), "/no/such/program", "--program")
            self.check_error(run_it("/no/such/graph.json", "--program", PROGRAM), "/no/such/graph.json")
            table = os.path.join(folder, script + ".csv")
            with open(table, "w") as file:
                file.write("a,b\n1,2\n")
            self.check_error(run_it(toy, "--program", PROGRAM), table, "columns")
            with open(table) as file:
                self.assertEqual(file.read(), "a,b\n1,2\n")

    def test_what_remat_plan_says_is_shown(self):
        toy = os.path.join(GRAPHS, "toy-skip-3.json")
        with tempfile.TemporaryDirectory() as folder:
            done = run("hiremate_overhead_vs_budget", folder, toy, "--program", PROGRAM, "--csv-only", "--work", "1",
                       "--budgets", "much")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("much", done.stderr.strip().splitlines()[-1])

    def test_a_generator_that_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run("hiremate_time_vs_size", folder, "--program", PROGRAM, "--csv-only",
                       "--make-stack", "/no/generator")
            self.check_error(done, "/no/generator", "--make-stack")


class Pictures(unittest.TestCase):
    def test_each_script_draws_all_its_panels(self):
        for script in SCRIPTS:
            with self.subTest(script), tempfile.TemporaryDirectory() as folder:
                done = run_quick(script, folder)
                self.assertEqual(done.returncode, 0, done.stderr)
                pictures = [line for line in done.stdout.splitlines() if line.endswith(".svg")]
                self.assertTrue(pictures)
                for path in pictures:
                    with open(path) as file:
                        text = file.read()
                    self.assertIn("</svg>", text)
                    self.assertGreater(text.count('id="line2d_'), 3, path)


def main():
    global PROGRAM
    if len(sys.argv) != 3 or sys.argv[2] not in ("csv", "svg"):
        sys.exit("usage: papers_test.py REMAT_PLAN csv|svg")
    PROGRAM, part = os.path.abspath(sys.argv[1]), sys.argv[2]
    if part == "svg" and importlib.util.find_spec("matplotlib") is None:
        print("skipped: matplotlib is missing (Debian: python3-matplotlib)")
        return
    loader = unittest.TestLoader()
    classes = (Tables, Errors) if part == "csv" else (Pictures,)
    suite = unittest.TestSuite(loader.loadTestsFromTestCase(c) for c in classes)
    sys.exit(not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful())


if __name__ == "__main__":
    main()
