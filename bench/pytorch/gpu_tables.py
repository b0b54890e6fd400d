#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Writes the tables of figures from a GPU into docs/cuda.md and docs/pytorch.md, from the files in docs/figures/gpu.

    python3 bench/pytorch/gpu_tables.py            writes both pages
    python3 bench/pytorch/gpu_tables.py --check    exit status 1 if a page differs from the files
    python3 bench/pytorch/gpu_tables.py --print    prints the tables

A table stands between the lines `<!-- gpu_tables: NAME -->` and `<!-- gpu_tables: end -->`. Beside PyTorch there are two
comparisons. *Equal bytes*: both sides take as much memory. *Equal share*: both take the same part of what their own step takes
without rematerialization, since the kernels of the two sides keep different tensors.
"""
import argparse
import csv
import pathlib
import re
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What the files of these runs do not record.
DEVICE = "NVIDIA H200"
PYTORCH = "PyTorch 2.11"
GPT_PRECISION = "single precision with TF32 products"
COMPARE_PRECISION = "single precision, TF32 in convolutions alone"
MEANS = {"checkpoint": "`checkpoint`", "checkpoint_aot": "`checkpoint` in the partitioner", "budget_api": "partitioner, budget {}, run one operation at a time"}


def read(folder, name):
    with open(folder / f"{name}.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def table(head, rows):
    """Markdown: a column whose cells are all numbers is aligned to the right."""
    numbers = [all(re.fullmatch(r"[–≈\d., +%GMiBmsx]*", str(r[i])) for r in rows) for i in range(len(head))]
    lines = [head, ["--:" if n else "---" for n in numbers], *rows]
    return ["| " + " | ".join(str(cell) for cell in line) + " |" for line in lines]


def gib(size, about=False):
    return f"{'≈ ' if about else ''}{float(size) / 2**30:.2f}"


def percent(x):
    return f"{100 * float(x):.1f} %"


def baseline_bytes(rows):
    """(bytes of PyTorch's step without checkpoints, whether they are extrapolated).

    Older files do not record them. There each further block that is checkpointed saves the same bytes, within 0.1 %, so the line
    through the peaks with 1, 2, … of them is continued to none.
    """
    if rows[0].get("baseline_bytes"):
        return float(rows[0]["baseline_bytes"]), False
    peaks = {int(m[1]): float(r["checkpoints_bytes"]) for r in rows if (m := re.fullmatch(r"first (\d+)", r["checkpoints"]))}
    x, y = statistics.mean(peaks), statistics.mean(peaks.values())
    slope = sum((k - x) * (b - y) for k, b in peaks.items()) / sum((k - x) ** 2 for k in peaks)
    return y - slope * x, True


def gpt(folder):
    """Both comparisons of train-gpt-gpu with PyTorch's checkpoints, replayed from CUDA graphs, in TF32."""
    rows = [r for r in read(folder, "checkpoints") if r["mode"] == "graph" and r.get("precision") != "bfloat16"]
    runs = [
        r
        for r in read(folder, "training")
        if r["mode"] == "graph" and r["streams"] == "1" and r["vocabulary"] == "50304" and not r["link_out"] and r.get("precision", "tf32") == "tf32"
    ]
    none = [r for r in runs if r["budget"] == "none"]
    ours_bytes, ours_ms = float(none[0]["arena_bytes"]), statistics.mean(float(r["step_ms"]) for r in none if not r["link_out"])
    theirs_bytes, about = baseline_bytes(rows)
    theirs_ms = statistics.mean(float(rows[0][c]) for c in ("baseline_ms", "baseline_again_ms"))
    planned = {r["budget"]: percent(r["planned_overhead"]) for r in runs}
    head = ["budget", "ours, GiB", "ms", "overhead", "planned", "PyTorch's checkpoints", "GiB", "ms", "overhead"]
    equal = [["–", gib(ours_bytes), f"{ours_ms:.2f}", "", "", "none", gib(theirs_bytes, about), f"{theirs_ms:.2f}", ""]]
    for r in rows:
        equal.append(
            [r["budget"], gib(r["plan_bytes"]), f"{float(r['plan_ms']):.2f}", percent(r["plan_overhead"]), planned[r["budget"]]]
            + [r["checkpoints"], gib(r["checkpoints_bytes"]), f"{float(r['checkpoints_ms']):.2f}", percent(r["checkpoints_overhead"])]
        )
    share = []
    for ours in rows:
        part = float(ours["plan_bytes"]) / ours_bytes
        if part > 0.999:
            continue
        theirs = min(rows, key=lambda r: abs(float(r["checkpoints_bytes"]) / theirs_bytes - part))
        other = float(theirs["checkpoints_bytes"]) / theirs_bytes
        share.append(
            [f"{part:.3f}", gib(ours["plan_bytes"]), f"{float(ours['plan_ms']):.2f}", percent(ours["plan_overhead"])]
            + [theirs["checkpoints"], f"{'≈ ' if about else ''}{other:.3f}", gib(theirs["checkpoints_bytes"])]
            + [f"{float(theirs['checkpoints_ms']):.2f}", percent(theirs["checkpoints_overhead"])]
        )
    extrapolated = " (PyTorch's is the line through its peaks with checkpoints, continued to none: this run did not record it)" if about else ""
    return [
        f"*Equal bytes* ({none[0]['device']}, {GPT_PRECISION}, {PYTORCH}). The first row is each side without rematerialization{extrapolated}:",
        "",
        *table(head, equal),
        "",
        f"*Equal share* of each side's own baseline, the nearest that was measured ({none[0]['device']}, {GPT_PRECISION}, {PYTORCH}):",
        "",
        *table(["share", "ours, GiB", "ms", "overhead", "PyTorch's checkpoints", "share", "GiB", "ms", "overhead"], share),
    ]


def launches(folder):
    rows = {(r["measure"], r["kernel"], int(r["streams"]), r["who"]): r for r in read(folder, "launches")}

    def both(measure, streams):
        return [f"{float(rows[measure, 'empty', streams, who]['median_ns']):.0f}" for who in ("hand-written", "executor")]

    lines = []
    for measure, name in (("eager enqueue", "empty kernels, eager, enqueued"), ("replay end", "empty kernels, replayed, to the end")):
        for streams in (1, 2, 4):
            waits = rows[measure, "empty", streams, "executor"]["waits"]
            lines.append([name if streams == 1 else "", f"{streams}" + (f", with {waits} waits" if streams > 1 else ""), *both(measure, streams)])
    captured, instantiated = both("capture", 1), both("instantiation", 1)
    lines.append(["capture, and instantiation", "1", *(f"{a} + {b}" for a, b in zip(captured, instantiated))])
    samples, count = rows["eager enqueue", "empty", 1, "executor"]["samples"], rows["eager enqueue", "empty", 1, "executor"]["launches"]
    head = ["", "streams", "by hand", "executor"]
    return [f"{DEVICE}, {count} launches, nanoseconds a launch, the median of {samples}:", "", *table(head, lines)]


def graphs(folder):
    rows = read(folder, "graphs")
    at = {(r["size"], r["way"], r["budget"]): r for r in rows}
    lines = []
    for r in rows:
        if r["way"] != "graph":
            continue
        key = (r["size"], "planned", r["budget"])
        lines.append(
            [r["size"], r["budget"], f"{float(at[r['size'], 'eager', '']['ms']):.1f}", f"{float(at[key]['ms']):.1f}", f"{float(r['ms']):.1f}"]
            + [f"{float(r['promised_mib']):,.4g} MiB" if float(r["promised_mib"]) < 1000 else f"{float(r['promised_mib']):,.0f} MiB"]
            + [f"{float(r['pool_mib']):,.0f} MiB"]
        )
    first = rows[0]
    return [
        f"{first['device']}, PyTorch {first['pytorch']}, {first['precision']}, milliseconds of a step:",
        "",
        *table(["GPT-2", "budget", "eager", "planned", "planned, as graphs", "promised", "the graphs' pool"], lines),
    ]


def compare(folder):
    rows = [r for r in read(folder, "compare") if r["size"] == "full"]
    base = {(r["network"], r["rival"]): r for r in rows if r["rival"] in ("baseline", "eager")}

    def of(network, rival):
        r = base[network, "eager" if rival == "checkpoint" else "baseline"]
        return float(r["peak_theirs"]), float(r["seconds_theirs"])

    baselines, lines = [], []
    for network in dict.fromkeys(r["network"] for r in rows):
        (plain, plain_s), (runner, runner_s) = of(network, "checkpoint"), of(network, "ours")
        baselines.append([network, f"{plain / 2**20:,.0f}", f"{plain_s * 1e3:.1f}", f"{runner / 2**20:,.0f}", f"{runner_s * 1e3:.1f}"])
    for r in rows:
        if r["rival"] not in MEANS:
            continue
        theirs, ours = float(r["peak_theirs"]), float(r["peak_ours"])
        lines.append(
            [r["network"], MEANS[r["rival"]].format(r["setting"])]
            + [f"{theirs / 2**20:,.0f}", f"{ours / 2**20:,.0f}"]
            + [f"{theirs / of(r['network'], r['rival'])[0]:.3f}", f"{ours / of(r['network'], 'ours')[0]:.3f}"]
            + [f"{float(r[f'seconds_{who}']) * 1e3:.1f}" for who in ("theirs", "ours")]
            + [percent(r["overhead_theirs"]), percent(r["overhead_ours"]), f"{float(r['ratio']):.2f}"]
        )
    about = f"{DEVICE}, {PYTORCH}, {COMPARE_PRECISION}"
    head = ["network", "PyTorch's means", "MiB", "ours, MiB", "share", "ours, share", "ms", "ours, ms", "overhead", "ours", "ours over theirs"]
    return [
        f"Unplanned steps, the baselines ({about}). That of `checkpoint` is plain PyTorch; that of all others, ours among them, is the runner:",
        "",
        *table(["network", "plain, MiB", "ms", "runner, MiB", "ms"], baselines),
        "",
        f"*Equal bytes* ({about}). *Share*: of the side's own baseline; as the baselines are nearly equal, so are the shares:",
        "",
        *table(head, lines),
    ]


TABLES = {"gpt": ("cuda.md", gpt), "launches": ("cuda.md", launches), "graphs": ("pytorch.md", graphs), "compare": ("pytorch.md", compare)}


def with_tables(text, page, folder):
    for name, (where, make) in TABLES.items():
        if where != page:
            continue
        begin, end = f"<!-- gpu_tables: {name} -->\n", "<!-- gpu_tables: end -->\n"
        if begin not in text:
            raise SystemExit(f"{page} has no line {begin.strip()}")
        before, rest = text.split(begin, 1)
        text = before + begin + "\n" + "\n".join(make(folder)) + "\n\n" + end + rest.split(end, 1)[1]
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figures", type=pathlib.Path, default=ROOT / "docs" / "figures" / "gpu", help="the folder of the CSV files")
    parser.add_argument("--docs", type=pathlib.Path, default=ROOT / "docs", help="the folder of the pages")
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 if a page differs")
    parser.add_argument("--print", action="store_true", help="print the tables, and write nothing")
    a = parser.parse_args()
    if a.print:
        for name, (page, make) in TABLES.items():
            print(f"## {name} ({page})\n\n" + "\n".join(make(a.figures)) + "\n")
        return
    different = []
    for page in dict.fromkeys(page for page, _ in TABLES.values()):
        path = a.docs / page
        old = path.read_text(encoding="utf-8")
        new = with_tables(old, page, a.figures)
        if new == old:
            continue
        different.append(page)
        if not a.check:
            path.write_text(new, encoding="utf-8")
    if a.check and different:
        sys.exit(f"{' and '.join(different)} differ from {a.figures}: run python3 bench/pytorch/gpu_tables.py")
    print("written: " + ", ".join(different) if different else "the pages are as the files say")


if __name__ == "__main__":
    main()
