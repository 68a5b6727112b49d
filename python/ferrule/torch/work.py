# SPDX-License-Identifier: BSD-3-Clause
"""Work and futures of operations.

A callback of a future may start operations. All ranks must start them in the same order, so that
callbacks run in the order of the then() calls, in one thread. Operations of callbacks have a
communicator of their own, because those of the application come in between at any time. Callbacks
that callbacks add run in a further thread, and so on: see `level`.
"""

import queue
import threading
import weakref
from datetime import timedelta
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

import torch
from torch._C import _distributed_c10d as c10d

from ..errors import Error
from ..requests import Request

_thread = threading.local()


def level() -> int:
    """Returns how deep in callbacks the calling thread is; 0: not in one."""
    found: int = getattr(_thread, "level", 0)
    return found


class _Failed:
    """The value of a failed future, for code in C++, which tries to read it as a list.

    Python code does not see it. The name of the class has the reason, for messages of casts.
    """

    error: Exception

    def __len__(self) -> int:
        raise self.error

    def __getitem__(self, index: int) -> Any:
        raise self.error


class Future(torch.futures.Future[Any]):
    """A future whose callbacks run in the order of their then() calls."""

    def __init__(self, callbacks: "Callbacks", devices: Any) -> None:
        super().__init__(devices=devices)
        self._callbacks = callbacks
        self.devices = devices

    def then(self, callback: Callable[[Any], Any]) -> Any:
        """Returns a future of the callback's result; the callback gets this future."""
        result = Future(self._callbacks, self.devices)
        self._callbacks.add(self, callback, result)
        return result

    def fail(self, error: Exception) -> None:
        """Completes the future with an error."""
        value = type(f"{type(error).__name__}: {error}", (_Failed,), {"error": error})()

        def unwrap(_: Any) -> None:
            raise error

        self._set_unwrap_func(unwrap)
        self.set_result(value)


class Callbacks:
    """The threads of a group that run callbacks, one for each level."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: Dict[int, "queue.SimpleQueue[Any]"] = {}
        self._is_closed = False

    def add(self, future: Future, callback: Callable[[Any], Any], result: Future) -> None:
        """Runs a callback when its turn has come and the future is complete."""
        depth = level()
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the process group is destroyed")
            if depth not in self._queues:
                entries: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
                self._queues[depth] = entries
                threading.Thread(
                    target=_run_callbacks,
                    args=(entries, depth + 1),
                    name=f"ferrule-then-{depth}",
                    daemon=True,
                ).start()
            self._queues[depth].put((future, callback, result))

    def close(self) -> None:
        """Ends the threads after the callbacks that they have."""
        with self._lock:
            self._is_closed = True
            for entries in self._queues.values():
                entries.put(None)
            self._queues.clear()


def _run_callbacks(entries: "queue.SimpleQueue[Any]", depth: int) -> None:
    _thread.level = depth
    while True:
        entry = entries.get()
        if entry is None:
            return
        future, callback, result = entry
        try:
            future.wait()
        except BaseException:
            pass  # the callback gets it from the future
        try:
            result.set_result(callback(future))
        except Error as error:
            result.fail(error)
        except BaseException as error:  # as PyTorch does
            failure = RuntimeError(f"{type(error).__name__}: {error}")
            failure.__cause__ = error
            result.fail(failure)
        del entry, future, callback, result


class Work(c10d.Work):
    """An operation in progress."""

    def __init__(
        self,
        request: Request[Any],
        outputs: List[Any],
        callbacks: Callbacks,
        kept: Optional[Set[Any]],
    ) -> None:
        """`kept`: holds the object until it was waited for, because PyTorch 1.13 does not."""
        super().__init__()
        self._request = request
        self._outputs = outputs
        self._callbacks = callbacks
        self._kept = kept
        self._future: Optional[Future] = None
        self._lock = threading.Lock()
        if kept is not None:
            kept.add(self)

    def wait(self, timeout: Any = timedelta(0)) -> bool:
        """Waits until the operation has completed. Raises its error, or TimeoutError."""
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else 0
        self._request.wait(seconds if seconds > 0 else None)
        if self._kept is not None:
            self._kept.discard(self)
        return True

    def synchronize(self) -> None:
        """Waits: the results are complete for the host and for all streams."""
        self.wait()

    def is_completed(self) -> bool:
        """Returns whether the operation has completed or failed."""
        try:
            return self._request.test()
        except Exception:
            return True

    def is_success(self) -> bool:
        """Returns whether the operation has completed without an error."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> Any:
        """Returns the error of a failed operation, or None."""
        try:
            self._request.test()
        except Exception as error:
            return error
        return None

    def result(self) -> List[Any]:
        """Returns the outputs."""
        return self._outputs

    def get_future(self) -> Any:
        """Returns a future, whose value is the list of outputs."""
        with self._lock:
            if self._future is None:
                devices = sorted({str(t.device) for t in self._outputs if t.is_cuda})
                self._future = Future(self._callbacks, devices or None)
                self._request.future().add_done_callback(
                    _complete(self._future, self._outputs, self._kept, weakref.ref(self))
                )
            return self._future


def _complete(
    future: Future, outputs: List[Any], kept: Optional[Set[Any]], work: Any
) -> Callable[[Any], None]:
    def done(completed: Any) -> None:
        if kept is not None:
            kept.discard(work())
        # Futures of PyTorch itself (collect_all()) call their callbacks in this thread, or in that
        # of then() if they are complete by then. Both are of level 0, so that ranks agree.
        error = completed.exception()
        if error is not None:
            future.fail(error)
        elif future.devices:
            with torch.cuda.device(future.devices[0]):
                future.set_result(outputs)
        else:
            future.set_result(outputs)

    return done


class Batch:
    """Operations between start and end of coalescing. They start together."""

    def __init__(self) -> None:
        self.calls: List[Tuple[Any, "BatchedWork"]] = []


class BatchedWork(c10d.Work):
    """A part of a batch. It completes with the batch."""

    def __init__(self, outputs: List[Any]) -> None:
        super().__init__()
        self._outputs = outputs
        self.work: Optional[Work] = None

    def _started(self) -> Work:
        if self.work is None:
            raise RuntimeError("the operations between start and end of coalescing have not begun")
        return self.work

    def wait(self, timeout: Any = timedelta(0)) -> bool:
        """Waits for the batch."""
        return self._started().wait(timeout)

    def synchronize(self) -> None:
        """Waits for the batch."""
        self._started().wait()

    def is_completed(self) -> bool:
        """Returns whether the batch has completed or failed."""
        return self._started().is_completed()

    def is_success(self) -> bool:
        """Returns whether the batch has completed without an error."""
        return self._started().is_success()

    def exception(self) -> Any:
        """Returns the error of the batch, or None."""
        return self._started().exception()

    def result(self) -> List[Any]:
        """Returns the outputs of this part."""
        return self._outputs

    def get_future(self) -> Any:
        """Returns the future of the batch, whose value is the list of all outputs."""
        return self._started().get_future()
