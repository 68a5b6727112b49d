# SPDX-License-Identifier: BSD-3-Clause
"""Runs rows of a test of a torch.distributed backend, each as ranks in processes of their own.

A row is a function that each rank calls in an initialised process group. It raises if something is
wrong. The ranks must return the same value: the digest of parameters, for example. The values are
compared here, without the backend.
"""
import argparse
import ctypes
import faulthandler
import hashlib
import os
import pathlib
import select
import signal
import sys
import tempfile
import time
import traceback
from datetime import timedelta

os.environ.setdefault("GLOG_minloglevel", "2")  # torch 1.13 reports each hook that is registered
try:
    import torch
    import torch.distributed as dist
except ImportError:
    print("SKIP: there is no torch for this Python (Debian: python3-torch)")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Seconds after which a row counts as hanging, and nothing else.
LIMIT = 3 * int(os.environ.get("FRL_TEST_LIMIT", "120"))
KNOWN_FAILURE_LIMIT = LIMIT / 12
VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
PR_SET_PDEATHSIG = 1
TAIL_LINES = 60
STACKS_S = 10


class Skip(Exception):
    """This row cannot run here; the text says why. All ranks of a row must raise it."""


class Row:
    """A test: its function, number of ranks, and what is known of its end.

    `only`: the backend that the row is for. `fails`: {backend: why it fails there}. Such a failure
    counts as a pass, and success as a failure. `may_fail`: the same where both count as a pass.
    `ends`: {rank: wait status}, for ranks that end otherwise than by status 0.
    """

    def __init__(self, function, ranks, only, fails, may_fail, ends):
        self.function, self.ranks, self.only = function, ranks, only
        self.must_fail, self.ends = fails or {}, ends or {}
        self.fails = {**self.must_fail, **(may_fail or {})}
        self.name = function.__name__


ROWS = []


def row(ranks=2, *, only=None, fails=None, may_fail=None, ends=None):
    """Registers the function as a row."""
    def register(function):
        ROWS.append(Row(function, ranks, only, fails, may_fail, ends))
        return function
    return register


def backend():
    """Returns the name of the backend that is tested."""
    return backend.name


def folder():
    """Returns a folder that the ranks of the row share."""
    return folder.path


def note(text):
    """Rank 0's notes are printed when the row has passed."""
    if dist.get_rank() == 0:
        with open(f"{folder()}/note", "a", encoding="utf-8") as out:
            out.write(text + "\n")


def digest(tensors):
    """Returns a hash of the bytes of all tensors."""
    total = hashlib.sha256()
    for tensor in tensors:
        flat = tensor.detach().contiguous().flatten().view(torch.uint8)
        total.update(flat.numpy().tobytes())
    return total.hexdigest()


def expect(condition, text):
    """Raises AssertionError with the text unless the condition holds. `assert` depends on -O."""
    if not condition:
        raise AssertionError(text)


def expect_raises(types, function, *words):
    """The function must raise one of the types. The text must have all words, in any case."""
    try:
        function()
    except types as error:
        for word in words:
            expect(word.lower() in str(error).lower(), f"the text has no '{word}': {error}")
        return error
    raise AssertionError(f"no {types} was raised")


def init_group(name, rank, ranks, store, timeout=LIMIT):
    """Initialises the default process group. `ferrule` is of the tree, or installed."""
    if name == "ferrule":
        import ferrule.torch  # noqa: F401 (registers the backend)
    dist.init_process_group(name, init_method=f"file://{store}", rank=rank, world_size=ranks,
                            timeout=timedelta(seconds=timeout))


def prepare_environment(name, path):
    """Ranks depend on no setting of the caller, and on no name that leads elsewhere."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    if name != "ferrule":
        return
    build = pathlib.Path(os.environ.get("FRL_BUILD_ROOT", ROOT / "build"))
    os.environ.setdefault("FERRULE_LIBRARY", str(build / "libferrule.so.0"))
    os.environ.setdefault("FRL_TUNER_CACHE", "")
    os.environ.setdefault("FRL_TUNER_COSTS", "default")
    os.environ["XDG_RUNTIME_DIR"] = path
    sys.path.insert(0, str(ROOT / "python"))


def _rank_main(one, rank, path, parent):
    """A rank's process. Does not return."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    status = 1
    output = os.open(f"{path}/{rank}.out", os.O_WRONLY | os.O_CREAT, 0o600)
    for fd in (1, 2):
        os.dup2(output, fd)
    faulthandler.enable()
    try:
        folder.path = path
        torch.set_num_threads(1)
        torch.manual_seed(0)
        init_group(backend(), rank, one.ranks, f"{path}/store")
        value = one.function()
        if dist.is_initialized():
            dist.destroy_process_group()
        pathlib.Path(f"{path}/{rank}.value").write_text(repr(value), encoding="utf-8")
        status = 0
    except Skip as why:
        print(why)
        status = 77
    except BaseException:  # also SystemExit: a rank must not return to the caller's loop
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _start(one, path):
    """Starts the ranks. Returns {pidfd: (rank, pid)}."""
    sys.stdout.flush()
    parent, ranks = os.getpid(), {}
    for rank in range(one.ranks):
        pid = os.fork()
        if pid == 0:
            _rank_main(one, rank, path, parent)
        ranks[os.pidfd_open(pid)] = (rank, pid)
    return ranks


