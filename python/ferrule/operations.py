# SPDX-License-Identifier: BSD-3-Clause
"""How the arguments of an operation become structures of the library. All sizes are checked here,
before anything is sent.
"""

import ctypes
import math
import struct
from typing import Any, Dict, List, Optional, Sequence, Tuple

from . import _lib, buffers, dtypes, errors
from .buffers import View
from .requests import Operation

_ops: Dict[str, int] = dict(_lib.OPS)
_wires: Dict[str, int] = dict(_lib.WIRES)
_FORMATS = {"float16": "e", "float32": "f", "float64": "d"}
_FORMATS.update({"int8": "b", "uint8": "B", "int32": "i", "uint32": "I"})
_FORMATS.update({"int64": "q", "uint64": "Q"})


def op_code(name: str) -> int:
    """Returns the number of a reduction. Other names in use are accepted: "product", "average"."""
    return _code(name, _ops, _lib.op_parse)


def wire_code(name: str) -> int:
    """Returns the number of a wire type."""
    return _code(name, _wires, _lib.wire_parse)


def _code(name: str, known: Dict[str, int], parse: Any) -> int:
    found = known.get(name)
    if found is None:
        value = ctypes.c_int()
        code = parse(str(name).encode(), value)
        if code != 0:
            raise errors.last(code)
        found = known[name] = value.value
    return found


def check_same_type(what: str, first: View, second: View) -> None:
    """Raises ValueError if the types differ."""
    if first.dtype != second.dtype:
        raise ValueError(f"{what}: the result is {second.dtype.name}, not {first.dtype.name}")


def check_count(what: str, view: View, wanted: int) -> None:
    """Raises ValueError if the array has another number of elements."""
    if view.count != wanted:
        raise ValueError(f"{what}: the array has {view.count} elements, not {wanted}")


def divided(what: str, view: View, ranks: int) -> int:
    """Returns a rank's part of the first dimension. ValueError: it is not a multiple of ranks."""
    if not view.shape or view.shape[0] % ranks != 0:
        raise ValueError(f"{what}: the first dimension of {view.shape} is no multiple of {ranks}")
    return view.shape[0] // ranks


def checked_rank(what: str, rank: int, size: int) -> int:
    """Returns the rank. ValueError: there is no such rank."""
    if not 0 <= rank < size:
        raise ValueError(f"{what}: rank {rank} is not between 0 and {size - 1}")
    return rank


def add(
    operation: Operation,
    coll: int,
    send: Optional[View],
    recv: Optional[View],
    count: int,
    *,
    root: int = 0,
    op: Optional[int] = None,
    wire: str = "same",
    scalar: Any = None,
    stream: Optional[int] = None,
) -> _lib.Collective:
    """Adds a collective of `count` elements of the arrays to an operation, and returns it."""
    part = _lib.Collective()
    part.coll = coll
    view = send or recv
    if view is not None:
        if op is None:
            part.dtype, units = dtypes.copied(view.dtype)
        else:
            part.dtype, units, part.op = dtypes.reduced(view.dtype, op)
        part.count = count * units
        _set_stream(part, send, recv, stream)
    if send is not None:
        part.send = send.address
    if recv is not None:
        part.recv = recv.address
    part.root = root
    part.wire = wire_code(wire)
    if op == _lib.OPS["premul_sum"]:
        if scalar is None or view is None:
            raise ValueError(f"{operation.name}: premul_sum needs scalar=")
        memory = _scalar(view, scalar)
        part.scalar = ctypes.addressof(memory)
        operation.arrays.append(memory)
    elif scalar is not None:
        raise ValueError(f'{operation.name}: scalar= is for op="premul_sum"')
    operation.arrays.append((send, recv))
    operation.parts.append(part)
    return part


def _set_stream(
    part: _lib.Collective, send: Optional[View], recv: Optional[View], stream: Optional[int]
) -> None:
    for view in (send, recv):
        if stream is None and view is not None and view.on_gpu:
            stream = view.stream
    if stream is not None:
        part.on_stream = True
        part.stream = stream


def _scalar(view: View, scalar: Any) -> Any:
    """Returns memory with one element of the type of `view`: a number, or an array of one."""
    dtype = view.dtype
    memory = ctypes.create_string_buffer(dtype.itemsize)
    if hasattr(scalar, "dtype"):  # of NumPy and others, which have numbers that are arrays, too
        given = buffers.readable(scalar, "scalar=")
        if given.dtype == dtype and given.count == 1:
            ctypes.memmove(memory, given.address, dtype.itemsize)
            return memory
    try:
        number = float(scalar) if dtype.name.startswith(("float", "bfloat")) else int(scalar)
    except (TypeError, ValueError):
        raise ValueError(f"scalar={scalar!r} is no number of type {dtype.name}") from None
    if dtype.name in _FORMATS:
        try:
            struct.pack_into(_FORMATS[dtype.name], memory, 0, number)
        except (struct.error, OverflowError) as error:
            raise ValueError(f"scalar={scalar!r} does not fit {dtype.name}: {error}") from None
    elif dtype.name == "bfloat16":
        single = ctypes.c_float(number)
        _lib.wire_encode(memory, ctypes.byref(single), 1, _lib.WIRES["bfloat16"])
    else:
        raise ValueError(f"scalar= must be an array of one element of type {dtype.name}")
    return memory


def add_vector(
    operation: Operation,
    send: View,
    recv: View,
    send_rows: Tuple[Sequence[int], Optional[Sequence[int]]],
    recv_rows: Tuple[Sequence[int], Optional[Sequence[int]]],
    ranks: int,
    wire: str,
    stream: Optional[int],
) -> None:
    """Adds an ALLTOALLV: counts and offsets of rows of the first dimension, for each rank."""
    part = add(operation, _lib.ALLTOALLV, send, recv, 0, wire=wire, stream=stream)
    _, units = dtypes.copied(send.dtype)
    for view, (counts, displs), fields in (
        (send, send_rows, ("send_counts", "send_displs")),
        (recv, recv_rows, ("recv_counts", "recv_displs")),
    ):
        row = units * math.prod(view.shape[1:])
        starts = packed(counts) if displs is None else displs
        _check_rows(f"{operation.name}: {fields[0]}", view, counts, starts, ranks)
        for field, values in zip(fields, (counts, starts)):
            array = (ctypes.c_size_t * ranks)(*(value * row for value in values))
            operation.arrays.append(array)
            setattr(part, field, array)


def packed(counts: Sequence[int]) -> List[int]:
    """Returns the offsets of pieces that follow each other."""
    starts = [0]
    for count in counts:
        starts.append(starts[-1] + count)
    return starts[:-1]


def _check_rows(
    what: str, view: View, counts: Sequence[int], starts: Sequence[int], ranks: int
) -> None:
    if len(counts) != ranks or len(starts) != ranks:
        raise ValueError(f"{what}: one number for each of {ranks} ranks is needed")
    rows = view.shape[0] if view.shape else 0
    for count, start in zip(counts, starts):
        if count < 0 or start < 0 or start + count > rows:
            raise ValueError(f"{what}: rows {start} to {start + count} are not all in {view.shape}")
