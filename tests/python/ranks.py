# SPDX-License-Identifier: BSD-3-Clause
"""Ranks as processes, for the tests. Each group of ranks has a job of its own.

The tests use the library and the daemon that FERRULE_LIBRARY and FRL_DAEMON name, or those of
build/. They need no daemon of the machine: the library starts a private one.
"""

import atexit
import itertools
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
import traceback
import unittest
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("FRL_BUILD_ROOT", str(ROOT / "build")))
# Seconds after which an event counts as never coming. They only end tests that hang.
LIMIT = float(os.environ.get("FRL_TEST_LIMIT", "120"))

KEPT = ("FRL_BUILD_ROOT", "FRL_TEST_LIMIT", "FRL_DAEMON", "FRL_TESTS_RUNTIME")
for name in [name for name in os.environ if name.startswith("FRL_") and name not in KEPT]:
    del os.environ[name]
os.environ.setdefault("FERRULE_LIBRARY", str(BUILD / "libferrule.so.0"))
# The same algorithms every time, and no files in the home folder.
os.environ["FRL_TUNER_CACHE"] = ""
os.environ["FRL_TUNER_COSTS"] = "default"
if os.environ.get("FRL_TESTS_RUNTIME"):  # a process of a test
    RUNTIME = os.environ["FRL_TESTS_RUNTIME"]
else:
    RUNTIME = tempfile.mkdtemp(prefix="ferrule-python-")
    os.environ["FRL_TESTS_RUNTIME"] = RUNTIME
    atexit.register(shutil.rmtree, RUNTIME, ignore_errors=True)
os.environ["XDG_RUNTIME_DIR"] = RUNTIME
sys.path.insert(0, str(ROOT / "python"))
sys.path.insert(0, str(ROOT / "tests" / "python"))
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(ROOT / "python"), str(ROOT / "tests" / "python"), os.environ.get("PYTHONPATH", "")]
)

_context = multiprocessing.get_context("forkserver")
_numbers = itertools.count()


def new_job(test: unittest.TestCase) -> str:
    """Returns a name of a job that no other test uses."""
    return f"{test.id().rpartition('.')[2][:40]}-{os.getpid()}-{next(_numbers)}"


def _body(
    function: Callable[..., Any], comm_of: Dict[str, Any], arguments: Any, results: Connection
) -> None:
    try:
        for name, value in comm_of.pop("environment", {}).items():
            os.environ[name] = value
        if comm_of:
            import ferrule

            with ferrule.join(timeout=LIMIT, **comm_of) as comm:
                result = function(comm, *arguments)
        else:
            result = function(*arguments)
        results.send((True, result))
    except BaseException:
        results.send((False, traceback.format_exc()))


class Ranks:
    """Processes that run one function each. Results are read in the order of ranks."""

    def __init__(self) -> None:
        slow = [name for name in ("torch", "torch.distributed") if name in sys.modules]
        _context.set_forkserver_preload(["numpy", "ferrule", *slow])
        self.processes: List[Any] = []
        self.results: List[Connection] = []

    def add(self, function: Callable[..., Any], arguments: Any, **comm_of: Any) -> None:
        """Starts a process: function(comm, *arguments), or without options of join() no comm."""
        mine, theirs = _context.Pipe(duplex=False)
        process = _context.Process(target=_body, args=(function, comm_of, arguments, theirs))
        process.start()
        theirs.close()
        self.processes.append(process)
        self.results.append(mine)

    def result(self, rank: int, limit: float = LIMIT) -> Any:
        """Waits for a rank, and returns its result. Raises AssertionError if it failed."""
        end = time.monotonic() + limit
        while not self.results[rank].poll(0.2):
            if time.monotonic() > end:
                raise AssertionError(f"rank {rank} hangs")
        try:
            passed, result = self.results[rank].recv()
        except EOFError:
            self.processes[rank].join(LIMIT)
            raise AssertionError(
                f"rank {rank} ended without a result: {self.processes[rank].exitcode}"
            ) from None
        if not passed:
            raise AssertionError(f"rank {rank} failed:\n{result}")
        self.processes[rank].join(LIMIT)
        return result

    def end(self) -> None:
        """Kills what is left."""
        for process, pipe in zip(self.processes, self.results):
            if process.is_alive():
                process.kill()
            process.join()
            process.close()
            pipe.close()


def run(
    test: unittest.TestCase,
    size: int,
    function: Callable[..., Any],
    *arguments: Any,
    environment: Optional[Dict[str, str]] = None,
    **options: Any,
) -> List[Any]:
    """Runs function(comm, *arguments) as each of `size` ranks, and returns their results."""
    job = new_job(test)
    ranks = Ranks()
    try:
        for rank in range(size):
            ranks.add(
                function,
                arguments,
                job=job,
                rank=rank,
                size=size,
                environment=dict(environment or {}),
                **options,
            )
        errors = []
        results = []
        for rank in range(size):
            try:
                results.append(ranks.result(rank))
            except AssertionError as error:
                errors.append(str(error))
        if errors:
            raise AssertionError("\n".join(errors))
        return results
    finally:
        ranks.end()
