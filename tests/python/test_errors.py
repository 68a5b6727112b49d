# SPDX-License-Identifier: BSD-3-Clause
"""Errors: wrong arguments, ranks that differ, ranks that die, timeouts, aborts."""

import errno
import os
import pickle
import signal
import unittest
from typing import Any, Callable, Tuple, Type

import ranks
import numpy as np

import ferrule
from ferrule import errors


def fails(
    kind: Type[BaseException], text: str, call: Callable[..., Any], *args: Any, **options: Any
) -> Any:
    """The call raises this class, and the message has the text."""
    try:
        call(*args, **options)
    except kind as error:
        assert text in str(error), f"{text!r} is not in {error!s}"
        return error
    raise AssertionError(f"no {kind.__name__}: {call} {args} {options}")


def arguments(comm: Any) -> None:
    """Nothing was sent when arguments are wrong: the communicator stays usable."""
    x = np.ones((4, 4), np.float32)
    readonly = np.ones(4)
    readonly.flags.writeable = False
    fails(ValueError, "C-contiguous", comm.all_reduce, x.T[1:])
    fails(ValueError, "C-contiguous", comm.all_reduce, x[:, 1])
    fails(ValueError, "C-contiguous", comm.all_gather, memoryview(bytearray(10))[::2])
    fails(ValueError, "read-only", comm.all_reduce, readonly)
    fails(ValueError, "read-only", comm.all_reduce, b"bytes")
    fails(ValueError, "out: the array is read-only", comm.all_reduce, np.ones(4), out=readonly)
    fails(ValueError, "float64, not float32", comm.all_reduce, x, out=np.ones((4, 4)))
    fails(ValueError, "15 elements, not 16", comm.all_reduce, x, out=np.ones(15, np.float32))
    fails(ValueError, "9 elements, not 8", comm.all_gather, np.ones(4), out=np.ones(9))
    fails(ValueError, "multiple of 2", comm.reduce_scatter, np.ones(3))
    fails(ValueError, "4 elements, not 6", comm.reduce_scatter, np.ones(4), out=np.ones(3))
    fails(ValueError, "read-only", comm.broadcast, readonly, 1 - comm.rank)
    fails(ValueError, "read-only", comm.broadcast, readonly, comm.rank, wire="bfloat16")
    comm.broadcast(readonly if comm.rank == 0 else np.ones(4))
    fails(ValueError, "multiple of 2", comm.all_to_all, np.ones(3))
    fails(ValueError, "rank 2 is not between 0 and 1", comm.broadcast, x, 2)
    fails(ValueError, "rank -1", comm.send, x, -1)
    fails(ValueError, "out=", comm.scatter, None, 1 - comm.rank)
    fails(ValueError, "int16 cannot be reduced", comm.all_reduce, np.ones(1, np.int16))
    fails(ValueError, "bool can be reduced by", comm.all_reduce, np.ones(1, bool), "avg")
    fails(ValueError, "complex64 can be reduced by", comm.all_reduce, np.ones(1, "c8"), "max")
    fails(ValueError, "processor's order", comm.all_reduce, np.ones(1, ">f4"))
    fails(ValueError, "Python objects", comm.all_gather, np.array([None]))
    fails(ValueError, "Python objects", comm.all_gather, np.zeros(1, [("a", "O")]))
    fails(TypeError, "list is no array", comm.all_reduce, [1.0])
    fails(TypeError, "None", comm.all_reduce, None)
    fails(ValueError, "median", comm.all_reduce, x, "median")
    fails(ValueError, "int4", comm.all_reduce, x, wire="int4")
    fails(ValueError, "needs scalar=", comm.all_reduce, x, "premul_sum")
    fails(ValueError, "premul_sum", comm.all_reduce, x, scalar=2)
    small = np.ones(1, np.int8)
    fails(ValueError, "does not fit int8", comm.all_reduce, small, "premul_sum", scalar=300)
    fails(ValueError, "no number", comm.all_reduce, x, "premul_sum", scalar="a")
    fails(ValueError, "group", comm.group().send, x, 0, async_op=True)
    fails(ValueError, "no operations", comm.group().start)
    for name in ("all_gather_object", "gather_object", "broadcast_object"):
        # They read results of a first operation, which has not run in a group.
        assert not hasattr(comm.group(), name)
        fails(ValueError, "not the name of one", comm.explain, name, 1)
    fails(ValueError, "not the name of one", comm.explain, "_submit", 1)
    fails(ValueError, "", comm.all_gather, x[0], out=np.ravel(x)[1:9])  # overlap
    comm.barrier()


