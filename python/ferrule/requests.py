# SPDX-License-Identifier: BSD-3-Clause
"""Operations in progress."""

import ctypes
import errno
import math
import threading
import time
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Any, Callable, Generic, List, Optional, Tuple, TypeVar

from . import _lib, errors

if TYPE_CHECKING:
    from .state import State

T = TypeVar("T")

# Signal handlers, such as that of Ctrl-C, run between slices of this length.
SLICE_MS = 100


class Operation:
    """One or several collectives of the library, started as one request.

    The operation holds the arrays until the library no longer uses them. The library writes handle
    and flags into it directly, so that an exception of a signal handler cannot lose them.
    """

    __slots__ = (
        "name", "parts", "arrays", "result", "finals", "handle", "flag", "codes", "error", "done"
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.parts: List[_lib.Collective] = []
        self.arrays: List[Any] = []  # whatever the parts refer to
        self.result: Any = None
        self.finals: List[Callable[[], Any]] = []  # called once it has completed, before `done`
        self.handle = ctypes.c_void_p()
        self.flag = ctypes.c_bool()
        self.codes: List[int] = []
        self.error: Optional[Exception] = None
        self.done = False

    def settle(self) -> None:
        """Takes in what the latest call for the request has returned, in the thread of the call.

        A signal handler may have waited for the operation, or detached it, before that call. Then
        the call had no request, and its code means nothing.
        """
        codes = self.codes[-1:]
        if not codes or self.done:
            return
        if self.handle.value is not None:
            if codes[0] < 0:
                self.finish(errors.last(codes[0]))
            elif self.flag.value:
                self.finish(None)
        self.codes.clear()

    def finish(self, error: Optional[Exception]) -> None:
        """The library does not use the arrays any more, and has freed the request.

        A signal handler may call this within this, with the same outcome.
        """
        finals = self.finals
        if self.done:
            return
        if error is None:
            try:
                for call in finals:
                    call()
            except Exception as failure:
                error = failure
        self.error = error
        self.done = True
        # Not a new object: an interrupted poll() may be about to use this one.
        self.handle.value = None
        self.parts, self.arrays, self.finals = [], [], []

    def poll(self, timeout_ms: int) -> bool:
        """Waits up to `timeout_ms`. Returns whether there is nothing more to wait for here.

        The operation is then done, or detached. A signal handler may call this within this.
        """
        if self.codes:  # a signal handler has raised before
            self.settle()
            if self.done:
                return True
        try:
            # map() and extend() run without bytecode in between: the code is always kept.
            self.codes.extend(
                map(_lib.request_wait_for, (self.handle,), (timeout_ms,), (self.flag,))
            )
        finally:
            self.settle()
        return self.done or self.handle.value is None

    def complete(self, future: "Future[Any]") -> None:
        """Completes the future of the operation, which is done. Does nothing if it is complete."""
        try:
            if self.error is not None:
                future.set_exception(self.error)
            else:
                future.set_result(self.result)
        except InvalidStateError:
            pass


class Request(Generic[T]):
    """An operation that was started with `async_op=True`.

    It holds the arrays until the operation has completed, also if the request itself is dropped.
    Any thread may use it.
    """

    def __init__(self, state: "State", operation: Operation, communicator: Any) -> None:
        """For operations of a communicator only, which stays open as long as the request."""
        self._communicator = communicator
        self._state = state
        # The thread that polls has it. Its signal handlers may poll within that.
        self._lock = threading.RLock()
        self._futures: List["Future[T]"] = []  # the first one counts
        self._codes: List[Tuple[int, int]] = []  # see Completions.detach()
        self._operation = operation  # last, for __del__()

    def __repr__(self) -> str:
        operation = self._operation
        status = "pending"
        if operation.done:
            status = f"failed: {operation.error}" if operation.error else "completed"
        return f"<ferrule.Request {operation.name} {status}>"

    def test(self) -> bool:
        """Makes progress; returns whether the operation has completed. Raises its error.

        Returns False while another thread waits for the operation.
        """
        self._check_open()
        operation = self._operation
        if not operation.done and self._lock.acquire(blocking=False):
            try:
                if not self._is_detached():
                    self._state.wait(operation, 0.0)
            finally:
                self._lock.release()
        if operation.error is not None:
            raise operation.error
        return operation.done

    def wait(self, timeout: Optional[float] = None) -> T:
        """Waits until the operation has completed, and returns its result.

        Raises the operation's error, or TimeoutError after `timeout` seconds. `test()` then returns
        False: the operation goes on and the request stays usable. The same holds after a
        KeyboardInterrupt.
        """
        self._check_open()
        operation = self._operation
        deadline = None if timeout is None else time.monotonic() + timeout
        if not operation.done:
            if not self._lock.acquire(timeout=-1 if timeout is None else max(timeout, 0.0)):
                raise self._late(timeout)
            try:
                if not operation.done and not self._is_detached():
                    left = None if deadline is None else deadline - time.monotonic()
                    self._state.wait(operation, left)
            finally:
                self._lock.release()
        if not operation.done and self._is_detached():
            self._wait_future(self._futures[0], deadline)
        if operation.error is not None:
            raise operation.error
        if not operation.done:
            raise self._late(timeout)
        result: T = operation.result
        return result

    def future(self) -> "Future[T]":
        """Returns a future of the result; threads of the communicator complete it.

        `asyncio.wrap_future()` makes it awaitable. All calls return the same future. A callback of
        it may start and wait for operations. Needs a communicator with progress="thread".
        """
        self._check_open()
        operation = self._operation
        if not self._futures:
            made: "Future[T]" = Future()
            made.set_running_or_notify_cancel()
            self._futures.append(made)
        future = self._futures[0]
        if not operation.done:
            with self._lock:
                if not operation.done and not self._is_detached():
                    self._state.completions().detach(operation, future, self, self._codes)
        if not self._is_detached():
            operation.complete(future)
        return future

    def _is_detached(self) -> bool:
        """Whether threads of the communicator wait for the operation."""
        codes = self._codes
        return bool(codes) and any(code == 0 for code, _ in codes)

    def _check_open(self) -> None:
        """After fork() the lock and the future may be those of a thread that the child lacks."""
        operation = self._operation
        if self._state.is_closed and not operation.done:
            raise ValueError(f"{operation.name}: {self._state.why_closed}")

    def _wait_future(self, future: "Future[T]", deadline: Optional[float]) -> None:
        """Waits until the future is complete, or the deadline has come.

        Waits in slices: a signal handler may wait for the future just before this does.
        """
        while not future.done():
            slice_ms, is_last = sliced(deadline)
            try:
                future.exception(slice_ms / 1000)
            except FutureTimeoutError:
                if is_last:
                    return

    def _late(self, timeout: Optional[float]) -> errors.TimeoutError:
        text = f"{self._operation.name} has not completed within {timeout} s; it goes on"
        return errors.TimeoutError(errno.ETIMEDOUT, text)

    def __del__(self) -> None:
        operation = getattr(self, "_operation", None)
        if operation is not None and not operation.done and not self._is_detached():
            self._state.abandon(operation)


def milliseconds(seconds: Optional[float]) -> int:
    """Returns a timeout of the library; None is no limit."""
    if seconds is None:
        return -1
    if not 0 <= seconds <= 2_000_000:  # the library has an int
        raise ValueError(f"a timeout of {seconds} s is not between 0 and 2000000")
    return math.ceil(seconds * 1000)


def sliced(deadline: Optional[float]) -> Tuple[int, bool]:
    """Returns how long to wait next, and whether that reaches the deadline."""
    if deadline is None:
        return SLICE_MS, False
    left = math.ceil((deadline - time.monotonic()) * 1000)
    if left > SLICE_MS:
        return SLICE_MS, False
    return max(left, 0), True
