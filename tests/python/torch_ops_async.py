# SPDX-License-Identifier: BSD-3-Clause
"""Rows of torch_ops.py: operations in flight, futures, coalesced ones, groups and objects."""
import os
import pathlib
import random
import threading
import time

import torch_jobs
from torch_jobs import VERSION, Skip, backend, expect, expect_raises, folder, row
from torch_values import RANKS, made, rank, same, size

import torch
import torch.distributed as dist

F32 = torch.float32


def total(count, dtype=F32, shift=0):
    """Returns the sum of made() over all ranks."""
    return sum(made(dtype, who, count, shift) for who in range(size()))


# ---- in flight

@row(RANKS)
def in_flight():
    """Twenty sums at once, waited for from the last one to the first."""
    tensors = [made(F32, rank(), 100 * n + 1, n) for n in range(20)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for n in reversed(range(20)):
        expect(works[n].wait(), "wait() returns no true value")
        expect(works[n].is_completed(), "a work is not complete after wait()")
        same(tensors[n], total(100 * n + 1, shift=n), f"sum {n}")


@row(RANKS)
def completes_without_wait():
    """An operation that nobody waits for ends by itself."""
    tensor = made(F32, rank(), 50000)
    work = dist.all_reduce(tensor, async_op=True)
    while not work.is_completed():
        time.sleep(0.001)
    same(tensor, total(50000), "the sum")


@row(RANKS)
def random_order():
    """300 operations in a random order, which all ranks share, with up to 16 in flight."""
    choice, open_works = random.Random(5), []
    for n in range(300):
        count, kind = choice.choice((1, 50, 3000, 70000)), choice.choice("sgbt")
        if kind == "s":
            got, wanted = made(F32, rank(), count, n), total(count, shift=n)
            work = dist.all_reduce(got, async_op=True)
        elif kind == "g":
            parts = [torch.empty(count) for _ in range(size())]
            work = dist.all_gather(parts, made(F32, rank(), count, n), async_op=True)
            got, wanted = parts, [made(F32, who, count, n) for who in range(size())]
        elif kind == "b":
            root = choice.randrange(size())
            got, wanted = made(F32, rank(), count, n), made(F32, root, count, n)
            work = dist.broadcast(got, root, async_op=True)
        else:
            got = torch.empty(count * size())
            sent = torch.cat([made(F32, rank(), count, n + who) for who in range(size())])
            work = dist.all_to_all_single(got, sent, async_op=True)
            wanted = torch.cat([made(F32, who, count, n + rank()) for who in range(size())])
        open_works.append((n, kind, work, got, wanted))
        while len(open_works) > choice.randrange(16):
            n, kind, work, got, wanted = open_works.pop(choice.randrange(len(open_works)))
            work.wait()
            for part, expected in zip(got, wanted) if kind == "g" else [(got, wanted)]:
                same(part, expected, f"operation {n} ({kind})")
    for _, _, work, _, _ in open_works:
        work.wait()


@row(RANKS)
def barrier():
    """No rank leaves before all have come."""
    for n in range(20):
        pathlib.Path(f"{folder()}/{n}-{rank()}").touch()
        dist.barrier()
        for who in range(size()):
            expect(os.path.exists(f"{folder()}/{n}-{who}"), f"barrier {n} did not wait for {who}")


# ---- futures

@row()
def futures():
    """A future's value is a list of tensors, which share the memory of the outputs."""
    tensor = made(F32, rank(), 1000)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    value = future.wait()
    expect(isinstance(value, list) and len(value) == 1, f"the value is {value}")
    expect(value[0].data_ptr() == tensor.data_ptr(), "the value is other memory")
    same(tensor, total(1000), "the sum")
    expect(future.done(), "done() is false after wait()")
    expect(future.value()[0].data_ptr() == tensor.data_ptr(), "value() is other memory")


@row()
def callbacks():
    """Callbacks are called once each, also those of a future that is complete, and chains."""
    called = []
    tensor = torch.ones(100)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    doubled = future.then(lambda done: called.append(1) or done.value()[0] * 2)
    plus_one = doubled.then(lambda done: called.append(2) or done.value() + 1)
    same(plus_one.wait(), torch.full((100,), 5.0), "the chain")
    late = future.then(lambda done: called.append(3) or done.value()[0])
    same(late.wait(), torch.full((100,), 2.0), "the late one")
    expect(called == [1, 2, 3], f"calls: {called}")
    failing = future.then(lambda done: 1 // 0)
    expect_raises(Exception, failing.wait, "ZeroDivisionError")


@row()
def combined_futures():
    """collect_all(). Its callback runs when PyTorch likes, and must not start operations.

    Rank 1 adds it before rank 0 starts the operations.
    """
    is_added = pathlib.Path(f"{folder()}/added")
    while rank() == 0 and not is_added.exists():
        time.sleep(0.001)
    tensors = [made(F32, rank(), 1000, n) for n in range(8)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    whole = torch.futures.collect_all([work.get_future() for work in works])
    if rank() == 1:
        called = whole.then(lambda done: len(done.value()))
        if backend() == "ferrule":
            refused = whole.then(lambda _: dist.all_reduce(torch.ones(10)))
        is_added.touch()
        expect(called.wait() == 8, f"collect_all() has {called.wait()} futures")
        if backend() == "ferrule":
            expect_raises(Exception, refused.wait, "collect_all()")
    whole.wait()
    for n, tensor in enumerate(tensors):
        same(tensor, total(1000, shift=n), f"sum {n}")


@row(only="ferrule")
def done_callbacks():
    """add_done_callback() keeps the order too, on rank 0 with futures that are complete."""
    sums = []
    for n in range(20):
        future = dist.all_reduce(torch.ones(1000), async_op=True).get_future()
        if rank() == 0:
            future.wait()
        sums += [torch.ones(10 + n), torch.ones(50 + n)]
        future.add_done_callback(lambda _, mine=sums[-2]: dist.all_reduce(mine))
        dist.all_reduce(sums[-1])
    future.then(lambda _: None).wait()
    for n, tensor in enumerate(sums):
        same(tensor, torch.full_like(tensor, 2.0), f"sum {n}")


@row(only="ferrule")
def callbacks_of_two_groups():
    """They use a third group, in the order of the then() calls.

    Rank 1 completes the future of the second group before that of the first one can complete.
    """
    is_done = pathlib.Path(f"{folder()}/done")
    first, second = (dist.new_group(list(range(size()))) for _ in range(2))
    sums = [torch.ones(10), torch.ones(20)]

    def start(of):
        return lambda _: dist.all_reduce(of)

    if rank() == 0:
        works = [dist.all_reduce(torch.ones(10), group=first, async_op=True),
                 dist.all_reduce(torch.ones(10), group=second, async_op=True)]
        while not is_done.exists():
            time.sleep(0.001)
        futures = [work.get_future().then(start(sums[n])) for n, work in enumerate(works)]
    else:
        gate = threading.Event()

        def late(done):
            gate.wait()
            start(sums[0])(done)

        work = dist.all_reduce(torch.ones(10), group=first, async_op=True)
        futures = [work.get_future().then(late)]
        work = dist.all_reduce(torch.ones(10), group=second, async_op=True)
        futures.append(work.get_future().then(start(sums[1])))
        work.wait()
        is_done.touch()
        gate.set()
    for future in futures:
        future.wait()
    for tensor in sums:
        same(tensor, torch.full_like(tensor, 2.0), "the sum of a callback")


@row(RANKS, only="ferrule")
def messages_in_callbacks():
    """The callbacks of two ranks of three communicate."""
    got = torch.full((3,), 7.0)

    def exchange(_):
        if rank() == 0:
            dist.send(torch.ones(3), 1)
        elif rank() == 1:
            dist.recv(got, 0)

    dist.all_reduce(torch.ones(10), async_op=True).get_future().then(exchange).wait()
    same(got, torch.full((3,), 1.0 if rank() == 1 else 7.0), "received")


@row(only="ferrule")
def callbacks_too_deep():
    """Operations can be started three levels deep; below, all ranks are told."""
    def deeper(levels):
        def start(_):
            dist.all_reduce(torch.ones(3))
            if not levels:
                return 0
            work = dist.all_reduce(torch.ones(3), async_op=True)
            return work.get_future().then(deeper(levels - 1)).wait()
        return start

    future = dist.all_reduce(torch.ones(3), async_op=True).get_future()
    expect(future.then(deeper(1)).wait() == 0, "two levels of callbacks")
    expect_raises(Exception, future.then(deeper(2)).wait, "callbacks of callbacks")


@row(may_fail={"gloo": "callbacks run in any order, and block its two threads"})
def operations_in_callbacks():
    """Callbacks that start operations of different lengths, with callbacks that start others."""
    firsts, seconds, thirds, futures_of_thirds = [], [], [], []
    for n in range(40):
        first = made(F32, rank(), 1 + 5000 * (n % 5), n)
        second, third = torch.full((100 + n,), float(n)), torch.full((7 * n + 1,), float(n))

        def start_third(done, third=third):
            dist.all_reduce(third, async_op=True).get_future().wait()
            return done.value()

        def start_second(_, second=second, start_third=start_third):
            future = dist.all_reduce(second, async_op=True).get_future()
            futures_of_thirds.append(future.then(start_third))
            return future.wait()[0]

        future = dist.all_reduce(first, async_op=True).get_future().then(start_second)
        firsts.append(first)
        seconds.append((second, future))
        thirds.append(third)
    for _, future in seconds:
        future.wait()
    for future in futures_of_thirds:
        future.wait()
    for n, (first, (second, _), third) in enumerate(zip(firsts, seconds, thirds)):
        same(first, total(first.numel(), shift=n), f"first sum {n}")
        same(second, torch.full_like(second, 2.0 * n), f"second sum {n}")
        same(third, torch.full_like(third, 2.0 * n), f"third sum {n}")


# ---- coalesced

@row(RANKS)
def coalesced():
    lengths = (1, 1000, 33)
    tensors = [made(F32, rank(), count) for count in lengths]
    dist.all_reduce_coalesced(tensors)
    for tensor in tensors:
        same(tensor, total(tensor.numel()), "all_reduce_coalesced")
    outputs = [[torch.empty(count) for count in lengths] for _ in range(size())]
    dist.all_gather_coalesced(outputs, [made(F32, rank(), count) for count in lengths])
    for who, parts in enumerate(outputs):
        for part in parts:
            same(part, made(F32, who, part.numel()), f"all_gather_coalesced, from {who}")


@row(RANKS)
def coalescing_manager():
    """Operations of one kind that torch starts together."""
    if VERSION < (2, 1):
        raise Skip(f"torch {torch.__version__} has no such context for CPU tensors")
    manager = dist.distributed_c10d._coalescing_manager
    lengths = (1, 1000, 33)
    sums = [made(F32, rank(), count) for count in lengths]
    with manager():
        for tensor in sums:
            dist.all_reduce(tensor)
    for tensor in sums:
        same(tensor, total(tensor.numel()), "sums")
    gathered = [torch.empty(size() * count) for count in lengths]
    with manager(async_ops=True) as works:
        for tensor in gathered:
            dist.all_gather_into_tensor(tensor, made(F32, rank(), tensor.numel() // size()))
    works.wait()
    for tensor in gathered:
        wanted = [made(F32, who, tensor.numel() // size()) for who in range(size())]
        same(tensor, torch.cat(wanted), "gathered")
    scattered = [torch.empty(count) for count in lengths]
    with manager():
        for tensor in scattered:
            dist.reduce_scatter_tensor(tensor, made(F32, rank(), size() * tensor.numel()))
    for tensor in scattered:
        wanted = total(size() * tensor.numel()).chunk(size())[rank()]
        same(tensor, wanted, "scattered")


# ---- groups and objects

@row(ranks=4)
def groups():
    """Groups that overlap, and operations of several groups in flight."""
    members = [[0, 1], [2, 3], [0, 2, 3], [3, 1], [0]]
    made_groups = [dist.new_group(ranks) for ranks in members]
    works = []
    for ranks, group in zip(members, made_groups):
        if rank() in ranks:
            tensor = torch.full((1000,), float(rank() + 1))
            works.append((dist.all_reduce(tensor, group=group, async_op=True), tensor,
                          float(sum(ranks) + len(ranks))))
    for work, tensor, wanted in works:
        work.wait()
        same(tensor, torch.full((1000,), wanted), "the sum of a group")
    ranks, group = members[2], made_groups[2]
    if rank() in ranks:
        tensor = torch.full((5,), float(rank()))
        dist.broadcast(tensor, 3, group=group)
        same(tensor, torch.full((5,), 3.0), "a broadcast with the root's global rank")
        dist.destroy_process_group(group)
    dist.barrier()


@row(RANKS)
def groups_again_and_again():
    """Groups that are created and destroyed, and the default group itself."""
    for n in range(5):
        group = dist.new_group(list(range(size())))
        tensor = torch.ones(10)
        dist.all_reduce(tensor, group=group)
        same(tensor, torch.full((10,), float(size())), "the sum of a group")
        dist.destroy_process_group(group)
    who, ranks = rank(), size()
    for n in range(3):
        dist.destroy_process_group()
        torch_jobs.init_group(backend(), who, ranks, f"{folder()}/store-{n}")
        tensor = torch.ones(10)
        dist.all_reduce(tensor)
        same(tensor, torch.full((10,), float(ranks)), "the sum of a new default group")


@row(RANKS)
def objects():
    """Any objects, of different lengths."""
    def one(who):
        return {"rank": who, "text": "x" * (1000 * who)}

    everyones = [None] * size()
    dist.all_gather_object(everyones, one(rank()))
    expect(everyones == [one(who) for who in range(size())], f"all_gather_object: {everyones}")
    lent = [one(1), "two"] if rank() == 1 else [None, None]
    dist.broadcast_object_list(lent, 1)
    expect(lent == [one(1), "two"], f"broadcast_object_list: {lent}")
    gathered = [None] * size() if rank() == 2 else None
    dist.gather_object(one(rank()), gathered, 2)
    expect(rank() != 2 or gathered == [one(who) for who in range(size())], "gather_object")
    got = [None]
    dist.scatter_object_list(got, [one(who) for who in range(size())] if rank() == 0 else None, 0)
    expect(got == [one(rank())], f"scatter_object_list: {got}")
