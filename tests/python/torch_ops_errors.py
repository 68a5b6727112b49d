# SPDX-License-Identifier: BSD-3-Clause
"""Rows of torch_ops.py: what is refused, and what happens when a rank fails."""
import os
import pathlib
import signal
import time
from datetime import timedelta

from torch_jobs import backend, expect, expect_raises, folder, row
from torch_values import rank, same, size

import torch
import torch.distributed as dist


def still_works():
    """An error that is found before anything is sent leaves the group usable."""
    tensor = torch.ones(100)
    dist.all_reduce(tensor)
    same(tensor, torch.full((100,), float(size())), "the sum after an error")


def refuses(function, *words):
    """ferrule raises ValueError, other backends a RuntimeError."""
    types = ValueError if backend() == "ferrule" else (ValueError, RuntimeError)
    expect_raises(types, function, *words)
    still_works()


@row()
def unknown_types():
    refuses(lambda: dist.all_reduce(torch.ones(10, dtype=torch.int16)))


@row(only="ferrule")
def outputs_that_share_memory():
    """They are found before anything is sent."""
    refuses(lambda: dist.all_reduce(torch.ones(1).expand(4)), "share memory")
    parts = [torch.empty(1).expand(3), torch.empty(3)]
    refuses(lambda: dist.all_gather(parts, torch.ones(3)), "share memory")


@row(only="ferrule")
def refused_in_a_batch():
    """An operation that is refused between start and end of coalescing discards the others."""
    group = dist.distributed_c10d._get_default_group()
    group._start_coalescing()
    group.allreduce([torch.ones(3)])
    refuses(lambda: group.allreduce([torch.ones(3, dtype=torch.int16)]))
    refuses(group._end_coalescing, "refused")


@row(only="ferrule")
def bitwise_reductions():
    for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
        refuses(lambda op=op: dist.all_reduce(torch.ones(10, dtype=torch.int32), op))


@row(only="ferrule")
def sparse_tensors():
    refuses(lambda: dist.all_reduce(torch.eye(4).to_sparse()))


@row(only="ferrule")
def unequal_lists():
    """Tensors of wrong sizes and types are found before anything is sent."""
    refuses(lambda: dist.all_gather([torch.empty(3), torch.empty(4)], torch.empty(3)))
    refuses(lambda: dist.all_to_all_single(torch.empty(3), torch.empty(4)))
    refuses(lambda: dist.all_gather_into_tensor(torch.empty(5), torch.empty(3)))


@row(only="ferrule")
def receive_from_any_rank():
    expect_raises(NotImplementedError, lambda: dist.recv(torch.empty(3)))
    still_works()


@row(only="ferrule")
def different_sizes():
    """Ranks that call the same operation with different sizes all see an error."""
    import ferrule

    error = expect_raises(ferrule.Error, lambda: dist.all_reduce(torch.ones(10 + 90 * rank())))
    everyones = [pathlib.Path(f"{folder()}/error-{who}") for who in range(size())]
    everyones[rank()].write_text(type(error).__name__, encoding="utf-8")
    dist.destroy_process_group()
    while not all(path.exists() and path.read_text(encoding="utf-8") for path in everyones):
        time.sleep(0.01)
    found = [path.read_text(encoding="utf-8") for path in everyones]
    expect("MismatchError" in found, f"the errors are {found}")


def lost_peer_error():
    if backend() == "ferrule":
        import ferrule

        return ferrule.PeerLostError
    return RuntimeError


@row(ranks=3, ends={1: -signal.SIGKILL})
def killed_rank():
    """The other ranks wait for it in an operation."""
    dist.barrier()
    if rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    expect_raises(lost_peer_error(), lambda: dist.all_reduce(torch.ones(1000)))


@row(ends={1: -signal.SIGKILL})
def killed_rank_and_a_future():
    """The future of an operation fails, and so do those of its callbacks."""
    dist.barrier()
    if rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    future = dist.all_reduce(torch.ones(1000), async_op=True).get_future()
    chained = future.then(lambda done: done.value()[0])
    expect_raises(Exception, future.wait)
    expect_raises(Exception, chained.wait)


@row(only="ferrule", ends={1: -signal.SIGKILL})
def killed_rank_and_a_callback():
    """The first operation of a callback finds that the other rank is lost."""
    dist.barrier()
    future = dist.all_reduce(torch.ones(1000), async_op=True).get_future()
    if rank() == 1:
        future.wait()
        os.kill(os.getpid(), signal.SIGKILL)
    chained = future.then(lambda done: done.value() and dist.all_reduce(torch.ones(3)))
    expect_raises((lost_peer_error(), RuntimeError), chained.wait, "rank 1")


@row(only="ferrule")
def shutdown_with_a_callback():
    """It ends the first operation of a callback, to which the other rank does not come."""
    began = pathlib.Path(f"{folder()}/began")

    def start(_):
        began.touch()
        try:
            dist.all_reduce(torch.ones(3))
        finally:
            time.sleep(0.5)  # an end of close() without a wait for this would come first

    future = dist.all_reduce(torch.ones(1000), async_op=True).get_future()
    chained = future.then(start) if rank() == 0 else None
    while not began.exists():
        time.sleep(0.001)
    dist.distributed_c10d._get_default_group().shutdown()
    if chained:
        expect(chained.done(), "a callback goes on after shutdown()")
        expect_raises(Exception, chained.wait)


@row()
def rank_that_does_not_come():
    """Rank 0 gives up after the timeout of the group. Rank 1 comes when rank 0 has given up."""
    group = dist.new_group(list(range(size())), timeout=timedelta(seconds=1))
    given_up = pathlib.Path(f"{folder()}/given-up")
    if rank() == 0:
        types = TimeoutError if backend() == "ferrule" else RuntimeError
        expect_raises(types, lambda: dist.all_reduce(torch.ones(100), group=group))
        given_up.touch()
    while not given_up.exists():
        time.sleep(0.01)


@row(only="ferrule")
def work_that_does_not_come():
    """wait() with a timeout of its own leaves the operation usable."""
    gone_on = pathlib.Path(f"{folder()}/gone-on")
    tensor = torch.ones(100)
    if rank() == 1:
        while not gone_on.exists():
            time.sleep(0.01)
    work = dist.all_reduce(tensor, async_op=True)
    if rank() == 0:
        expect_raises(TimeoutError, lambda: work.wait(timedelta(milliseconds=100)))
        gone_on.touch()
    work.wait()
    same(tensor, torch.full((100,), 2.0), "the sum")
