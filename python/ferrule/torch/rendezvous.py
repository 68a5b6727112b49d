# SPDX-License-Identifier: BSD-3-Clause
"""How the ranks of a group agree on a job, through the store that PyTorch passes."""

import os
import time
from typing import Any, Iterator

from .. import jobs

_PAUSE_MAX_S = 0.05


def agree_on_job(store: Any, name: str, rank: int, size: int, timeout: float) -> bytes:
    """Returns the unique id of a job, which rank 0 creates. All ranks of a group call this.

    The store may have the keys of ranks that have ended: torchrun starts ranks again with the store
    of the last try (PyTorch 2.4 and newer). Each rank therefore adds a number of its own to an id
    that it reads, and rank 0 confirms the number. Raises TimeoutError if a rank does not come.

    Nothing blocks in the store. A blocking call would keep all threads from it, and one that times
    out spoils the connection (PyTorch 1.13). add(key, 0) reads a number, which is 0 at first.
    """
    if rank == 0:
        unique_id = jobs.unique_id()
        text = unique_id.decode()
        store.set(name, text)
        store.add(f"{name}/set", 1)
        tries = _tries("the ranks did not meet", timeout)
        for other in range(1, size):
            while not (number := store.add(f"{name}/{text}/{other}", 0)):
                next(tries)
            store.add(f"{name}/{text}/{other}/{number}", 1)
        return unique_id
    mine = int.from_bytes(os.urandom(5), "little") + 1
    answered = text = ""
    tries = _tries(f"rank {rank} did not meet rank 0", timeout)
    while not answered or not store.add(f"{name}/{text}/{rank}/{mine}", 0):
        if store.add(f"{name}/set", 0):
            text = store.get(name).decode()
            if text != answered:  # the first one may be that of the last try
                store.add(f"{name}/{text}/{rank}", mine)
                answered = text
                continue
        next(tries)
    return text.encode()


def _tries(what: str, timeout: float) -> Iterator[None]:
    """Sleeps between tries, and raises TimeoutError after the last one."""
    deadline = time.monotonic() + timeout
    pause = 0.001
    while time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(2 * pause, _PAUSE_MAX_S)
        yield
    raise TimeoutError(
        f"{what} within {timeout:g} s: start all ranks, or raise the timeout of "
        "init_process_group()"
    )
