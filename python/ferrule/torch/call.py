# SPDX-License-Identifier: BSD-3-Clause
"""The tensors of a call: those that are used in place, and the copies of others."""

from typing import Any, List, Optional, Sequence

import torch

from ..buffers import View
from ..requests import Operation
from .types import check, is_plain, view


class Call:
    """Makes an operation of the arguments of a call. `outputs`: the value of its future."""

    def __init__(self, what: str, outputs: List[Any]) -> None:
        self.what = what
        self.outputs = outputs
        self.operation = Operation(what)

    def fail(self, text: str) -> ValueError:
        return ValueError(f"{self.what}: {text}")

    def input(self, tensor: Any) -> View:
        """Returns memory with the elements of a tensor; a copy if they do not lie in order."""
        check(self.what, tensor)
        if not is_plain(tensor):
            with torch.no_grad():
                tensor = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device).copy_(
                    tensor
                )
        return view(tensor)

    def output(self, tensor: Any, is_input: bool = False) -> View:
        """Returns memory for the result, which is copied to the tensor if that has gaps.

        `is_input`: the memory has the elements of the tensor.
        """
        check(self.what, tensor)
        if is_plain(tensor):
            return view(tensor)
        self._check_output(tensor)
        with torch.no_grad():
            memory = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
            if is_input:
                memory.copy_(tensor)
        self.operation.finals.append(lambda: _copy([tensor], [memory]))
        return view(memory)

    def inputs(self, tensors: Sequence[Any]) -> View:
        """Returns memory with the elements of all tensors, one after the other."""
        self._check_all(tensors)
        whole = _whole(tensors)
        if whole is None:
            with torch.no_grad():
                whole = view(torch.cat([tensor.reshape(-1) for tensor in tensors]))
        return whole

    def outputs_of(self, tensors: Sequence[Any]) -> View:
        """Returns memory for the results of all tensors, one after the other."""
        self._check_all(tensors)
        whole = _whole(tensors)
        if whole is not None:
            return whole
        for tensor in tensors:
            self._check_output(tensor)
        first = tensors[0]
        sizes = [tensor.numel() for tensor in tensors]
        memory = torch.empty(sum(sizes), dtype=first.dtype, device=first.device)
        parts = torch.split(memory, sizes)
        self.operation.finals.append(
            lambda: _copy(tensors, [part.view(t.shape) for part, t in zip(parts, tensors)])
        )
        return view(memory)

    def _check_all(self, tensors: Sequence[Any]) -> None:
        if not tensors:
            raise self.fail("the list of tensors is empty")
        for tensor in tensors:
            check(self.what, tensor)
            if tensor.dtype != tensors[0].dtype or tensor.device != tensors[0].device:
                raise self.fail("the tensors of a list have different types or devices")

    def _check_output(self, tensor: Any) -> None:
        for length, stride in zip(tensor.shape, tensor.stride()):
            if length > 1 and stride == 0:
                raise self.fail("elements of an output share memory: pass a copy")

    def lists(self, tensors: Sequence[Any], number: int, like: Any) -> None:
        """Raises ValueError unless there are `number` tensors as large as `like`."""
        if len(tensors) != number:
            raise self.fail(f"the list has {len(tensors)} tensors, not {number}")
        for tensor in tensors:
            if tensor.numel() != like.numel() or tensor.dtype != like.dtype:
                raise self.fail("the tensors have different sizes or types")

    def sizes(self, small: Any, large: Any, factor: int) -> None:
        """Raises ValueError unless `large` has `factor` times as many elements of the same type."""
        if small.numel() * factor != large.numel() or small.dtype != large.dtype:
            raise self.fail(
                f"{small.numel()} elements of {small.dtype} and {large.numel()} of {large.dtype} "
                f"do not fit {factor} ranks"
            )

    def single(self, tensors: Any) -> Any:
        """Returns the only tensor of a list, or the tensor."""
        if isinstance(tensors, torch.Tensor):
            return tensors
        if len(tensors) != 1:
            raise self.fail(f"one tensor is needed, not {len(tensors)}")
        return tensors[0]


def _copy(targets: Sequence[Any], sources: Sequence[Any]) -> None:
    inference: Any = torch.inference_mode  # not typed in PyTorch 1.13
    with inference():  # targets may have been made in it
        for target, source in zip(targets, sources):
            target.copy_(source)


def _whole(tensors: Sequence[Any]) -> Optional[View]:
    """Returns the memory of tensors that follow each other in memory; None if they do not."""
    first = tensors[0]
    address: int = first.data_ptr()
    for tensor in tensors:
        if not is_plain(tensor) or tensor.data_ptr() != address:
            return None
        address += tensor.numel() * tensor.element_size()
    whole = view(first)
    whole.count = sum(tensor.numel() for tensor in tensors)
    whole.shape = (whole.count,)
    whole.owner = list(tensors)
    return whole
