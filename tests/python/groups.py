#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes and ends communicators, and process groups if there is PyTorch: groups.py [NUMBER].

Descriptors, mappings and threads of each rank must stay the same. The default number is 30; a
thousand takes minutes.
"""

import gc
import os
import sys
import unittest
from typing import Any, Callable, Dict

import ranks
import numpy as np

try:
    import torch
    import torch.distributed as dist
except ImportError:
    torch = None  # type: ignore[assignment]  # without it communicators are tried alone

import ferrule

WARM_UP = 5


def counted() -> Dict[str, int]:
    """Returns what the process has."""
    gc.collect()
    with open("/proc/self/maps", encoding="utf-8") as maps:
        shared = sum(" rw-s " in line for line in maps)
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "shared mappings": shared,
        "threads": len(os.listdir("/proc/self/task")),
    }


def settled(wanted: Dict[str, int], agree: Callable[[bool], bool]) -> Dict[str, int]:
    """Returns the counts when they are at most those wanted on all ranks, or after the limit.

    The resources of a communicator end when the other ranks have ended it, and with progress of
    its relatives: agree(fits) makes some, and returns whether all ranks fit.
    """
    end = ranks.time.monotonic() + ranks.LIMIT / 4
    while True:
        found = counted()
        fits = all(found[name] <= wanted[name] for name in wanted)
        if agree(fits or ranks.time.monotonic() > end):
            return found
        ranks.time.sleep(0.01)


def compare(what: str, number: int, one: Any, agree: Callable[[bool], bool]) -> None:
    """Calls one(i) `number` times. Raises AssertionError if something is left over."""
    for i in range(WARM_UP):
        one(i)
    agree(True)  # its communicator has memory from the first time on
    before = counted()
    for i in range(WARM_UP, WARM_UP + number):
        one(i)
    after = settled(before, agree)
    assert all(after[name] <= before[name] for name in before), (what, before, after)


def communicators(job: str, rank: int, number: int) -> None:
    with ferrule.join(job, rank, 2, timeout=ranks.LIMIT) as whole:

        def split(_: int) -> None:
            with whole.split(0) as part:
                part.all_reduce(ferrule.empty(1000), async_op=True).future().result()

        compare("split", number, split, lambda fits: all(whole.all_gather_object(fits)))

    def join(i: int) -> None:
        with ferrule.join(f"{job}-{i}", rank, 2, timeout=ranks.LIMIT) as comm:
            comm.all_reduce(np.ones(10))

    compare("join", number, join, lambda fits: fits)


def process_groups(store: str, rank: int, number: int) -> None:
    import ferrule.torch  # noqa: F401 (registers the backend)

    torch.set_num_threads(1)
    dist.init_process_group("ferrule", init_method=f"file://{store}", rank=rank, world_size=2)

    def new_group(i: int) -> None:
        group = dist.new_group([0, 1])
        work = dist.all_reduce(torch.ones(10), group=group, async_op=True)
        if i % 2:
            work.wait()
        else:
            work.get_future().then(lambda _: dist.barrier(group)).wait()
        dist.destroy_process_group(group)

    def agree(fits: bool) -> bool:
        flag = torch.tensor([fits])
        dist.all_reduce(flag, dist.ReduceOp.MIN)
        return bool(flag.item())

    compare("new_group", number, new_group, agree)
    dist.destroy_process_group()


class Groups(unittest.TestCase):
    number = 30

    def _run(self, function: Any, name: str) -> None:
        both = ranks.Ranks()
        try:
            for rank in range(2):
                both.add(function, (name, rank, self.number))
            for rank in range(2):
                both.result(rank, limit=ranks.LIMIT + self.number)
        finally:
            both.end()

    def test_communicators(self) -> None:
        self._run(communicators, ranks.new_job(self))

    @unittest.skipIf(torch is None, "there is no torch for this Python (Debian: python3-torch)")
    def test_process_groups(self) -> None:
        self._run(process_groups, os.path.join(ranks.RUNTIME, ranks.new_job(self)))


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1].isdigit():
        Groups.number = int(sys.argv.pop(1))
    unittest.main()
