#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Each operation of torch.distributed with each type: torch_ops.py BACKEND [ROW...].

Rows with asynchronous operations and groups are in torch_ops_async.py, those with errors in
torch_ops_errors.py.
"""
import sys

import torch_jobs
from torch_jobs import backend, expect, row
from torch_values import (COUNTS, FLOAT8, RANKS, TYPES, each, empty, made, rank, same, scaled, size,
                          small)
import torch_ops_async  # noqa: F401 (registers its rows)
import torch_ops_errors  # noqa: F401

import torch
import torch.distributed as dist

OPS = {
    "SUM": lambda parts: parts.sum(0), "PRODUCT": lambda parts: parts.prod(0),
    "MIN": lambda parts: parts.amin(0), "MAX": lambda parts: parts.amax(0),
    "AVG": lambda parts: parts.sum(0) / len(parts),
}


def by_types(types=tuple(TYPES), counts=COUNTS):
    return [(dtype, count) for dtype in types for count in counts]


# ---- reductions

def reduction_cases():
    for dtype in TYPES:
        for op in OPS:
            if dtype.is_complex and op != "SUM" or op == "AVG" and not dtype.is_floating_point:
                continue
            if dtype == torch.bool and op == "AVG":
                continue
            for count in COUNTS:
                yield op, dtype, count


def reduction_input(op, dtype, who, count):
    if op == "PRODUCT" and dtype != torch.bool:
        return scaled(small(who, count, 3), dtype, 0)
    if op == "AVG":  # a sum that the number of ranks divides
        return scaled(size() * small(who, count, 2), dtype)
    return made(dtype, who, count)


def reduced(op, dtype, count):
    parts = torch.stack([reduction_input(op, dtype, who, count).to(
        torch.complex128 if dtype.is_complex else torch.float64) for who in range(size())])
    wanted = OPS[op](parts)
    return wanted.float().to(dtype) if dtype in FLOAT8 else wanted.to(dtype)


@row(RANKS)
def all_reduce():
    def one(text, op, dtype, count):
        tensor = reduction_input(op, dtype, rank(), count)
        at = tensor.data_ptr()
        dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
        same(tensor, reduced(op, dtype, count), text)
        expect(tensor.data_ptr() == at, f"{text}: the result is elsewhere")
    each("all_reduce", reduction_cases(), one)


@row(RANKS)
def reduce():
    def one(text, op, dtype, count):
        root = count % size()
        tensor = reduction_input(op, dtype, rank(), count)
        dist.reduce(tensor, root, getattr(dist.ReduceOp, op))
        if rank() == root:
            same(tensor, reduced(op, dtype, count), text)
    each("reduce", reduction_cases(), one)


@row(RANKS)
def reduce_scatter():
    def one(text, op, dtype, count):
        wanted = reduced(op, dtype, count * size()).chunk(size())[rank()]
        whole = reduction_input(op, dtype, rank(), count * size())
        out = empty(dtype, count)
        dist.reduce_scatter(out, list(whole.clone().chunk(size())), getattr(dist.ReduceOp, op))
        same(out, wanted, text)
    each("reduce_scatter", reduction_cases(), one)


@row(RANKS)
def reduce_scatter_tensor():
    """Out of place, and in place: the output is this rank's part of the input."""
    def one(text, op, dtype, count):
        wanted = reduced(op, dtype, count * size()).chunk(size())[rank()]
        whole = reduction_input(op, dtype, rank(), count * size())
        kept, out = whole.clone(), empty(dtype, count)
        dist.reduce_scatter_tensor(out, whole, getattr(dist.ReduceOp, op))
        same(out, wanted, text)
        same(whole, kept, f"{text}, input")
        out = whole[rank() * count:(rank() + 1) * count]
        dist.reduce_scatter_tensor(out, whole, getattr(dist.ReduceOp, op))
        same(out, wanted, f"{text}, in place")
    each("reduce_scatter_tensor", reduction_cases(), one)


# ---- operations that move data

