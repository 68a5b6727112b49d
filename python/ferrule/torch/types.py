# SPDX-License-Identifier: BSD-3-Clause
"""Tensors as memory, element types, and reductions."""

from typing import Any, Dict, Tuple

import torch

from .. import _lib, dtypes
from ..buffers import View
from ..dtypes import DType

_types: Dict[Any, DType] = {}

# RedOpType in the order of its numbers.
_OPS = ("sum", "avg", "prod", "min", "max", "BAND", "BOR", "BXOR", "premul_sum")


def reduction(options: Any) -> Tuple[int, Any]:
    """Returns the operation of options, a ReduceOp or a name, and the scalar of PREMUL_SUM."""
    if isinstance(options, str):
        return _lib.OPS[options], None
    op = getattr(options, "reduceOp", options)
    number = 0 if op is None else int(getattr(op, "op", op))
    name = _OPS[number] if number < len(_OPS) else "unknown"
    scalar = None
    if name == "premul_sum":
        state = op.__getstate__()
        scalar = state[1] if state is not None else None
        if scalar is None:
            raise ValueError("PREMUL_SUM: this version of PyTorch does not show its factor")
    if name not in _lib.OPS:
        raise ValueError(f"the reduction {name} is not supported: use SUM, AVG, PRODUCT, MIN, MAX")
    return _lib.OPS[name], scalar


def check(what: str, tensor: Any) -> None:
    """Raises ValueError if the backend has not the layout or device of the tensor."""
    if tensor.layout is not torch.strided:
        raise ValueError(f"{what}: sparse tensors are not supported")
    if tensor.is_quantized:
        raise ValueError(f"{what}: {tensor.dtype} is not supported")
    if not (tensor.is_cuda or tensor.device.type == "cpu"):
        raise ValueError(f"{what}: tensors on {tensor.device} are not supported")


def is_plain(tensor: Any) -> bool:
    """Returns whether the elements lie in memory as they are, in C's order."""
    return bool(tensor.is_contiguous()) and not (tensor.is_conj() or tensor.is_neg())


def view(tensor: Any) -> View:
    """Returns the memory of a plain tensor."""
    on_gpu = tensor.is_cuda
    stream = torch.cuda.current_stream(tensor.device).cuda_stream if on_gpu else None
    shape = (tensor.numel(),)
    dtype = _types.get(tensor.dtype)
    if dtype is None:
        # Types that the library does not know can be copied, but not reduced.
        name = str(tensor.dtype).rpartition(".")[2]
        dtype = _types[tensor.dtype] = dtypes.named(name, tensor.element_size())
    return View(tensor.data_ptr(), dtype, shape, False, tensor, on_gpu, stream)
