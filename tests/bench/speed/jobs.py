# SPDX-License-Identifier: BSD-3-Clause
"""Programs that are measured: how each is started, and what its output says."""
import json
import os
import re
import shutil
import subprocess
import tempfile
import time

TIMEOUT_S = 300


class Unavailable(Exception):
    """A peer, or what a measurement needs, is not on this machine; the text says why."""


def find(program):
    if not shutil.which(program):
        raise Unavailable(f"there is no {program}")
    return program


def run(command, cpus=None, env=None, timeout=TIMEOUT_S):
    """Standard output of a command, which has to succeed."""
    if cpus:
        command = ["taskset", "-c", cpus, *command]
    done = subprocess.run(command, env={**os.environ, **(env or {})}, timeout=timeout,
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit status {done.returncode}\n"
                           f"{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


class Pair:
    """A server in the background, and a client; both end with the `with`."""

    def __init__(self, command, cpus=None, env=None):
        if cpus:
            command = ["taskset", "-c", cpus, *command]
        # A file: nobody reads a pipe meanwhile.
        self.output = tempfile.TemporaryFile("w+")
        self.server = subprocess.Popen(command, env={**os.environ, **(env or {})},
                                       stdout=self.output, stderr=subprocess.STDOUT)

    def __enter__(self):
        return self

    def said(self):
        self.output.seek(0)
        return self.output.read()

    def wait(self):
        self.server.wait(timeout=TIMEOUT_S)
        return self.said()

    def __exit__(self, *_):
        if self.server.poll() is None:
            self.server.terminate()
            try:
                self.server.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self.server.kill()
                self.server.wait()
        self.output.close()


# ---- allreduce: {size: microseconds}, out of place


def rows_of_nccl_tests(text):
    """Columns as in nccl-tests: the last eight are time, algbw, busbw, wrong, twice."""
    times = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) < 12 or not words[0].isdigit():
            continue
        if words[-5] != "0" or words[-1] != "0":
            raise RuntimeError(f"wrong elements: {line}")
        times[int(words[0])] = float(words[-8])
    return times


def ferrule_allreduce(build, ranks, low, high, cpus):
    out = run([f"{build}/examples/ferrule-bench", "-n", str(ranks), "--min", str(low), "--max",
               str(high), "--json", "-"], cpus)
    return {row["size"]: row["out_of_place"]["time_us"] for row in json.loads(out)["results"]}


def mpi_program(work, name):
    path = os.path.join(work, f"mpi_allreduce.{name}")
    if not os.path.exists(path):
        source = os.path.join(os.path.dirname(__file__), "..", "mpi_allreduce.c")
        run([find(f"mpicc.{name}"), "-O2", "-o", path, source])
    return path


def openmpi_allreduce(work, ranks, low, high, cpus, transport="vader", algorithm=None):
    program = mpi_program(work, "openmpi")
    n_cpus = len(cpus.split(","))
    choose = [] if algorithm is None else [
        "--mca", "coll_tuned_use_dynamic_rules", "1",
        "--mca", "coll_tuned_allreduce_algorithm", str(algorithm)]
    out = run([find("mpirun.openmpi"), "--allow-run-as-root", "--oversubscribe", "--bind-to",
               "none", "--mca", "pml", "ob1", "--mca", "btl", f"{transport},self",
               "--mca", "mpi_yield_when_idle", str(int(ranks > n_cpus)), *choose,
               "-n", str(ranks), program, "--min", str(low), "--max", str(high)], cpus)
    return rows_of_nccl_tests(out)


def mpich_allreduce(work, ranks, low, high, cpus):
    program = mpi_program(work, "mpich")
    out = run([find("mpirun.mpich"), "-bind-to", "none", "-n", str(ranks), program, "--min",
               str(low), "--max", str(high)], cpus)
    return rows_of_nccl_tests(out)


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
    """One row of `ferrule-pingpong --local`, as numbers in the order of its columns."""
    count = [] if iters is None else ["--iters", str(iters)]
    out = run([f"{build}/examples/ferrule-pingpong", "--local", "--op", operation, "--test", test,
               "--sizes", str(size), *count, *more], cpus)
    name = "SEND" if operation == "send" else "RDMA WRITE"
    return pingpong_tables(out)[(name, test)][size]


def raw_memif(build, test):
    return json.loads(run([f"{build}/tests/bench/bench_memif", test]))


_port = [23000 + os.getpid() % 2000]


def next_port():
    _port[0] += 1
    return str(_port[0])


def ucx(test, size, iters, tls, cpus, percentile="50"):
    """The final line of ucx_perftest: iterations; microseconds: percentile, average, overall;
    MiB/s: average, overall; messages a second: average, overall."""
    env = {"UCX_TLS": tls, "UCX_WARN_UNUSED_ENV_VARS": "n", "UCX_LOG_LEVEL": "error"}
    where = ["-d", "memory"] if test in ("put_bw", "put_lat") else []
    where += ["-x", tls.split(",")[0], "-D", "bcopy" if size <= 8192 else "zcopy"] if where else []
    command = [find("ucx_perftest"), "-t", test, "-s", str(size), "-n", str(iters), "-w",
               str(max(iters // 10, 10)), "-f", "-R", percentile, "-p", next_port(), *where]
    with Pair(command, cpus, env) as server:
        time.sleep(0.5)
        out = run(command[:1] + ["127.0.0.1"] + command[1:], cpus, env)
        server.wait()
    numbers = [line.split() for line in out.splitlines()
               if re.fullmatch(r"[\d.\s]+", line) and line.strip()]
    if not numbers:
        raise RuntimeError(f"no result in what ucx_perftest said:\n{out}")
    return [float(word) for word in numbers[-1]]


def libfabric_shm(size, iters, cpus):
    """GB/s of fi_pingpong over shm: one message each way in turns."""
    port = next_port()
    command = [find("fi_pingpong"), "-p", "shm", "-e", "rdm", "-S", str(size), "-I", str(iters)]
    with Pair([*command, "-B", port], cpus) as server:
        time.sleep(0.5)
        out = run([*command, "-P", port, "127.0.0.1"], cpus)
        server.wait()
    rows = [line.split() for line in out.splitlines() if re.match(r"^\d", line)]
    return float(rows[-1][5]) / 1000

