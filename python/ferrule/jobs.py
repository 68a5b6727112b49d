# SPDX-License-Identifier: BSD-3-Clause
"""Joining a job: how ranks find each other."""

import ctypes
import os
from typing import Any, Callable, List, Optional, Sequence, Union

from . import _lib, errors
from .communicator import Communicator
from .devices import Device, Lease
from .interrupts import interruptible
from .requests import milliseconds
from .state import State


def unique_id() -> bytes:
    """Returns an id of a new job. One process makes it and passes it on to all ranks.

    They call `join(unique_id=..., rank=..., size=...)`, once each. Raises ferrule.Error if there is
    no control daemon.
    """
    made = _lib.UniqueId()
    code = _lib.unique_id_create(made)
    if code != 0:
        raise errors.last(code)
    return bytes(made.text)


def join(
    job: Optional[str] = None,
    rank: Optional[int] = None,
    size: Optional[int] = None,
    *,
    unique_id: Optional[bytes] = None,
    timeout: Optional[float] = 60.0,
    operation_timeout: Optional[float] = None,
    devices: Union[None, str, Device, Sequence[Union[str, Device]]] = None,
    algos: Optional[str] = None,
    progress: str = "thread",
) -> Communicator:
    """Joins a job, and returns the communicator of its ranks. All ranks call this.

    Without arguments the launcher says which rank of which job this process is: torchrun, mpirun,
    srun, or `FRL_RANK`, `FRL_RANKS` and `FRL_JOB`. Otherwise `rank` and `size` are needed, with the
    name of the job ("NAME", or "NAME@HOST" to meet at the control daemon of HOST), or with an id of
    `unique_id()`.

    `timeout`: seconds to wait for the daemons and for the other ranks. None: no limit for the
    ranks, and 60 s for the daemons.
    `operation_timeout`: an operation without progress for this many seconds fails with
    TimeoutError, which names the awaited ranks. Default: `FRL_COLL_TIMEOUT_S`, or no limit.
    `devices`: the port to use, or several: "local", "fabric:NAME", "packet:eth0=10.1.1.1/24",
    "verbs", or a `ferrule.Device`. All ranks have the same number. Default: `FRL_FABRIC`, or the
    local fabric.
    `algos`: as `FRL_ALGO`, the same on all ranks.
    `progress`: "thread", or "inline": operations then progress in calls only, and only one thread
    at a time uses the communicator.

    Raises TimeoutError, PeerLostError (a rank has exited), MismatchError (other settings, or
    another version), ValueError, MemoryError or ferrule.Error. Ctrl-C interrupts the wait.
    """
    if progress not in ("thread", "inline"):
        raise ValueError(f'progress={progress!r} is neither "thread" nor "inline"')
    enter, name = _choose(job, rank, size, unique_id, milliseconds(timeout))
    operation_ms = None if operation_timeout is None else milliseconds(operation_timeout)

    def create() -> State:
        lease = Lease(devices)
        try:
            bootstrap = _lib.Bootstrap()
            code = enter(bootstrap)
            if code != 0:
                raise errors.last(code)
        except BaseException:
            lease.close()
            raise
        return _create(lease, bootstrap, name, milliseconds(timeout), operation_ms, algos, progress)

    return Communicator(interruptible(create, State.close))


def _choose(
    job: Optional[str],
    rank: Optional[int],
    size: Optional[int],
    unique_id: Optional[bytes],
    timeout_ms: int,
) -> "tuple[Callable[[_lib.Bootstrap], int], str]":
    """Returns the function that fills in a bootstrap, and a name for messages."""
    # The daemons are waited for with a limit in any case.
    limit_ms = timeout_ms if timeout_ms >= 0 else 60000
    if job is None and unique_id is None:
        if rank is not None or size is not None:
            raise ValueError("rank= and size= need the name of the job, or unique_id=")
        name = os.environ.get("FRL_JOB", "") or "of the environment"
        return lambda bootstrap: _lib.bootstrap_from_environment(limit_ms, bootstrap), name
    if rank is None or size is None:
        raise ValueError("a job by name or unique_id= needs rank= and size=")
    if job is not None and unique_id is not None:
        raise ValueError("a job is given by name or by unique_id=, not by both")
    number, ranks = int(rank), int(size)
    if unique_id is not None:
        if len(unique_id) >= ctypes.sizeof(_lib.UniqueId):
            raise ValueError(f"unique_id= has {len(unique_id)} bytes, which is too long")
        made = _lib.UniqueId(text=unique_id)
        return (
            lambda bootstrap: _lib.bootstrap_from_unique_id(
                made, number, ranks, limit_ms, bootstrap
            ),
            "by id",
        )
    text = str(job)
    return (
        lambda bootstrap: _lib.bootstrap_join(text.encode(), number, ranks, limit_ms, bootstrap),
        text,
    )


def _create(
    lease: Lease,
    bootstrap: _lib.Bootstrap,
    name: str,
    timeout_ms: int,
    operation_ms: Optional[int],
    algos: Optional[str],
    progress: str,
) -> State:
    """Creates the communicator. It owns the lease and the bootstrap, also after a failure."""
    text: Any = None if algos is None else ctypes.create_string_buffer(algos.encode())

    closed: List[Any] = []

    def release() -> None:
        if not closed:
            # As in Operation.poll(): whether the call was made is always known.
            closed.extend(map(bootstrap.close, (bootstrap.ctx,)))
        lease.close()
        _ = text  # keeps it: the library reads it until then

    try:
        _lib.bootstrap_set_timeout(bootstrap, timeout_ms)
        config = _lib.CommConfig()
        _lib.comm_config_init(config)
        handles = (ctypes.c_void_p * len(lease.handles))(*lease.handles)
        config.devices = ctypes.cast(handles, ctypes.POINTER(ctypes.c_void_p))
        config.n_devices = len(lease.handles)
        if operation_ms is not None:
            config.timeout_ms = operation_ms
        if text is not None:
            config.algos = ctypes.cast(text, ctypes.c_char_p)
        config.progress = _lib.PROGRESS[progress]
        handle = ctypes.c_void_p()
        code = _lib.comm_create_with(bootstrap, config, handle)
        if code != 0:
            raise errors.last(code)
    except BaseException:
        release()
        raise
    return State(handle.value or 0, name, progress == "thread", release=release)
