# SPDX-License-Identifier: BSD-3-Clause
"""Communicators: their operations, their parts, and their end."""

import ctypes
import weakref
from types import TracebackType
from typing import Any, Optional, Type, Union

from . import _lib, errors
from .interrupts import interruptible
from .objects import Objects
from .reductions import Reductions
from .requests import Operation, Request
from .state import State, close_forgotten
from .transfers import Transfers


class Communicator(Objects):
    """The ranks of a job, and the operations among them. `ferrule.join()` makes one.

    All ranks start the same operations in the same order, with the same number of elements, type
    and other arguments. Names are those of torch.distributed.

    Arrays: NumPy arrays, tensors, and whatever has the buffer protocol, `__array_interface__`,
    `__cuda_array_interface__` or DLPack. They are used in place and never copied. An array that is
    not C-contiguous, a read-only output, another type or size raises ValueError before anything is
    sent. An array that is in use must be neither changed nor read.

    `async_op=True` returns a Request, which holds the arrays until it has completed.

    `wire`: how float32 is sent: "same", "float16", "bfloat16" or "int8" (results are approximate).
    `stream`: a CUDA stream, as a number. The operation begins after the work launched into it
    before. Default: the stream that the array names, or the default stream.

    Errors: ValueError (arguments), TypeError (no array), MemoryError, NotImplementedError, and
    ferrule.Error with its classes MismatchError, TimeoutError, PeerLostError and AbortedError.
    After a ferrule.Error the communicator can only be closed.

    Threads: any thread may use a communicator with progress="thread" (the default) at any time.
    Threads that start operations must agree on an order that is the same on all ranks. Ctrl-C
    interrupts a wait; the operation goes on, and its arrays stay in use. A signal handler may call
    close(), abort() and Request.wait() at any time.

    A forked child cannot use the communicators of its parent.
    """

    def __init__(self, state: State, parent: Optional["Communicator"] = None) -> None:
        """For join() and split() only. The parent stays open as long as its parts."""
        self._parent = parent
        self._state = state
        self.rank = state.rank
        self.size = state.size
        self._finalizer = weakref.finalize(self, close_forgotten, state)

    def __repr__(self) -> str:
        closed = ", closed" if self.closed else ""
        return f"<ferrule.Communicator {self.name} rank {self.rank} of {self.size}{closed}>"

    @property
    def name(self) -> str:
        """Name of the job, with the color of each split."""
        return self._state.name

    @property
    def closed(self) -> bool:
        """Whether the communicator was closed."""
        return self._state.is_closed

    def _submit(self, operation: Operation, async_op: bool) -> Any:
        if not async_op:
            return self._state.run(operation)
        self._state.start(operation)
        request: Request[Any] = Request(self._state, operation, self)
        return request

    def group(self) -> "Group":
        """Returns a group, which starts several operations as one request: sends and receives.

            with comm.group() as group:
                group.send(x, right)
                group.recv(y, left)
        """
        return Group(self)

    def explain(self, operation: str, *arguments: Any, **options: Any) -> str:
        """Returns why an algorithm is chosen: explain("all_reduce", x). Sends nothing.

        Raises ValueError if the name is not that of one operation.
        """
        explainer = Explainer(self)
        method = getattr(Reductions, operation, None) or getattr(Transfers, operation, None)
        if operation.startswith("_") or not callable(method):
            raise ValueError(f"explain: {operation!r} is not the name of one operation")
        method(explainer, *arguments, **options)
        return explainer.text

    # Union with Any: callers that pass no negative color need not exclude None.
    def split(self, color: int, key: int = 0) -> Union["Communicator", Any]:
        """Returns a communicator of the ranks with the same color; None if it is negative.

        Ranks are ordered by `key`, then by their rank here. All ranks call this, in the order of
        their operations, and no other thread starts operations meanwhile. Raises MemoryError on all
        ranks of a color if one of them has not enough. The new communicator is closed before this
        one, which close() does if necessary.
        """
        state = self._state

        def split(handle: int) -> Optional[State]:
            part = ctypes.c_void_p()
            code = _lib.comm_split(handle, color, key, part)
            if code != 0:
                raise errors.last(code)
            if not part.value:
                return None
            # Within use(): the end of the parent waits for it, and finds the part.
            return State(part.value, f"{state.name}/{color}", state.is_threaded, state)

        made = interruptible(lambda: state.use(split), _discard)
        return None if made is None else Communicator(made, self)

    def duplicate(self) -> "Communicator":
        """Returns a communicator of the same ranks; see split()."""
        part: "Communicator" = self.split(0, 0)
        return part

    def abort(self, reason: str = "") -> None:
        """Fails all operations on all ranks with AbortedError, which has the reason.

        Never blocks; any thread may call it. The communicator can only be closed afterwards.
        """
        self._state.abort(reason)

    def close(self) -> None:
        """Closes the communicator, after those that were split from it. Idempotent.

        All ranks close it; the order of several communicators may differ. Requests that have not
        completed are discarded. Waits for the other ranks a few seconds at most. A call of another
        thread ends with AbortedError, on all ranks. So does a call that a signal handler interrupts
        to close; it then ends the communicator.
        """
        self._state.close()

    def __enter__(self) -> "Communicator":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        """Closes the communicator. After an exception aborts it, so that no rank waits for this."""
        reason = None
        if error is not None:
            reason = f"rank {self.rank} ended with {type(error).__name__}: {error}"
        self._state.close(reason)


def _discard(part: Optional[State]) -> None:
    if part is not None:
        part.close()


class Group(Reductions, Transfers):
    """Operations that start as one request, in their order, at the end of a `with` block.

    Methods return their result at once, which is valid when the group has completed. Operations of
    objects are several that follow each other, and thus not in a group.
    """

    def __init__(self, communicator: Communicator) -> None:
        """For Communicator.group() only."""
        self.communicator = communicator
        self.rank = communicator.rank
        self.size = communicator.size
        self._operation = Operation("group")

    def _submit(self, operation: Operation, async_op: bool) -> Any:
        if async_op:
            raise ValueError("operations of a group start together: call start() on the group")
        self._operation.parts += operation.parts
        self._operation.arrays += operation.arrays
        return operation.result

    def start(self) -> Request[None]:
        """Starts the operations, and returns their request. The group is empty afterwards."""
        operation, self._operation = self._operation, Operation("group")
        if not operation.parts:
            raise ValueError("the group has no operations")
        request: Request[None] = self.communicator._submit(operation, True)
        return request

    def run(self) -> None:
        """Starts the operations and waits for them. Does nothing without any."""
        operation, self._operation = self._operation, Operation("group")
        if operation.parts:
            self.communicator._submit(operation, False)

    def __enter__(self) -> "Group":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        """Runs the operations. After an exception nothing is started."""
        if error is None:
            self.run()


class Explainer(Reductions, Transfers):
    """Describes operations in place of starting them."""

    def __init__(self, communicator: Communicator) -> None:
        """For Communicator.explain() only."""
        self.communicator = communicator
        self.rank = communicator.rank
        self.size = communicator.size
        self.text = ""

    def _submit(self, operation: Operation, async_op: bool) -> Any:
        text = ctypes.create_string_buffer(1 << 14)
        code = self.communicator._state.use(
            lambda handle: _lib.comm_explain(handle, operation.parts[0], text, len(text))
        )
        if code < 0:
            raise errors.last(code)
        self.text = text.value.decode(errors="replace")
        return operation.result
