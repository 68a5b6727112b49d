# SPDX-License-Identifier: BSD-3-Clause
"""The backend of torch.distributed: what ddp.py, torch2.py and torch_ops.py do not try."""

import gc
import os
import signal
import subprocess
import sys
import threading
import unittest
from datetime import timedelta
from typing import Any, Callable, List

import ranks

try:
    import torch
    import torch.distributed as dist
except ImportError:
    print("SKIP: there is no torch for this Python (Debian: python3-torch)")
    sys.exit(77)

import ferrule
import ferrule.torch
from ferrule import hooks
from ferrule.torch import Options, call, types, work


def group_of(store: str, rank: int, size: int, **options: Any) -> Any:
    """Initialises the default group, and returns it."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "ferrule", init_method=f"file://{store}", rank=rank, world_size=size, **options
    )
    return dist.distributed_c10d._get_default_group()


def fails(kind: Any, text: str, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    try:
        function(*args, **options)
    except kind as error:
        assert text in str(error), f"{text!r} is not in {error!s}"
        return error
    raise AssertionError(f"no {kind}: {function}")


def direct(store: str, rank: int) -> None:
    """Methods of the group itself, with single tensors and without options."""
    group = group_of(store, rank, 2, timeout=timedelta(seconds=ranks.LIMIT))
    assert (group.rank(), group.size(), group.name()) == (rank, 2, "ferrule")
    x = torch.ones(10)
    work = group.allreduce(x)
    assert work.wait() and work.is_completed() and work.is_success()
    assert work.exception() is None and work.result() == [x]
    work.synchronize()
    assert (x == 2).all()
    group.allreduce([x], dist.ReduceOp.MAX).wait()
    group.broadcast(x, 1).wait()
    outputs = [torch.empty(3), torch.empty(3)]
    group.allgather(outputs, torch.full((3,), float(rank))).wait()
    assert outputs[1][0] == 1
    group.barrier().wait()
    fails(NotImplementedError, "timeout", group.set_timeout, timedelta(seconds=1))
    # A premultiplied sum, where PyTorch shows the factor.
    op = dist._make_nccl_premul_sum(0.5)
    y = torch.full((3,), 2.0 + rank)
    if op.__getstate__() is None:
        fails(ValueError, "factor", group.allreduce, y, op)
    else:
        group.allreduce(y, op).wait()
        assert (y == 2.5).all()
    # A callback that waits for a callback, which starts an operation as well.
    def inner(_: Any) -> Any:
        return dist.all_reduce(torch.ones(3), async_op=True).get_future().wait()[0]

    def outer(_: Any) -> Any:
        future = dist.all_reduce(torch.ones(2), async_op=True).get_future()
        return future.then(inner).wait()

    assert group.allreduce(x).get_future().then(outer).wait().tolist() == [2, 2, 2]
    # Coalescing of different operations.
    outputs = [torch.empty(3), torch.empty(3)]
    group._start_coalescing()
    parts = [group.allreduce(x), group.allgather(outputs, torch.full((3,), float(rank)))]
    fails(RuntimeError, "not begun", parts[0].wait)
    whole = group._end_coalescing()
    for part in parts:
        assert part.wait() and part.is_success() and part.exception() is None
    assert parts[1].result() == outputs and outputs[1][2] == 1
    assert len(whole.get_future().wait()) == 3
    group._start_coalescing()
    assert group._end_coalescing() is None
    group.shutdown()
    group.shutdown()
    fails(ValueError, "destroyed", group.allreduce, x)
    fails(RuntimeError, "destroyed", lambda: whole.get_future().then(lambda done: done))
    dist.destroy_process_group()


def options(store: str, rank: int) -> None:
    fails(ValueError, "Options", group_of, store + "-1", rank, 2, pg_options=object())
    made = Options(devices=["local"], wire="bfloat16", algos="auto", timeout=timedelta(minutes=1))
    group = group_of(store, rank, 2, pg_options=made)
    x = torch.full((10,), 1 + 2**-20)
    group.allreduce(x).wait()
    assert (x == 2).all(), "sent as bfloat16"
    y = torch.full((10,), 1 + 2**-20, dtype=torch.float64)
    group.allreduce(y).wait()
    assert (y == 2 + 2**-19).all(), "other types are sent as they are"
    x = torch.full((10,), 1 + 2**-20)
    group.broadcast(x, 0).wait()
    assert (x == 1 + 2**-20).all(), "copies are exact"
    dist.destroy_process_group()


def aborts(store: str, rank: int) -> None:
    group = group_of(store, rank, 2)
    x = torch.ones(10)
    if rank == 0:
        group.abort("the learning rate is NaN")
    error = fails(ferrule.AbortedError, "learning rate", dist.all_reduce, x)
    assert isinstance(error, OSError)
    group.abort()
    dist.destroy_process_group()


def killed(store: str, rank: int) -> str:
    """DDP's backward pass says which rank is lost."""
    group_of(store, rank, 2)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 10))
    model(torch.ones(1, 10)).sum().backward()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        for _ in range(2):
            model(torch.ones(1, 10)).sum().backward()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("a dead rank was not noticed")


def threads() -> int:
    return threading.active_count()


