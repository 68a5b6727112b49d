# SPDX-License-Identifier: BSD-3-Clause
"""Inputs and results for tests of torch.distributed, which every rank computes by itself.

The inputs are small whole numbers times a power of two. Each type represents all results, which are
compared to the bit.
"""
from torch_jobs import Skip, backend, expect, note

import torch
import torch.distributed as dist

RANKS = 3
COUNTS = (1, 7, 1000, 40001)
# Type: power of two by which the inputs are scaled, so that all bytes of an element are in use.
TYPES = {
    "uint8": 0, "int8": 0, "int32": 20, "int64": 40, "float16": -3, "bfloat16": 30,
    "float32": 60, "float64": 500, "bool": 0, "complex64": 10, "complex128": 100,
    "float8_e4m3fn": -2, "float8_e5m2": -2,
}
TYPES = {getattr(torch, name): power for name, power in TYPES.items() if hasattr(torch, name)}
FLOAT8 = {getattr(torch, name) for name in ("float8_e4m3fn", "float8_e5m2") if hasattr(torch, name)}
# Errors by which other backends refuse what they do not have.
UNSUPPORTED = ("support", "invalid scalar type", "not implemented", "cannot use reduceop",
               "unhandled", "has no attribute")


def rank():
    return dist.get_rank()


def size():
    return dist.get_world_size()


def small(who, count, most=5, shift=0):
    """Whole numbers from 0 to most - 1 in float64, different on each rank."""
    return ((torch.arange(count) + shift) * 7 + who * 3).remainder(most).double()


def scaled(values, dtype, power=None):
    """Returns the values, times the power of two of the type, as this type."""
    power = TYPES[dtype] if power is None else power
    if dtype == torch.bool:
        return values != 0
    if dtype.is_complex:
        values = torch.complex(values, values.flip(0) - 1)
    values = values * 2.0 ** power
    # No conversion from float64 to float8 in torch 2.1.
    return values.float().to(dtype) if dtype in FLOAT8 else values.to(dtype)


def made(dtype, who, count, shift=0):
    """Returns a rank's input."""
    return scaled(small(who, count, 3 if dtype in FLOAT8 else 5, shift), dtype)


def empty(dtype, *shape):
    """Memory whose contents are no result."""
    return torch.full(shape, 77, dtype=torch.float32).to(dtype)


def same(got, wanted, what):
    """The tensors must have the same bytes, except for the sign of zeros."""
    expect(got.dtype == wanted.dtype and got.shape == wanted.shape,
           f"{what}: {got.dtype} {tuple(got.shape)}, not {wanted.dtype} {tuple(wanted.shape)}")
    if got.dtype in FLOAT8:
        got, wanted = got.float(), wanted.float()
    wrong = (got != wanted).flatten()
    if wrong.any():
        at = int(wrong.nonzero()[0])
        expect(False, f"{what}: {int(wrong.sum())} of {got.numel()} elements are wrong; [{at}] is "
                      f"{got.flatten()[at]}, not {wanted.flatten()[at]}")


def may_refuse(error):
    """Returns whether a backend may refuse a case. Ferrule has all of them."""
    return backend() != "ferrule" and any(word in str(error).lower() for word in UNSUPPORTED)


def each(name, cases, function):
    """Calls function(text, *case) for each case. The last part of a case is the count."""
    left_out, done = {}, 0
    for case in cases:
        words = [str(part).replace("torch.", "") for part in case]
        text = " ".join([name, *words])
        try:
            function(text, *case)
            done += 1
        except (RuntimeError, ValueError, NotImplementedError, AttributeError, TypeError) as error:
            if not may_refuse(error):
                raise RuntimeError(f"{text}: {error}") from error
            left_out[" ".join(words[:-1])] = True
    if not done:
        raise Skip(f"{backend()} does not have it")
    note(f"{done} cases" + (f", without {', '.join(left_out)}" if left_out else ""))
