#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Functional collectives, DTensor, FSDP2, checkpoints over a backend: torch2.py BACKEND [ROW...].

They need torch 2.6 or newer. Results are compared with those of one process.
"""
import sys

import torch_jobs
from torch_jobs import VERSION, Skip, digest, expect, folder, row
from torch_values import RANKS, made, rank, same, size

import torch
import torch.distributed as dist
from torch import nn

if VERSION < (2, 6):
    print(f"SKIP: torch {torch.__version__} has no FSDP2; 2.6 or newer is needed")
    sys.exit(77)

import torch.distributed._functional_collectives as funcol
import torch.distributed.checkpoint as checkpoint
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                               parallelize_module)

TYPES = (torch.float32, torch.float64, torch.int64, torch.bfloat16)
WIDTH, BATCH, STEPS = 32, 8, 6


def everyones(dtype, count, shift=0):
    return [made(dtype, who, count, shift) for who in range(size())]


def close(got, wanted, what, tolerance=1e-5):
    error = (got - wanted).abs().max().item()
    expect(error <= tolerance, f"{what} differs by {error:.2g} from that of one process")


# ---- functional collectives

@row(RANKS)
def functional():
    """The result is new memory; the input stays."""
    group = dist.group.WORLD
    for dtype in TYPES:
        for count in (1, 1000, 40001):
            what = f"{dtype} {count}"
            mine = made(dtype, rank(), count)
            kept = mine.clone()
            same(funcol.all_reduce(mine, "sum", group) + 0, sum(everyones(dtype, count)),
                 f"all_reduce {what}")
            same(funcol.all_gather_tensor(mine, 0, group) + 0, torch.cat(everyones(dtype, count)),
                 f"all_gather_tensor {what}")
            whole = made(dtype, rank(), count * size())
            same(funcol.reduce_scatter_tensor(whole, "sum", 0, group) + 0,
                 sum(everyones(dtype, count * size())).chunk(size())[rank()],
                 f"reduce_scatter_tensor {what}")
            same(funcol.broadcast(mine, 1, group) + 0, made(dtype, 1, count), f"broadcast {what}")
            same(mine, kept, f"input {what}")


@row(RANKS)
def functional_all_to_all():
    """Rank s sends s + t + 1 elements to rank t."""
    sent_sizes = [rank() + who + 1 for who in range(size())]
    sent = torch.cat([made(torch.float32, rank(), n, who) for who, n in enumerate(sent_sizes)])
    got = funcol.all_to_all_single(sent, sent_sizes, sent_sizes, dist.group.WORLD) + 0
    wanted = [made(torch.float32, who, rank() + who + 1, rank()) for who in range(size())]
    same(got, torch.cat(wanted), "all_to_all_single")


@row(RANKS)
def functional_coalesced():
    group, counts = dist.group.WORLD, (3, 1000, 1)
    got = funcol.all_reduce_coalesced([made(torch.float32, rank(), n) for n in counts], "sum",
                                      group)
    for tensor, count in zip(got, counts):
        same(tensor + 0, sum(everyones(torch.float32, count)), f"all_reduce_coalesced {count}")
    got = funcol.all_gather_into_tensor_coalesced(
        [made(torch.float32, rank(), n) for n in counts], group)
    for tensor, count in zip(got, counts):
        same(tensor + 0, torch.cat(everyones(torch.float32, count)), f"all_gather {count}")
    wholes = [made(torch.float32, rank(), n * size()) for n in counts]
    got = funcol.reduce_scatter_tensor_coalesced(wholes, "sum", [0] * len(counts), group)
    for tensor, count in zip(got, counts):
        wanted = sum(everyones(torch.float32, count * size())).chunk(size())[rank()]
        same(tensor + 0, wanted, f"reduce_scatter {count}")


@row(RANKS)
def functional_with_gradients():
    """The gradient of a gather is a scattered sum, and the other way round."""
    group = dist.group.WORLD
    x = made(torch.float32, rank(), 12).requires_grad_()
    whole = funcol.all_gather_tensor_autograd(x, 0, group)
    (whole * torch.arange(whole.numel())).sum().backward()
    wanted = torch.arange(12 * size()).float().chunk(size())[rank()] * size()
    same(x.grad, wanted, "gradient of all_gather_tensor")
    x = made(torch.float32, rank(), 12 * size()).requires_grad_()
    part = funcol.reduce_scatter_tensor_autograd(x, "sum", 0, group)
    (part * (rank() + 1)).sum().backward()
    wanted = torch.arange(1, size() + 1).float().repeat_interleave(12)
    same(x.grad, wanted, "gradient of reduce_scatter_tensor")


# ---- DTensor

@row(ranks=4)
def dtensor():
    """Layouts on one and on two dimensions, and products of matrices in all of them."""
    torch.manual_seed(5)
    a, b = torch.randn(10, 12), torch.randn(12, 9)  # 4 ranks do not divide these
    line = init_device_mesh("cpu", (4,))
    layouts = [[Replicate()], [Shard(0)], [Shard(1)]]
    for first in layouts:
        for second in layouts:
            x, y = distribute_tensor(a, line, first), distribute_tensor(b, line, second)
            close((x @ y).full_tensor(), a @ b, f"{first} @ {second}")
            close(x.redistribute(line, second).full_tensor(), a, f"{first} to {second}", 0)
    partial = distribute_tensor(a, line, [Shard(1)]) @ distribute_tensor(b, line, [Shard(0)])
    expect(partial.placements == (Partial(),), f"the product has {partial.placements}")
    for target in layouts:
        close(partial.redistribute(line, target).full_tensor(), a @ b, f"partial to {target}")
    plane = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
    x = distribute_tensor(a, plane, [Shard(0), Shard(1)])
    y = distribute_tensor(b, plane, [Replicate(), Shard(0)])
    close((x @ y).full_tensor(), a @ b, "on two dimensions")
    close(x.sum().full_tensor(), a.sum(), "the sum")


@row(ranks=2)
def tensor_parallel():
    """A layer by columns, and the next one by rows."""
    mesh = init_device_mesh("cpu", (size(),))
    model = parallelize_module(mlp(64), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    train(model, lambda step: [batch(step, 0)])
    alone = mlp(64)
    train(alone, lambda step: [batch(step, 0)])
    return compared(model, alone)


# ---- FSDP2

def mlp(hidden=65):
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(WIDTH, hidden), nn.ReLU(), nn.Linear(hidden, WIDTH), nn.ReLU(),
                         nn.Linear(WIDTH, 3))


def batch(step, shard):
    generator = torch.Generator().manual_seed(1000 * step + shard)
    return tuple(torch.randn(BATCH, count, generator=generator) for count in (WIDTH, 3))


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=0.01)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05)


def train(model, batches, before_step=None, sync=None, optimizer=adamw):
    """Each step has the mean loss of its batches. `sync(last)` is called before each batch."""
    optimizer = optimizer(model.parameters())
    for step in range(STEPS):
        optimizer.zero_grad()
        data = batches(step)
        for n, (x, y) in enumerate(data):
            if sync:
                sync(n == len(data) - 1)
            (nn.functional.mse_loss(model(x).float(), y) / len(data)).backward()
        if before_step:
            before_step(model)
        optimizer.step()


def compared(model, alone, tolerance=1e-5):
    """Compares all parameters. Returns the digest of the whole model."""
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    parameters = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    for (name, other), got in zip(alone.named_parameters(), parameters):
        close(got, other, name, tolerance)
        if rank() == 0:
            same(state[name], got.detach(), f"{name} of the state")
    return digest(parameters)


def sharded_run(shard_layers=True, mesh=None, tolerance=1e-5, clip=None, parts=1, optimizer=adamw,
                **options):
    """Trains with `parts` batches of each rank a step, and compares with one process."""
    model = mlp()
    if shard_layers:
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)

    def my_parts(step):
        return [batch(parts * step + part, rank()) for part in range(parts)]

    def all_parts(step):
        return [batch(parts * step + part, who) for part in range(parts) for who in range(size())]

    clipped = clip and (lambda m: nn.utils.clip_grad_norm_(m.parameters(), clip))
    sync = model.set_requires_gradient_sync if parts > 1 else None
    train(model, my_parts, clipped, sync, optimizer)
    alone = mlp()
    train(alone, all_parts, clipped, optimizer=optimizer)
    return compared(model, alone, tolerance)


@row()
def fsdp2():
    return sharded_run()


@row(RANKS)
def fsdp2_of_the_whole_model():
    """One group of parameters; 3 ranks do not divide all of them."""
    return sharded_run(shard_layers=False)


@row()
def fsdp2_keeps_parameters_between_passes():
    return sharded_run(reshard_after_forward=False)


@row()
def fsdp2_clips_gradients():
    return sharded_run(clip=0.1)


@row()
def fsdp2_accumulates_gradients():
    return sharded_run(parts=3)


@row()
def fsdp2_in_bfloat16():
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return sharded_run(mp_policy=policy, tolerance=3e-3, optimizer=sgd)


@row(ranks=4)
def fsdp2_with_replicas():
    """Two replicas, each on two ranks."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    return sharded_run(mesh=mesh)


