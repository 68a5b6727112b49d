# SPDX-License-Identifier: BSD-3-Clause
"""The operations of a process group, under the names by which PyTorch calls them.

Methods take lists of tensors and options of torch.distributed, check everything, and return a Work.
They raise ValueError before anything is sent if a type, size or layout is not supported.
"""

import functools
from typing import Any, Callable, List, Optional, Sequence, TypeVar, cast

from .. import _lib
from ..buffers import View
from ..operations import add, add_vector
from .call import Call
from .types import reduction


F = TypeVar("F", bound=Callable[..., Any])


def _checked(method: F) -> F:
    """A refused operation discards those that are being coalesced."""

    @functools.wraps(method)
    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return method(self, *arguments, **options)
        except BaseException:
            self._batches.batch = None
            raise

    return cast(F, call)


def _root(options: Any) -> int:
    return int(getattr(options, "rootRank", options or 0))


class Operations:
    """allreduce, broadcast and the others."""

    _rank: int
    _size: int
    _wire: str

    def _submit(self, call: Call) -> Any:
        raise NotImplementedError

    def _reduce(
        self,
        call: Call,
        coll: int,
        send: View,
        recv: Optional[View],
        count: int,
        options: Any,
        root: int = 0,
        wire: Optional[str] = None,
    ) -> None:
        op, scalar = reduction(options)
        if wire is None:
            wire = self._wire if send.dtype.name == "float32" else "same"
        add(call.operation, coll, send, recv, count, root=root, op=op, wire=wire, scalar=scalar)

    # ---- reductions

    @_checked
    def allreduce(self, tensors: Any, opts: Any = None, wire: Optional[str] = None) -> Any:
        """Reduces a tensor in place. `wire` replaces that of the group's options."""
        call = Call("allreduce", [])
        tensor = call.single(tensors)
        call.outputs.append(tensor)
        memory = call.output(tensor, is_input=True)
        self._reduce(call, _lib.ALLREDUCE, memory, memory, memory.count, opts, wire=wire)
        return self._submit(call)

    @_checked
    def allreduce_coalesced(self, tensors: Sequence[Any], opts: Any = None) -> Any:
        """Reduces all tensors in place."""
        call = Call("allreduce_coalesced", list(tensors))
        for tensor in tensors:
            memory = call.output(tensor, is_input=True)
            self._reduce(call, _lib.ALLREDUCE, memory, memory, memory.count, opts)
        return self._submit(call)

    @_checked
    def reduce(self, tensors: Any, opts: Any = None, op: Any = None) -> Any:
        """Reduces a tensor; the root has the result in place."""
        call = Call("reduce", [])
        tensor, root = call.single(tensors), _root(opts)
        call.outputs.append(tensor)
        if self._rank == root:
            send = recv = call.output(tensor, is_input=True)
        else:
            send, recv = call.input(tensor), None
        how = opts if hasattr(opts, "reduceOp") else op
        self._reduce(call, _lib.REDUCE, send, recv, send.count, how, root)
        return self._submit(call)

    @_checked
    def reduce_scatter(
        self, output_tensors: Any, input_lists: Any, opts: Any = None
    ) -> Any:
        """Reduces a list of tensors, one for each rank."""
        call = Call("reduce_scatter", [])
        output, inputs = call.single(output_tensors), _list(call, input_lists)
        call.outputs.append(output)
        call.lists(inputs, self._size, output)
        send, recv = call.inputs(inputs), call.output(output)
        self._reduce(call, _lib.REDUCE_SCATTER, send, recv, recv.count, opts)
        return self._submit(call)

    def _scattered(self, call: Call, output: Any, input: Any, opts: Any) -> None:
        call.sizes(output, input, self._size)
        send, recv = call.input(input), call.output(output)
        self._reduce(call, _lib.REDUCE_SCATTER, send, recv, recv.count, opts)

    @_checked
    def _reduce_scatter_base(self, output: Any, input: Any, opts: Any = None) -> Any:
        """Reduces a tensor of as many parts as ranks."""
        call = Call("reduce_scatter_tensor", [output])
        self._scattered(call, output, input, opts)
        return self._submit(call)

    @_checked
    def reduce_scatter_tensor_coalesced(
        self, outputs: Sequence[Any], inputs: Sequence[Any], opts: Any = None
    ) -> Any:
        """Reduces several tensors of as many parts as ranks."""
        call = Call("reduce_scatter_tensor_coalesced", list(outputs))
        for output, input in zip(outputs, inputs):
            self._scattered(call, output, input, opts)
        return self._submit(call)

    # ---- copies

    @_checked
    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        """Copies the root's tensor to the others."""
        call = Call("broadcast", [])
        tensor, root = call.single(tensors), _root(opts)
        call.outputs.append(tensor)
        if self._rank == root:
            send = recv = call.input(tensor)
        else:
            send, recv = None, call.output(tensor)
        add(call.operation, _lib.BROADCAST, send, recv, recv.count, root=root)
        return self._submit(call)

    @_checked
    def allgather(self, output_lists: Any, input_tensors: Any, opts: Any = None) -> Any:
        """Gathers a tensor of each rank into a list."""
        call = Call("allgather", [])
        outputs, input = _list(call, output_lists), call.single(input_tensors)
        call.outputs += outputs
        self._listed(call, outputs, input)
        return self._submit(call)

    def _listed(self, call: Call, outputs: Sequence[Any], input: Any) -> None:
        call.lists(outputs, self._size, input)
        send, recv = call.input(input), call.outputs_of(outputs)
        add(call.operation, _lib.ALLGATHER, send, recv, send.count)

    @_checked
    def allgather_coalesced(
        self, output_lists: Sequence[Any], input_list: Sequence[Any], opts: Any = None
    ) -> Any:
        """Gathers several tensors: output_lists[rank][i] is input_list[i] of that rank."""
        call = Call("allgather_coalesced", [t for outputs in output_lists for t in outputs])
        if len(output_lists) != self._size:
            raise call.fail(f"there are {len(output_lists)} lists, not {self._size}")
        for number, input in enumerate(input_list):
            self._listed(call, [outputs[number] for outputs in output_lists], input)
        return self._submit(call)

    def _gathered(self, call: Call, output: Any, input: Any) -> None:
        call.sizes(input, output, self._size)
        send, recv = call.input(input), call.output(output)
        add(call.operation, _lib.ALLGATHER, send, recv, send.count)

    @_checked
    def _allgather_base(self, output: Any, input: Any, opts: Any = None) -> Any:
        """Gathers a tensor of each rank into one tensor."""
        call = Call("all_gather_into_tensor", [output])
        self._gathered(call, output, input)
        return self._submit(call)

    @_checked
    def allgather_into_tensor_coalesced(
        self, outputs: Sequence[Any], inputs: Sequence[Any], opts: Any = None
    ) -> Any:
        """Gathers several tensors, each into one tensor."""
        call = Call("allgather_into_tensor_coalesced", list(outputs))
        for output, input in zip(outputs, inputs):
            self._gathered(call, output, input)
        return self._submit(call)

    @_checked
    def gather(self, output_lists: Any, input_tensors: Any, opts: Any = None) -> Any:
        """Gathers a tensor of each rank into a list of the root."""
        call = Call("gather", [])
        input, root = call.single(input_tensors), _root(opts)
        send, recv = call.input(input), None
        if self._rank == root:
            outputs = _list(call, output_lists)
            call.outputs += outputs
            call.lists(outputs, self._size, input)
            recv = call.outputs_of(outputs)
        add(call.operation, _lib.GATHER, send, recv, send.count, root=root)
        return self._submit(call)

    @_checked
    def gather_single(self, output: Any, input: Any, opts: Any = None) -> Any:
        """Gathers a tensor of each rank into one tensor of the root."""
        call = Call("gather_single", [])
        root = _root(opts)
        send, recv = call.input(input), None
        if self._rank == root:
            call.sizes(input, output, self._size)
            call.outputs.append(output)
            recv = call.output(output)
        add(call.operation, _lib.GATHER, send, recv, send.count, root=root)
        return self._submit(call)

    @_checked
    def scatter(self, output_tensors: Any, input_lists: Any, opts: Any = None) -> Any:
        """Sends each rank a tensor of the root's list."""
        call = Call("scatter", [])
        output, root = call.single(output_tensors), _root(opts)
        call.outputs.append(output)
        send, recv = None, call.output(output)
        if self._rank == root:
            inputs = _list(call, input_lists)
            call.lists(inputs, self._size, output)
            send = call.inputs(inputs)
        add(call.operation, _lib.SCATTER, send, recv, recv.count, root=root)
        return self._submit(call)

    @_checked
    def alltoall_base(
        self,
        output: Any,
        input: Any,
        output_split_sizes: Optional[List[int]] = None,
        input_split_sizes: Optional[List[int]] = None,
        opts: Any = None,
    ) -> Any:
        """Sends each rank a part of the first dimension, of equal or of given lengths."""
        call = Call("all_to_all_single", [output])
        if output.dtype != input.dtype:
            raise call.fail(f"the tensors are {output.dtype} and {input.dtype}")
        send, recv = call.input(input), call.output(output)
        if not output_split_sizes and not input_split_sizes:
            if send.count != recv.count or send.count % self._size != 0:
                raise call.fail(
                    f"{send.count} and {recv.count} elements are not the same multiple of "
                    f"{self._size} ranks"
                )
            count = send.count // self._size
            add(call.operation, _lib.ALLTOALL, send, recv, count)
            return self._submit(call)
        send.shape, recv.shape = tuple(input.shape), tuple(output.shape)
        add_vector(
            call.operation,
            send,
            recv,
            (self._rows(call, input, input_split_sizes), None),
            (self._rows(call, output, output_split_sizes), None),
            self._size,
            "same",
            None,
        )
        return self._submit(call)

    def _rows(self, call: Call, tensor: Any, sizes: Optional[List[int]]) -> List[int]:
        rows = tensor.shape[0] if tensor.dim() > 0 else 0
        if not sizes:
            if rows % self._size != 0:
                raise call.fail(f"{rows} rows are no multiple of {self._size} ranks")
            return [rows // self._size] * self._size
        if sum(sizes) != rows:
            raise call.fail(f"the split sizes {list(sizes)} are not those of {rows} rows")
        return list(sizes)

    @_checked
    def alltoall(
        self, output_tensors: Sequence[Any], input_tensors: Sequence[Any], opts: Any = None
    ) -> Any:
        """Sends each rank a tensor of a list, and receives one of each."""
        call = Call("all_to_all", list(output_tensors))
        if len(output_tensors) != self._size or len(input_tensors) != self._size:
            raise call.fail(f"each list needs {self._size} tensors")
        send, recv = call.inputs(input_tensors), call.outputs_of(output_tensors)
        if send.dtype != recv.dtype:
            raise call.fail("the tensors have different types")
        add_vector(
            call.operation,
            send,
            recv,
            ([tensor.numel() for tensor in input_tensors], None),
            ([tensor.numel() for tensor in output_tensors], None),
            self._size,
            "same",
            None,
        )
        return self._submit(call)

    @_checked
    def send(self, tensors: Any, dst: int, tag: int = 0) -> Any:
        """Sends a tensor. Messages between two ranks keep their order; tags are not compared."""
        call = Call("send", [])
        tensor = call.single(tensors)
        call.outputs.append(tensor)
        memory = call.input(tensor)
        add(call.operation, _lib.SEND, memory, None, memory.count, root=dst)
        return self._submit(call)

    @_checked
    def recv(self, tensors: Any, src: int, tag: int = 0) -> Any:
        """Receives a tensor; see send()."""
        call = Call("recv", [])
        tensor = call.single(tensors)
        call.outputs.append(tensor)
        memory = call.output(tensor)
        add(call.operation, _lib.RECV, None, memory, memory.count, root=src)
        return self._submit(call)

    @_checked
    def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
        """Not supported: a receiver names the sender."""
        raise NotImplementedError("receiving from any rank is not supported: pass src=")

    @_checked
    def barrier(self, opts: Any = None) -> Any:
        """Waits for all ranks."""
        call = Call("barrier", [])
        add(call.operation, _lib.BARRIER, None, None, 0)
        return self._submit(call)

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """Not supported: the error of any operation that is late names the ranks it waits for."""
        raise NotImplementedError(
            "monitored_barrier() is not supported: the error of barrier() names the late ranks"
        )

    # Names from PyTorch 2.15 on.
    gather_into_tensor = gather_single
    all_gather_single = _allgather_base
    reduce_scatter_single = _reduce_scatter_base
    all_to_all_single = alltoall_base


def _list(call: Call, lists: Any) -> List[Any]:
    """Returns the only list of a list of lists, or the list itself."""
    if len(lists) > 0 and not isinstance(lists[0], (list, tuple)):
        return list(lists)
    if len(lists) != 1:
        raise call.fail(f"one list of tensors is needed, not {len(lists)}")
    return list(lists[0])
