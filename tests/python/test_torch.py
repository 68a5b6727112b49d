# SPDX-License-Identifier: BSD-3-Clause
"""The backend of torch.distributed: what ddp.py, torch2.py and torch_ops.py do not try."""

import gc
import importlib.metadata
import os
import pathlib
import signal
import subprocess
import sys
import threading
import unittest
import unittest.mock
from datetime import timedelta
from typing import Any, Callable, Dict, List

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
from ferrule.torch import Options, call, rendezvous, types, work
from ferrule.torch import group as group_module


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
    # A group holds operations for PyTorch 1.13 until they have completed or failed.
    kept, group._kept = group._kept, {}
    work = group.allreduce(torch.ones(10))
    until(work.is_completed)
    fails(ValueError, "int16", group.allreduce, torch.ones(3, dtype=torch.int16))
    assert not group._kept
    group._kept = kept
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
    # An operation that is refused ends the batch.
    group._start_coalescing()
    fails(NotImplementedError, "src=", group.recv_anysource, [x])
    group.barrier().wait()
    group.shutdown()
    group.shutdown()
    fails(ValueError, "destroyed", group.allreduce, x)
    assert whole.get_future().then(lambda done: len(done.value())).wait() == 3
    dist.destroy_process_group()


def options(store: str, rank: int) -> None:
    fails(ValueError, "Options", group_of, store + "-1", rank, 2, pg_options=object())
    fails(ValueError, "fp8", group_of, store + "-2", rank, 2, pg_options=Options(wire="fp8"))
    made = Options(devices=["local"], wire="bfloat16", algos="auto", timeout=timedelta.max)
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


def in_new_group(store: str, rank: int) -> None:
    """A callback communicates while this thread makes a group, and waits in the store."""
    options = {"rank": rank, "world_size": 2, "timeout": timedelta(seconds=ranks.LIMIT)}
    port = os.path.join(store, "port")
    if rank == 1:
        until(lambda: os.path.exists(port))
    served = dist.TCPStore(
        "127.0.0.1", 0 if rank == 0 else int(open(port).read()), 2, rank == 0,
        timeout=options["timeout"], wait_for_workers=False,
    )  # fmt: skip
    if rank == 0:
        with open(port + ".new", "w") as out:
            out.write(str(served.port))
        os.rename(port + ".new", port)
    dist.init_process_group("ferrule", store=served, **options)
    entered = threading.Event()
    agree = group_module.agree_on_job

    def watched(*args: Any) -> Any:
        entered.set()
        return agree(*args)

    group_module.agree_on_job = watched

    def start(_: Any) -> None:
        if rank == 1:
            entered.wait()
            ranks.time.sleep(0.2)  # until it is in the store
        dist.all_reduce(torch.ones(3))

    future = dist.all_reduce(torch.ones(3), async_op=True).get_future().then(start)
    if rank == 0:
        future.wait()
    group = dist.new_group([0, 1])
    future.wait()
    dist.barrier(group=group)
    dist.destroy_process_group()


class Store:
    """A store in this process. A call that would block fails."""

    def __init__(self) -> None:
        self.values: Dict[str, Any] = {}
        self.lock = threading.Lock()

    def set(self, key: str, value: str) -> None:
        self.values[key] = value.encode()

    def get(self, key: str) -> Any:
        return self.values[key]

    def add(self, key: str, number: int) -> int:
        with self.lock:
            self.values[key] = self.values.get(key, 0) + number
            return self.values[key]


class Bucket:
    """A bucket of DDP."""

    def __init__(self, gradients: Dict[Any, List[float]]) -> None:
        self.flat = torch.tensor([x for values in gradients.values() for x in values])
        self.all = list(gradients)

    def buffer(self) -> Any:
        return self.flat

    def parameters(self) -> Any:
        return self.all

    def index(self) -> int:
        return 0


