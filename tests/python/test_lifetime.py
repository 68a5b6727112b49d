# SPDX-License-Identifier: BSD-3-Clause
"""How communicators begin and end: splits, closing, garbage, fork, the interpreter's end."""

import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
from typing import Any, List
from unittest import mock

import ranks
import numpy as np

import ferrule
from ferrule import _lib, devices, interrupts


def splits(comm: Any) -> None:
    n, rank = comm.size, comm.rank
    with comm.split(rank % 2, key=-rank) as part:
        members = [r for r in reversed(range(n)) if r % 2 == rank % 2]
        assert part.size == len(members) and members[part.rank] == rank
        assert part.name == f"{comm.name}/{rank % 2}"
        assert part.all_gather_object(rank) == members
        with part.duplicate() as again:
            assert again.all_reduce(np.ones(1)) == len(members)
    none = comm.split(0 if rank == 1 else -1)
    assert (none is None) == (rank != 1)
    # Both are in use at a time.
    parts = [comm.split(0), comm.split(0, key=-rank)]
    requests = [part.all_reduce(np.full(100, i), async_op=True) for i, part in enumerate(parts)]
    for i, request in reversed(list(enumerate(requests))):
        assert (request.wait() == n * i).all()
    # The parent closes its parts before itself.
    comm.close()
    assert all(part.closed for part in parts)
    comm.close()
    try:
        requests[0].wait()
        comm.barrier()
    except ValueError as error:
        assert "is closed" in str(error)
    else:
        raise AssertionError("a closed communicator was used")


def opened() -> int:
    """Returns the number of open devices."""
    return len(devices._open)


def garbage(job: str, rank: int) -> None:
    """A dropped communicator is closed, and so are its device and its memory."""
    for number in range(3):
        comm = ferrule.join(f"{job}-{number}", rank, 2, timeout=ranks.LIMIT)
        request = comm.all_reduce(ferrule.empty(1000), async_op=True)
        part = comm.split(0)
        assert part is not None
        del comm
        gc.collect()
        request.wait()
        part.barrier()
        assert opened() == 1
        del request, part
        gc.collect()
        assert opened() == 0
    # A request keeps its communicator.
    part = ferrule.join(f"{job}-last", rank, 2, timeout=ranks.LIMIT)
    request = part.all_reduce(np.ones(10), async_op=True)
    del part
    gc.collect()
    assert request.wait()[0] == 2


def last_reference(job: str, rank: int) -> None:
    """The thread of a future drops the last reference to its communicator, and closes it."""
    comm = ferrule.join(job, rank, 2, timeout=ranks.LIMIT)
    dropped = threading.Event()
    signals = comm.duplicate()
    state, request = comm._state, comm.recv(np.ones(1), 1 - rank, async_op=True)
    future = request.future()
    future.add_done_callback(lambda _: dropped.wait(ranks.LIMIT))
    signals.barrier()  # a callback of a complete future would run in this thread
    signals.close()
    comm.send(np.ones(1), 1 - rank)
    del comm, signals, request, future
    gc.collect()
    dropped.set()
    end = time.monotonic() + ranks.LIMIT
    while opened() > 0:
        assert time.monotonic() < end, "the communicator was not closed"
        time.sleep(0.01)
    assert state.is_closed


def collected_inside(job: str, rank: int) -> None:
    """The garbage collector closes a communicator in a thread that is about to wait for reports."""
    gc.disable()
    comm = ferrule.join(job, rank, 2, timeout=ranks.LIMIT)
    comm.barrier(async_op=True).future().result(ranks.LIMIT)
    state, cycle = comm._state, [comm]
    cycle.append(cycle)
    inner = _lib.comm_next_done

    def next_done(*arguments: Any) -> int:
        gc.collect()
        found: int = inner(*arguments)
        return found

    _lib.comm_next_done = next_done
    del comm, cycle
    _lib.comm_post_done(state._handle, 1 << 40)  # of no future: the thread waits again
    end = time.monotonic() + ranks.LIMIT
    while opened() > 0:
        assert time.monotonic() < end, "the communicator was not closed"
        time.sleep(0.01)
    assert state.is_closed


def parent_dropped(job: str, rank: int) -> None:
    """A part keeps what it was split from."""
    comm = ferrule.join(job, rank, 2, timeout=ranks.LIMIT)
    part = comm.duplicate()
    del comm
    gc.collect()
    assert part.all_reduce(np.ones(10))[0] == 2
    del part
    gc.collect()
    assert opened() == 0