# ---- what came with 2.15

@row(RANKS)
def gathered_in_one_tensor():
    if not hasattr(dist, "gather_single"):
        raise Skip(f"torch {torch.__version__} has no gather_single()")
    for dtype in TYPES:
        for root in range(size()):
            mine = made(dtype, rank(), 1000)
            got = torch.empty(1000 * size(), dtype=dtype) if rank() == root else None
            dist.gather_single(mine, got, dst=root)
            if got is not None:
                same(got, torch.cat(everyones(dtype, 1000)), f"gather_single {dtype} to {root}")


# ---- checkpoints

@row()
def asynchronous_checkpoint():
    """async_save() writes in a thread of its own, which uses a group of its own."""
    group = dist.new_group(list(range(size())))
    path = f"{folder()}/checkpoint"
    saved = checkpoint.async_save({"x": torch.full((3,), 7.0)}, checkpoint_id=path,
                                  process_group=group)
    for _ in range(10):
        dist.all_reduce(torch.ones(10))
    saved.result()
    loaded = {"x": torch.zeros(3)}
    checkpoint.load(loaded, checkpoint_id=path)
    same(loaded["x"], torch.full((3,), 7.0), "what was saved")


if __name__ == "__main__":
    sys.exit(torch_jobs.main(__doc__.splitlines()[0]))