def mismatch(comm: Any) -> str:
    x = np.ones(4 + comm.rank)
    error = fails(ferrule.MismatchError, "", comm.all_reduce, x)
    assert error.errno == errno.EPROTO
    again = fails(ferrule.MismatchError, "", comm.barrier)
    assert isinstance(again, OSError)
    return str(error)


def killed(comm: Any) -> Tuple[str, int]:
    comm.barrier()
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    error = fails(ferrule.PeerLostError, "", comm.all_reduce, np.ones(10))
    assert isinstance(error, ConnectionError)
    return str(error), error.errno


def killed_futures(comm: Any) -> None:
    """All requests report the death of a rank: those with a future and those without."""
    pids = comm.all_gather_object(os.getpid())
    if comm.rank == 1:
        while True:
            signal.pause()
    requests = [comm.all_reduce(np.ones(10), async_op=True) for _ in range(6)]
    found = [request.future() for request in requests[:3]]
    os.kill(pids[1], signal.SIGKILL)
    for request in requests[3:]:
        fails(ferrule.PeerLostError, "", request.wait)
        fails(ferrule.PeerLostError, "", request.test)
        assert "failed" in repr(request)
    for future, request in zip(found, requests):
        assert isinstance(future.exception(ranks.LIMIT), ferrule.PeerLostError)
        fails(ferrule.PeerLostError, "", request.wait)
    fails(ferrule.PeerLostError, "", comm.barrier)


def too_late(job: str, rank: int) -> str:
    """Rank 1 takes no part until rank 0 has given up."""
    with ferrule.join(f"{job}-2", rank, 2, timeout=ranks.LIMIT) as other:
        comm = ferrule.join(job, rank, 2, timeout=ranks.LIMIT, operation_timeout=0.3)
        text = ""
        if rank == 0:
            error = fails(ferrule.TimeoutError, "", comm.all_reduce, np.ones(10))
            assert isinstance(error, TimeoutError) and error.errno == errno.ETIMEDOUT
            text = str(error)
        other.barrier()
        comm.close()
        return text


def aborted(comm: Any) -> str:
    if comm.rank == 0:
        comm.abort("the input is gone")
        error = fails(ferrule.AbortedError, "the input is gone", comm.barrier)
        comm.abort("again")
        return str(error)
    return str(fails(ferrule.AbortedError, "the input is gone", comm.barrier))


def with_error(job: str, rank: int) -> str:
    """An exception in a with block reaches the other ranks."""
    try:
        with ferrule.join(job, rank, 2, timeout=ranks.LIMIT) as comm:
            comm.barrier()
            if rank == 0:
                raise KeyError("no such layer")
            comm.barrier()
    except (KeyError, ferrule.AbortedError) as error:
        return str(error)
    raise AssertionError("nothing was raised")


