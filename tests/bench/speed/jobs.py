# SPDX-License-Identifier: BSD-3-Clause
"""Starts the programs that are measured, and parses their output."""
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

from table import Unavailable

TIMEOUT_S = 300
READY_S = 60


def find(program):
    if not shutil.which(program):
        raise Unavailable(f"there is no {program}")
    return program


def own(command):
    """Returns the command of a program of Ferrule's, wrapped if it is profiled."""
    return own.wrap(command) if own.wrap else command


own.wrap = None


def start(command, cpus, env, **streams):
    """Starts a process in a session of its own, on these processors."""
    if cpus:
        command = ["taskset", "-c", cpus, *command]
    return subprocess.Popen(command, env={**os.environ, **(env or {})}, start_new_session=True,
                            **streams)


def in_session(leader):
    """[(process, name of its program)]: launchers give their processes groups of their own."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
                session = int(f.read().rpartition(")")[2].split()[3])
            if session == leader:
                found.append((int(pid), os.path.basename(os.readlink(f"/proc/{pid}/exe"))))
        except (OSError, IndexError):
            pass # it has gone
    return found


def signal_session(leader, number):
    for pid, _ in in_session(leader):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def end(process):
    """Ends a process that still runs, and its children."""
    if process.poll() is not None:
        return
    signal_session(process.pid, signal.SIGTERM)
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        pass
    signal_session(process.pid, signal.SIGKILL)
    process.wait()


def run(command, cpus=None, env=None, timeout=TIMEOUT_S):
    """Returns the standard output of a command, which must succeed."""
    with start(command, cpus, env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
               text=True) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            end(process)
    if process.returncode:
        raise RuntimeError(f"{' '.join(process.args)}: exit status {process.returncode}\n"
                           f"{out[-2000:]}{err[-2000:]}")
    return out


def is_listening(port):
    """Returns whether any process of this network namespace listens at this port of TCP."""
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError), \
                open(f"/proc/net/{name}", encoding="ascii") as f:
            for words in map(str.split, f):
                if words[3] == "0A" and words[1].endswith(f":{int(port):04X}"):
                    return True
    return False


class Pair:
    """A server in the background, and a client; both end with the `with`."""

    def __init__(self, command, cpus=None, env=None):
        # A file, since a pipe is not read meanwhile.
        self.output = tempfile.TemporaryFile()
        self.server = start(command, cpus, env, stdout=self.output, stderr=subprocess.STDOUT)

    def __enter__(self):
        return self

    def said(self):
        # Keep the offset, which the server shares.
        fd = self.output.fileno()
        return os.pread(fd, os.fstat(fd).st_size, 0).decode(errors="replace")

    def wait_until(self, is_ready):
        limit = time.monotonic() + READY_S
        while not is_ready():
            if self.server.poll() is not None or time.monotonic() > limit:
                raise RuntimeError(f"{' '.join(self.server.args)}: not ready:\n{self.said()}")
            time.sleep(0.02)

    def wait_for(self, pattern):
        """Waits until the server has printed this."""
        self.wait_until(lambda: re.search(pattern, self.said(), re.MULTILINE))

    def wait_for_port(self, port):
        """Waits until a process listens at this port of TCP."""
        self.wait_until(lambda: is_listening(port))

    def wait(self):
        self.server.wait(timeout=TIMEOUT_S)
        return self.said()

    def __exit__(self, *_):
        end(self.server)
        self.output.close()


# ---- allreduce: {size: microseconds} out of place, and the same in place


class Sweep:
    """Sizes, whether to run in place as well, and whether in buffers of malloc(), instead of those
    that each program recommends."""

    def __init__(self, low, high, factor=2, in_place=True, malloc=False):
        self.low, self.high, self.factor, self.in_place = low, high, factor, in_place
        self.malloc = malloc

    def out_of_place(self):
        return Sweep(self.low, self.high, self.factor, False, self.malloc)

    def options(self):
        return ["--min", str(self.low), "--max", str(self.high), "--factor", str(self.factor),
                "--in-place", "both" if self.in_place else "off",
                *(["--malloc"] if self.malloc else [])]


def rows_of_mpi(text):
    """Parses columns as in nccl-tests: four that describe the row, then time, algbw, busbw, wrong,
    once or twice."""
    times = {}, {}
    for line in text.splitlines():
        words = line.split()
        if not words or not words[0].isdigit():
            continue
        for where, at in zip(times, range(4, len(words), 4)):
            if words[at + 3] != "0":
                raise RuntimeError(f"wrong elements: {line}")
            where[int(words[0])] = float(words[at])
    return times


def ferrule_allreduce(build, ranks, sweep, cpus, repeat=1):
    out = run(own([f"{build}/tools/ferrule-bench", "-n", str(ranks), *sweep.options(),
                   "--repeat", str(repeat), "--json", "-"]), cpus)
    results = json.loads(out)["results"]
    return tuple({row["size"]: row[place]["time_us"] for row in results if row.get(place)}
                 for place in ("out_of_place", "in_place"))


def mpi_program(work, name):
    path = os.path.join(work, f"mpi_allreduce.{name}")
    source = os.path.join(os.path.dirname(__file__), "..", "mpi_allreduce.c")
    if not os.path.exists(path) or os.path.getmtime(path) < os.path.getmtime(source):
        run([find(f"mpicc.{name}"), "-O2", "-o", path, source])
    return path


def openmpi_allreduce(work, ranks, sweep, cpus, transport="vader", algorithm=None):
    program = mpi_program(work, "openmpi")
    n_cpus = len(cpus.split(","))
    choose = [] if algorithm is None else [
        "--mca", "coll_tuned_use_dynamic_rules", "1",
        "--mca", "coll_tuned_allreduce_algorithm", str(algorithm)]
    out = run([find("mpirun.openmpi"), "--allow-run-as-root", "--oversubscribe", "--bind-to",
               "none", "--mca", "pml", "ob1", "--mca", "btl", f"{transport},self",
               "--mca", "mpi_yield_when_idle", str(int(ranks > n_cpus)), *choose,
               "-n", str(ranks), program, *sweep.options()], cpus)
    return rows_of_mpi(out)


def mpich_allreduce(work, ranks, sweep, cpus):
    program = mpi_program(work, "mpich")
    return rows_of_mpi(run([find("mpirun.mpich"), "-bind-to", "none", "-n", str(ranks), program,
                            *sweep.options()], cpus))


# ---- single messages


def pingpong_tables(text):
    """{(operation, test): {size: {column: value}}} of ferrule-pingpong."""
    tables, columns, current = {}, None, None
    for line in text.splitlines():
        head = re.match(r"(SEND|RDMA WRITE) (latency|bandwidth)", line)
        if head:
            current = tables.setdefault((head.group(1), head.group(2)), {})
            columns = None
        elif current is not None and line.strip().startswith("bytes"):
            columns = line.split()[1:]
        elif current is not None and columns and line.split()[:1] and \
                line.split()[0].isdigit():
            words = line.split()
            current[int(words[0])] = [float(w) if w != "-" else None for w in words[1:]]
    return tables


def pingpong(build, operation, test, size, cpus, *more, iters=None):
    """Returns one row of `ferrule-pingpong --local`, as numbers in the order of its columns."""
    count = [] if iters is None else ["--iters", str(iters)]
    out = run(own([f"{build}/tools/ferrule-pingpong", "--local", "--op", operation, "--test",
                   test, "--sizes", str(size), *count, *more]), cpus)
    name = "SEND" if operation == "send" else "RDMA WRITE"
    return pingpong_tables(out)[(name, test)][size]


def raw_memif(build, test, cpus):
    """On the first and the last of these processors."""
    cpus = cpus.split(",")
    return json.loads(run([f"{build}/tests/bench/bench_memif", test, cpus[0], cpus[-1]]))


def copies(build, quick, cpus):
    """Returns {copy: {bytes: {offset: GB/s}}}, all as text."""
    return json.loads(run([f"{build}/tests/bench/bench_copy", *(["--quick"] if quick else [])],
                          cpus))


def wake(build, how, messages, cpus):
    """Returns how an idle process waits: p50_us and max_us to wake up, and its share of a
    processor."""
    program = f"{build}/tests/bench/bench_wake"
    # Its two ends find each other.
    return json.loads(run(own([program, how, str(messages)]), cpus, {"FRL_CONTROL": "off"}))


def local(build, links):
    """Returns the costs of the local fabric for a process: first_open_ms, resident_kb, and with
    links to this many devices connect_ms and kb_a_link."""
    return json.loads(run([f"{build}/tests/bench/bench_local", str(links)]))


_port = [23000 + os.getpid() % 2000]


def next_port():
    _port[0] += 1
    return str(_port[0])


def ucx(test, size, iters, tls, cpus, percentile="50", launcher=(), more_env=None):
    """Parses the final line of ucx_perftest: iterations; microseconds: percentile, average,
    overall; MiB/s: average, overall; messages a second: average, overall. The words of `launcher`
    are put in front of its command."""
    env = {"UCX_TLS": tls, "UCX_WARN_UNUSED_ENV_VARS": "n", "UCX_LOG_LEVEL": "error",
           **(more_env or {})}
    where = ["-d", "memory"] if test in ("put_bw", "put_lat") else []
    where += ["-x", tls.split(",")[0], "-D", "bcopy" if size <= 8192 else "zcopy"] if where else []
    port = next_port()
    command = [find("ucx_perftest"), "-t", test, "-s", str(size), "-n", str(iters), "-w",
               str(max(iters // 10, 10)), "-f", "-R", percentile, "-p", port, *where]

    def launch(words):
        return own([*launcher, *words]) if launcher else words

    with Pair(launch(command), cpus, env) as server:
        server.wait_for_port(port)
        out = run(launch([*command, "127.0.0.1"]), cpus, env)
        server.wait()
    numbers = [line.split() for line in out.splitlines()
               if re.fullmatch(r"[\d.\s]+", line) and line.strip()]
    if not numbers:
        raise RuntimeError(f"no result in what ucx_perftest said:\n{out}")
    return [float(word) for word in numbers[-1]]


def libfabric_shm(size, iters, cpus):
    """Returns GB/s of fi_pingpong over shm: one message each way in turns."""
    port = next_port()
    command = [find("fi_pingpong"), "-p", "shm", "-e", "rdm", "-S", str(size), "-I", str(iters)]
    with Pair([*command, "-B", port], cpus) as server:
        time.sleep(0.5)
        out = run([*command, "-P", port, "127.0.0.1"], cpus)
        server.wait()
    rows = [line.split() for line in out.splitlines() if re.match(r"^\d", line)]
    return float(rows[-1][5]) / 1000