class Alone:
    """A group of one rank, for hooks."""

    _submit = None

    def size(self) -> int:
        return 1

    def allgather_into_tensor_coalesced(self, outputs: Any, inputs: Any) -> Any:
        for output, input in zip(outputs, inputs):
            output.copy_(input)
        return self

    def get_future(self) -> Any:
        future: Any = torch.futures.Future()
        future.set_result(None)
        return future


def until(condition: Callable[[], bool]) -> None:
    end = ranks.time.monotonic() + ranks.LIMIT
    while not condition():
        assert ranks.time.monotonic() < end, threading.enumerate()
        ranks.time.sleep(0.01)


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
        until(lambda: not devices._open)  # the thread that completed the future may hold it
    until(lambda: threads() == 1)


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


# The callback computes while the interpreter ends.
BUSY = """
import sys, threading, ranks, torch, torch.distributed as dist, ferrule.torch
torch.set_num_threads(1)
dist.init_process_group("ferrule", init_method="file://" + sys.argv[1], rank=int(sys.argv[2]),
    world_size=2)
began = threading.Event()
def compute(_):
    began.set()
    x = torch.ones(300, 300)
    for _ in range(300):
        x @ x
future = dist.all_reduce(torch.ones(10), async_op=True).get_future().then(compute)
began.wait()
if sys.argv[2] == "1":
    dist.destroy_process_group()
"""


