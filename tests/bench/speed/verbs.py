# SPDX-License-Identifier: BSD-3-Clause
"""Unmodified verbs programs over the drop-in libibverbs, on the local fabric."""
import json
import re
import subprocess
import time

import jobs
from jobs import Pair, find, own, run
from table import (BY_ROUND, Group, Result, Unavailable, alternate, compare, human,
                   median, present)

# Half of the time, or twice the rate, is 2 times better.
LATENCY_TARGET, RATE_TARGET, BANDWIDTH_TARGET = 1 / 1.15, 0.85, 0.95
DEVICE = {"FRL_VERBS_DEVICES": "local"}
SAME_LOOP = "the same loop over frl_*"
ROUNDS = 3 # times the bench's: a run is short, and the distance of the processors changes


def ferrule_run(b, *options):
    return [f"{b.build}/tools/ferrule-run", *options]


def perftest(b, program, size, iters, cpus, *options):
    """Returns the numbers of the line that perftest's client prints."""
    port = jobs.next_port()
    command = [*ferrule_run(b), find(program), "-d", "frl0", "-x", "1", "-F", "-p", port, "-s",
               str(size), "-n", str(iters), *options]
    with Pair(own(command), cpus, DEVICE) as server:
        server.wait_for_port(port)
        out = run(own([*command, "127.0.0.1"]), cpus, DEVICE)
        server.wait()
    lines = re.findall(r"^ *(\d[\d.\s]*)$", out, re.MULTILINE)
    if not lines:
        raise RuntimeError(f"no result in what {program} said:\n{out}")
    return [float(word) for word in lines[-1].split()]


def half_round_trip(b, program, iters, cpus):
    """Returns microseconds: perftest's t_typical of 8 bytes."""
    return perftest(b, program, 8, iters, cpus)[4]


def writes(b, size, iters):
    """Returns messages a second of ib_write_bw, without its time stamps of each message."""
    return perftest(b, "ib_write_bw", size, iters, b.cpus(2), "-N")[-1] * 1e6


def same_loop(b, loop, size, iters, cpus):
    return json.loads(run(own([f"{b.build}/tests/bench/bench_perftest", loop, str(size),
                               str(iters)]), cpus))


def ucx_tcp(b, iters):
    return jobs.ucx("tag_lat", 8, iters, "tcp,self", b.cpus(2))[1]


def latency(b):
    """ib_send_lat, the same loop over frl_*, and UCX over TCP."""
    iters = 5000 if b.quick else 50000
    got = alternate(ROUNDS * b.rounds, {
        "ferrule, ib_send_lat": lambda: half_round_trip(b, "ib_send_lat", iters, b.cpus(2)),
        "ferrule, frl_*": lambda: same_loop(b, "send-lat", 8, iters, b.cpus(2))["p50_us"],
        "ucx tcp": lambda: ucx_tcp(b, iters)}, "verbs-latency")
    ours = got["ferrule, ib_send_lat"]
    group = Group("Verbs programs: latency, half a round trip of 8 bytes, p50", [
        compare("ib_send_lat", ours, {SAME_LOOP: got["ferrule, frl_*"]}, "us",
                less_is_better=True, target=LATENCY_TARGET),
        compare("ib_send_lat, beside UCX' tag_lat", ours, present(got, "ucx tcp"), "us",
                less_is_better=True, target=4)], notes=[BY_ROUND])
    b.explain(group, lambda _: half_round_trip(b, "ib_send_lat", 500000, b.cpus(2)))
    return group


def write_latency(b):
    """ib_write_lat waits in memory, and makes no calls: two threads of the library handle packets,
    and need a processor each beside the two that wait."""
    iters, cpus = 200 if b.quick else 500, b.cpus(4)
    enough = len(b.available) >= 4
    peers = {
        "ferrule, ib_write_lat": lambda: half_round_trip(b, "ib_write_lat", iters, cpus),
        "ferrule, frl_*": lambda: same_loop(b, "write-lat", 8, iters, cpus)["p50_us"],
    }
    if enough:
        peers["ferrule, ib_send_lat"] = lambda: half_round_trip(b, "ib_send_lat", iters, cpus)
    got = alternate(ROUNDS * b.rounds, peers, "verbs-write-latency")
    ours = got["ferrule, ib_write_lat"]
    results = [compare("ib_write_lat", ours, {SAME_LOOP: got["ferrule, frl_*"]}, "us",
                       less_is_better=True, target=LATENCY_TARGET)]
    if enough:
        results.append(compare("ib_write_lat, a processor for each thread", ours,
                               {"ib_send_lat": got["ferrule, ib_send_lat"]}, "us",
                               less_is_better=True, target=1 / 3))
    else:
        results.append(Result("ib_write_lat, fewer than four processors", median(ours), None, "us",
                              limit=100))
    group = Group("Verbs programs: half a round trip of 8 bytes awaited in memory, p50", results,
                  notes=[BY_ROUND])
    b.explain(group, lambda _: half_round_trip(b, "ib_write_lat", 10 * iters, cpus))
    return group


