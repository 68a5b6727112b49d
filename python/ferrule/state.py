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
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Set, Tuple, TypeVar

from . import _lib, devices, errors
from .completions import STOP, Completions
from .requests import SLICE_MS, Operation, sliced

T = TypeVar("T")

MISSES = 2  # abandoned operations in progress that a start looks at

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
        """Takes over the handle; calls `release`, which is idempotent, after it was destroyed."""
        self.rank: int = _lib.comm_rank(handle)
        self.size: int = _lib.comm_size(handle)
        self.name = name
        self.is_threaded = is_threaded
        self.parent = parent
        self.why_closed = f"communicator {name} is closed"
        self._raw = handle
        self._handle: Optional[int] = handle  # None from the beginning of close() on
        self._ended: List[Any] = []  # not empty: the handle was destroyed
        self._release = release
        self._children: Set[State] = set()
        self._pending: Set[Operation] = set()
        self._abandoned: Deque[Operation] = deque()
        self._completions = Completions(self) if is_threaded else None
        # No locks: signal handlers and the garbage collector call close() at any point. Single
        # operations of these are not interrupted.
        self._closer: Dict[str, Tuple[int]] = {}  # the thread of the close() in progress
        self._deferred: Set[int] = set()  # threads that close at the end of their use()
        # Calls in progress and their threads. Listeners wait for reports.
        self._users: Dict[object, int] = {}
        self._listeners: Dict[object, int] = {}
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

    def use(
        self, function: Callable[[int], T], calls: Optional[Dict[object, int]] = None
    ) -> T:
        """Calls a function with the handle, which stays valid meanwhile."""
        token = object()
        if calls is None:
            calls = self._users
        try:
            try:
                calls[token] = threading.get_ident()
                handle = self._handle
                if handle is None:
                    raise ValueError(self.why_closed)
                return function(handle)
            finally:
                calls.pop(token, None)
        finally:
            # Before Python 3.11 a signal handler may raise before the finally block above begins.
            calls.pop(token, None)
            if self._deferred:
                self._resume_close()

    def listen(self, function: Callable[[int], T]) -> T:
        """Calls use() for a function that waits for reports: close() sends one."""
        return self.use(function, self._listeners)

    def start(self, operation: Operation, wait_ms: Optional[int] = None) -> None:
        """Starts an operation; the State holds it until it has completed.

        Waits for it up to `wait_ms`, which saves a use().
        """
        if self._abandoned:
            self._reap()
        parts = operation.parts
        number = len(parts)
        array = parts[0] if number == 1 else (_lib.Collective * number)(*parts)

        def call(handle: int) -> None:
            code = _lib.start_group(handle, array, number, operation.handle)
            if code != 0:
                raise errors.last(code)
            if wait_ms is not None:
                operation.poll(wait_ms)

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
        self.start(operation, SLICE_MS)
        if operation.done:
            self._pending.discard(operation)
        else:
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
        """Drops abandoned operations that have completed. One thread has each of them at a time.

        Each start does this: it looks at few that are in progress, however many there are.
        """
        misses = 0
        while misses < MISSES:
            try:
                operation = self._abandoned.popleft()
            except IndexError:
                return
            try:
                self.wait(operation, 0.0)
            finally:
                if not operation.done:
                    misses += 1
                    self._abandoned.append(operation)

    def completions(self) -> Completions:
        """Returns the threads that complete futures."""
        if not self.is_threaded:
            raise ValueError('futures need a communicator with progress="thread"')
        completions = self._completions
        if completions is None:
            raise ValueError(self.why_closed)
        return completions

    def abort(self, reason: str) -> None:
        """Fails all operations on all ranks. Does nothing if the communicator is closed."""
        if not self.is_closed:
            self.use(lambda handle: _abort(handle, reason))

    def close(self, reason: Optional[str] = None) -> None:
        """Destroys the communicator, after those that were split from it.

        A call of another thread ends with AbortedError. With a reason, aborts before. A signal
        handler may call this at any point. If it interrupts a call of this communicator, that call
        fails and then destroys it. After an exception of a signal handler, the communicator is
        closed, and the next close() destroys it.
        """
        mine = threading.get_ident()
        claim = (mine,)
        try:
            try:
                # No bytecode is between question and answer: a signal handler may close as well.
                while self._closer.setdefault("", claim) is not claim:
                    # The other close() goes on after this, or awaits this thread.
                    if self._involves(mine):
                        return
                    time.sleep(0.001)
                self._close(reason, mine)
            finally:
                self._unclaim(claim)
        finally:
            self._unclaim(claim)  # a signal handler may have raised at the beginning of the first
        # The parent may have been closed first, in a signal handler.
        if self._ended and self.parent is not None and self.parent.is_closed:
            self.parent.close()

    def _unclaim(self, claim: Tuple[int]) -> None:
        if self._closer.get("") is claim:
            self._closer.clear()

    def _involves(self, thread: int) -> bool:
        """Whether the thread is in a call or a close() of this communicator, or of its parts."""
        return (
            thread in self._threads()
            or self._closer.get("") == (thread,)
            or any(child._involves(thread) for child in list(self._children))
        )

    def _threads(self) -> List[int]:
        """Returns the threads of the calls in progress."""
        return [*self._users.values(), *self._listeners.values()]

    def _close(self, reason: Optional[str], mine: int) -> None:
        if self._ended:
            self._end()
            return
        self._handle = None
        if reason is None and self._users:
            reason = f"rank {self.rank} closed it during an operation"
        if reason is not None:
            _abort(self._raw, reason)
        self._stop_listeners()
        if mine in self._threads():
            self._deferred.add(mine)
            return
        while self._threads():
            time.sleep(0.001)
            self._stop_listeners()
        for child in list(self._children):
            child.close(reason)
        # Otherwise a call or a close() was interrupted, whose end closes this as well.
        if not self._children:
            try:
                # As in Operation.poll(): whether the call was made is always known.
                self._ended.extend(map(_lib.comm_destroy, (self._raw,)))
            finally:
                if self._ended:
                    self._end()

    def _stop_listeners(self) -> None:
        for _ in list(self._listeners):
            _lib.comm_post_done(self._raw, STOP)

    def _resume_close(self) -> None:
        """A call has ended: closes if a signal handler wanted to, unless an outer call goes on."""
        mine = threading.get_ident()
        if mine in self._deferred:
            self._deferred.discard(mine)
            self.close()

    def _end(self) -> None:
        """The handle is destroyed: ends all that depended on it. Idempotent."""
        if self.parent is not None:
            self.parent._children.discard(self)
        completions = self._completions
        try:
            if completions is not None:
                completions.fail_rest(ValueError(self.why_closed))
                self._completions = None
        finally:
            try:
                for operation in list(self._pending):
                    operation.finish(ValueError(f"{operation.name}: {self.why_closed}"))
                self._pending.clear()
                self._abandoned.clear()
            finally:
                if self._release is not None:
                    self._release()
                    self._release = None

    def forget(self) -> None:
        """In a child of fork(): the communicator is the parent's."""
        self._handle = None
        self._ended.append(None)
        self.why_closed = f"communicator {self.name} belongs to the parent of this forked process"
        self._release = None
        self._completions = None
        for each in (self._users, self._listeners, self._closer, self._deferred, self._children):
            each.clear()  # type: ignore[attr-defined]


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
