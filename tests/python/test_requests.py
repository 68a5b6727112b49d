# SPDX-License-Identifier: BSD-3-Clause
"""Requests: tests, waits with timeouts, futures, threads, dropped requests, interrupts."""

import asyncio
import ctypes
import gc
import os
import signal
import threading
import unittest
import weakref
from concurrent.futures import wait
from unittest import mock
from typing import Any, List

import ranks
import numpy as np

import ferrule
from ferrule import _lib, completions, requests


def in_order(comm: Any) -> None:
    """Requests complete whatever the order in which they are waited for."""
    arrays = [np.full(size, comm.rank + 1, np.float32) for size in (1, 100_000, 10, 0, 5000)]
    requests = [comm.all_reduce(x, async_op=True) for x in arrays]
    for request, x in reversed(list(zip(requests, arrays))):
        assert request.wait() is x
        assert request.wait() is x and request.test()
        assert "completed" in repr(request), request
        assert (x == comm.size * (comm.size + 1) / 2).all()


def polled(comm: Any) -> None:
    request = comm.barrier(async_op=True)
    while not request.test():
        pass
    assert request.wait() is None


def late(comm: Any) -> None:
    """Rank 1 starts only after rank 0 has given up waiting three times."""
    with comm.duplicate() as other:
        x = np.ones(1000)
        if comm.rank == 0:
            request = comm.all_reduce(x, async_op=True)
            for timeout in (0, 0.05, 0.15):
                try:
                    request.wait(timeout)
                except TimeoutError as error:
                    assert isinstance(error, ferrule.TimeoutError)
                    assert "goes on" in str(error), error
                else:
                    raise AssertionError("rank 1 has not even started")
            assert not request.test()
            assert "pending" in repr(request)
            other.barrier()
        else:
            other.barrier()
            request = comm.all_reduce(x, async_op=True)
        assert request.wait(ranks.LIMIT) is x
        assert (x == 2).all()


class Array(np.ndarray):
    """An array that can be watched."""


def dropped(comm: Any) -> None:
    """Arrays of dropped requests live until the operations have completed."""
    with comm.duplicate() as other:
        watches = []
        if comm.rank == 0:
            for _ in range(3):
                x = np.ones(1000).view(Array)
                watches.append(weakref.ref(x))
                comm.all_reduce(x, async_op=True)
            del x
            gc.collect()
            assert all(watch() is not None for watch in watches)
            other.barrier()
        else:
            other.barrier()
            for _ in range(3):
                comm.all_reduce(np.ones(1000))
        comm.barrier()
        comm.barrier()
        assert all(watch() is None for watch in watches)


def many_dropped(comm: Any) -> None:
    """A start looks at few dropped requests, however many go on; in the end it has found all."""
    for _ in range(20):
        comm.recv(np.ones(1), 1 - comm.rank, async_op=True)
    state, calls = comm._state, []
    real = _lib.request_wait_for

    def counted(*arguments: Any) -> int:
        calls.append(arguments)
        return real(*arguments)

    with mock.patch.object(_lib, "request_wait_for", counted):
        state._reap()
    assert len(calls) == 2, calls
    for _ in range(20):
        comm.send(np.ones(1), 1 - comm.rank)
    for _ in range(20):
        comm.barrier()
    assert not state._abandoned and not state._pending


def futures(comm: Any) -> None:
    arrays = [np.full(1000, i + comm.rank) for i in range(50)]
    requests = [comm.all_reduce(x, async_op=True) for x in arrays]
    found = [request.future() for request in requests]
    assert requests[0].future() is found[0]
    done, pending = wait(found, ranks.LIMIT)
    assert not pending
    for i, (request, future, x) in enumerate(zip(requests, found, arrays)):
        assert future.result() is x and request.test() and request.wait() is x
        assert (x == 2 * i + 1).all()
    # A future of a request that has completed.
    request = comm.barrier(async_op=True)
    request.wait()
    assert request.future().result(0) is None
    # Callbacks that wait for other operations, nested.
    order: List[int] = []
    ended = threading.Event()

    def nested(depth: int) -> None:
        order.append(depth)
        if depth == 5:
            ended.set()
            return
        inner = comm.all_reduce(np.ones(10), async_op=True)
        other = comm.barrier(async_op=True)
        other.future().result(ranks.LIMIT)
        inner.future().add_done_callback(lambda _: nested(depth + 1))

    comm.barrier(async_op=True).future().add_done_callback(lambda _: nested(0))
    assert ended.wait(ranks.LIMIT)
    assert order == list(range(6)), order


def awaited(comm: Any) -> None:
    async def main() -> None:
        x = np.ones(10)
        result = await asyncio.wrap_future(comm.all_reduce(x, async_op=True).future())
        assert result is x and (x == comm.size).all()

    asyncio.run(main())


def inline(comm: Any) -> None:
    request = comm.barrier(async_op=True)
    try:
        request.future()
    except ValueError as error:
        assert "thread" in str(error)
    else:
        raise AssertionError("nobody would complete the future")
    request.wait()


