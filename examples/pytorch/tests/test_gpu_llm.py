# SPDX-License-Identifier: BSL-1.0
"""bench/pytorch/gpu_llm.py, on a CPU and narrow networks: each way has its row, ours the bytes of the way beside it."""
import csv
import os
import sys

import pytest
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), *[os.pardir] * 3, "bench", "pytorch"))
import gpu_llm  # noqa: E402

SMALL = ["--device", "cpu", "--small", "--steps", "1", "--seconds", "0.2"]


def rows_of(tmp_path, *arguments):
    path = tmp_path / "rows.csv"
    status = gpu_llm.main([*SMALL, "--csv", str(path), *arguments])
    with open(path, newline="") as file:
        return status, list(csv.DictReader(file))


def test_each_way_has_a_row_and_ours_its_bytes(tmp_path):
    status, rows = rows_of(tmp_path, "--ways", "eager,checkpoint,selective", "--peak-flops", "1e12")
    assert status == 0
    assert [r["note"] for r in rows if r["note"]] == []
    both = [n for n in ("gpt2", "llama_blocks") for _ in range(6)]
    assert [r["network"] for r in rows] == both
    assert [r["way"] for r in rows] == ["eager", "ours", "checkpoint", "ours", "selective", "ours"] * 2
    peak = {}
    for r in rows:
        assert float(r["ms"]) > 0 and float(r["wait_ms"]) > 0 and 0 < float(r["flop_share"]) < 1
        assert r["precision"] == "bf16 autocast" and r["device"] == "cpu" and r["pytorch"] == torch.__version__ and r["steps"] == "1"
        if r["way"] != "ours":
            peak[r["network"], r["way"]] = int(r["requested"])
            continue
        assert int(r["budget"]) == peak[r["network"], r["beside"]]
        assert int(r["requested"]) <= int(r["promised"]) <= int(r["budget"])
        assert float(r["predicted"]) >= 0 and r["baseline"] == "ours"
    for network in ("gpt2", "llama_blocks"):
        assert peak[network, "checkpoint"] < peak[network, "selective"] < peak[network, "eager"]


def test_a_way_that_fails_is_a_row_with_a_note_and_the_others_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_llm.Bench, "checkpoint", lambda self: 1 / 0)
    status, rows = rows_of(tmp_path, "--ways", "eager,checkpoint", "--networks", "llama_blocks", "--ours", "")
    assert status == 0
    assert [r["way"] for r in rows] == ["eager", "checkpoint"]
    assert rows[1]["note"] == "ZeroDivisionError: division by zero" and not rows[1]["ms"] and not rows[0]["note"]


def test_no_row_is_begun_when_the_minutes_are_over(tmp_path):
    status, rows = rows_of(tmp_path, "--ways", "eager", "--networks", "gpt2", "--minutes", "0")
    assert status == 1
    assert [r["note"] for r in rows] == ["not measured: the minutes are over"]


@pytest.mark.compile
def test_the_compiler_within_a_budget(tmp_path):
    status, rows = rows_of(tmp_path, "--ways", "compile", "--networks", "llama_blocks", "--ours", "")
    assert status == 0
    assert [(r["way"], r["note"]) for r in rows] == [("compile", ""), ("compile 0.5", "")]
    assert int(rows[1]["requested"]) <= int(rows[0]["requested"])
