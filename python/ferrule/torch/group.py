# SPDX-License-Identifier: BSD-3-Clause
"""The process group: its communicators, and how it begins and ends."""

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
from .call import Call
from .operations import Operations
from .rendezvous import agree_on_job
from .work import Batch, BatchedWork, Callbacks, Work, level

# PyTorch 1.13 and 2.0 drop Work objects of Python that C++ code still uses.
_KEEPS_WORK = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 1)
_KEPT_MAX = 1000


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


class _Communicators:
    """The communicators of a group, one for each level of callbacks, made when needed."""

    def __init__(self, store: Any, rank: int, size: int, timeout: float, options: Options) -> None:
        self._store = store
        self._rank = rank
        self._size = size
        self._timeout = timeout
        self._options = options
        self._lock = threading.Lock()
        self._made: Dict[int, Communicator] = {}
        self._is_closed = False

    def get(self, depth: int) -> Communicator:
        """Returns the communicator of a level. All ranks must ask for a new one."""
        found = self._made.get(depth)
        if found is not None:
            return found
        with self._lock:
            found = self._made.get(depth)
            if found is None:
                if self._is_closed:
                    raise ValueError("the process group is destroyed")
                found = self._made[depth] = self._join(depth)
            return found

    def _join(self, depth: int) -> Communicator:
        return jobs.join(
            unique_id=agree_on_job(
                self._store, f"ferrule-{depth}", self._rank, self._size, self._timeout
            ),
            rank=self._rank,
            size=self._size,
            timeout=self._timeout,
            operation_timeout=self._timeout,
            devices=self._options.devices,
            algos=self._options.algos,
        )

    def end(self, reason: Optional[str]) -> None:
        """Closes all, the last one first. With a reason, only aborts them."""
        if reason is not None:
            for made in list(self._made.values()):
                made.abort(reason)
            return
        with self._lock:
            self._is_closed = True
            made_here, self._made = self._made, {}
        for depth in sorted(made_here, reverse=True):
            made_here[depth].close()


class ProcessGroup(Operations, c10d.ProcessGroup):
    """A group of torch.distributed. Operations of the application use its first communicator."""

    def __init__(self, store: Any, rank: int, size: int, timeout: float, options: Options) -> None:
        """All ranks of the group call this. Raises the errors of `ferrule.join()`."""
        base: Any = c10d.ProcessGroup  # PyTorch declares no arguments
        base.__init__(self, rank, size)
        self._rank = rank
        self._size = size
        self._wire = options.wire
        self._communicators = _Communicators(store, rank, size, timeout, options)
        self._communicators.get(0)
        self._callbacks = Callbacks()
        self._kept: Optional[Set[Any]] = None if _KEEPS_WORK else set()
        self._batches = threading.local()
        self._name = ""
        self._description = ""
        # The communicators close themselves.
        weakref.finalize(self, self._callbacks.close).atexit = False

    def _submit(self, call: Call) -> Any:
        batch: Optional[Batch] = getattr(self._batches, "batch", None)
        if batch is not None:
            part = BatchedWork(call.outputs)
            batch.calls.append((call, part))
            return part
        communicator = self._communicators.get(level())
        request = communicator._submit(call.operation, True)
        if self._kept is not None and len(self._kept) > _KEPT_MAX:
            for work in list(self._kept):
                if work.is_completed():
                    self._kept.discard(work)
        return Work(request, call.outputs, self._callbacks, self._kept)

    def _start_coalescing(self, device: Any = None) -> None:
        self._batches.batch = Batch()

    def _end_coalescing(self, requests: Any = None) -> Any:
        """Starts what came since _start_coalescing(). Returns its Work, or None."""
        batch, self._batches.batch = self._batches.batch, None
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
        self._communicators.end(reason)

    def shutdown(self) -> None:
        """Closes the group. Idempotent. Operations that have not completed are discarded."""
        self._callbacks.close()
        self._communicators.end(None)
        if self._kept is not None:
            self._kept.clear()

    def set_timeout(self, timeout: Any) -> None:
        """The timeout is that of the beginning."""
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
    timeout = chosen.timeout or backend.timeout
    return ProcessGroup(
        backend.store, backend.group_rank, backend.group_size, timeout.total_seconds(), chosen
    )