@row(RANKS)
def broadcast():
    def one(text, dtype, count):
        for root in range(size()):
            tensor = made(dtype, rank(), count)
            dist.broadcast(tensor, root)
            same(tensor, made(dtype, root, count), f"{text}, root {root}")
    each("broadcast", by_types(), one)


@row(RANKS)
def all_gather():
    def one(text, dtype, count):
        parts = [empty(dtype, count) for _ in range(size())]
        dist.all_gather(parts, made(dtype, rank(), count))
        for who, part in enumerate(parts):
            same(part, made(dtype, who, count), f"{text}, from {who}")
    each("all_gather", by_types(), one)


@row(RANKS)
def all_gather_into_tensor():
    """Out of place, in place, and with an output of two dimensions."""
    def one(text, dtype, count):
        wanted = torch.cat([made(dtype, who, count) for who in range(size())])
        whole = empty(dtype, size() * count)
        dist.all_gather_into_tensor(whole, made(dtype, rank(), count))
        same(whole, wanted, text)
        if backend() != "gloo":  # it takes one dimension only
            whole = empty(dtype, size(), count)
            dist.all_gather_into_tensor(whole, made(dtype, rank(), count))
            same(whole.flatten(), wanted, f"{text}, two dimensions")
        whole = empty(dtype, size() * count)
        mine = whole[rank() * count:(rank() + 1) * count]
        mine.copy_(made(dtype, rank(), count))
        dist.all_gather_into_tensor(whole, mine)
        same(whole, wanted, f"{text}, in place")
    each("all_gather_into_tensor", by_types(), one)


@row(RANKS)
def gather():
    def one(text, dtype, count):
        for root in range(size()):
            parts = [empty(dtype, count) for _ in range(size())] if rank() == root else None
            dist.gather(made(dtype, rank(), count), parts, root)
            for who, part in enumerate(parts or []):
                same(part, made(dtype, who, count), f"{text}, from {who}")
    each("gather", by_types(), one)


@row(RANKS)
def scatter():
    def one(text, dtype, count):
        for root in range(size()):
            parts = [made(dtype, root, count, who) for who in range(size())]
            out = empty(dtype, count)
            dist.scatter(out, parts if rank() == root else None, root)
            same(out, made(dtype, root, count, rank()), f"{text}, root {root}")
    each("scatter", by_types(), one)


def piece(dtype, source, target, count):
    """Returns the tensor that `source` sends to `target`."""
    return made(dtype, source, count, 11 * target)


@row(RANKS)
def all_to_all():
    """Tensors of different lengths, some of them empty."""
    def length(source, target, count):
        return count * ((source + 2 * target) % 3)

    def one(text, dtype, count):
        sent = [piece(dtype, rank(), who, length(rank(), who, count)) for who in range(size())]
        got = [empty(dtype, length(who, rank(), count)) for who in range(size())]
        dist.all_to_all(got, sent)
        for who, part in enumerate(got):
            same(part, piece(dtype, who, rank(), part.numel()), f"{text}, from {who}")
    each("all_to_all", by_types(), one)


@row(RANKS)
def all_to_all_single():
    """Equal parts, and parts of different lengths."""
    def one(text, dtype, count):
        sent = torch.cat([piece(dtype, rank(), who, count) for who in range(size())])
        wanted = torch.cat([piece(dtype, who, rank(), count) for who in range(size())])
        out = empty(dtype, size() * count)
        dist.all_to_all_single(out, sent)
        same(out, wanted, text)
        sizes = [[count * ((source + target) % 3) for target in range(size())]
                 for source in range(size())]
        sent_sizes, got_sizes = sizes[rank()], [one[rank()] for one in sizes]
        sent = torch.cat([piece(dtype, rank(), who, n) for who, n in enumerate(sent_sizes)])
        wanted = torch.cat([piece(dtype, who, rank(), n) for who, n in enumerate(got_sizes)])
        out = empty(dtype, sum(got_sizes))
        dist.all_to_all_single(out, sent, got_sizes, sent_sizes)
        same(out, wanted, f"{text}, unequal")
    each("all_to_all_single", by_types(), one)