def interrupted_close(job: str, rank: int) -> None:
    """Ctrl-C before the end of close(): close() goes on; after it, all is released."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    destroy = _lib.comm_destroy
    signal_itself = ctypes.CDLL(None)["raise"]
    signal_itself.argtypes = [ctypes.c_void_p]
    for is_late in (False, True):
        comm = ferrule.join(f"{job}-{is_late}", rank, 2, timeout=ranks.LIMIT)
        if rank == 1:
            try:
                comm.recv(np.ones(10), 0)
            except ferrule.AbortedError:
                comm.close()
                continue
        state = comm._state
        operations = [comm.recv(np.ones(10), 1 - rank, async_op=True)._operation]
        token = object()
        if is_late:  # a call that sets the signal stands for the one that destroys
            destroy(state._handle)
            state._raw = int(signal.SIGINT)
            _lib.comm_destroy = signal_itself
        else:  # a call of another thread that does not end
            request = comm.recv(np.ones(10), 1 - rank, async_op=True)
            request.future()
            operations.append(request._operation)
            del request
            state._users[token] = -1
        sleep = mock.Mock(side_effect=KeyboardInterrupt)
        try:
            with mock.patch("ferrule.state.time", mock.Mock(sleep=sleep)):
                comm.close()
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("not interrupted")
        finally:
            _lib.comm_destroy = destroy
        assert comm.closed and opened() == (not is_late)
        state._users.pop(token, None)
        comm.close()
        assert comm.closed and opened() == 0
        assert all(operation.done for operation in operations)


def closed_twice(comm: Any) -> None:
    """A second close() returns when the first one has closed."""
    token = object()
    comm._state._users[token] = -1
    first = threading.Thread(target=comm.close)
    first.start()
    while not comm.closed:
        time.sleep(0.001)
    threading.Timer(0.2, comm._state._users.pop, (token,)).start()
    comm.close()
    assert opened() == 0
    first.join()


def shared_device(job: str, rank: int) -> None:
    with ferrule.join(job, rank, 2, devices="local", timeout=ranks.LIMIT) as first:
        with ferrule.join(job + "-2", rank, 2, devices=["local"], timeout=ranks.LIMIT) as second:
            assert opened() == 1
            requests = [c.all_reduce(np.ones(10), async_op=True) for c in (first, second)]
            for request in reversed(requests):
                assert request.wait()[0] == 2
        assert opened() == 1
        first.barrier()
    assert opened() == 0


def pending_at_close(comm: Any) -> None:
    """Requests of a closed communicator say so, whoever waits."""
    if comm.rank != 0:
        comm.duplicate().close()
        comm.close()
        return
    request = comm.recv(np.ones(10), 1, async_op=True)
    waited = comm.recv(np.ones(10), 1, async_op=True)
    future = comm.recv(np.ones(10), 1, async_op=True).future()
    with comm.duplicate() as part:
        alone = part.recv(np.ones(10), 1, async_op=True).future()
    assert "closed" in str(alone.exception(ranks.LIMIT))
    errors: List[Any] = []
    started = threading.Event()

    def wait() -> None:
        started.set()
        try:
            waited.wait()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    started.wait()
    comm.close()
    thread.join()
    assert isinstance(errors[0], (ValueError, ferrule.Error)), errors
    assert isinstance(future.exception(ranks.LIMIT), (ValueError, ferrule.Error))
    for each in (request, waited):
        try:
            each.wait()
        except (ValueError, ferrule.Error):
            continue
        raise AssertionError("a discarded request completed")


def closed_alone(comm: Any) -> None:
    """A rank that closes after futures does not disturb the others."""
    comm.barrier(async_op=True).future().result(ranks.LIMIT)
    if comm.rank == 0:
        comm.close()
        return
    with comm.group() as group:
        group.send(np.ones(10), 3 - comm.rank)
        group.recv(np.ones(10), 3 - comm.rank)


def forks(comm: Any) -> None:
    """A child does not use what is its parent's, and ends without a trace."""
    memory = ferrule.empty(1000)
    pending = comm.all_reduce(np.ones(10), async_op=True)
    comm.barrier(async_op=True).future()
    pending._lock.acquire()  # as if another thread waited for it
    late = comm.recv(np.ones(10), 1 - comm.rank, async_op=True)
    late.future()
    child = os.fork()
    if child == 0:
        try:
            for call in (comm.barrier, pending.wait, late.wait, late.test, late.future):
                try:
                    call()
                except ValueError as error:
                    assert "parent" in str(error), error
                else:
                    os._exit(3)
            comm.close()
            address = memory.ctypes.data
            del memory, comm, pending, late
            gc.collect()
            assert ctypes.string_at(address, 4000) == bytes(4000)
            with ferrule.join(f"child-{os.getpid()}", 0, 1) as own:
                assert own.all_reduce(np.ones(1)) == 1
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(2)
        os._exit(0)
    pending._lock.release()
    assert os.waitpid(child, 0)[1] == 0
    comm.send(np.ones(10), 1 - comm.rank)
    late.wait(ranks.LIMIT)
    assert (pending.wait() == 2).all()
    memory[:] = 1
    comm.all_reduce(memory)
    assert (memory == 2).all()


