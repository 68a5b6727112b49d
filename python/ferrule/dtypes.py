# SPDX-License-Identifier: BSD-3-Clause
"""Element types: their names, and how the library transfers and reduces them.

Types that the library knows are passed on as they are. Others are copied as bytes by operations
that do not reduce. Reductions of bool use uint8 (a sum is "any", a product is "all"), and sums of
complex numbers use their parts.
"""

import re
from typing import Dict, NamedTuple, Optional, Tuple

from . import _lib


class DType(NamedTuple):
    """An element type."""

    name: str
    itemsize: int
    code: Optional[int]  # enum frl_dtype; None: the library does not know it
    parts: int  # elements of `code` in one element


def _table() -> Dict[str, DType]:
    known = {}
    for name, code in _lib.DTYPES.items():
        known[name] = DType(name, _lib.dtype_size(code), code, 1)
    known["float8_e4m3fn"] = known["float8_e4m3"]
    known["bool"] = DType("bool", 1, _lib.DTYPES["uint8"], 1)
    known["complex64"] = DType("complex64", 8, _lib.DTYPES["float32"], 2)
    known["complex128"] = DType("complex128", 16, _lib.DTYPES["float64"], 2)
    return known


_KNOWN = _table()
IEEE_E4M3 = "float8_e4m3 with infinities"
_FAMILIES = {"i": "int", "u": "uint", "f": "float", "c": "complex", "b": "bool"}
# struct's letters. "l" and "L" have 8 bytes in native mode, and 4 in standard mode.
_LETTERS = {"?": "b", "b": "i", "h": "i", "i": "i", "l": "i", "q": "i", "n": "i"}
_LETTERS.update({"B": "u", "H": "u", "I": "u", "L": "u", "Q": "u", "N": "u", "c": "u"})
_LETTERS.update({"e": "f", "f": "f", "d": "f"})


def named(name: str, itemsize: int = 0) -> DType:
    """Returns the type of a name; unknown types need their size in bytes."""
    found = _KNOWN.get(name)
    if found is not None:
        return found
    if itemsize == 0:
        raise ValueError(f"dtype {name!r} is unknown: use one of {', '.join(_KNOWN)}")
    return DType(name, itemsize, None, 1)


def of_name(name: str, itemsize: int) -> DType:
    """Returns the type of an array whose package calls it so: ml_dtypes, for example."""
    if name == "float8_e4m3":  # has infinities; that of the library is float8_e4m3fn
        return DType(IEEE_E4M3, itemsize, None, 1)
    return named(name, itemsize)


def of_kind(kind: str, itemsize: int) -> DType:
    """Returns the type of a letter of array interfaces ("i", "f", ...) and a size in bytes."""
    family = _FAMILIES.get(kind)
    if family is None:
        return DType(f"{kind}{itemsize}", itemsize, None, 1)
    return named("bool" if family == "bool" else f"{family}{itemsize * 8}", itemsize)


def of_typestr(typestr: str) -> DType:
    """Returns the type of an array interface: "<f4", "|b1"."""
    order, kind, size = typestr[0], typestr[1], typestr[2:]
    if kind == "O":
        raise ValueError("arrays of Python objects cannot be sent: use all_gather_object()")
    if order == ">":
        raise ValueError(f"{typestr!r}: the bytes of elements must be in the processor's order")
    # NumPy counts the letters of "U", of four bytes each.
    return of_kind(kind, int(size.partition("[")[0]) * (4 if kind == "U" else 1))


def of_format(text: str, itemsize: int) -> DType:
    """Returns the type of a format of the buffer protocol: "f", "<i"."""
    letter = text.lstrip("@=<")
    if letter.startswith("Z") and letter[1:] in ("f", "d"):
        return of_kind("c", itemsize)
    if text[:1] in (">", "!"):
        raise ValueError(f"{text!r}: the bytes of elements must be in the processor's order")
    unnamed = re.sub(":[^:]*:", "", letter)  # without the names of fields
    if "O" in unnamed or "P" in unnamed:
        raise ValueError("Python objects and pointers cannot be sent: use all_gather_object()")
    if letter in _LETTERS:
        return of_kind(_LETTERS[letter], itemsize)
    return DType(f"format {text}", itemsize, None, 1)


def copied(dtype: DType) -> Tuple[int, int]:
    """Returns the library's type for copies, and how many elements of it make one of `dtype`."""
    if dtype.code is None:
        return _lib.DTYPES["uint8"], dtype.itemsize
    return dtype.code, dtype.parts


def reduced(dtype: DType, op: int) -> Tuple[int, int, int]:
    """Returns the library's type, elements of it in one of `dtype`, and the operation."""
    ops = _lib.OPS
    if dtype.code is None:
        raise ValueError(f"{dtype.name} cannot be reduced: use one of {', '.join(_KNOWN)}")
    if dtype.name == "bool":
        same = {"sum": "max", "prod": "min", "max": "max", "min": "min"}
        for name, used in same.items():
            if op == ops[name]:
                return dtype.code, 1, ops[used]
        raise ValueError(f"bool can be reduced by {', '.join(same)} only")
    if dtype.parts == 2 and op not in (ops["sum"], ops["avg"]):
        raise ValueError(f"{dtype.name} can be reduced by sum and avg only")
    return dtype.code, dtype.parts, op
