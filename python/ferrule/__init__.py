# SPDX-License-Identifier: BSD-3-Clause
"""Collectives over RoCEv2 and shared memory, in user space.

    import ferrule

    comm = ferrule.join()                              # the launcher's environment
    comm = ferrule.join("train", rank=0, size=2, timeout=30.0, devices=["local"])
    comm.all_reduce(x)                                 # in place, returns x; op="sum", wire="same"
    y = comm.all_gather(x)                             # a new array; out= reuses one
    comm.reduce_scatter(x, out=y, op="avg")            # broadcast, reduce, all_to_all, gather, ...
    r = comm.all_reduce(x, async_op=True)
    r.test()
    r.wait(timeout=5)
    with comm.split(color, key=0) as part:
        part.barrier()
    a = ferrule.empty((1024, 1024), "float32")         # memory that peers read in place
    objs = comm.all_gather_object(obj)                 # by pickle: only between trusted ranks

`ferrule.join` says how ranks find each other, and `ferrule.Communicator` what operations accept.
"""

from . import _lib
from .communicator import Communicator, Group
from .devices import Device
from .errors import AbortedError, Error, MismatchError, PeerLostError, TimeoutError
from .jobs import join, unique_id
from .memory import empty
from .requests import Request

__all__ = [
    "AbortedError",
    "Communicator",
    "Device",
    "Error",
    "Group",
    "MismatchError",
    "PeerLostError",
    "Request",
    "TimeoutError",
    "empty",
    "join",
    "unique_id",
]


def _version() -> str:
    number: int = _lib.version()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


__version__ = _version()
