# SPDX-License-Identifier: BSD-3-Clause
"""Arrays of other packages: where their memory is, and what lies there. Nothing is ever copied.

Asked in this order: `__array_interface__` (NumPy), `__cuda_array_interface__` (CuPy, Numba,
PyTorch), the buffer protocol (bytearray, array, memoryview, ctypes), DLPack (PyTorch, JAX). DLPack
comes first for arrays on a GPU whose type `__cuda_array_interface__` cannot tell.
"""

import ctypes
import math
import sys
from ctypes import c_int, c_ssize_t, c_void_p
from typing import Any, Optional, Sequence, Tuple

from . import dlpack, dtypes
from .dtypes import DType


class View:
    """Memory of an array. It stays valid while `owner` is held."""

    __slots__ = ("address", "dtype", "shape", "count", "readonly", "owner", "on_gpu", "stream")

    def __init__(
        self,
        address: int,
        dtype: DType,
        shape: Tuple[int, ...],
        readonly: bool,
        owner: Any,
        on_gpu: bool = False,
        stream: Optional[int] = None,
    ) -> None:
        self.address = address
        self.dtype = dtype
        self.shape = shape
        self.count = math.prod(shape)
        self.readonly = readonly
        self.owner = owner
        self.on_gpu = on_gpu
        self.stream = stream  # CUDA stream of the work on it; None: it is ready


class _PyBuffer(ctypes.Structure):
    _fields_ = [
        ("buf", c_void_p),
        ("obj", c_void_p),
        ("len", c_ssize_t),
        ("itemsize", c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_void_p),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("suboffsets", c_void_p),
        ("internal", c_void_p),
    ]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.restype = c_int
_get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(_PyBuffer), c_int]
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.restype = None
_release_buffer.argtypes = [ctypes.POINTER(_PyBuffer)]


def _check_strides(shape: Sequence[int], strides: Optional[Sequence[int]], unit: int) -> None:
    """Raises ValueError unless the strides, in multiples of `unit`, are those of C's order."""
    if strides is None or 0 in shape:
        return
    expected = unit
    for length, stride in zip(reversed(shape), reversed(strides)):
        if length != 1 and stride != expected:
            raise ValueError("the array is not C-contiguous: pass a contiguous copy")
        expected *= length


def _is_numpy(obj: Any, module: str, kind: str) -> bool:
    """Whether it is of a class of NumPy, which need not be installed."""
    found = sys.modules.get(module)
    return found is not None and isinstance(obj, getattr(found, kind, ()))


def _type_of(obj: Any, interface: Any) -> DType:
    """Returns the type of an array interface. ml_dtypes shows its types as "V2", "V1" and "f1"."""
    typestr = interface["typestr"]
    dtype = getattr(obj, "dtype", None)
    if typestr[1] != "V" and typestr[1:] != "f1":
        found = dtypes.of_typestr(typestr)
    elif getattr(dtype, "hasobject", False):
        raise ValueError("arrays of Python objects cannot be sent: use all_gather_object()")
    else:
        found = dtypes.of_name(getattr(dtype, "name", typestr), int(typestr[2:]))
    if found.code is None and typestr[1] in "VMm":
        # Types of one size differ by their fields or units.
        fields = str(interface.get("descr", typestr)) if dtype is None else str(dtype)
        return found._replace(name=fields if found.name != dtypes.IEEE_E4M3 else found.name)
    return found


def _of_interface(obj: Any, interface: Any, on_gpu: bool) -> View:
    if interface.get("mask") is not None:
        raise ValueError("arrays with a mask cannot be sent")
    dtype = _type_of(obj, interface)
    shape: Tuple[int, ...] = tuple(interface["shape"])
    _check_strides(shape, interface.get("strides"), dtype.itemsize)
    address, readonly = interface["data"]
    # The memory of NumPy's scalars is a copy, which the interface holds.
    readonly = readonly or _is_numpy(obj, "numpy", "generic")
    # An interface without a stream makes no promise. Work of the default stream precedes ours then.
    stream = (interface.get("stream") or 0) if on_gpu else None
    return View(address or 0, dtype, shape, bool(readonly), (obj, interface), on_gpu, stream)


