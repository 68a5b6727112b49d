# SPDX-License-Identifier: BSD-3-Clause
"""The process group: its communicators, and how it begins and ends."""

import atexit
import threading
import weakref
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Dict, List, Optional, Sequence, Set, Union

import torch
from torch._C import _distributed_c10d as c10d

from .. import jobs
from ..communicator import Communicator
from ..devices import Device
from ..operations import wire_code
from .call import Call
from .operations import Operations
from .rendezvous import agree_on_job
from .work import Batch, BatchedWork, Work, await_callbacks, end_callbacks, level

# Earlier versions drop Work objects of Python that C++ code still uses: 1.13 those of all
# operations, 2.6 those of functional collectives.
_KEEPS_WORK = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 10)
# They are kept until somebody has waited for them, and the newest ones in any case.
_KEPT_MIN = 1000
# Communicators of a group: of the application, of its callbacks, and of callbacks that they add.
_LEVELS = 3
# The library's limit: 23 days.
_TIMEOUT_MAX_S = 2_000_000.0

# Communicators that requests or groups hold.
_open: "weakref.WeakSet[Communicator]" = weakref.WeakSet()


@dataclass
class Options:
    """Options of a process group, for `pg_options`. They are the same on all ranks.

    `devices` and `algos`: as for `ferrule.join()`. `wire`: how float32 is sent by reductions, as
    for `ferrule.Communicator`. `timeout`: replaces the timeout of init_process_group(), after which
    an operation without progress fails.
    """

    devices: Optional[Sequence[Union[str, Device]]] = None
    timeout: Optional[timedelta] = None
    algos: Optional[str] = None
    wire: str = "same"


def _communicators(
    store: Any, rank: int, size: int, timeout: float, options: Options
) -> List[Communicator]:
    """Returns the communicators of a group, by level of callbacks."""
    limit = min(timeout, _TIMEOUT_MAX_S)
    first = jobs.join(
        unique_id=agree_on_job(store, "ferrule", rank, size, limit),
        rank=rank,
        size=size,
        timeout=limit,
        operation_timeout=limit,
        devices=options.devices,
        algos=options.algos,
    )
    try:
        made = [first] + [first.duplicate() for _ in range(1, _LEVELS)]
    except BaseException:
        first.close()
        raise
    _open.update(made)
    return made


class ProcessGroup(Operations, c10d.ProcessGroup):
    """A group of torch.distributed. Operations of the application use its first communicator."""

    def __init__(self, store: Any, rank: int, size: int, timeout: float, options: Options) -> None:
        """All ranks of the group call this. Raises the errors of `ferrule.join()`."""
        base: Any = c10d.ProcessGroup  # PyTorch declares no arguments
        base.__init__(self, rank, size)
        self._rank = rank
        self._size = size
        self._wire = options.wire
        self._communicators = _communicators(store, rank, size, timeout, options)
        self._running: Set[Any] = set()
        self._kept: Optional[Dict[Any, None]] = None if _KEEPS_WORK else {}
        self._batches = threading.local()
        self._name = ""
        self._description = ""

    def _submit(self, call: Call) -> Any:
        batch: Optional[Batch] = getattr(self._batches, "batch", None)
        if batch is not None:
            part = BatchedWork(call.outputs)
            batch.calls.append((call, part))
            return part
        depth = level()
        if depth >= _LEVELS:
            raise RuntimeError(
                f"{call.what}: callbacks added by callbacks of callbacks cannot start operations: "
                "start it in one of those callbacks, and wait for it there"
            )
        request = self._communicators[depth]._submit(call.operation, True)
        if self._kept is not None and len(self._kept) >= 2 * _KEPT_MIN:
            for work in list(self._kept)[:_KEPT_MIN]:
                work.is_completed()  # which drops it
        return Work(request, call.outputs, self._running, self._kept)

    def _start_coalescing(self, device: Any = None) -> None:
        self._batches.batch = Batch()

    def _end_coalescing(self, requests: Any = None) -> Any:
        """Starts what came since _start_coalescing(). Returns its Work, or None.

        Raises ValueError if one of the operations was refused.
        """
        batch, self._batches.batch = getattr(self._batches, "batch", None), None
        if batch is None:
            raise ValueError("no operations are being coalesced: one of them was refused")
        whole = Call("coalesced", [])
        for call, _ in batch.calls:
            whole.operation.parts += call.operation.parts
            whole.operation.arrays += call.operation.arrays
            whole.operation.finals += call.operation.finals
            whole.outputs += call.outputs
        if not batch.calls:
            return None
        work = self._submit(whole)
        for _, part in batch.calls:
            part.work = work
        return work

    start_coalescing = _start_coalescing
    end_coalescing = _end_coalescing

    def abort(self, reason: str = "the process group was aborted") -> None:
        """Fails all operations on all ranks with AbortedError. Never blocks; any thread."""
        for communicator in self._communicators:
            communicator.abort(reason)

    def shutdown(self) -> None:
        """Closes the group. Idempotent. Operations that have not completed are discarded.

        Waits for callbacks of the group's futures that have begun, unless a callback calls it.
        """
        for communicator in self._communicators:
            communicator._state.why_closed = "the process group is destroyed"
        self._communicators[0].close()  # and what was split from it
        await_callbacks(self._running)
        if self._kept is not None:
            self._kept.clear()

    def set_timeout(self, timeout: Any) -> None:
        """Raises NotImplementedError."""
        raise NotImplementedError("the timeout of a group cannot be changed: make another group")

    def _set_sequence_number_for_group(self) -> None:
        """Nothing to do: operations are numbered by the library."""

    def name(self) -> str:
        return "ferrule"

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    # Called by PyTorch's C++ code from 2.1 on.
    def getBackendName(self) -> str:
        return "ferrule"

    def getRank(self) -> int:
        return self._rank

    def getSize(self) -> int:
        return self._size

    # The group is its own backend, for all devices. PyTorch asks backends for these.
    supports_splitting = False
    supports_time_estimate = _supports_time_estimate = False

    def supports_tensor_alloc(self, device: Any) -> bool:
        return False

    def _get_backend(self, device: Any) -> "ProcessGroup":
        return self

    @property
    def _device_types(self) -> List[Any]:
        # PyTorch 2.15 attaches a recorder to a new group that has devices. That fails for groups of
        # Python.
        distributed: Any = torch.distributed.distributed_c10d  # PyTorch 1.13 has no _world
        is_new = self not in distributed._world.pg_map
        return [] if is_new else [torch.device("cpu")]

    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupName(self) -> str:
        return self._name

    def setGroupDesc(self, description: str) -> None:
        self._description = description

    def getGroupDesc(self) -> str:
        return self._description


def create(backend: Any, options: Any) -> ProcessGroup:
    """Makes a group; torch.distributed calls it."""
    chosen = options if isinstance(options, Options) else Options()
    if options is not None and not isinstance(options, Options):
        raise ValueError("pg_options of the backend ferrule is a ferrule.torch.Options")
    wire_code(chosen.wire)
    timeout = chosen.timeout or backend.timeout
    return ProcessGroup(
        backend.store, backend.group_rank, backend.group_size, timeout.total_seconds(), chosen
    )


def _end_all() -> None:
    """At the interpreter's end: callbacks wait for no operation of other ranks."""
    for communicator in list(_open):
        communicator._finalizer()
    end_callbacks()


atexit.register(_end_all)