def interrupted_join() -> None:
    """Ctrl-C while join() waits for a rank that does not come; the next join() works."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    begun = threading.Event()
    inner = interrupts.threading.Thread.start

    def start(thread: Any) -> None:
        inner(thread)
        begun.set()

    def press() -> None:
        begun.wait()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press).start()
    interrupts.threading.Thread.start = start
    try:
        ferrule.join("nobody-comes", 0, 2, timeout=1)
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("not interrupted")
    finally:
        interrupts.threading.Thread.start = inner
    with ferrule.join("alone", 0, 1) as comm:
        comm.barrier()
    end = time.monotonic() + ranks.LIMIT
    while opened() > 0:  # the call that was given up ends, too
        assert time.monotonic() < end
        time.sleep(0.01)


EXIT = """
import sys
import threading
import numpy as np
import ranks
import ferrule
job, rank, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
comm = ferrule.join(job, rank, 2, timeout=ranks.LIMIT)
comm.split(0)
try:
    comm.barrier(async_op=True).future().result()
    if rank == 1 and how == "raise":
        raise RuntimeError("the reason")
    x = np.ones(1)
    if how == "raise":
        comm.recv(x, 1)
    elif how == "pending":
        request = comm.recv(x, 1 - rank, async_op=True)
        future = comm.recv(x, 1 - rank, async_op=True).future()
    elif how == "thread":
        threading.Thread(target=lambda: comm.recv(x, 1 - rank), daemon=True).start()
except ferrule.AbortedError as error:  # the other rank has ended
    if how == "raise":
        print("told:", error)
"""


class Lifetime(unittest.TestCase):
    def _run(self, function: Any, size: int = 2) -> None:
        """Runs function(job, rank) as each rank."""
        job, every = ranks.new_job(self), ranks.Ranks()
        try:
            for rank in range(size):
                every.add(function, (job, rank))
            for rank in range(size):
                every.result(rank)
        finally:
            every.end()

    def test_splits(self) -> None:
        ranks.run(self, 5, splits)

    def test_garbage(self) -> None:
        self._run(garbage)

    def test_last_reference(self) -> None:
        self._run(last_reference)

    def test_collected_inside(self) -> None:
        self._run(collected_inside)

    def test_parent_dropped(self) -> None:
        self._run(parent_dropped)

    def test_interrupted_close(self) -> None:
        self._run(interrupted_close)

    def test_closed_twice(self) -> None:
        ranks.run(self, 2, closed_twice)

    def test_returned_inside(self) -> None:
        """The garbage collector gives back devices while this thread opens or closes some."""
        closed: List[int] = []
        leases: List[Any] = []

        def reenter(*_: Any) -> int:
            if leases:
                leases.pop().close()
            return 1

        def close(handle: int) -> None:
            reenter()
            closed.append(handle)

        with mock.patch.object(devices, "_open_device", reenter):
            with mock.patch.object(devices._lib, "device_close", close):
                leases.append(devices.Lease(["local"]))
                lease = devices.Lease(["fabric:a"])
                self.assertEqual(list(devices._open), [devices.parse("fabric:a")])
                leases.append(devices.Lease(["fabric:b"]))
                lease.close()
        self.assertEqual((len(closed), opened()), (3, 0))

    def test_shared_device(self) -> None:
        self._run(shared_device)

    def test_pending_at_close(self) -> None:
        ranks.run(self, 2, pending_at_close)

    def test_closed_alone(self) -> None:
        ranks.run(self, 3, closed_alone)

    def test_fork(self) -> None:
        ranks.run(self, 2, forks)

    def test_late_result(self) -> None:
        """The result of an interrupted call is discarded when it comes."""
        late, discarded = threading.Event(), threading.Event()

        def call() -> int:
            os.kill(os.getpid(), signal.SIGINT)
            late.wait(ranks.LIMIT)
            return 7

        def discard(result: int) -> None:
            if result == 7:
                discarded.set()

        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with self.assertRaises(KeyboardInterrupt):
                interrupts.interruptible(call, discard)
        finally:
            signal.signal(signal.SIGINT, handler)
        late.set()
        self.assertTrue(discarded.wait(ranks.LIMIT))

    def test_interrupted_join(self) -> None:
        alone = ranks.Ranks()
        try:
            alone.add(interrupted_join, ())
            alone.result(0)
        finally:
            alone.end()

    def _exits(self, how: str) -> List[str]:
        """Runs EXIT as two ranks, and returns what each printed, with its exit status."""
        job = ranks.new_job(self)
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", EXIT, job, str(rank), how],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(2)
        ]
        found = []
        try:
            for process in processes:
                output = process.communicate(timeout=ranks.LIMIT)[0]
                found.append(f"{process.returncode} {output}")
        finally:
            for process in processes:
                process.kill()
                process.wait()
        return found

    def test_exit(self) -> None:
        """Forgotten communicators, pending requests and threads do not keep a process."""
        for how in ("forgotten", "pending", "thread"):
            with self.subTest(how):
                found = self._exits(how)
                # A daemon thread may still say that its operation was aborted.
                wanted = [text[:2] for text in found] if how == "thread" else found
                self.assertEqual(wanted, ["0 ", "0 "])

    def test_exit_by_exception(self) -> None:
        found = self._exits("raise")
        self.assertIn("0 told: rank 1 aborted: rank 1 ended with RuntimeError: the re", found[0])
        self.assertTrue(found[1].startswith("1 "), found[1])


if __name__ == "__main__":
    unittest.main()