def _status(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _print_stacks(ranks):
    """Ranks that hang print where, and end."""
    for fd, (_, pid) in ranks.items():
        os.kill(pid, signal.SIGABRT)
        select.select([fd], [], [], STACKS_S)


def _wait(one, ranks):
    """Waits for all. The first unexpected end ends the others. Returns {rank: status}."""
    limit = KNOWN_FAILURE_LIMIT if backend() in one.fails else LIMIT
    poll, got, deadline = select.poll(), {}, time.monotonic() + limit
    for fd in ranks:
        poll.register(fd, select.POLLIN)
    while ranks:
        ended = poll.poll(max(0, deadline - time.monotonic()) * 1000)
        if not ended:
            if deadline:
                _print_stacks(ranks)
            break
        for fd, _ in ended:
            rank, pid = ranks.pop(fd)
            poll.unregister(fd)
            os.close(fd)
            got[rank] = _status(pid)
            if got[rank] not in (one.ends.get(rank, 0), 77):
                deadline = 0
    for fd, (_, pid) in ranks.items():
        os.kill(pid, signal.SIGKILL)
        _status(pid)
        os.close(fd)
    return got


def _read(path):
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def _tail(text):
    return "\n".join(text.splitlines()[-TAIL_LINES:])


def _verdict(one, got, path):
    """Returns ("passed" or "failed" or "skipped", text)."""
    outputs = [_read(path / f"{rank}.out") for rank in range(one.ranks)]
    if len(got) == one.ranks and set(got.values()) == {77}:
        return "skipped", outputs[0].strip()
    wrong = [rank for rank, status in got.items() if status != one.ends.get(rank, 0)]
    if not wrong and len(got) < one.ranks:
        wrong = [rank for rank in range(one.ranks) if rank not in got]
    if wrong:
        how = [f"rank {rank} " + (f"ended with status {got[rank]}" if rank in got else "hangs") +
               f":\n{_tail(outputs[rank])}" for rank in wrong]
        return "failed", "\n".join(how)
    values = {_read(path / f"{rank}.value") for rank in range(one.ranks) if rank not in one.ends}
    if len(values) > 1:
        return "failed", "the ranks have different results: " + ", ".join(sorted(values))
    return "passed", _read(path / "note").strip()


def _run(one):
    if one.only not in (None, backend()):
        return "skipped", f"for {one.only} only"
    with tempfile.TemporaryDirectory(prefix="ferrule-torch-") as path:
        prepare_environment(backend(), path)
        verdict, text = _verdict(one, _wait(one, _start(one, path)), pathlib.Path(path))
    if backend() in one.fails and verdict != "skipped":
        if verdict == "failed":
            line = text.strip().rpartition("\n")[2]
            return "passed", f"fails with {backend()}, as is known: {one.fails[backend()]} ({line})"
        if backend() in one.must_fail:
            return "failed", f"it does not fail with {backend()}: take away the mark of the row"
        text = f"known to fail with {backend()}, but did not this time"
    return verdict, text


def main(description):
    """Runs the rows that the command line names, or all. Returns the exit status."""
    names = [one.name for one in ROWS]
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("backend", help="ferrule, or another one of torch.distributed")
    parser.add_argument("row", nargs="*", help=f"of {', '.join(names)} (all)")
    options = parser.parse_args()
    unknown = set(options.row) - set(names)
    if unknown:
        parser.error(f"unknown row: {', '.join(unknown)}")
    backend.name = options.backend
    counts = dict.fromkeys(("passed", "failed", "skipped"), 0)
    print(f"torch {torch.__version__}, backend {options.backend}")
    for one in ROWS:
        if options.row and one.name not in options.row:
            continue
        verdict, text = _run(one)
        counts[verdict] += 1
        print(f"{verdict} {one.name}" + "".join(f"\n    {line}" for line in text.splitlines()),
              flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    if counts["failed"]:
        return 1
    return 0 if counts["passed"] else 77
