#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Sums a NumPy array over all ranks.

    FRL_JOB=sum FRL_RANKS=2 FRL_RANK=0 python3 sum.py &
    FRL_JOB=sum FRL_RANKS=2 FRL_RANK=1 python3 sum.py

Prints: rank 0 of 2: 2.0
        rank 1 of 2: 2.0
"""
import numpy as np

import ferrule

comm = ferrule.join()  # rank and job come from the launcher
x = np.ones(1_000_000, np.float32)
comm.all_reduce(x)  # in place
print(f"rank {comm.rank} of {comm.size}: {x[0]}")
