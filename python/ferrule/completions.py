# SPDX-License-Identifier: BSD-3-Clause
"""Futures of operations: threads that wait for reports of the library and complete futures."""

import ctypes
import itertools
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Dict, List, Set, Tuple

from . import _lib, errors
from .requests import Operation

if TYPE_CHECKING:
    from .state import State

STOP = 0  # the number of a report that ends a thread


class Completions:
    """The futures of one communicator.

    A callback of a future may wait for another operation. One thread therefore always waits for
    reports, whatever the others do: a thread that leaves none waiting makes a new one.

    No locks: signal handlers may interrupt any of this, and wait, make futures or close in it.
    """

    def __init__(self, state: "State") -> None:
        self._state = state
        self._numbers = itertools.count(STOP + 1)
        self._futures: Dict[int, Tuple[Operation, "Future[Any]", Any]] = {}
        self._waiting: Set[object] = set()  # for each thread that waits for reports, or soon will

    def detach(
        self,
        operation: Operation,
        future: "Future[Any]",
        owner: Any,
        codes: List[Tuple[int, int]],
    ) -> None:
        """Leaves an operation to the threads, which complete its future.

        Nobody may wait for the operation otherwise. Holds `owner` until it has completed. Adds the
        result to `codes`, with a number; does so also if an exception of a signal handler follows.
        Does nothing if a signal handler has waited for the operation, or detached it, by then.
        """
        number = next(self._numbers)

        def detach(_: int) -> None:
            operation.settle()  # this may be a signal handler, before the end of a poll()
            # As there: the code is always kept.
            calls = map(_lib.request_detach, (operation.handle,), (number,))
            try:
                codes.extend(zip(calls, (number,)))
            finally:
                if (0, number) in codes:
                    operation.handle.value = None
            code = codes[-1][0]
            if operation.handle.value is not None:
                raise errors.last(code)

        self._futures[number] = (operation, future, owner)
        try:
            if not self._waiting:
                self._add_thread()
            self._state.use(detach)
        finally:
            if (0, number) not in codes:
                self._futures.pop(number, None)

    def fail_rest(self, error: Exception) -> None:
        """The communicator is destroyed: what was not reported has failed."""
        for number in list(self._futures):
            entry = self._futures.pop(number, None)
            if entry is not None:
                operation, future, _ = entry
                operation.finish(error)
                operation.complete(future)

    def _add_thread(self) -> None:
        token = object()
        self._waiting.add(token)
        try:
            threading.Thread(
                target=self._work, args=(token,), name="ferrule-done", daemon=True
            ).start()
        except BaseException:
            self._waiting.discard(token)
            raise

    def _work(self, token: object) -> None:
        while self._work_once(token):
            self._waiting.add(token)

    def _work_once(self, token: object) -> bool:
        """Waits for a report and handles it; returns whether to go on."""
        state = self._state
        number, code = ctypes.c_uint64(), ctypes.c_int()
        try:
            found = state.listen(lambda handle: _lib.comm_next_done(handle, -1, number, code))
        except ValueError:  # closed
            found = 0
        error = errors.last(code.value) if found == 1 and code.value < 0 else None
        entry = self._futures.pop(number.value, None) if found == 1 else None
        self._waiting.discard(token)
        if found >= 0 and not self._waiting and not state.is_closed:
            try:
                self._add_thread()
            except RuntimeError:  # there are too many: this one waits again, after the callback
                pass
        if entry is not None:
            self._finish(entry, error)
        # They may hold the communicator, which ends with them.
        entry = error = None
        if found < 0:
            # After a failure that is reported nothing comes, unless a request is being detached.
            time.sleep(0.001)
            return bool(self._futures) and not state.is_closed
        return not state.is_closed and len(self._waiting) < 2

    def _finish(self, entry: Tuple[Operation, "Future[Any]", Any], error: Any) -> None:
        operation, future, _ = entry
        operation.finish(error)
        self._state.settled(operation)
        operation.complete(future)