@row(RANKS)
def send_and_recv():
    """A ring, by each of the calls."""
    def one(text, dtype, count):
        after, before = (rank() + 1) % size(), (rank() - 1) % size()
        mine, wanted = made(dtype, rank(), count), made(dtype, before, count)
        got = empty(dtype, count)
        if rank() == 0:
            dist.send(mine, after)
            dist.recv(got, before)
        else:
            dist.recv(got, before)
            dist.send(mine, after)
        same(got, wanted, text)
        got = empty(dtype, count)
        works = [dist.irecv(got, before), dist.isend(mine, after)]
        for work in works:
            work.wait()
        same(got, wanted, f"{text}, isend and irecv")
        got = empty(dtype, count)
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, after),
                                            dist.P2POp(dist.irecv, got, before)]):
            work.wait()
        same(got, wanted, f"{text}, batch_isend_irecv")
    each("send and recv", by_types(), one)


@row(RANKS, may_fail={"gloo": "it divides by zero, and the process ends"})
def empty_tensors():
    """No elements: nothing to do, and no error."""
    for _ in range(3):
        dist.all_reduce(torch.empty(0))
        dist.broadcast(torch.empty(0, 4), 0)
        dist.all_gather([torch.empty(0) for _ in range(size())], torch.empty(0))
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    same(tensor, torch.full((3,), float(size())), "after empty ones")


@row(RANKS, only="ferrule")
def non_contiguous():
    """Inputs and outputs with gaps, transposed and expanded ones go through copies."""
    base = torch.zeros(9, 8)
    base[:, ::2] = made(torch.float32, rank(), 36).view(9, 4)
    wanted = reduced("SUM", torch.float32, 36).view(9, 4)
    dist.all_reduce(base[:, ::2])
    same(base[:, ::2].contiguous(), wanted, "with gaps")
    same(base[:, 1::2].contiguous(), torch.zeros(9, 4), "the gaps")
    turned = made(torch.float32, rank(), 36).view(9, 4).t()
    dist.all_reduce(turned)
    same(turned.t(), wanted, "transposed")
    parts = [torch.empty(4, 9).t() for _ in range(size())]
    dist.all_gather(parts, torch.full((1, 1), float(rank())).expand(9, 4))
    for who, part in enumerate(parts):
        same(part.contiguous(), torch.full((9, 4), float(who)), f"expanded, from {who}")
    got = torch.zeros(6)[::2]
    works = [dist.irecv(got, (rank() - 1) % size()),
             dist.isend(torch.full((6,), float(rank()))[::2], (rank() + 1) % size())]
    for work in works:
        work.wait()
    same(got.contiguous(), torch.full((3,), float((rank() - 1) % size())), "received")


@row(RANKS, only="ferrule")
def types_of_bytes():
    """Copies are of any type; reductions are of those that the library knows."""
    names = ("int16", "uint16", "uint32", "uint64", "float8_e8m0fnu")
    for dtype in [getattr(torch, name) for name in names if hasattr(torch, name)]:
        def values(who, dtype=dtype):
            return torch.arange(who, who + 8, dtype=torch.uint8).view(dtype)

        tensor = values(rank())
        dist.broadcast(tensor, 1)
        same(tensor.view(torch.uint8), values(1).view(torch.uint8), f"broadcast {dtype}")
        parts = [torch.empty_like(tensor) for _ in range(size())]
        dist.all_gather(parts, values(rank()))
        for who, part in enumerate(parts):
            same(part.view(torch.uint8), values(who).view(torch.uint8), f"all_gather {dtype}")


@row(only="ferrule")
def outputs_of_inference():
    """Tensors of inference mode, with gaps, are written outside of it too."""
    with torch.inference_mode():
        tensor = torch.full((3, 4), 1.0 + rank()).t()
    dist.all_reduce(tensor)
    same(tensor.clone(), torch.full((4, 3), 3.0), "the sum")


if __name__ == "__main__":
    sys.exit(torch_jobs.main(__doc__.splitlines()[0]))
