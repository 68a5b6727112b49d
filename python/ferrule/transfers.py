# SPDX-License-Identifier: BSD-3-Clause
"""Operations that copy. See `ferrule.Communicator` for what all operations have in common."""

from typing import Any, Optional, Sequence, Union, overload

from . import _lib, buffers
from .arrays import A, Array, Async, Sync, T
from .buffers import View
from .operations import add, add_vector, check_count, check_same_type, checked_rank, divided
from .requests import Operation, Request

Rows = Optional[Sequence[int]]


class Transfers:
    """broadcast, all_gather, gather, scatter, all_to_all, send, recv and barrier."""

    rank: int
    size: int

    def _submit(self, operation: Operation, async_op: bool) -> Any:
        raise NotImplementedError

    @overload
    def broadcast(
        self, x: A, src: int = ..., *, wire: str = ..., stream: Optional[int] = ...,
        async_op: Sync = ...,
    ) -> A: ...

    @overload
    def broadcast(
        self, x: A, src: int = ..., *, wire: str = ..., stream: Optional[int] = ..., async_op: Async
    ) -> Request[A]: ...

    @overload
    def broadcast(
        self, x: Array, src: int = ..., *, wire: str = ..., stream: Optional[int] = ...,
        async_op: bool,
    ) -> Any: ...

    def broadcast(
        self,
        x: Any,
        src: int = 0,
        *,
        wire: str = "same",
        stream: Optional[int] = None,
        async_op: bool = False,
    ) -> Any:
        """Copies x of rank `src` into x of all other ranks. Returns x."""
        what = "broadcast"
        operation = Operation(what)
        is_source = checked_rank(what, src, self.size) == self.rank
        # A wire type rounds the source's own data as well.
        use = buffers.readable if is_source and wire == "same" else buffers.writable
        view = use(x, what)
        add(operation, _lib.BROADCAST, view if is_source else None, view, view.count, root=src,
            wire=wire, stream=stream)
        operation.result = x
        return self._submit(operation, async_op)

    @overload
    def all_gather(
        self, x: T, *, out: Optional[T] = ..., wire: str = ..., stream: Optional[int] = ...,
        async_op: Sync = ...,
    ) -> T: ...

    @overload
    def all_gather(
        self, x: T, *, out: Optional[T] = ..., wire: str = ..., stream: Optional[int] = ...,
        async_op: Async,
    ) -> Request[T]: ...

    @overload
    def all_gather(
        self, x: Array, *, out: Optional[Array] = ..., wire: str = ..., stream: Optional[int] = ...,
        async_op: bool = ...,
    ) -> Any: ...

    def all_gather(
        self,
        x: Any,
        *,
        out: Any = None,
        wire: str = "same",
        stream: Optional[int] = None,
        async_op: bool = False,
    ) -> Any:
        """Gathers x of all ranks, in the order of ranks. Returns `out`, or a new array.

        `out` has `size` times as many elements as x, in any shape. A new array has the shape of x
        with a first dimension of `size`. In place: x is this rank's part of `out`.
        """
        what = "all_gather"
        operation = Operation(what)
        send = buffers.readable(x, what)
        recv = self._gathered(what, x, send, operation, out)
        add(operation, _lib.ALLGATHER, send, recv, send.count, wire=wire, stream=stream)
        return self._submit(operation, async_op)

    def _gathered(self, what: str, x: Any, send: View, operation: Operation, out: Any) -> View:
        if out is None:
            out = buffers.new_like(x, send, (self.size,) + send.shape, what)
        recv = buffers.writable(out, f"{what}: out")
        check_same_type(what, send, recv)
        check_count(f"{what}: out", recv, send.count * self.size)
        operation.result = out
        return recv

    @overload
    def gather(
        self, x: T, dst: int = ..., *, out: Optional[T] = ..., wire: str = ...,
        stream: Optional[int] = ..., async_op: Sync = ...,
    ) -> Optional[T]: ...

    @overload
    def gather(
        self, x: T, dst: int = ..., *, out: Optional[T] = ..., wire: str = ...,
        stream: Optional[int] = ..., async_op: Async,
    ) -> Request[Optional[T]]: ...

    @overload
    def gather(
        self, x: Array, dst: int = ..., *, out: Optional[Array] = ..., wire: str = ...,
        stream: Optional[int] = ..., async_op: bool = ...,
    ) -> Any: ...

    def gather(
        self,
        x: Any,
        dst: int = 0,
        *,
        out: Any = None,
        wire: str = "same",
        stream: Optional[int] = None,
        async_op: bool = False,
    ) -> Any:
        """Gathers x of all ranks at rank `dst`, as all_gather() does. Other ranks return None."""
        what = "gather"
        operation = Operation(what)
        send = buffers.readable(x, what)
        recv: Optional[View] = None
        if checked_rank(what, dst, self.size) == self.rank:
            recv = self._gathered(what, x, send, operation, out)
        add(operation, _lib.GATHER, send, recv, send.count, root=dst, wire=wire, stream=stream)
        return self._submit(operation, async_op)

    @overload
    def scatter(
        self, x: Optional[T], src: int = ..., *, out: Optional[T] = ..., wire: str = ...,
        stream: Optional[int] = ..., async_op: Sync = ...,
    ) -> T: ...

    @overload
    def scatter(
        self, x: Optional[T], src: int = ..., *, out: Optional[T] = ..., wire: str = ...,
        stream: Optional[int] = ..., async_op: Async,
    ) -> Request[T]: ...

    @overload
    def scatter(
        self, x: Optional[Array], src: int = ..., *, out: Optional[Array] = ..., wire: str = ...,
        stream: Optional[int] = ..., async_op: bool = ...,
    ) -> Any: ...

    def scatter(
        self,
        x: Any,
        src: int = 0,
        *,
        out: Any = None,
        wire: str = "same",
        stream: Optional[int] = None,
        async_op: bool = False,
    ) -> Any:
        """Sends the i-th part of x of rank `src` to rank i. Returns `out`.

        Other ranks need `out`, because they do not know its shape, and their x is not used (None).
        At rank `src` x has `size` times as many elements as `out`. A new array there has the shape
        of x with the first dimension divided by `size`. In place: `out` is this rank's part of x.
        """
        what = "scatter"
        operation = Operation(what)
        send: Optional[View] = None
        if checked_rank(what, src, self.size) == self.rank:
            send = buffers.readable(x, what)
            if out is None:
                rows = divided(what, send, self.size)
                out = buffers.new_like(x, send, (rows,) + send.shape[1:], what)
        elif out is None:
            raise ValueError(f"{what}: ranks other than src={src} need out=")
        recv = buffers.writable(out, f"{what}: out")
        if send is not None:
            check_same_type(what, send, recv)
            check_count(what, send, recv.count * self.size)
        add(operation, _lib.SCATTER, send, recv, recv.count, root=src, wire=wire, stream=stream)
        operation.result = out
        return self._submit(operation, async_op)

    @overload
    def all_to_all(
        self, x: T, *, out: Optional[T] = ..., wire: str = ..., stream: Optional[int] = ...,
        async_op: Sync = ...,
    ) -> T: ...

    @overload
    def all_to_all(
        self, x: T, *, out: Optional[T] = ..., wire: str = ..., stream: Optional[int] = ...,
        async_op: Async,
    ) -> Request[T]: ...

    @overload
    def all_to_all(
        self, x: Array, *, out: Optional[Array] = ..., wire: str = ..., stream: Optional[int] = ...,
        async_op: bool = ...,
    ) -> Any: ...

    def all_to_all(
        self,
        x: Any,
        *,
        out: Any = None,
        wire: str = "same",
        stream: Optional[int] = None,
        async_op: bool = False,
    ) -> Any:
        """Sends the i-th part of x to rank i, and receives a part of each. Returns `out`.

        The number of elements of x is a multiple of `size`. Part i of the result is from rank i.
        Without `out` the result is a new array like x. In place: `out` is x.
        """
        what = "all_to_all"
        operation = Operation(what)
        send = buffers.readable(x, what)
        if send.count % self.size != 0:
            raise ValueError(f"{what}: {send.count} elements are no multiple of {self.size}")
        if out is None:
            out = buffers.new_like(x, send, send.shape, what)
        recv = buffers.writable(out, f"{what}: out")
        check_same_type(what, send, recv)
        check_count(f"{what}: out", recv, send.count)
        count = send.count // self.size
        add(operation, _lib.ALLTOALL, send, recv, count, wire=wire, stream=stream)
        operation.result = out
        return self._submit(operation, async_op)

    @overload
    def all_to_all_v(
        self, x: T, send_counts: Sequence[int], recv_counts: Sequence[int], *,
        send_displs: Rows = ..., recv_displs: Rows = ..., out: Optional[T] = ..., wire: str = ...,
        stream: Optional[int] = ..., async_op: Sync = ...,
    ) -> T: ...

    @overload
    def all_to_all_v(
        self, x: T, send_counts: Sequence[int], recv_counts: Sequence[int], *,
        send_displs: Rows = ..., recv_displs: Rows = ..., out: Optional[T] = ..., wire: str = ...,
        stream: Optional[int] = ..., async_op: Async,
    ) -> Request[T]: ...

    @overload
    def all_to_all_v(
        self, x: Array, send_counts: Sequence[int], recv_counts: Sequence[int], *,
        send_displs: Rows = ..., recv_displs: Rows = ..., out: Optional[Array] = ...,
        wire: str = ..., stream: Optional[int] = ..., async_op: bool = ...,
    ) -> Any: ...

    def all_to_all_v(
        self,
        x: Any,
        send_counts: Sequence[int],
        recv_counts: Sequence[int],
        *,
        send_displs: Rows = None,
        recv_displs: Rows = None,
        out: Any = None,
        wire: str = "same",
        stream: Optional[int] = None,
        async_op: bool = False,
    ) -> Any:
        """Sends pieces of different lengths to all ranks, and receives such. Returns `out`.

        Counts and offsets (`displs`) are rows of the first dimension, one for each rank. Without
        offsets the pieces follow each other. A rank receives from each rank what that rank sends to
        it. Without `out` the result is a new array with the sum of `recv_counts` as first
        dimension. Never in place.
        """
        what = "all_to_all_v"
        operation = Operation(what)
        send = buffers.readable(x, what)
        if out is None:
            shape = (sum(recv_counts),) + send.shape[1:]
            out = buffers.new_like(x, send, shape, what)
        recv = buffers.writable(out, f"{what}: out")
        check_same_type(what, send, recv)
        add_vector(operation, send, recv, (send_counts, send_displs), (recv_counts, recv_displs),
            self.size, wire, stream)
        operation.result = out
        return self._submit(operation, async_op)

    @overload
    def send(
        self, x: A, dst: int, *, wire: str = ..., stream: Optional[int] = ..., async_op: Sync = ...
    ) -> A: ...

    @overload
    def send(
        self, x: A, dst: int, *, wire: str = ..., stream: Optional[int] = ..., async_op: Async
    ) -> Request[A]: ...

    @overload
    def send(
        self, x: Array, dst: int, *, wire: str = ..., stream: Optional[int] = ..., async_op: bool
    ) -> Any: ...

    def send(
        self,
        x: Any,
        dst: int,
        *,
        wire: str = "same",
        stream: Optional[int] = None,
        async_op: bool = False,
    ) -> Any:
        """Sends x to rank `dst`. Returns x.

        The n-th send() to a rank matches the n-th recv() there. Both are started between the same
        two collectives, with the same number of elements and type. Waits until the receiver has it.
        Two ranks that send to each other use a group(), or `async_op`.
        """
        what = "send"
        operation = Operation(what)
        view = buffers.readable(x, what)
        checked_rank(what, dst, self.size)
        add(operation, _lib.SEND, view, None, view.count, root=dst, wire=wire, stream=stream)
        operation.result = x
        return self._submit(operation, async_op)

    @overload
    def recv(
        self, x: A, src: int, *, wire: str = ..., stream: Optional[int] = ..., async_op: Sync = ...
    ) -> A: ...

    @overload
    def recv(
        self, x: A, src: int, *, wire: str = ..., stream: Optional[int] = ..., async_op: Async
    ) -> Request[A]: ...

    @overload
    def recv(
        self, x: Array, src: int, *, wire: str = ..., stream: Optional[int] = ..., async_op: bool
    ) -> Any: ...

    def recv(
        self,
        x: Any,
        src: int,
        *,
        wire: str = "same",
        stream: Optional[int] = None,
        async_op: bool = False,
    ) -> Any:
        """Receives into x what rank `src` sends; see send(). Returns x."""
        what = "recv"
        operation = Operation(what)
        view = buffers.writable(x, what)
        checked_rank(what, src, self.size)
        add(operation, _lib.RECV, None, view, view.count, root=src, wire=wire, stream=stream)
        operation.result = x
        return self._submit(operation, async_op)

    @overload
    def barrier(self, *, async_op: Sync = ...) -> None: ...

    @overload
    def barrier(self, *, async_op: Async) -> Request[None]: ...

    @overload
    def barrier(self, *, async_op: bool) -> Any: ...

    def barrier(self, *, async_op: bool = False) -> Union[None, Request[None]]:
        """Waits until all ranks have entered."""
        operation = Operation("barrier")
        add(operation, _lib.BARRIER, None, None, 0)
        result: Union[None, Request[None]] = self._submit(operation, async_op)
        return result
