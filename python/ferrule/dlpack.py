# SPDX-License-Identifier: BSD-3-Clause
"""DLPack: reads the tensor of a capsule. https://dmlc.github.io/dlpack/latest/

A capsule owns its tensor. A caller that holds the capsule may use the memory; the tensor ends with
it, because nobody else takes it over.
"""

import ctypes
from ctypes import POINTER, Structure, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64
from ctypes import c_void_p
from typing import Any, List, NamedTuple, Optional, Tuple

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
_READ_ONLY, _IS_COPIED = 1, 2

# Codes of types, as letters of array interfaces, or as names.
_KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
_NAMES = {(4, 16): "bfloat16", (10, 8): "float8_e4m3fn", (12, 8): "float8_e5m2"}


class _Tensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class _Versioned(Structure):
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("manager_ctx", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _Tensor),
    ]


class Tensor(NamedTuple):
    """The tensor of a capsule. Strides count elements; None: C-contiguous."""

    address: int
    shape: Tuple[int, ...]
    strides: Optional[Tuple[int, ...]]
    kind: str  # letter of array interfaces; "": see name
    name: str
    itemsize: int
    readonly: bool
    device: int
    capsule: Any


_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype = ctypes.c_int
_is_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = c_void_p
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _export(obj: Any, device: int) -> Any:
    # Work of the exporter's stream precedes that of the legacy default stream, whose number is 1.
    options = {"stream": 1} if device == CUDA else {}
    try:
        return obj.__dlpack__(max_version=(1, 0), copy=False, **options)
    except TypeError:
        return obj.__dlpack__(**options)


def read(obj: Any) -> Tensor:
    """Returns the tensor that `obj` exports. ValueError: an unsupported device or type."""
    device = int(obj.__dlpack_device__()[0])
    if device not in (CPU, CUDA, CUDA_HOST):
        raise ValueError("the array is neither in host memory nor in memory of a CUDA GPU")
    capsule = _export(obj, device)
    readonly = False
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(_pointer(capsule, b"dltensor_versioned"))
        if versioned.major != 1:
            raise ValueError(f"DLPack {versioned.major} is unknown: this package reads 1.x")
        if versioned.flags & _IS_COPIED:
            raise ValueError("its package exports a copy of the array, not its memory")
        readonly = bool(versioned.flags & _READ_ONLY)
        tensor = versioned.tensor
    else:
        tensor = _Tensor.from_address(_pointer(capsule, b"dltensor"))
    if tensor.bits % 8 != 0 or tensor.lanes != 1:
        raise ValueError(f"elements of {tensor.bits} bits, {tensor.lanes} lanes are not supported")
    shape: List[int] = tensor.shape[: tensor.ndim]
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else None
    return Tensor(
        address=(tensor.data or 0) + tensor.byte_offset,
        shape=tuple(shape),
        strides=strides,
        kind=_KINDS.get(tensor.code, "V"),
        name=_NAMES.get((tensor.code, tensor.bits), ""),
        itemsize=tensor.bits // 8,
        readonly=readonly,
        device=device,
        capsule=capsule,
    )