def many_threads(comm: Any) -> None:
    """Threads use a communicator each, and all wait for requests of one."""
    shared = comm.duplicate()
    requests = [shared.all_reduce(np.full(100, i), async_op=True) for i in range(20)]
    parts = [comm.duplicate() for _ in range(3)]
    errors: List[BaseException] = []

    def work(part: Any) -> None:
        try:
            for i in range(200):
                x = np.full(i, part.rank + 1)
                part.all_reduce(x)
                assert (x == 3).all()
            for i, request in enumerate(requests):
                assert (request.wait() == 2 * i).all()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def interrupted(comm: Any) -> None:
    """Ctrl-C in a wait: the operation goes on, and nothing is lost."""
    with comm.duplicate() as other:
        x, y, z = (np.ones(1000) for _ in range(3))
        if comm.rank == 0:
            ferrule_state = comm._state
            waits = threading.Event()
            inner = ferrule_state.wait

            def wait_for(*arguments: Any) -> None:
                waits.set()
                inner(*arguments)

            def press() -> None:
                waits.wait()
                os.kill(os.getpid(), signal.SIGINT)

            signal.signal(signal.SIGINT, signal.default_int_handler)
            request = comm.all_reduce(x, async_op=True)
            for operation in (request.wait, lambda: comm.all_reduce(y)):
                waits.clear()
                ferrule_state.wait = wait_for
                thread = threading.Thread(target=press)
                thread.start()
                try:
                    operation()
                except KeyboardInterrupt:
                    pass
                else:
                    raise AssertionError("not interrupted")
                finally:
                    ferrule_state.wait = inner
                    thread.join()
            assert not request.test()
            other.barrier()
            assert request.wait() is x
        else:
            other.barrier()
            comm.all_reduce(x)
            comm.all_reduce(y)
        comm.all_reduce(z)
        comm.barrier()
        assert not comm._state._pending, "the arrays of the interrupted operation are still held"
        assert (x == 2).all() and (y == 2).all() and (z == 2).all()


class Requests(unittest.TestCase):
    def test_interrupted_as_it_completes(self) -> None:
        """A signal during the call that completes an operation: the outcome is kept."""
        call = ctypes.CDLL(None)["raise"]  # sets the signal, and returns 0 as the library would
        call.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_bool)]
        operation = requests.Operation("x")
        operation.handle = ctypes.c_void_p(signal.SIGINT)
        operation.flag.value = True
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with mock.patch.object(_lib, "request_wait_for", call):
                with self.assertRaises(KeyboardInterrupt):
                    operation.poll(1)
        finally:
            signal.signal(signal.SIGINT, handler)
        self.assertTrue(operation.done)
        self.assertIsNone(operation.error)

    def test_interrupted_detach(self) -> None:
        """A signal before, or during, the call that detaches a request: what it did is kept."""
        signal_itself = ctypes.CDLL(None)["raise"]  # returns 0 as the library would
        signal_itself.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
        before = mock.Mock(side_effect=KeyboardInterrupt)
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            for call, number, error, is_detached in (
                (before, 0, KeyboardInterrupt, False),
                (signal_itself, 12345, ferrule.Error, False),
                (signal_itself, signal.SIGINT, KeyboardInterrupt, True),
            ):
                state = mock.Mock(use=lambda function: function(1))
                operation = requests.Operation("x")
                operation.handle = ctypes.c_void_p(number)
                codes: List[Any] = []
                made = completions.Completions(state)
                made._waiting.add(object())
                with mock.patch.object(_lib, "request_detach", call):
                    with self.assertRaises(error):
                        made.detach(operation, mock.Mock(), None, codes)
                self.assertEqual(0 in [code for code, _ in codes], is_detached)
                self.assertEqual(operation.handle.value is None, number == 0 or is_detached)
                self.assertEqual(len(made._futures), is_detached)
        finally:
            signal.signal(signal.SIGINT, handler)

    def test_in_order(self) -> None:
        ranks.run(self, 2, in_order)
        ranks.run(self, 2, in_order, progress="inline")

    def test_polled(self) -> None:
        ranks.run(self, 2, polled)

    def test_late(self) -> None:
        ranks.run(self, 2, late)

    def test_dropped(self) -> None:
        ranks.run(self, 2, dropped)

    def test_many_dropped(self) -> None:
        ranks.run(self, 2, many_dropped)

    def test_futures(self) -> None:
        ranks.run(self, 2, futures)

    def test_awaited(self) -> None:
        ranks.run(self, 2, awaited)

    def test_inline_has_no_futures(self) -> None:
        ranks.run(self, 1, inline, progress="inline")

    def test_many_threads(self) -> None:
        ranks.run(self, 2, many_threads)

    def test_interrupted(self) -> None:
        ranks.run(self, 2, interrupted)


if __name__ == "__main__":
    unittest.main()
