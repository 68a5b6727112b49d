# SPDX-License-Identifier: BSD-3-Clause
"""Types for annotations only: arrays, which `buffers` reads, and `async_op`."""

from typing import TYPE_CHECKING, Any, Callable, Literal, Protocol, TypeVar, Union


class _Interface(Protocol):
    @property
    def __array_interface__(self) -> Any: ...


class _CudaInterface(Protocol):
    @property
    def __cuda_array_interface__(self) -> Any: ...


class _Dlpack(Protocol):
    @property
    def __dlpack__(self) -> Callable[..., Any]: ...


if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    # Arrays of NumPy, PyTorch and others: a new result is of the same class.
    Tensor = Union[_Interface, _CudaInterface, _Dlpack]
    # Also buffers: bytes, bytearray, memoryview, array.array. A new result is an array of NumPy.
    Array = Union[Tensor, ReadableBuffer]
else:
    Tensor = Array = Any

T = TypeVar("T", bound=Tensor)
A = TypeVar("A", bound=Array)

# Values of async_op: the result is an array, or a request.
Sync = Literal[False]
Async = Literal[True]
