# SPDX-License-Identifier: BSD-3-Clause
"""Work and futures of operations.

A callback of a future may start operations. All ranks must start them in the same order, so that
callbacks run in the order of the then() calls of the process, in one thread. Operations of
callbacks have a communicator of their own, because those of the application come in between at any
time. Callbacks that callbacks add run in a further thread, and so on: see `level`.
"""

import logging
import os
import queue
import threading
import time
import weakref
from datetime import timedelta
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

import torch
from torch._C import _distributed_c10d as c10d

from ..errors import Error
from ..requests import Request

_thread = threading.local()
_NO_LEVEL = -1
# A thread of callbacks without work ends after this time.
_IDLE_S = 1.0
# A callback that waits for something that never comes does not keep the process for longer.
END_S = 30.0


def level() -> int:
    """Returns how deep in callbacks the calling thread is; 0: not in one.

    Raises RuntimeError in a callback that PyTorch itself runs when a future completes.
    """
    found: int = getattr(_thread, "level", 0)
    if found == _NO_LEVEL:
        raise RuntimeError(
            "a callback of a future that PyTorch has made, by collect_all() for example, cannot "
            "start operations: ranks run it at different times. Wait for the future instead"
        )
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

    def __init__(self, running: Set[Any], devices: Any) -> None:
        """`running`: the results of callbacks of the process group that have begun."""
        super().__init__(devices=devices)
        self._running = running
        self.devices = devices

    def then(self, callback: Callable[[Any], Any]) -> Any:
        """Returns a future of the callback's result; the callback gets this future."""
        result = Future(self._running, self.devices)
        _add(self, callback, result)
        return result

    def add_done_callback(self, callback: Callable[[Any], Any]) -> None:
        """Runs the callback in the order of the then() calls. Its errors are logged."""

        def logged(done: Any) -> None:
            try:
                callback(done)
            except Exception:
                logging.getLogger("ferrule").exception("a callback of a future has failed")

        self.then(logged)

    def fail(self, error: Exception) -> None:
        """Completes the future with an error."""
        value = type(f"{type(error).__name__}: {error}", (_Failed,), {"error": error})()

        def unwrap(_: Any) -> None:
            raise error

        self._set_unwrap_func(unwrap)
        self.set_result(value)


# The threads that run callbacks, by level, and their queues.
_threads: Dict[int, Tuple[threading.Thread, "queue.SimpleQueue[Any]"]] = {}
_lock = threading.RLock()
# Futures that are about to complete.
_completing: Set[Any] = set()


def _add(future: Future, callback: Callable[[Any], Any], result: Future) -> None:
    """Runs a callback when its turn has come and the future is complete."""
    depth = level()
    with _lock:
        if depth not in _threads:
            entries: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
            thread = threading.Thread(
                target=_run_callbacks,
                args=(entries, depth),
                name=f"ferrule-then-{depth}",
                daemon=True,
            )
            _threads[depth] = (thread, entries)
            try:
                thread.start()
            except BaseException:
                del _threads[depth]
                raise
        _threads[depth][1].put((future, callback, result))


def _run_callbacks(entries: "queue.SimpleQueue[Any]", depth: int) -> None:
    _thread.level = depth + 1
    while True:
        try:
            entry = entries.get(timeout=_IDLE_S)
        except queue.Empty:
            entry = None
        if entry is None:
            with _lock:
                if not entries.empty():
                    continue
                del _threads[depth]
                return
        _run_callback(*entry)
        entry = None


def _run_callback(future: Future, callback: Callable[[Any], Any], result: Future) -> None:
    try:
        future.wait()
    except BaseException:
        pass  # the callback gets it from the future
    value: Any = None
    failure: Optional[Exception] = None
    future._running.add(result)
    try:
        value = callback(future)
    except Error as error:
        failure = error
    except BaseException as error:  # as PyTorch does
        failure = RuntimeError(f"{type(error).__name__}: {error}")
        failure.__cause__ = error
    finally:
        future._running.discard(result)
    _set(result, value, failure)


def _set(future: Future, value: Any, error: Optional[Exception]) -> None:
    """Completes a future. Futures that PyTorch has made of it call their callbacks here."""
    before = getattr(_thread, "level", 0)
    _completing.add(future)
    _thread.level = _NO_LEVEL
    try:
        if error is not None:
            future.fail(error)
        elif future.devices:
            with torch.cuda.device(future.devices[0]):
                future.set_result(value)
        else:
            future.set_result(value)
    finally:
        _thread.level = before
        _completing.discard(future)


def await_callbacks(running: Set[Any]) -> None:
    """Waits for callbacks of a group that have begun. Its operations must have ended.

    Others follow later, and get futures that have failed: they may be queued behind callbacks of
    groups that are still open. A callback does not wait.
    """
    while running and _threads and getattr(_thread, "level", 0) == 0:
        time.sleep(0.001)


def end_callbacks() -> None:
    """Waits for all callbacks, at most END_S, and ends their threads. All operations have ended.

    The interpreter must not end meanwhile: PyTorch's code in C++ aborts the process then.
    """
    deadline = time.monotonic() + END_S
    while time.monotonic() < deadline:
        with _lock:
            if not _threads:
                break
            # Its callbacks may add others to the next level.
            thread, entries = _threads[min(_threads)]
            entries.put(None)
        thread.join(END_S)
    while _completing and time.monotonic() < deadline:
        time.sleep(0.001)


def _forget() -> None:
    """In a child of fork(), which has none of the threads."""
    global _lock
    _threads.clear()
    _completing.clear()
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_forget)


class Work(c10d.Work):
    """An operation in progress."""

    def __init__(
        self,
        request: Request[Any],
        outputs: List[Any],
        running: Set[Any],
        kept: Optional[Dict[Any, None]],
    ) -> None:
        """`kept`: holds the object until it was waited for, because PyTorch 1.13 does not."""
        super().__init__()
        self._request = request
        self._outputs = outputs
        self._running = running
        self._kept = kept
        self._future: Optional[Future] = None
        self._lock = threading.Lock()
        if kept is not None:
            kept[self] = None

    def wait(self, timeout: Any = timedelta(0)) -> bool:
        """Waits until the operation has completed. Raises its error, or TimeoutError."""
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else 0
        try:
            self._request.wait(seconds if seconds > 0 else None)
        finally:
            if self._kept is not None and self._request._operation.done:
                self._kept.pop(self, None)
        return True

    def synchronize(self) -> None:
        """Waits: the results are complete for the host and for all streams."""
        self.wait()

    def is_completed(self) -> bool:
        """Returns whether the operation has completed or failed."""
        try:
            done = self._request.test()
        except Exception:
            done = True
        if done and self._kept is not None:
            self._kept.pop(self, None)
        return done

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
                future = Future(self._running, devices or None)
                self._request.future().add_done_callback(
                    _complete(future, self._outputs, self._kept, weakref.ref(self))
                )
                self._future = future
            return self._future


def _complete(
    future: Future, outputs: List[Any], kept: Optional[Dict[Any, None]], work: Any
) -> Callable[[Any], None]:
    def done(completed: Any) -> None:
        if kept is not None:
            kept.pop(work(), None)
        _set(future, outputs, completed.exception())

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
            raise RuntimeError(
                "the operations between start and end of coalescing have not begun: an error came "
                "between them, or their end is missing. Start and end coalescing anew"
            )
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