def _of_buffer(obj: Any) -> View:
    memory = memoryview(obj)  # the owner cannot be resized while it exists
    if not memory.c_contiguous:
        raise ValueError("the buffer is not C-contiguous: pass a contiguous copy")
    dtype = dtypes.of_format(memory.format, memory.itemsize)
    raw = _PyBuffer()
    _get_buffer(memory, raw, 0)
    address = raw.buf or 0
    _release_buffer(raw)
    return View(address, dtype, tuple(memory.shape or ()), memory.readonly, memory)


def _check_bits(obj: Any) -> None:
    """Raises ValueError for a tensor of PyTorch whose memory is not its value.

    DLPack exports such a tensor if it is negated, as x.conj().imag is, and the interface for CUDA
    also if it is conjugated.
    """
    for name in ("neg", "conj"):
        is_set = getattr(obj, f"is_{name}", None)
        if is_set is not None and is_set():
            raise ValueError(f"the tensor has the bit {name}: pass x.resolve_{name}()")


def _of_dlpack(obj: Any) -> View:
    _check_bits(obj)
    tensor = dlpack.read(obj)
    _check_strides(tensor.shape, tensor.strides, 1)
    if tensor.name:
        dtype = dtypes.named(tensor.name)
    else:
        dtype = dtypes.of_kind(tensor.kind, tensor.itemsize)
    on_gpu = tensor.device == dlpack.CUDA
    return View(
        tensor.address,
        dtype,
        tensor.shape,
        tensor.readonly,
        (obj, tensor.capsule),
        on_gpu,
        0 if on_gpu else None,
    )


def _cuda_interface(obj: Any) -> Any:
    """Returns the interface of an array on a GPU; None if there is none, or DLPack tells more."""
    try:
        interface = getattr(obj, "__cuda_array_interface__", None)
    except KeyError:  # PyTorch's, for types without a letter
        return None
    if interface is None or interface["typestr"][1] != "V" or not hasattr(obj, "__dlpack__"):
        return interface
    return interface if hasattr(getattr(obj, "dtype", None), "name") else None


def _view(obj: Any) -> View:
    if _is_numpy(obj, "numpy.ma", "MaskedArray"):
        raise ValueError("arrays with a mask cannot be sent")
    interface = getattr(obj, "__array_interface__", None)
    # Without an address in it, the object has the buffer protocol.
    if interface is not None and isinstance(interface.get("data"), tuple):
        return _of_interface(obj, interface, on_gpu=False)
    interface = _cuda_interface(obj)
    if interface is not None:
        _check_bits(obj)
        return _of_interface(obj, interface, on_gpu=True)
    try:
        return _of_buffer(obj)
    except TypeError:
        if hasattr(obj, "__dlpack__"):
            return _of_dlpack(obj)
    raise TypeError(
        f"{type(obj).__name__} is no array: it has neither __array_interface__, "
        "__cuda_array_interface__, the buffer protocol nor __dlpack__()"
    )


def readable(obj: Any, what: str) -> View:
    """Returns the memory of an array that is sent. Errors begin with `what`."""
    try:
        return _view(obj)
    except (ValueError, BufferError, RuntimeError) as error:
        raise ValueError(f"{what}: {error}") from error
    except TypeError as error:
        raise TypeError(f"{what}: {error}") from error


def writable(obj: Any, what: str) -> View:
    """Returns the memory of an array that is received into. It must not be read-only."""
    view = readable(obj, what)
    if view.readonly:
        raise ValueError(f"{what}: the array is read-only")
    return view


def new_like(obj: Any, view: View, shape: Tuple[int, ...], what: str) -> Any:
    """Returns a new array of the package of `obj`, with its type, in host memory or on its GPU."""
    make = getattr(obj, "new_empty", None)  # a torch.Tensor
    if make is not None:
        return make(shape)
    if view.on_gpu:
        raise ValueError(f"{what}: give out=, an array on the GPU for the result")
    try:
        import numpy
    except ImportError:
        size = math.prod(shape) * view.dtype.itemsize
        return memoryview(bytearray(size)).cast(memoryview(obj).format, shape)
    if isinstance(obj, (numpy.ndarray, numpy.generic)):
        return numpy.empty(shape, obj.dtype)
    return numpy.empty(shape, numpy.dtype(view.dtype.name))
