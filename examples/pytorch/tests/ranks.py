# SPDX-License-Identifier: BSL-1.0
"""Ranks of torch.distributed: one in this process, or each in one of its own."""
import contextlib
import pathlib

import torch
import torch.distributed
import torch.multiprocessing


@contextlib.contextmanager
def group(folder, rank=0, ranks=1):
    """While entered, this process is a rank of a group of gloo, whose ranks meet in `folder`."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def on_ranks(function, folder, *arguments, ranks=2):
    """Calls `function(rank, folder, *arguments)` on one thread in a process for each rank. All must come to its end."""
    torch.multiprocessing.spawn(_run, args=(function, str(folder), *arguments), nprocs=ranks)
    assert all((folder / f"done-{rank}").exists() for rank in range(ranks))


def on_group(function, folder, ranks=2):
    """Calls `function(rank)` so on each rank of a group."""
    on_ranks(_run_in_group, folder, function, ranks, ranks=ranks)


def _run(rank, function, folder, *arguments):
    torch.set_num_threads(1)
    function(rank, folder, *arguments)
    (pathlib.Path(folder) / f"done-{rank}").touch()


def _run_in_group(rank, folder, function, ranks):
    with group(folder, rank, ranks):
        function(rank)
