# SPDX-License-Identifier: BSD-3-Clause
"""Futures of operations: threads that wait for reports of the library and complete futures."""

import ctypes
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Tuple

from . import _lib, errors
from .requests import Operation

if TYPE_CHECKING:
    from .state import State

_STOP = 0


class Completions:
    """The futures of one communicator.

    A callback of a future may wait for another operation. One thread therefore always waits for
    reports, whatever the others do: a thread that takes the last place makes a new one.
    """

    def __init__(self, state: "State") -> None:
        self._state = state
        self._lock = threading.Lock()
        self._last_id = _STOP
        self._futures: Dict[int, Tuple[Operation, "Future[Any]", Any]] = {}
        self._waiting = 0
        self._is_stopped = False
        self._changed = threading.Condition(self._lock)
        with self._lock:
            self._add_thread()
            self._add_thread()

    def future(
        self, operation: Operation, owner: Any, keep: Callable[["Future[Any]"], None]
    ) -> None:
        """Makes a future of the operation, which nobody may wait for otherwise.

        Calls keep(future), also if an exception of a signal handler follows. Holds `owner` until
        the operation has completed.
        """
        future: "Future[Any]" = Future()
        future.set_running_or_notify_cancel()
        if operation.done:
            _complete(future, operation)
            keep(future)
            return
        with self._lock:
            if self._is_stopped:
                raise ValueError(self._state.why_closed)
            self._last_id += 1
            number = self._last_id
            self._futures[number] = (operation, future, owner)
            self._changed.notify_all()

        codes: List[int] = []

        def detach(_: int) -> None:
            try:
                # As in Operation.poll(): the code is always kept.
                codes.extend(map(_lib.request_detach, (operation.handle,), (number,)))
            finally:
                if codes and codes[0] == 0:
                    keep(future)
            if codes[0] != 0:
                raise errors.last(codes[0])

        try:
            self._state.use(detach)
        finally:
            if not codes or codes[0] != 0:
                self._futures.pop(number, None)

    def close(self, handle: int) -> None:
        """Ends the threads, except those in callbacks, which end by themselves."""
        with self._lock:
            self._is_stopped = True
            self._changed.notify_all()
            while self._waiting > 0:
                _lib.comm_post_done(handle, _STOP)
                self._changed.wait(0.1)

    def fail_rest(self, error: Exception) -> None:
        """The communicator is destroyed: what was not reported has failed."""
        with self._lock:
            rest = list(self._futures.values())
            self._futures.clear()
        for operation, future, _ in rest:
            operation.finish(error)
            _complete(future, operation)

    def _add_thread(self) -> None:
        self._waiting += 1
        threading.Thread(target=self._work, name="ferrule-done", daemon=True).start()

    def _work(self) -> None:
        while self._work_once():
            pass

    def _work_once(self) -> bool:
        """Waits for a report and handles it; returns whether to go on."""
        number, code = ctypes.c_uint64(), ctypes.c_int()
        try:
            found = self._state.use(lambda handle: _lib.comm_next_done(handle, -1, number, code))
        except ValueError:  # closed
            found = 0
        error = errors.last(code.value) if found == 1 and code.value < 0 else None
        entry = None
        with self._lock:
            # After a failure that is reported nothing comes, unless a request is detached later.
            while found < 0 and not self._futures and not self._is_stopped:
                self._changed.wait()
            self._waiting -= 1
            if self._is_stopped:
                self._changed.notify_all()
            elif self._waiting == 0:
                self._add_thread()
            if found == 1:
                entry = self._futures.pop(number.value, None)
        if entry is not None:
            self._finish(entry, error)
        # They may hold the communicator. Its end waits for the threads that are counted below.
        entry = error = None
        with self._lock:
            if self._is_stopped or self._waiting >= 2:
                return False
            self._waiting += 1
            return True

    def _finish(self, entry: Tuple[Operation, "Future[Any]", Any], error: Any) -> None:
        operation, future, _ = entry
        operation.finish(error)
        self._state.settled(operation)
        _complete(future, operation)


def _complete(future: "Future[Any]", operation: Operation) -> None:
    if operation.error is not None:
        future.set_exception(operation.error)
    else:
        future.set_result(operation.result)
