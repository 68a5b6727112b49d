# SPDX-License-Identifier: BSD-3-Clause
"""A typed program over the package. mypy.sh checks it, and nothing runs it.

An error that mypy must report has a comment; mypy also reports a comment without an error.
"""

import array
from typing import Any, List, Optional, assert_type

import numpy as np
import numpy.typing as npt

import ferrule

Floats = npt.NDArray[np.float32]


class Tensor:
    """An array of a package that has DLPack alone."""

    def __dlpack__(self, stream: Optional[int] = None) -> Any:
        return None


def in_place(comm: ferrule.Communicator, x: Floats, flag: bool) -> None:
    assert_type(comm.all_reduce(x), Floats)
    assert_type(comm.all_reduce(x, async_op=True), ferrule.Request[Floats])
    assert_type(comm.all_reduce(x, async_op=True).wait(), Floats)
    assert_type(comm.all_reduce(x, async_op=flag), Any)
    assert_type(comm.all_reduce(x, "max", out=Tensor()), Any)
    assert_type(comm.reduce(x, 0), Optional[Floats])
    assert_type(comm.broadcast(bytearray(4)), bytearray)
    assert_type(comm.send(b"ab", 1), bytes)
    assert_type(comm.recv(memoryview(bytearray(2)), 1, async_op=flag), Any)
    assert_type(comm.barrier(), None)
    assert_type(comm.barrier(async_op=flag), Any)


def new_arrays(comm: ferrule.Communicator, x: Floats, flag: bool) -> None:
    assert_type(comm.all_gather(x), Floats)
    assert_type(comm.all_gather(Tensor(), async_op=True), ferrule.Request[Tensor])
    assert_type(comm.reduce_scatter(x, async_op=flag), Any)
    assert_type(comm.gather(x), Optional[Floats])
    assert_type(comm.scatter(None, 1, out=x), Floats)
    assert_type(comm.all_to_all_v(x, [1], [1]), Floats)
    # The results are arrays of NumPy.
    assert_type(comm.all_gather(b"ab"), Any)
    assert_type(comm.all_to_all(array.array("d", [1.0])), Any)
    assert_type(comm.all_gather(bytearray(2), out=np.zeros(4, np.uint8)), Any)


def no_arrays(comm: ferrule.Communicator) -> None:
    comm.all_reduce([1.0])  # type: ignore[call-overload]
    comm.all_reduce([1.0], async_op=True)  # type: ignore[call-overload]
    comm.all_gather([1.0])  # type: ignore[call-overload]
    comm.broadcast(1.0)  # type: ignore[call-overload]
    comm.send(None, 1)  # type: ignore[call-overload]
    comm.group().all_gather_object(1)  # type: ignore[attr-defined]


def parts(comm: ferrule.Communicator, color: int) -> None:
    with comm.split(color) as part:
        part.barrier()
    some = comm.split(-1)
    if some is not None:
        some.close()
    assert_type(comm.duplicate(), ferrule.Communicator)
    with comm.group() as group:
        group.send(b"ab", 1)
    assert_type(comm.all_gather_object({"a": 1}), List[Any])
