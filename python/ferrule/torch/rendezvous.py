# SPDX-License-Identifier: BSD-3-Clause
"""How the ranks of a group agree on a job, through the store that PyTorch passes."""

import os
import time
from datetime import timedelta
from typing import Any

from .. import jobs

# How long a rank believes an id that nobody confirms.
_PATIENCE = timedelta(milliseconds=100)


def agree_on_job(store: Any, name: str, rank: int, size: int, timeout: float) -> bytes:
    """Returns the unique id of a job, which rank 0 creates. All ranks of a group call this.

    The store may have the keys of ranks that have ended: torchrun starts ranks again with the store
    of the last try (PyTorch 2.4 and newer). Each rank therefore adds a word of its own to an id
    that it reads, and rank 0 confirms the word. Raises TimeoutError if rank 0 does not.
    """
    if rank == 0:
        unique_id = jobs.unique_id()
        text = unique_id.decode()
        store.set(name, text)
        for other in range(1, size):
            word = store.get(f"{name}/{text}/{other}").decode()
            store.set(f"{name}/{text}/{other}/{word}", "confirmed")
        return unique_id
    word = os.urandom(8).hex()
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        text = store.get(name).decode()
        store.set(f"{name}/{text}/{rank}", word)
        try:
            store.wait([f"{name}/{text}/{rank}/{word}"], _PATIENCE)
            return bytes(text, "ascii")
        except RuntimeError:  # it took longer: the id may be that of the last try
            continue
    raise TimeoutError(
        f"rank {rank} did not meet rank 0 within {timeout:g} s: start all ranks, or raise the "
        "timeout of init_process_group()"
    )
