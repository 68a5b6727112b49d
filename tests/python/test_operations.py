# SPDX-License-Identifier: BSD-3-Clause
"""Every operation, type and reduction, in place and out of place, against NumPy."""

import array
import unittest
from typing import Any

import ranks
import numpy as np

import ferrule

REAL = ["int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]
COPIED = REAL + ["int16", "uint16", "bool", "complex64", "complex128", "datetime64[s]", "U3", "S5"]
COUNTS = [0, 1, 7, 1000, 100_000]


def inputs(size: int, count: int, dtype: str) -> Any:
    """Returns the inputs of all ranks: small integers, whose sums and products are exact."""
    values = np.arange(size * count).reshape(size, count) % 3 + 1
    if dtype.startswith(("U", "S", "datetime")):
        return values.astype("int64").astype(dtype)
    return values.astype(dtype)


def equal(found: Any, wanted: Any, what: Any) -> None:
    np.testing.assert_array_equal(found, wanted, err_msg=str(what))
    assert found.dtype == wanted.dtype, (what, found.dtype, wanted.dtype)


def expected(op: str, all_inputs: Any) -> Any:
    """Returns the reduction over ranks, with integers as C has them."""
    dtype = all_inputs.dtype
    if op == "avg":
        total = all_inputs.sum(axis=0, dtype=dtype)
        size = len(all_inputs)
        return (total / dtype.type(size) if dtype.kind in "fc" else total // size).astype(dtype)
    reduce = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[op]
    return reduce.reduce(all_inputs, axis=0, dtype=dtype)


def reductions(comm: Any) -> None:
    for dtype in REAL:
        for op in ("sum", "prod", "max", "min", "avg"):
            for count in COUNTS if op == "sum" else [7]:
                what = (dtype, op, count)
                every = inputs(comm.size, count, dtype)
                wanted = expected(op, every)
                x = every[comm.rank].copy()
                out = np.empty_like(x)
                assert comm.all_reduce(x, op, out=out) is out
                if op == "avg" and dtype == "float16":  # rounded once, from float32
                    np.testing.assert_allclose(out, wanted, rtol=2**-10)
                    wanted = out
                equal(out, wanted, what)
                equal(x, every[comm.rank], what)
                assert comm.all_reduce(x, op) is x
                equal(x, wanted, what)


def other_reductions(comm: Any) -> None:
    n, rank = comm.size, comm.rank
    for dtype in ("float32", "int64", "complex128"):
        every = inputs(n, n * 5, dtype)
        total = every.sum(axis=0, dtype=dtype)
        part = comm.reduce_scatter(every[rank])
        equal(part, total[rank * 5 : rank * 5 + 5], dtype)
        x = every[rank].reshape(n, 5).copy()
        assert comm.reduce_scatter(x, out=x[rank]) is not None
        equal(x[rank], part, ("in place", dtype))
        for root in range(n):
            x = every[rank].copy()
            result = comm.reduce(x, root)
            if rank == root:
                assert result is x
                equal(x, total, ("reduce", dtype))
            else:
                assert result is None
                equal(x, every[rank], ("reduce: an input", dtype))
            out = np.zeros_like(x)
            x = every[rank].copy()
            result = comm.reduce(x, root, out=out)
            equal(out, total if rank == root else np.zeros_like(x), ("reduce out", dtype))
    flags = np.array([True, False, rank == 0])
    equal(comm.all_reduce(flags.copy()), np.array([True, False, True]), "any")
    equal(comm.all_reduce(flags.copy(), "prod"), np.array([True, False, n == 1]), "all")
    x = np.full(9, rank + 1, np.float32)
    comm.all_reduce(x, "premul_sum", scalar=0.5)
    equal(x, np.full(9, 0.5 * n * (n + 1) / 2, np.float32), "premul_sum")
    x = np.full(9, rank + 1, np.int32)
    comm.all_reduce(x, "premul_sum", scalar=rank)
    equal(x, np.full(9, sum(r * (r + 1) for r in range(n)), np.int32), "premul_sum")
    comm.all_reduce(x, "average")
    comm.all_reduce(x, "SUM")


def copies(comm: Any) -> None:
    n, rank = comm.size, comm.rank
    for dtype in COPIED:
        for count in (0, 6, 5000):
            what = (dtype, count)
            every = inputs(n, count, dtype)
            mine = every[rank].copy()
            equal(comm.all_gather(mine), every, what)
            equal(comm.all_gather(mine, out=np.empty(n * count, every.dtype)), every.ravel(), what)
            out = np.zeros_like(every)
            out[rank] = mine
            comm.all_gather(out[rank], out=out)
            equal(out, every, ("in place", what))
            for root in range(n):
                x = mine.copy()
                assert comm.broadcast(x, root) is x
                equal(x, every[root], ("broadcast", what))
                found = comm.gather(mine, root)
                if rank == root:
                    equal(found, every, ("gather", what))
                else:
                    assert found is None
                out = np.empty_like(mine)
                assert comm.scatter(every if rank == root else None, root, out=out) is out
                equal(out, every[rank], ("scatter", what))
            found = comm.all_to_all(np.broadcast_to(mine, (n, count)).copy())
            equal(found, every, ("all_to_all", what))
            if count:
                x = mine[:n].copy()
                comm.all_to_all(x, out=x)
                equal(x, every[:, rank], ("all_to_all in place", what))
    x = np.arange(2 * n).reshape(n, 2)
    if rank == 0:
        equal(comm.scatter(x), x[:1], "a new array")
    else:
        comm.scatter(None, out=np.empty((1, 2), x.dtype))
    comm.barrier()


def vectors(comm: Any) -> None:
    """Rank r sends r + i rows of two elements to rank i."""
    n, rank = comm.size, comm.rank
    send_counts = [rank + i for i in range(n)]
    recv_counts = [r + rank for r in range(n)]
    x = np.concatenate([np.full((rank + i, 2), 10 * rank + i, np.float64) for i in range(n)])
    wanted = np.concatenate([np.full((r + rank, 2), 10 * r + rank, np.float64) for r in range(n)])
    equal(comm.all_to_all_v(x, send_counts, recv_counts), wanted, "packed")
    # Pieces in reversed order.
    displs = [sum(recv_counts[r + 1 :]) for r in range(n)]
    out = comm.all_to_all_v(x, send_counts, recv_counts, recv_displs=displs)
    pieces = [np.full((r + rank, 2), 10 * r + rank, np.float64) for r in reversed(range(n))]
    equal(out, np.concatenate(pieces), "reversed")
    for wrong in ([1], [-1] * n, [10**9] * n):
        try:
            comm.all_to_all_v(x, wrong, recv_counts, out=out)
        except ValueError as error:
            assert "send_counts" in str(error), error
        else:
            raise AssertionError(f"{wrong} was accepted")


def points(comm: Any) -> None:
    n, rank = comm.size, comm.rank
    right, left = (rank + 1) % n, (rank - 1) % n
    x, y = np.full(1000, rank), np.empty(1000, int)
    with comm.group() as group:
        assert group.send(x, right) is x
        assert group.recv(y, left) is y
    equal(y, np.full(1000, left), "ring")
    group = comm.group()
    group.recv(y, right)
    group.send(x, left)
    assert group.start().wait() is None
    equal(y, np.full(1000, right), "ring")
    for _ in range(2):  # ping pong
        if rank == 0:
            comm.send(x, 1)
            comm.recv(y, 1)
            equal(y, np.full(1000, 1), "pong")
        elif rank == 1:
            comm.recv(y, 0)
            comm.send(x, 0)
    with comm.group():
        pass
    try:
        with comm.group() as group:
            group.send(x, right)
            raise KeyError
    except KeyError:
        pass
    comm.barrier()


def wires(comm: Any) -> None:
    for wire, bits in (("float16", 11), ("bfloat16", 8), ("int8", 7)):
        x = np.linspace(1, 2, 5000, dtype=np.float32) * (comm.rank + 1)
        wanted = np.linspace(1, 2, 5000, dtype=np.float32) * sum(range(1, comm.size + 1))
        comm.all_reduce(x, wire=wire)
        error = np.abs(x - wanted).max()
        assert 0 < error < 30 * 2.0**-bits, (wire, error)
        assert (comm.all_gather(x) == x).all(), "results are the same on all ranks"
    x = np.full(10, 1 + 2**-20, np.float32)
    comm.broadcast(x, 0, wire="bfloat16")
    equal(x, np.ones(10, np.float32), "the source rounds as well")


def buffers(comm: Any) -> None:
    n = comm.size
    for x in (bytearray([1, 2, 3]), array.array("i", [1, 2, 3]), memoryview(bytearray([1, 2, 3]))):
        assert comm.all_reduce(x) is x
        assert list(x) == [n, 2 * n, 3 * n], list(x)
    assert comm.all_gather(b"ab" if comm.rank else b"cd").tobytes() == b"cd" + b"ab" * (n - 1)
    x = ferrule.empty((300, 100), "float32")
    assert x.shape == (300, 100) and not x.any()
    x[:] = comm.rank
    comm.all_reduce(x)
    equal(x, np.full((300, 100), n * (n - 1) / 2, np.float32), "empty()")
    scalar = np.array(3.0)
    comm.all_reduce(scalar)
    assert scalar == 3.0 * n
    assert comm.all_gather(np.array(comm.rank)).tolist() == list(range(n))


def objects(comm: Any) -> None:
    mine = {"rank": comm.rank, "data": "x" * comm.rank * 1000}
    every = [{"rank": r, "data": "x" * r * 1000} for r in range(comm.size)]
    assert comm.all_gather_object(mine) == every
    for root in range(comm.size):
        found = comm.gather_object(mine, root)
        assert found == (every if comm.rank == root else None)
        assert comm.broadcast_object(mine, root) == every[root]


def explains(comm: Any) -> str:
    assert "auto" not in comm.explain("barrier")
    text = comm.explain("all_reduce", np.zeros(1 << 20))
    assert isinstance(text, str)
    return text


class Operations(unittest.TestCase):
    def test_reductions(self) -> None:
        ranks.run(self, 3, reductions)

    def test_other_reductions(self) -> None:
        ranks.run(self, 3, other_reductions)

    def test_copies(self) -> None:
        ranks.run(self, 3, copies)

    def test_vectors(self) -> None:
        ranks.run(self, 3, vectors)

    def test_points(self) -> None:
        ranks.run(self, 3, points)

    def test_wires(self) -> None:
        ranks.run(self, 2, wires)

    def test_buffers(self) -> None:
        ranks.run(self, 2, buffers)

    def test_objects(self) -> None:
        ranks.run(self, 3, objects)

    def test_explain(self) -> None:
        self.assertIn("thresholds", ranks.run(self, 2, explains)[0])

    def test_one_rank(self) -> None:
        for function in (reductions, other_reductions, vectors, buffers, objects):
            with self.subTest(function.__name__):
                ranks.run(self, 1, function)

    def test_packets(self) -> None:
        """The same without shared memory, and with progress in calls only."""
        packets = {"FRL_SHM": "0"}
        ranks.run(self, 2, other_reductions, environment=packets)
        ranks.run(self, 2, points, environment=packets, progress="inline")


if __name__ == "__main__":
    unittest.main()
