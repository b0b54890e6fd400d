# SPDX-License-Identifier: BSL-1.0
"""report_page.py PROGRAM DATA: reads reports of remat-plan as a browser does, and compares their parts with each other.

HTML is well-formed, names stay text, links have targets, the data of the charts is JSON and agrees with the tables.
"""

import html.parser
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM, DATA = sys.argv[1:3]
VOID = {"meta", "br", "hr", "img", "input", "link", "wbr"}
TAGS = set(
    "html head meta title style body header h1 h2 h3 p dl div dt dd pre code main noscript section a canvas label select "
    "option table caption thead tbody tr th td span b wbr details summary footer script".split()
)


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.wrong, self.open, self.ids, self.targets = [], [], [], []
        self.tags, self.scripts, self.text, self.rows = set(), [], [], []
        self.feed(text)
        self.close()
        if self.open:
            self.wrong.append(f"never closed: {self.open}")

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        if len({name for name, _ in attributes}) != len(attributes):
            self.wrong.append(f"<{tag}> has an attribute twice: {attributes}")
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)
            if name == "href":
                self.targets.append(value.removeprefix("#"))
            if name == "aria-labelledby":
                self.targets.append(value)
            if name in ("src", "srcset", "style") or name.startswith("on"):
                self.wrong.append(f"<{tag} {name}=…>")
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append("")
        if tag == "script":
            self.scripts.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in VOID or not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}> at {self.getpos()} within {self.open}")

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif self.open and self.open[-1] != "style":
            self.text.append(data)
            if self.rows and self.rows[-1] and {"td", "th"} & set(self.open):
                self.rows[-1][-1] += data


class ReportTest(unittest.TestCase):
    maxDiff = None

    def report(self, graph, *arguments, name="report.html"):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, name)
            command = [PROGRAM, os.path.join(DATA, graph), "--report", path, *arguments]
            environment = dict(os.environ, SOURCE_DATE_EPOCH="1700000000")
            done = subprocess.run(command, capture_output=True, text=True, env=environment)
            self.assertLessEqual(done.returncode, 1, done.stderr)
            with open(path, encoding="utf-8") as file:
                text = file.read()
        page = Page(text)
        self.assertEqual(page.wrong, [])
        self.assertLessEqual(page.tags, TAGS)
        self.assertEqual(len(page.ids), len(set(page.ids)))
        self.assertLessEqual(set(page.targets), set(page.ids))
        self.assertEqual(len(page.scripts), 4)  # the alarm, Chart.js, the data, the page's own
        self.assertNotRegex(text.replace(page.scripts[1], ""), r"https?://|\burl\(|@import|\bfetch\(|XMLHttpRequest")
        self.assertIn("2023-11-14 22:13 UTC", "".join(page.text))
        return page, json.loads(page.scripts[2])

    def agrees(self, page, data):
        """The numbers of each solve in the table, and in the data for its charts."""
        graph = data["graph"]
        operations = len(graph["name"])
        self.assertEqual(len(graph["kind"]), operations)
        self.assertLess(max(graph["name"]), len(graph["names"]))
        nodes = len(graph["nodes"]) // 4
        self.assertEqual(sum(graph["nodes"][3::4]), sum(n >= 0 for n in graph["node"]))
        self.assertLess(max(graph["edges"], default=-1), nodes)
        rows = {}  # by solver and budget
        for row in page.rows:
            for solver in row[0].split(", "):
                if len(row) > 10 and solver in data["solvers"]:
                    rows[solver, row[1] + " (" + row[2] + ")"] = row
        for solve in data["solves"]:
            row = rows[data["solvers"][solve["solver"]], data["budgets"][solve["budget"]]["text"]]
            self.assertEqual(row[3], solve["status"])
            if not solve["memory"]:
                continue
            self.assertEqual(row[10], str(solve["recomputes"]))
            self.assertEqual(row[7], f"{solve['overhead']:.2f} %".replace("-0.00", "0.00"))
            # Short schedules are not thinned out: the points are all runs.
            runs = list(zip(solve["memory"][2::4], solve["memory"][3::4]))
            self.assertEqual(runs.pop(), (-1, 0))
            count = {}
            for operation, run in runs:
                count[operation] = count.get(operation, 0) + 1
                self.assertEqual(run, count[operation])
            again = dict(zip(solve["reruns"][::2], solve["reruns"][1::2]))
            self.assertEqual(again, {o: n for o, n in count.items() if n > 1})
            self.assertEqual(sum(n - 1 for n in again.values()), solve["recomputes"])
            peak = max(solve["memory"][1::4]) * data["byteScale"]
            self.assertAlmostEqual(peak / solve["peak"], 1, delta=1e-5)
            kept = sum(solve["kept"][1::2]) * data["byteScale"]
            self.assertLessEqual(kept, solve["peak"] * (1 + 1e-5))
            if solve["kept"]:
                self.assertIsNotNone(solve["turn"])
                self.assertTrue(all(graph["kind"][o] != "b" for o in solve["kept"][::2]))

    def test_graph(self):
        page, data = self.report(
            "graphs/unet5-b16-256.json", "--budget", "0.9,0.6,1B", "--solver", "evict,auto,no_remat", "--work", "20000", "--seed", "5"
        )
        self.agrees(page, data)
        self.assertEqual(data["solvers"][data["front"]], "auto")
        self.assertEqual(page.ids.count("graph"), 1)
        text = "".join(page.text)
        for word in ("--budget 0.9,0.6,1B", "20000 units of work", "Seed5", "remat 0."):
            self.assertIn(word, text)
        again = self.report(
            "graphs/unet5-b16-256.json", "--budget", "0.9,0.6,1B", "--solver", "evict,auto,no_remat", "--work", "20000", "--seed", "5"
        )[1]
        for one in (data, again):
            for solve in one["solves"]:
                solve.pop("seconds")
        self.assertEqual(data, again)

    def test_names_are_text(self):
        evil = "</script><b id=injected>'\"&.html"
        page, data = self.report(
            "report/nasty-names.json", "--budget", "1.0,0.9,0.7", "--solver", "all", "--work", "2000", name=evil.replace("/", "")
        )
        with open(os.path.join(DATA, "report/nasty-names.json"), encoding="utf-8") as file:
            graph = json.load(file)
        self.assertEqual(set(data["graph"]["names"]), {o["name"] for o in graph["operations"]})
        self.assertEqual(data["name"], graph["name"])
        self.assertNotIn("injected", page.ids)
        self.assertIn(evil.replace("/", "").replace("'", "'\\''"), "".join(page.text))
        self.agrees(page, data)

    def test_chain_and_dual(self):
        page, data = self.report("chains/homog-10.json", "--budget", "1.0,0.5", "--solver", "all", "--work", "2000")
        self.assertIsNone(data["graph"])
        self.assertNotIn("memory", page.ids)
        page, data = self.report("graphs/toy-skip-3.json", "--max-overhead", "0.5", "--solver", "evict", "--work", "2000")
        self.agrees(page, data)

    def test_groups(self):
        page, _ = self.report("graphs/gpt2-small-b8-s1024.json", "--budget", "0.8", "--solver", "chen_sqrt")
        self.assertRegex("".join(page.text), r"blocks\.0: operations \d+ to \d+")
        page, data = self.report("graphs/gpt2-medium-b4-s512.json", "--budget", "0.8", "--solver", "chen_sqrt")
        self.assertLess(len(data["graph"]["nodes"]) // 4, 130)  # drawn by groups
        self.assertTrue(all(re.search(r"operations? \d+", label) for label in data["graph"]["labels"]))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
