# SPDX-License-Identifier: BSD-3-Clause
"""Calls that block in the library until other ranks come, and Ctrl-C meanwhile."""

import threading
from typing import Callable, List, TypeVar

T = TypeVar("T")


def interruptible(call: Callable[[], T], discard: Callable[[T], None]) -> T:
    """Runs a call that blocks in the library. Ctrl-C ends the wait for it, not the call.

    Only the main thread has signal handlers: there, the call runs in a thread of its own. A result
    that comes too late is discarded.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    results: List[T] = []
    failures: List[BaseException] = []
    is_late = threading.Event()
    lock = threading.Lock()

    def body() -> None:
        try:
            result = call()
        except BaseException as error:  # raised again in the main thread
            failures.append(error)
            return
        with lock:
            if not is_late.is_set():
                results.append(result)
                return
        discard(result)

    thread = threading.Thread(target=body, name="ferrule-call", daemon=True)
    try:
        thread.start()
        while thread.is_alive():
            thread.join(0.1)
    except BaseException:
        with lock:
            is_late.set()
            late = results.pop() if results else None
        if late is not None:
            discard(late)
        raise
    if failures:
        raise failures[0]
    return results[0]
