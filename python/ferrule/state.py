# SPDX-License-Identifier: BSD-3-Clause
"""A communicator of the library: who uses it, what is pending, and how it ends.

The public object refers to its State, and never the other way round: the State ends when the
object is dropped or closed, or with the interpreter. Any thread may call anything here.
"""

import os
import sys
import threading
import time
import weakref
from typing import Any, Callable, Dict, List, Optional, Set, Tuple, TypeVar

from . import _lib, devices, errors
from .completions import Completions
from .requests import Operation, sliced

T = TypeVar("T")

_states: "weakref.WeakSet[State]" = weakref.WeakSet()


class State:
    """One handle of the library. close() is idempotent."""

    def __init__(
        self,
        handle: int,
        name: str,
        is_threaded: bool,
        parent: Optional["State"] = None,
        release: Optional[Callable[[], None]] = None,
    ) -> None:
        """Takes over the handle; calls `release` after it has been destroyed."""
        self.rank: int = _lib.comm_rank(handle)
        self.size: int = _lib.comm_size(handle)
        self.name = name
        self.is_threaded = is_threaded
        self.parent = parent
        self.why_closed = f"communicator {name} is closed"
        self._handle: Optional[int] = handle
        self._release = release
        self._children: "weakref.WeakSet[State]" = weakref.WeakSet()
        self._pending: Set[Operation] = set()
        self._abandoned: List[Operation] = []
        self._completions: Optional[Completions] = None
        self._closer: Dict[str, Tuple[int]] = {}  # the thread of the close() in progress
        # Calls in progress and their threads. One operation of a dict needs no lock.
        self._users: Dict[object, int] = {}
        self._lock = threading.Lock()
        _states.add(self)
        if parent is not None:
            parent._children.add(self)

    def check_open(self) -> None:
        """Raises ValueError if the communicator is closed, or the parent's of a forked child."""
        if self._handle is None:
            raise ValueError(self.why_closed)

    @property
    def is_closed(self) -> bool:
        return self._handle is None

    def use(self, function: Callable[[int], T]) -> T:
        """Calls a function with the handle, which stays valid meanwhile."""
        token = object()
        try:
            self._users[token] = threading.get_ident()
            handle = self._handle
            if handle is None:
                raise ValueError(self.why_closed)
            return function(handle)
        finally:
            self._users.pop(token, None)

    def start(self, operation: Operation) -> None:
        """Starts an operation; the State holds it until it has completed."""
        if self._abandoned:
            self._reap()
        parts = operation.parts
        number = len(parts)
        array = parts[0] if number == 1 else (_lib.Collective * number)(*parts)

        def call(handle: int) -> None:
            code = _lib.start_group(handle, array, number, operation.handle)
            if code != 0:
                raise errors.last(code)

        self._pending.add(operation)
        try:
            self.use(call)
        except BaseException:
            if operation.handle.value is None:
                self._pending.discard(operation)
            else:
                self.abandon(operation)
            raise

    def wait(self, operation: Operation, timeout: Optional[float] = None) -> None:
        """Waits until the operation is done (see its error), or for `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout

        def poll(_: int) -> bool:
            slice_ms, is_last = sliced(deadline)
            return operation.done or operation.poll(slice_ms) or is_last

        # Close() by a signal handler is seen here, between slices.
        while not self.use(poll):
            pass
        if operation.done:
            self._pending.discard(operation)

    def run(self, operation: Operation) -> Any:
        """Starts an operation, waits for it, and returns its result. Raises its error."""
        self.start(operation)
        try:
            self.wait(operation)
        except BaseException:
            self.abandon(operation)
            raise
        if operation.error is not None:
            raise operation.error
        return operation.result

    def abandon(self, operation: Operation) -> None:
        """Nobody waits for the operation any more; its arrays are held until it has completed."""
        self._abandoned.append(operation)

    def settled(self, operation: Operation) -> None:
        """A detached operation has been reported."""
        self._pending.discard(operation)

    def _reap(self) -> None:
        """Drops abandoned operations that have completed. One thread does this at a time."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            operations, self._abandoned = self._abandoned, []
            for operation in operations:
                self.wait(operation, 0.0)
                if not operation.done:
                    self._abandoned.append(operation)
        finally:
            self._lock.release()

    def completions(self) -> Completions:
        """Returns the threads that complete futures; makes them at the first call."""
        if not self.is_threaded:
            raise ValueError('futures need a communicator with progress="thread"')
        with self._lock:
            if self._handle is None or self._closer:
                raise ValueError(self.why_closed)
            if self._completions is None:
                self._completions = Completions(self)
            return self._completions

    def abort(self, reason: str) -> None:
        """Fails all operations on all ranks. Does nothing if the communicator is closed."""
        if not self.is_closed:
            self.use(lambda handle: _abort(handle, reason))

    def close(self, reason: Optional[str] = None) -> None:
        """Destroys the communicator, after those that were split from it.

        A call of another thread ends with AbortedError. With a reason, aborts before. After an
        exception of a signal handler, either the communicator is as before, or it is destroyed.
        """
        for child in list(self._children):
            child.close(reason)
        mine = threading.get_ident()
        claim = (mine,)
        try:
            # No bytecode is between question and answer: a signal handler may close it as well.
            while (first := self._closer.setdefault("", claim)) is not claim:
                # Who is called within close(), or within a call that close() awaits, goes on.
                if first[0] == mine or mine in list(self._users.values()):
                    return
                time.sleep(0.001)
            self._close(reason)
        finally:
            if self._closer.get("") is claim:
                self._closer.clear()

    def _close(self, reason: Optional[str]) -> None:
        with self._lock:
            handle = self._handle
            completions = self._completions
        if handle is None:
            return
        if completions is not None:
            completions.close(handle)
        mine = threading.get_ident()
        if reason is None and any(user != mine for user in list(self._users.values())):
            reason = f"rank {self.rank} closed it during an operation"
        if reason is not None:
            _abort(handle, reason)
        ended: List[Any] = []
        try:
            self._handle = None
            while any(user != mine for user in list(self._users.values())):
                time.sleep(0.001)
            # As in Operation.poll(): whether the call was made is always known.
            ended.extend(map(_lib.comm_destroy, (handle,)))
        finally:
            if ended:
                self._end(completions)
            else:
                self._handle = handle

    def _end(self, completions: Optional[Completions]) -> None:
        """The handle is destroyed: ends all that depended on it."""
        try:
            if completions is not None:
                completions.fail_rest(ValueError(self.why_closed))
        finally:
            try:
                for operation in list(self._pending):
                    operation.finish(ValueError(f"{operation.name}: {self.why_closed}"))
                self._pending.clear()
                self._abandoned.clear()
            finally:
                if self._release is not None:
                    self._release()

    def forget(self) -> None:
        """In a child of fork(): the communicator is the parent's."""
        self._handle = None
        self.why_closed = f"communicator {self.name} belongs to the parent of this forked process"
        self._release = None
        self._completions = None
        self._users.clear()
        self._closer.clear()
        self._lock = threading.Lock()


def _abort(handle: int, reason: str) -> None:
    # One line: other ranks have it in the texts of their errors.
    _lib.comm_abort(handle, " ".join(reason.split()).encode(errors="replace"))


def close_forgotten(state: State) -> None:
    """Closes a State whose object was dropped, or at the interpreter's end.

    A script that ends with an exception tells the other ranks, which may wait for it.
    """
    error = getattr(sys, "last_value", None)
    if error is None or hasattr(sys, "ps1"):
        state.close()
    else:
        state.close(f"rank {state.rank} ended with {type(error).__name__}: {error}")


def _forget_all() -> None:
    for state in list(_states):
        state.forget()
    devices.forget()


os.register_at_fork(after_in_child=_forget_all)