def joins() -> None:
    """Errors of join() itself."""
    join = ferrule.join
    fails(ferrule.Error, "FRL_RANK", join)
    fails(ValueError, "rank= and size=", join, "job")
    fails(ValueError, "name of the job", join, rank=0, size=1)
    fails(ValueError, "not by both", join, "job", 0, 1, unique_id=b"x")
    fails(ValueError, "too long", join, rank=0, size=1, unique_id=b"x" * 200)
    fails(ValueError, "", join, rank=0, size=1, unique_id=b"nonsense")
    fails(ValueError, "", join, "job", 1, 1)
    fails(ValueError, "", join, "bad/../name\n", 0, 1)
    fails(ValueError, "neither", join, "job", 0, 1, progress="often")
    fails(ValueError, "timeout", join, "job", 0, 1, timeout=-1)
    fails(ValueError, "no device", join, "job", 0, 1, devices=["eth0"])
    fails(ValueError, "each device once", join, "job", 0, 1, devices=["local", "local"])
    fails(ValueError, "each device once", join, "job", 0, 1, devices=[])
    fails(ferrule.Error, "no-such-device", join, "job", 0, 1, devices=["packet:no-such-device=10.1.1.1/24"])
    fails(ValueError, "", join, "job", 0, 1, algos="nonsense")
    error = fails(ferrule.TimeoutError, "rank 1", join, "alone", 0, 2, timeout=0.3)
    assert error.errno == errno.ETIMEDOUT
    with join("job", 0, 1, devices=["local"], algos="ring", operation_timeout=3.5) as comm:
        comm.barrier()
        assert comm.size == 1
    with join(unique_id=ferrule.unique_id(), rank=0, size=1) as comm:
        comm.barrier()
    closed = f"communicator {comm.name} is closed"
    fails(ValueError, closed, comm.barrier)
    fails(ValueError, closed, comm.split, 0)
    comm.close()
    comm.abort()
    assert "closed" in repr(comm)


class Errors(unittest.TestCase):
    def test_classes(self) -> None:
        for number, kind in (
            (errno.EINVAL, ValueError),
            (errno.ENOMEM, MemoryError),
            (errno.ENOTSUP, NotImplementedError),
            (errno.EPROTO, ferrule.MismatchError),
            (errno.ETIMEDOUT, ferrule.TimeoutError),
            (errno.ECONNRESET, ferrule.PeerLostError),
            (errno.ECANCELED, ferrule.AbortedError),
            (errno.EIO, ferrule.Error),
        ):
            error = errors.from_code(-number, "a sentence")
            self.assertIs(type(error), kind)
            self.assertEqual(str(error), "a sentence")
            if isinstance(error, ferrule.Error):
                self.assertEqual(error.errno, number)
                copy = pickle.loads(pickle.dumps(error))
                self.assertEqual((str(copy), copy.errno), ("a sentence", number))

    def test_arguments(self) -> None:
        ranks.run(self, 2, arguments)

    def test_mismatch(self) -> None:
        for text in ranks.run(self, 2, mismatch):
            self.assertIn("allreduce", text)

    def _run_killed(self, function: Callable[..., Any]) -> Any:
        job, both = ranks.new_job(self), ranks.Ranks()
        try:
            for rank in range(2):
                both.add(function, (), job=job, rank=rank, size=2)
            return both.result(0)
        finally:
            both.end()

    def test_killed(self) -> None:
        text, number = self._run_killed(killed)
        self.assertIn("rank 1", text)
        self.assertEqual(number, errno.ECONNRESET)

    def test_killed_futures(self) -> None:
        self._run_killed(killed_futures)

    def test_timeout(self) -> None:
        job, both = ranks.new_job(self), ranks.Ranks()
        try:
            for rank in range(2):
                both.add(too_late, (job, rank))
            self.assertIn("rank 1", both.result(0))
            both.result(1)
        finally:
            both.end()

    def test_aborted(self) -> None:
        ranks.run(self, 2, aborted)

    def test_with_error(self) -> None:
        job, both = ranks.new_job(self), ranks.Ranks()
        try:
            for rank in range(2):
                both.add(with_error, (job, rank))
            self.assertEqual(both.result(0), "'no such layer'")
            self.assertIn("rank 0 ended with KeyError: 'no such layer'", both.result(1))
        finally:
            both.end()

    def test_join(self) -> None:
        alone = ranks.Ranks()
        try:
            alone.add(joins, ())
            alone.result(0)
        finally:
            alone.end()


if __name__ == "__main__":
    unittest.main()
