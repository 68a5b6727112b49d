# SPDX-License-Identifier: BSD-3-Clause
"""What is measured, against whom, and the targets."""
import re
import subprocess
import time

import jobs
from ethernet import Hosts
from table import Result, alternate, geometric_mean, human, median, median_by_key


def best(medians, names, key, pick):
    """(who, what) of the best of the others."""
    return pick(((name, medians[name][key]) for name in names), key=lambda pair: pair[1])


def allreduce_peers(b, ranks, low, high):
    peers = {
        "ferrule": lambda: jobs.ferrule_allreduce(b.build, ranks, low, high, b.cpus(ranks)),
        "openmpi": lambda: jobs.openmpi_allreduce(b.work, ranks, low, high, b.cpus(ranks)),
        "mpich": lambda: jobs.mpich_allreduce(b.work, ranks, low, high, b.cpus(ranks)),
    }
    if b.tuned:
        for name, number in (("ring", 4), ("segmented", 5), ("rabenseifner", 6)):
            peers[f"openmpi-{name}"] = lambda number=number: jobs.openmpi_allreduce(
                b.work, ranks, low, high, b.cpus(ranks), algorithm=number)
    return peers


def allreduce(b, row, ranks, low, high, target_of):
    """Times; target_of(size) is (the ratio of times at most)."""
    runs = alternate(b.rounds, allreduce_peers(b, ranks, low, high), row)
    medians = {name: median_by_key(got) for name, got in runs.items()}
    others = [name for name in medians if name != "ferrule"]
    results = []
    for size, ours in medians["ferrule"].items():
        if not all(size in medians[name] for name in others):
            continue
        who, time_us = best(medians, others, size, min)
        at_least, target = target_of(size)
        ratio = time_us / ours if at_least else ours / time_us
        results.append(Result(row, f"n = {ranks}, {human(size)}", ours, {who: time_us}, ratio,
                              target, at_least, "us"))
    return results


def allreduce_large_2(b):
    high = (4 << 20) if b.quick else (64 << 20)
    results = allreduce(b, "allreduce-2-large", 2, 64 << 10, high, lambda size: (True, 2))
    mean = geometric_mean([r.ratio for r in results])
    results.append(Result("allreduce-2-large", "geometric mean", None, None, mean, 4))
    return results


def allreduce_small_2(b):
    return allreduce(b, "allreduce-2-small", 2, 8, 32 << 10,
                     lambda size: (True, 1) if size >= 4096 else (False, 1.5))


def allreduce_many(b, ranks):
    high = (1 << 20) if b.quick else (64 << 20)
    return allreduce(b, f"allreduce-{ranks}", ranks, 8, high,
                     lambda size: (True, 1.5) if size >= 256 << 10 else (False, 1.5))


def allreduce_tcp(b):
    high = (64 << 10) if b.quick else (64 << 20)
    runs = alternate(b.rounds, {
        "ferrule": lambda: jobs.ferrule_allreduce(b.build, 2, 8, high, b.cpus(2)),
        "openmpi-tcp": lambda: jobs.openmpi_allreduce(b.work, 2, 8, high, b.cpus(2), "tcp"),
    }, "allreduce-tcp")
    ours, tcp = (median_by_key(runs[name]) for name in ("ferrule", "openmpi-tcp"))
    return [Result("allreduce-tcp", f"n = 2, {human(size)}", ours[size],
                   {"openmpi-tcp": tcp[size]}, tcp[size] / ours[size], 5, unit="us")
            for size in ours if size in tcp]