def stream(b, row, size, iters, convert, unit, target):
    """Returns the Result of ib_write_bw of this size; convert() takes messages a second."""
    got = alternate(ROUNDS * b.rounds, {
        "ferrule, ib_write_bw": lambda: convert(writes(b, size, iters)),
        "ferrule, frl_*": lambda: convert(
            same_loop(b, "write-bw", size, iters, b.cpus(2))["messages_per_s"])},
        f"{row}, {human(size)}")
    return compare(f"ib_write_bw, {human(size)}", got["ferrule, ib_write_bw"],
                   {SAME_LOOP: got["ferrule, frl_*"]}, unit, target=target)


def rate(b):
    size, iters = 64, 50000 if b.quick else 5000000
    group = Group("Verbs programs: millions of messages a second", [
        stream(b, "verbs-rate", size, iters, lambda n: n / 1e6, "", RATE_TARGET)], notes=[BY_ROUND])
    b.explain(group, lambda _: writes(b, size, 5 * iters))
    return group


def bandwidth(b):
    sizes = {64 << 10: 100000, 1 << 20: 10000}
    share = 50 if b.quick else 1
    group = Group("Verbs programs: RDMA WRITE from and to memory of malloc()", [
        stream(b, "verbs-bandwidth", size, iters // share, lambda n, size=size: n * size / 1e9,
               "GB/s", BANDWIDTH_TARGET) for size, iters in sizes.items()], notes=[BY_ROUND])
    b.explain(group, lambda worst: [writes(b, size, 5 * iters) for size, iters in sizes.items()
                                    if worst.what.endswith(human(size))])
    return group


def ucx_over_verbs(b, iters):
    return jobs.ucx("tag_lat", 8, iters, "rc_v,self", b.cpus(2),
                    launcher=ferrule_run(b, "--uverbs"),
                    more_env={**DEVICE, "UCX_NET_DEVICES": "frl0:1"})[1]


def ucx(b):
    """UCX' tagged messages over the drop-in library, over TCP, and over shared memory. The last of
    these has no target: the sender stores into the receiver's memory."""
    find("ucx_perftest")
    try:
        run([*ferrule_run(b, "--uverbs"), "true"])
    except RuntimeError as why:
        raise Unavailable(str(why).splitlines()[-1]) from why
    iters = 5000 if b.quick else 50000
    got = alternate(ROUNDS * b.rounds, {
        "ferrule, ucx rc_v": lambda: ucx_over_verbs(b, iters),
        "ucx tcp": lambda: ucx_tcp(b, iters),
        "ucx posix": lambda: jobs.ucx("tag_lat", 8, iters, "posix,self", b.cpus(2))[1]},
        "verbs-ucx")
    ours = got["ferrule, ucx rc_v"]
    group = Group("Verbs programs: UCX, half a round trip of 8 bytes with tags, p50", [
        compare("tag_lat over rc_v, beside TCP", ours, present(got, "ucx tcp"), "us",
                less_is_better=True, target=2),
        compare("tag_lat over rc_v, beside shared memory", ours, present(got, "ucx posix"), "us",
                less_is_better=True)], notes=[BY_ROUND])
    b.explain(group, lambda _: ucx_over_verbs(b, 10 * iters))
    return group


def run_once_ms(command):
    began = time.monotonic()
    with jobs.start(command, None, DEVICE, stdout=subprocess.DEVNULL) as process:
        process.wait(timeout=jobs.TIMEOUT_S)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit status {process.returncode}")
    return 1000 * (time.monotonic() - began)


def run_ms(b, program, runs):
    """Returns how long a program runs, from its start to its end: the median of these runs."""
    command = [*ferrule_run(b), find(program)]
    return median([run_once_ms(command) for _ in range(runs)])


def connect(b):
    """The time until a program is connected, in parts."""
    peers, qps, runs = (5, 10, 5) if b.quick else (20, 20, 20)
    rtr = [*ferrule_run(b), f"{b.build}/tests/bench/bench_rtr", str(peers), str(qps)]
    got = alternate(b.rounds, {
        "ferrule": lambda: json.loads(run(own(rtr), b.cpus(2), DEVICE)),
        "ibv_devinfo": lambda: run_ms(b, "ibv_devinfo", runs),
        "true": lambda: run_ms(b, "true", runs)}, "verbs-connect")

    def middle(key):
        return median([one[key] for one in got["ferrule"]])

    results = [
        Result("a device opens", middle("open_us") / 1000, None, "ms", limit=5),
        Result("RTR, the first queue pair to a process", middle("first_us") / 1000, None, "ms",
               limit=1),
        Result("RTR, later queue pairs to it", middle("later_us"), None, "us", limit=50)]
    if "ibv_devinfo" in got:
        others = {"true": median(got["true"])} if "true" in got else None
        results.append(Result("ibv_devinfo, the whole process", median(got["ibv_devinfo"]), others,
                              "ms", less_is_better=True, limit=20))
    return Group("Verbs programs: devices and connections", results)


ROWS = {
    "verbs-latency": latency,
    "verbs-rate": rate,
    "verbs-bandwidth": bandwidth,
    "verbs-write-latency": write_latency,
    "verbs-ucx": ucx,
    "verbs-connect": connect,
}