def garbage(store: str, rank: int) -> None:
    """Groups that are dropped without a word leave neither threads nor devices."""
    from ferrule import devices

    for number in range(3):
        group = group_of(f"{store}-{number}", rank, 2)
        future = dist.all_reduce(torch.ones(10), async_op=True).get_future()
        future.then(lambda _: dist.all_reduce(torch.ones(5))).wait()
        dist.destroy_process_group()
        del group, future
        gc.collect()
        assert not devices._open
    end = ranks.time.monotonic() + ranks.LIMIT
    while threads() > 1:
        assert ranks.time.monotonic() < end, threading.enumerate()
        ranks.time.sleep(0.01)


class Numbers(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return torch.full((2,), float(index))


def workers(store: str, rank: int) -> None:
    """Forked workers of a DataLoader: their end is not that of the group."""
    group_of(store, rank, 2)
    dist.barrier()
    for _ in range(2):
        loader = torch.utils.data.DataLoader(Numbers(), batch_size=2, num_workers=2)
        assert sum(batch.sum().item() for batch in loader) == 56
    x = torch.ones(10)
    dist.all_reduce(x)
    assert (x == 2).all()
    dist.destroy_process_group()


def hook_errors(store: str, rank: int) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 10))
    model.register_comm_hook(None, hooks.wire_hook("int8"))
    fails(Exception, 'backend "ferrule"', model(torch.ones(1, 10)).sum().backward)
    dist.destroy_process_group()


EXIT = """
import sys, ranks, torch, torch.distributed as dist, ferrule.torch
dist.init_process_group("ferrule", init_method="file://" + sys.argv[1], rank=int(sys.argv[2]),
    world_size=2)
dist.all_reduce(torch.ones(10), async_op=True).get_future().then(lambda _: dist.barrier()).wait()
"""


class Torch(unittest.TestCase):
    def _run(self, function: Any, expected: int = 2) -> List[Any]:
        """Runs function(store, rank) as two ranks; returns the results of the first ones."""
        store = os.path.join(ranks.RUNTIME, ranks.new_job(self))
        both = ranks.Ranks()
        try:
            for rank in range(2):
                both.add(function, (store, rank))
            return [both.result(rank) for rank in range(expected)]
        finally:
            both.end()

    def test_direct(self) -> None:
        self._run(direct)

    def test_options(self) -> None:
        self._run(options)

    def test_aborts(self) -> None:
        self._run(aborts)

    def test_killed(self) -> None:
        text = self._run(killed, expected=1)[0]
        self.assertRegex(text, "PeerLostError.*rank 1")

    def test_garbage(self) -> None:
        self._run(garbage)

    def test_workers(self) -> None:
        self._run(workers)

    def test_hooks(self) -> None:
        with self.assertRaises(ValueError):
            hooks.wire_hook("float8")
        for fraction in (0, -1, 1.5):
            with self.assertRaises(ValueError):
                hooks.TopKState(fraction)
        if dist.is_gloo_available() if hasattr(dist, "is_gloo_available") else True:
            self._run(hook_errors)

    def test_registers_again(self) -> None:
        ferrule.torch.register(("cpu", "cuda"))
        ferrule.torch.register()
        self.assertEqual(dist.Backend("ferrule"), "ferrule")

    def test_exit(self) -> None:
        """A group that nobody destroys does not keep a process."""
        store = os.path.join(ranks.RUNTIME, ranks.new_job(self))
        processes = [
            subprocess.Popen([sys.executable, "-c", EXIT, store, str(rank)]) for rank in range(2)
        ]
        try:
            self.assertEqual([process.wait(ranks.LIMIT) for process in processes], [0, 0])
        finally:
            for process in processes:
                process.kill()
                process.wait()

    def test_memory(self) -> None:
        """Tensors that follow each other are used in place; others are copied."""
        made = call.Call("x", [])
        whole = torch.arange(12.0)
        parts = list(whole.split(4))
        self.assertEqual(made.inputs(parts).address, whole.data_ptr())
        self.assertEqual(made.outputs_of(parts).count, 12)
        self.assertNotEqual(made.inputs(parts[::-1]).address, whole.data_ptr())
        self.assertNotEqual(made.outputs_of(parts[::-1]).address, whole.data_ptr())
        self.assertEqual(len(made.operation.finals), 1)
        view = made.input(whole.view(3, 4).t())
        self.assertNotEqual(view.address, whole.data_ptr())
        self.assertEqual(view.owner.tolist(), whole.view(3, 4).t().tolist())
        conjugate = torch.tensor([1 + 2j]).conj()
        self.assertFalse(types.is_plain(conjugate))
        self.assertEqual(made.input(conjugate).owner.tolist(), [1 - 2j])

    def test_failed_future(self) -> None:
        """The error is that of wait(), and of code in C++ that reads the value as a list."""
        future = work.Future(work.Callbacks(), None)
        future.fail(ferrule.PeerLostError(104, "rank 1 has exited"))
        for method in (future.wait, future.value):
            with self.assertRaisesRegex(ferrule.PeerLostError, "rank 1 has exited"):
                method()
        self.assertTrue(future.done())


if __name__ == "__main__":
    unittest.main()