def write_local(b):
    size, iters = 1 << 20, 200 if b.quick else 2000
    peers = {
        "ferrule": lambda: jobs.pingpong(b.build, "write", "bandwidth", size, b.cpus(2),
                                         iters=iters)[1],
        "memif": lambda: jobs.raw_memif(b.build, "copy")["gbytes_per_s"],
    }
    for name, test, tls in (("ucx put_bw", "ucp_put_bw", "posix,self"),
                            ("ucx tag_bw", "tag_bw", "posix,self"),
                            ("ucx tag_bw, cma", "tag_bw", "posix,cma,self")):
        peers[name] = lambda test=test, tls=tls: jobs.ucx(test, size, iters, tls, b.cpus(2))[4] \
            * 2**20 / 1e9
    peers["libfabric shm"] = lambda: jobs.libfabric_shm(size, iters // 2, b.cpus(2))
    medians = {name: median(got) for name, got in
               alternate(b.rounds, peers, "write-local").items()}
    ours, raw = medians.pop("ferrule"), medians.pop("memif")
    return [Result("write-local", "RDMA WRITE 1 MiB, GB/s", ours, medians,
                   ours / max(medians.values()), 3),
            Result("write-local", "share of raw memif", ours, {"memif": raw}, ours / raw, 0.6)]


def latency(b):
    iters = 5000 if b.quick else 50000
    peers = {
        "SEND": lambda: jobs.pingpong(b.build, "send", "latency", 8, b.cpus(2), iters=iters),
        "WRITE": lambda: jobs.pingpong(b.build, "write", "latency", 8, b.cpus(2), iters=iters),
        "tcp p50": lambda: jobs.ucx("tag_lat", 8, iters, "tcp,self", b.cpus(2))[1],
        "tcp p99": lambda: jobs.ucx("tag_lat", 8, iters, "tcp,self", b.cpus(2), "99")[1],
        "memif": lambda: jobs.raw_memif(b.build, "latency")["p50_ns"] / 1000,
    }
    got = alternate(b.rounds, peers, "latency")
    tcp50, tcp99, raw = (median(got[name]) for name in ("tcp p50", "tcp p99", "memif"))
    results = []
    for operation in ("SEND", "WRITE"):
        p50 = median([row[2] for row in got[operation]])
        p99 = median([row[3] for row in got[operation]])
        what = f"8-byte {operation}, half round trip,"
        results += [
            Result("latency", f"{what} p50", p50, {"ucx tcp": tcp50}, p50 / tcp50, 1 / 8, False,
                   "us"),
            Result("latency", f"{what} p99", p99, {"ucx tcp": tcp99}, p99 / tcp99, 1 / 4, False,
                   "us"),
            Result("latency", f"{what} against raw memif", p50, {"memif": raw}, p50 / raw, 3,
                   False, "us"),
        ]
    return results


def rate(b):
    iters = 100000 if b.quick else 1000000
    got = alternate(b.rounds, {
        "ferrule": lambda: jobs.pingpong(b.build, "write", "bandwidth", 64, b.cpus(2),
                                         iters=iters)[2],
        "memif": lambda: jobs.raw_memif(b.build, "packets")["packets_per_s"],
    }, "rate")
    ours, raw = median(got["ferrule"]), median(got["memif"])
    return [Result("rate", "64-byte WRITEs a second", ours, {"memif": raw}, ours / raw, 0.2)]


def ethernet(b):
    size, seconds = 1 << 20, 1 if b.quick else 3
    results = []
    for share in (0, 0.001, 0.01):
        with Hosts(b.build, b.subfolder()) as hosts:
            if share:
                hosts.lose(share)
            iters = (200 if b.quick else 2000) if share < 0.01 else (50 if b.quick else 500)
            got = alternate(b.rounds, {
                "ferrule": lambda: hosts.ferrule(size, iters, b.cpus(2)),
                "tcp": lambda: hosts.tcp(seconds, b.cpus(2)),
            }, f"ethernet, {share:.1%} lost")
        ours, tcp = median(got["ferrule"]), median(got["tcp"])
        results.append(Result("ethernet", f"WRITE 1 MiB over veth, {share:.1%} lost, GB/s", ours,
                              {"iperf3": tcp}, ours / tcp, 1))
    return results


def instructions(b):
    """Of a 4 KiB WRITE: requester, responder, encode, decode; the first measurement, and the ICRC
    and the copy, are docs/performance.md's."""
    first = 553 + 333 + 720 + 822
    out = jobs.run([f"{b.build}/tests/bench/bench_protocol"])
    rows = dict(re.findall(r"^WRITE 4 KiB\s+(\w+)\s+[\d.]+\s+(\d+)", out, re.MULTILINE))
    now = sum(int(rows[stage]) for stage in ("requester", "responder", "encode", "decode"))
    return [Result("instructions", "a 4 KiB packet, both ends, ICRC on", now, {"first": first},
                   now / first, 0.5, False)]


def idle(b):
    """A process with an open device that nobody uses: processor time over some seconds."""
    seconds = 3 if b.quick else 10
    bench = subprocess.Popen([f"{b.build}/examples/ferrule-pingpong", "--listen", "idle"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(1)
        before = cpu_seconds(bench.pid)
        time.sleep(seconds)
        used = (cpu_seconds(bench.pid) - before) / seconds
    finally:
        bench.terminate()
        bench.wait()
    return [Result("idle", "share of a core, an idle process", used, None, used, 0.01, False)]


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        words = f.read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / 100


ROWS = {
    "allreduce-2-large": allreduce_large_2,
    "allreduce-2-small": allreduce_small_2,
    "allreduce-4": lambda b: allreduce_many(b, 4),
    "allreduce-8": lambda b: allreduce_many(b, 8),
    "allreduce-tcp": allreduce_tcp,
    "write-local": write_local,
    "latency": latency,
    "rate": rate,
    "ethernet": ethernet,
    "instructions": instructions,
    "idle": idle,
}
