#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures sums of NumPy arrays that begin at different offsets within a page.

Prints the median time of each offset and its ratio to that of offset 64. NumPy's large arrays begin
at offset 16. Exit status 1: a ratio is larger than 1.3. Needs an idle machine with two processors.
"""

import statistics
import sys
import time
from typing import Any, Dict, List

import ranks
import numpy as np

SIZES = [64 << 10, 256 << 10, 1 << 20]
OFFSETS = [64, 0, 8, 16, 32, 4080]
ROUNDS = 21
MOST = 1.3


def at_offset(size: int, offset: int) -> Any:
    """Returns a float32 array of `size` bytes that begins at an offset within a page."""
    memory = np.zeros(size + 2 * 4096, np.uint8)
    start = (offset - memory.ctypes.data) % 4096
    return memory[start : start + size].view(np.float32)


def measure(comm: Any) -> Dict[int, List[float]]:
    """Returns the median microseconds of each size, for each offset."""
    medians = {}
    for size in SIZES:
        arrays = [at_offset(size, offset) for offset in OFFSETS]
        times: List[List[float]] = [[] for _ in OFFSETS]
        for _ in range(ROUNDS):  # the offsets take turns, since the machine's speed changes
            for array, found in zip(arrays, times):
                comm.barrier()
                begin = time.perf_counter()
                for _ in range(20):
                    comm.all_reduce(array)
                found.append((time.perf_counter() - begin) / 20 * 1e6)
        medians[size] = [statistics.median(found) for found in times]
    return medians


def main() -> int:
    both = ranks.Ranks()
    try:
        for rank in range(2):
            both.add(measure, (), job=f"offsets-{ranks.os.getpid()}", rank=rank, size=2)
        medians = both.result(0)
        both.result(1)
    finally:
        both.end()
    print("bytes    " + "".join(f"{offset:>16}" for offset in OFFSETS))
    worst = 0.0
    for size, times in medians.items():
        ratios = [found / times[0] for found in times]
        worst = max(worst, *ratios)
        cells = [f"{found:8.1f} us {ratio:4.2f}" for found, ratio in zip(times, ratios)]
        print(f"{size:<9}" + "".join(f"{cell:>16}" for cell in cells))
    print(f"largest ratio {worst:.2f}, at most {MOST} wanted")
    return int(worst > MOST)


if __name__ == "__main__":
    sys.exit(main())
