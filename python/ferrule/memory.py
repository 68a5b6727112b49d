# SPDX-License-Identifier: BSD-3-Clause
"""Memory that ranks of one machine read in place: frl_mem_alloc()."""

import errno
import math
import os
import weakref
from typing import Any, Dict, Sequence, Tuple, Union

from . import _lib, dtypes, errors


class Memory:
    """Zeroed, page-aligned memory, freed with its last user. numpy.asarray() makes it an array."""

    def __init__(self, shape: Tuple[int, ...], typestr: str, size: int) -> None:
        """Allocates. Raises MemoryError."""
        address = _lib.mem_alloc(size)
        if not address:
            raise errors.last(-errno.ENOMEM)
        self.address: int = address
        self.size = size
        self.__array_interface__: Dict[str, Any] = {
            "version": 3,
            "data": (address, False),
            "shape": shape,
            "typestr": typestr,
        }
        # The end of the process frees what is left then.
        weakref.finalize(self, _free, address, size, os.getpid()).atexit = False


def _free(address: int, size: int, pid: int) -> None:
    # A child of fork() has the mapping, but not the library's table of it.
    if os.getpid() == pid:
        _lib.mem_free(address, size)


def empty(shape: Union[int, Sequence[int]], dtype: Any = "float32") -> Any:
    """Returns a new NumPy array of zeros, in memory that peers on this machine read in place.

    Operations on such arrays need no copy by the sender, and allreduces of one machine write their
    results directly. `shape` is a number or a tuple. `dtype` is a name ("float32") or a NumPy type.
    The memory is freed with the last array that uses it. It is shared with children of fork().

    Raises ValueError (the type is unknown), MemoryError, and ImportError without NumPy. Any thread.
    """
    import numpy

    lengths = (shape,) if isinstance(shape, int) else tuple(int(length) for length in shape)
    if any(length < 0 for length in lengths):
        raise ValueError(f"shape {lengths} has a negative length")
    try:
        kind = numpy.dtype(dtype)
    except TypeError:
        known = dtypes.named(str(dtype))
        raise ValueError(f"NumPy has no type {known.name}: import ml_dtypes first") from None
    if kind.hasobject:
        raise ValueError("arrays of Python objects cannot be in shared memory")
    size = math.prod(lengths) * kind.itemsize
    if size == 0:
        return numpy.empty(lengths, kind)
    return numpy.asarray(Memory((size,), "|u1", size)).view(kind).reshape(lengths)