# The callback never ends.
STUCK = """
import sys, threading, ranks, torch, torch.distributed as dist, ferrule.torch
ferrule.torch.work.END_S = 0.1
dist.init_process_group("ferrule", init_method="file://" + sys.argv[1], rank=int(sys.argv[2]),
    world_size=2)
began = threading.Event()
dist.all_reduce(torch.ones(10), async_op=True).get_future().then(
    lambda _: began.set() or threading.Event().wait())
began.wait()
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

    def test_entry_point(self) -> None:
        """By which PyTorch 2.15 finds the backend without an import."""
        if sys.version_info < (3, 11):
            self.skipTest("tomllib came with Python 3.11")
        import tomllib

        text = (pathlib.Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
        groups = tomllib.loads(text)["project"]["entry-points"]
        value = groups["torch.distributed.backends"]["ferrule"]
        register = importlib.metadata.EntryPoint("ferrule", value, "").load()
        self.assertIs(register, ferrule.torch.register)

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

    def _exits(self, script: str) -> None:
        store = os.path.join(ranks.RUNTIME, ranks.new_job(self))
        processes = [
            subprocess.Popen([sys.executable, "-c", script, store, str(rank)]) for rank in range(2)
        ]
        try:
            self.assertEqual([process.wait(ranks.LIMIT) for process in processes], [0, 0])
        finally:
            for process in processes:
                process.kill()
                process.wait()

    def test_exit(self) -> None:
        """A group that nobody destroys does not keep a process."""
        self._exits(EXIT)

    def test_exit_during_a_callback(self) -> None:
        self._exits(BUSY)
        self._exits(STUCK)

    def test_new_group(self) -> None:
        store = os.path.join(ranks.RUNTIME, ranks.new_job(self))
        os.mkdir(store)
        both = ranks.Ranks()
        try:
            for rank in range(2):
                both.add(in_new_group, (store, rank))
            for rank in range(2):
                both.result(rank)
        finally:
            both.end()

    def test_agree_on_job(self) -> None:
        """Nothing blocks in the store, and an id of the last try is not believed."""
        store = Store()
        store.set("x", "id of the last try")
        store.add("x/set", 1)
        store.add("x/id of the last try/1", 5)
        found = {}

        def run(rank: int) -> None:
            found[rank] = rendezvous.agree_on_job(store, "x", rank, 3, ranks.LIMIT)

        threads = [threading.Thread(target=run, args=(rank,)) for rank in (1, 2)]
        for thread in threads:
            thread.start()
        end = ranks.time.monotonic() + ranks.LIMIT
        while "x/id of the last try/2" not in store.values:
            self.assertLess(ranks.time.monotonic(), end)
        with unittest.mock.patch.object(rendezvous.jobs, "unique_id", lambda: b"new id"):
            run(0)
        for thread in threads:
            thread.join()
        self.assertEqual(set(found.values()), {b"new id"})
        for rank in range(2):
            with self.assertRaisesRegex(TimeoutError, "did not meet"):
                rendezvous.agree_on_job(Store(), "x", rank, 2, 0)

    def test_top_k(self) -> None:
        """A rest belongs to its parameter, whichever bucket that is in, and is finite."""
        state = hooks.TopKState(0.25, Alone())
        a, b = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2))

        def step(**gradients: Any) -> Any:
            bucket: Any = Bucket({{"a": a, "b": b}[name]: x for name, x in gradients.items()})
            return hooks.topk_hook(state, bucket).wait().tolist()

        self.assertEqual(step(a=[4.0, 1.0], b=[2.0, 3.0]), [4, 0, 0, 0])
        self.assertEqual(step(b=[0.0, 0.0], a=[0.0, 0.0]), [0, 3, 0, 0])
        self.assertEqual(step(a=[0.0, 0.0]), [0, 1])
        self.assertEqual(step(b=[0.0, 0.0]), [2, 0])
        infinite = float("inf")
        self.assertEqual(step(a=[infinite, infinite], b=[infinite, 5.0]).count(infinite), 1)
        self.assertEqual(step(b=[0.0, 0.0], a=[0.0, 0.0]), [0, 5, 0, 0])

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

    def test_failed_work(self) -> None:
        """It is not held any more. One that goes on is."""
        request = unittest.mock.Mock()
        request.wait.side_effect = ferrule.TimeoutError(110, "it goes on")
        kept: Any = {}
        for done in (False, True):
            request._operation.done = done
            failed = work.Work(request, [], set(), kept)
            with self.assertRaises(ferrule.TimeoutError):
                failed.wait()
            self.assertEqual(failed in kept, not done)

    def test_many_works(self) -> None:
        """The newest works are held although they have completed: C++ may use them."""
        group = unittest.mock.MagicMock()
        group._batches.batch = None
        group._kept = {}
        with unittest.mock.patch.object(group_module, "level", lambda: 0):
            works = [
                group_module.ProcessGroup._submit(group, unittest.mock.Mock(outputs=[]))
                for _ in range(2 * group_module._KEPT_MIN + 1)
            ]
        self.assertEqual(list(group._kept), works[group_module._KEPT_MIN :])

    def test_refused_future(self) -> None:
        """After get_future() has failed, the next call does not return a future without an end."""
        request = unittest.mock.Mock()
        request.future.side_effect = ValueError("the process group is destroyed")
        refused = work.Work(request, [], set(), None)
        for _ in range(2):
            with self.assertRaisesRegex(ValueError, "destroyed"):
                refused.get_future()

    def test_queued_callbacks(self) -> None:
        """The end of a group does not wait for callbacks that are queued behind those of others."""
        other, own = work.Future(set(), None), work.Future(set(), None)
        first = other.then(lambda _: 1)
        second = own.then(lambda done: done.value())
        own.set_result(2)
        work.await_callbacks(own._running)
        other.set_result(0)
        self.assertEqual((first.wait(), second.wait()), (1, 2))

    def test_combined_callbacks(self) -> None:
        """A callback that PyTorch runs when that of then() has ended is of no level."""
        future = work.Future(set(), None)
        whole = torch.futures.collect_all([future.then(lambda _: work.level())])
        levels = whole.then(lambda _: work.level())
        future.set_result(0)
        with self.assertRaisesRegex(RuntimeError, "that PyTorch has made"):
            levels.wait()
        self.assertEqual(whole.wait()[0].value(), 1)

    def test_failed_future(self) -> None:
        """The error is that of wait(), and of code in C++ that reads the value as a list."""
        future = work.Future(set(), None)
        future.fail(ferrule.PeerLostError(104, "rank 1 has exited"))
        for method in (future.wait, future.value):
            with self.assertRaisesRegex(ferrule.PeerLostError, "rank 1 has exited"):
                method()
        self.assertTrue(future.done())


if __name__ == "__main__":
    unittest.main()
