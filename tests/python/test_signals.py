# SPDX-License-Identifier: BSD-3-Clause
"""Signal handlers that close, abort, wait, make futures or raise, at every point of a call.

A tracer stands for the signal: it runs the handler before the n-th bytecode of the package, for each
n. The functions of the library are watched: none may get a communicator or a request that has ended.
"""

import functools
import sys
import unittest
from pathlib import Path
from typing import Any, Callable, Dict, List, Set
from unittest import mock

import ranks
import numpy as np

import ferrule
from ferrule import _lib, devices

FOLDER = Path(ferrule.__file__).parent
FILES = {str(FOLDER / f"{name}.py") for name in ("communicator", "completions", "requests", "state")}


class Watch:
    """Replaces functions of the library by some that note wrong handles."""

    def __init__(self) -> None:
        self.faults: List[str] = []
        self.requests: Set[int] = set()
        self.ended: Set[int] = set()
        for name in ("start_group", "comm_abort", "comm_post_done", "comm_next_done"):
            setattr(_lib, name, functools.partial(self._comm, name, getattr(_lib, name)))
        for name in ("request_wait_for", "request_detach"):
            setattr(_lib, name, functools.partial(self._request, name, getattr(_lib, name)))
        self._comm_rank, _lib.comm_rank = _lib.comm_rank, self._begin
        self._comm_destroy, _lib.comm_destroy = _lib.comm_destroy, self._end

    def ignored(self, failure: Any) -> None:
        """Notes an error in a __del__(), except those of handlers."""
        if failure.exc_type is not KeyboardInterrupt:
            self.faults.append(repr(failure.exc_value))

    def _begin(self, handle: int) -> int:
        self.ended.discard(handle)
        return self._comm_rank(handle)

    def _end(self, handle: int) -> None:
        if handle in self.ended:
            self.faults.append("a communicator was destroyed twice")
            return
        self.ended.add(handle)
        self.requests.clear()
        self._comm_destroy(handle)

    def _comm(self, name: str, function: Any, handle: int, *arguments: Any) -> Any:
        if handle in self.ended:
            self.faults.append(f"{name}() of a destroyed communicator")
            return -22
        result = function(handle, *arguments)
        if name == "start_group" and result == 0:
            self.requests.add(arguments[-1].value)
        return result

    def _request(self, name: str, function: Any, handle: Any, *arguments: Any) -> Any:
        value = handle.value
        if value is not None and value not in self.requests:
            self.faults.append(f"{name}() of a request that has ended")
            return -22
        result = function(handle, *arguments)
        is_pending = name == "request_wait_for" and result == 0 and not arguments[-1].value
        if value is not None and not is_pending:
            self.requests.discard(value)
        return result


def interrupted(call: Callable[[], Any], handler: Callable[[], Any], number: int) -> bool:
    """Makes a call, and runs the handler before its n-th bytecode. Returns False beyond the end."""
    left = number

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in FILES:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and left > 0:
            left -= 1
            if left == 0:
                handler()
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return left == 0


def everywhere(prepare: Callable[[], Any], check: Callable[[Any], None]) -> None:
    """Runs `call, handler, rest = prepare()` with the handler at each point."""
    number, is_inside = 0, True
    while is_inside:
        number += 1
        call, handler, rest = prepare()
        try:
            is_inside = interrupted(call, handler, number)
        except KeyboardInterrupt:
            is_inside = True
        except (ValueError, ferrule.AbortedError) as error:
            assert "close" in str(error) or "abort" in str(error), error
        try:
            check(rest)
        except BaseException as error:
            raise AssertionError(f"handler at bytecode {number}: {error!r}") from error
    assert number > 20


CALLS = ("run", "reap", "future", "part", "close", "split")


def closings(job: str, name: str) -> None:
    """The handler closes, or aborts, the communicator, or raises KeyboardInterrupt."""
    watch = Watch()
    sys.unraisablehook = watch.ignored
    numbers = iter(range(10**9))

    def calls(comm: Any) -> Dict[str, Any]:
        def reap() -> None:
            comm.recv(np.ones(1), 0, async_op=True)
            comm.send(np.ones(1), 0)

        def future() -> None:
            request = comm.recv(np.ones(1), 0, async_op=True)
            comm.send(np.ones(1), 0, async_op=True)
            try:
                request.future().result(ranks.LIMIT)
            except TimeoutError:
                raise AssertionError("the future is not completed") from None

        part = comm.duplicate()
        return {
            "run": lambda: comm.all_reduce(np.ones(1)),
            "reap": reap,
            "future": future,
            "part": lambda: part.all_reduce(np.ones(1)),
            "close": comm.close,
            "split": lambda: comm.split(0),
        }

    def prepare(how: str) -> Any:
        comm = ferrule.join(f"{job}-{next(numbers)}", 0, 1, timeout=ranks.LIMIT)
        call = calls(comm)[name]
        handler = mock.Mock(side_effect=KeyboardInterrupt) if how == "raise" else getattr(comm, how)
        return call, handler, (comm, how)

    def check(rest: Any) -> None:
        comm, how = rest
        state = comm._state
        assert not watch.faults, watch.faults
        if how == "close" and comm.closed:
            assert not devices._open, "the interrupted call has not closed"
        comm.close()
        assert not devices._open and not state._users and not state._closer

    for how in ("close", "abort", "raise"):
        everywhere(functools.partial(prepare, how), check)


def waits(comm: Any) -> None:
    """The handler waits for the request, tests it, or makes a future of it."""
    watch = Watch()

    def prepare(call: str, handler: str) -> Any:
        x = np.zeros(1)
        request = comm.recv(x, 0, async_op=True)
        comm.send(np.ones(1), 0, async_op=True)

        def handle() -> None:
            getattr(request, handler)()

        return getattr(request, call), handle, request

    def check(request: Any) -> None:
        assert request.wait(ranks.LIMIT)[0] == 1
        assert request.future().result(ranks.LIMIT)[0] == 1
        assert not watch.faults, watch.faults

    for call in ("wait", "test", "future"):
        for handler in ("wait", "test", "future"):
            everywhere(functools.partial(prepare, call, handler), check)
    completions = comm._state._completions
    assert not completions._futures, completions._futures


class Signals(unittest.TestCase):
    def test_closings(self) -> None:
        for name in CALLS:
            with self.subTest(name):
                alone = ranks.Ranks()
                try:
                    alone.add(closings, (ranks.new_job(self), name))
                    alone.result(0)
                finally:
                    alone.end()

    def test_waits(self) -> None:
        ranks.run(self, 1, waits)


if __name__ == "__main__":
    unittest.main()
