# SPDX-License-Identifier: BSD-3-Clause
"""Operations that reduce. See `ferrule.Communicator` for what all operations have in common."""

from typing import Any, Optional, overload

from . import _lib, buffers
from .arrays import A, Array, Async, Sync, T
from .operations import add, check_count, check_same_type, checked_rank, divided, op_code
from .requests import Operation, Request


class Reductions:
    """all_reduce, reduce_scatter and reduce."""

    rank: int
    size: int

    def _submit(self, operation: Operation, async_op: bool) -> Any:
        raise NotImplementedError

    @overload
    def all_reduce(
        self, x: A, op: str = ..., *, out: Optional[A] = ..., wire: str = ..., scalar: Any = ...,
        stream: Optional[int] = ..., async_op: Sync = ...,
    ) -> A: ...

    @overload
    def all_reduce(
        self, x: A, op: str = ..., *, out: Optional[A] = ..., wire: str = ..., scalar: Any = ...,
        stream: Optional[int] = ..., async_op: Async,
    ) -> Request[A]: ...

    @overload
    def all_reduce(
        self, x: Array, op: str = ..., *, out: Optional[Array] = ..., wire: str = ...,
        scalar: Any = ..., stream: Optional[int] = ..., async_op: bool = ...,
    ) -> Any: ...

    def all_reduce(
        self,
        x: Any,
        op: str = "sum",
        *,
        out: Any = None,
        wire: str = "same",
        scalar: Any = None,
        stream: Optional[int] = None,
        async_op: bool = False,
    ) -> Any:
        """Reduces x over all ranks; every rank gets the result. Returns x, or `out`.

        Without `out` the result replaces x. With `out`, an array of the same type and number of
        elements, x stays as it is. `op`: "sum", "prod", "max", "min", "avg" or "premul_sum" (each
        rank's x times its `scalar`). Results are bitwise the same on all ranks.
        """
        what = "all_reduce"
        operation = Operation(what)
        if out is None:
            send = recv = buffers.writable(x, what)
        else:
            send, recv = buffers.readable(x, what), buffers.writable(out, f"{what}: out")
            check_same_type(what, send, recv)
            check_count(f"{what}: out", recv, send.count)
        add(operation, _lib.ALLREDUCE, send, recv, send.count, op=op_code(op), wire=wire,
            scalar=scalar, stream=stream)
        operation.result = x if out is None else out
        return self._submit(operation, async_op)

    @overload
    def reduce_scatter(
        self, x: T, op: str = ..., *, out: Optional[T] = ..., wire: str = ..., scalar: Any = ...,
        stream: Optional[int] = ..., async_op: Sync = ...,
    ) -> T: ...

    @overload
    def reduce_scatter(
        self, x: T, op: str = ..., *, out: Optional[T] = ..., wire: str = ..., scalar: Any = ...,
        stream: Optional[int] = ..., async_op: Async,
    ) -> Request[T]: ...

    @overload
    def reduce_scatter(
        self, x: Array, op: str = ..., *, out: Optional[Array] = ..., wire: str = ...,
        scalar: Any = ..., stream: Optional[int] = ..., async_op: bool = ...,
    ) -> Any: ...

    def reduce_scatter(
        self,
        x: Any,
        op: str = "sum",
        *,
        out: Any = None,
        wire: str = "same",
        scalar: Any = None,
        stream: Optional[int] = None,
        async_op: bool = False,
    ) -> Any:
        """Reduces x over all ranks; rank i gets the i-th part. Returns `out`, or a new array.

        x has `size` times as many elements as `out`. A new array has the shape of x, with the first
        dimension divided by `size`. In place: `out` is this rank's part of x. `op` and `scalar` as
        for all_reduce().
        """
        what = "reduce_scatter"
        operation = Operation(what)
        send = buffers.readable(x, what)
        if out is None:
            rows = divided(what, send, self.size)
            out = buffers.new_like(x, send, (rows,) + send.shape[1:], what)
        recv = buffers.writable(out, f"{what}: out")
        check_same_type(what, send, recv)
        check_count(what, send, recv.count * self.size)
        add(operation, _lib.REDUCE_SCATTER, send, recv, recv.count, op=op_code(op), wire=wire,
            scalar=scalar, stream=stream)
        operation.result = out
        return self._submit(operation, async_op)

    @overload
    def reduce(
        self, x: A, dst: int = ..., op: str = ..., *, out: Optional[A] = ..., wire: str = ...,
        scalar: Any = ..., stream: Optional[int] = ..., async_op: Sync = ...,
    ) -> Optional[A]: ...

    @overload
    def reduce(
        self, x: A, dst: int = ..., op: str = ..., *, out: Optional[A] = ..., wire: str = ...,
        scalar: Any = ..., stream: Optional[int] = ..., async_op: Async,
    ) -> Request[Optional[A]]: ...

    @overload
    def reduce(
        self, x: Array, dst: int = ..., op: str = ..., *, out: Optional[Array] = ...,
        wire: str = ..., scalar: Any = ..., stream: Optional[int] = ..., async_op: bool = ...,
    ) -> Any: ...

    def reduce(
        self,
        x: Any,
        dst: int = 0,
        op: str = "sum",
        *,
        out: Any = None,
        wire: str = "same",
        scalar: Any = None,
        stream: Optional[int] = None,
        async_op: bool = False,
    ) -> Any:
        """Reduces x over all ranks; only rank `dst` gets the result. Others return None.

        Rank `dst` returns x, which the result replaces, or `out`. Other ranks only send x, and
        their `out` is not used. `op` and `scalar` as for all_reduce().
        """
        what = "reduce"
        operation = Operation(what)
        checked_rank(what, dst, self.size)
        recv: Optional[buffers.View] = None
        send = buffers.readable(x, what)
        if self.rank == dst:
            result = x if out is None else out
            recv = buffers.writable(result, what)
            check_same_type(what, send, recv)
            check_count(f"{what}: out", recv, send.count)
            operation.result = result
        add(operation, _lib.REDUCE, send, recv, send.count, root=dst, op=op_code(op), wire=wire,
            scalar=scalar, stream=stream)
        return self._submit(operation, async_op)
