# SPDX-License-Identifier: BSD-3-Clause
"""The rows: measurements, programs to compare with, and targets."""
import os
import re
import time

import allreduce
import faults
import jobs
import verbs
from ethernet import Hosts
from table import FAILURES, Group, Result, Unavailable, alternate, human, median, number


def medians(b, peers, note):
    """{who: median}"""
    return {who: median(values) for who, values in alternate(b.rounds, peers, note).items()}


def long_messages(b, iters, *places):
    return jobs.pingpong(b.build, "write", "bandwidth", 1 << 20, b.cpus(2), *places, iters=iters)[1]


MALLOC = ("--malloc",)        # memory as programs have it, instead of frl_mem_alloc()
ONE_PLACE = ("--places", "1") # the same buffer again and again, as UCX, libfabric and iperf3 do


def copy_speed(iters):
    """Returns GB/s of memcpy() of 1 MiB, which an assignment of bytes calls."""
    to, source = bytearray(1 << 20), bytes(1 << 20)
    view, began = memoryview(to), time.monotonic()
    for _ in range(iters):
        view[:] = source
    return iters * 2**20 / (time.monotonic() - began) / 1e9


def write_local(b):
    iters = 200 if b.quick else 2000
    peers = {
        "ferrule, one buffer": lambda: long_messages(b, iters, *ONE_PLACE),
        "ferrule": lambda: long_messages(b, iters),
        "ferrule, malloc()": lambda: long_messages(b, iters, *MALLOC),
        "memif": lambda: jobs.raw_memif(b.build, "copy", b.cpus(2))["gbytes_per_s"],
    }
    for name, test, tls in (("ucx put_bw", "ucp_put_bw", "posix,self"),
                            ("ucx tag_bw", "tag_bw", "posix,self"),
                            ("ucx tag_bw, cma", "tag_bw", "posix,cma,self")):
        peers[name] = lambda test=test, tls=tls: \
            jobs.ucx(test, 1 << 20, iters, tls, b.cpus(2))[4] * 2**20 / 1e9
    peers["libfabric shm"] = lambda: jobs.libfabric_shm(1 << 20, iters // 2, b.cpus(2))
    speeds = [copy_speed(iters) for _ in range(b.rounds)]
    got = medians(b, peers, "write-local")
    same, spread, plain = (
        got.pop(who) for who in ("ferrule, one buffer", "ferrule", "ferrule, malloc()"))
    raw = {"memif": got.pop("memif")} if "memif" in got else None
    group = Group("RDMA WRITE on one machine", [
        Result("1 MiB, the same again and again", same, got, "GB/s", target=3),
        Result("1 MiB, out of 32 MiB", spread, raw, "GB/s", target=0.6),
        Result("1 MiB, out of 32 MiB of malloc()", plain, {"frl_mem_alloc()": spread}, "GB/s",
               target=0.7)],
        notes=[f"One core's memcpy() of 1 MiB, the same again and again: "
               f"{number(median(speeds), 'GB/s')}.",
               "libfabric's fi_pingpong sends one message each way in turns; all others stream."])
    b.explain(group, lambda worst: long_messages(
        b, 5000, *(ONE_PLACE if "same" in worst.what else ()),
        *(MALLOC if "malloc" in worst.what else ())))
    return group


def copies(b):
    """Each copy at its worst distance between the buffers, and at its best one."""
    got, results = jobs.copies(b.build, b.quick, b.cpus(1)), []
    for name, sizes in got.items():
        for size, speeds in sizes.items():
            worst, best = min(speeds, key=speeds.get), max(speeds.values())
            is_judged = name != "memcpy" and int(size) > 16 << 10
            results.append(Result(f"{name}, {human(int(size))}, worst at {worst}", speeds[worst],
                                  {"best distance": best}, "GB/s",
                                  target=1 / 1.3 if is_judged else None))
    return Group("Copies of one core, by the distance between the buffers (0, 16, 64, 4080)",
                 results, notes=["The data path uses the first three for long payload; glibc's "
                                 "memcpy() is for comparison. 16 KiB are not judged: in the "
                                 "first-level cache, loads that cross a line take twice as long."])


def round_trips(b, operation, iters):
    return jobs.pingpong(b.build, operation, "latency", 8, b.cpus(2), iters=iters)


def latency(b):
    iters = 5000 if b.quick else 50000
    peers = {
        "ferrule SEND": lambda: round_trips(b, "send", iters),
        "ferrule WRITE": lambda: round_trips(b, "write", iters),
        "p50": lambda: jobs.ucx("tag_lat", 8, iters, "tcp,self", b.cpus(2))[1],
        "p99": lambda: jobs.ucx("tag_lat", 8, iters, "tcp,self", b.cpus(2), "99")[1],
        "memif": lambda: jobs.raw_memif(b.build, "latency", b.cpus(2))["p50_ns"] / 1000,
    }
    got = alternate(b.rounds, peers, "latency")
    others = {who: median(got[who]) for who in ("p50", "p99", "memif") if who in got}
    results = []
    for operation in ("SEND", "WRITE"):
        p50, p99 = (median([run[column] for run in got[f"ferrule {operation}"]])
                    for column in (2, 3))
        for who, ours, target in (("p50", p50, 8), ("p99", p99, 4), ("memif", p50, 1 / 3)):
            against = {"memif" if who == "memif" else "ucx tcp": others[who]} \
                if who in others else None
            what = f"8-byte {operation}, {'p50, raw memif' if who == 'memif' else who}"
            results.append(Result(what, ours, against, "us", less_is_better=True,
                                  target=target))
    group = Group("Latency of one message, half a round trip", results)
    b.explain(group, lambda worst: round_trips(b, "send" if "SEND" in worst.what else "write",
                                               500000))
    return group


def short_messages(b, iters):
    return jobs.pingpong(b.build, "write", "bandwidth", 64, b.cpus(2), iters=iters)[2] / 1e6


# Beside packet:, over a veth.
OTHER_PORTS = ("packet:e0,gso=off", "net_af_packet0,iface=e0", "net_af_xdp0,iface=e0",
               "net_pcap0,iface=e0")


def ports(b):
    """Ferrule's ports over an interface of the kernel, in turns. XDP accepts this MTU."""
    mtu, size, iters = 3000, 1 << 20, 300 if b.quick else 1000
    with Hosts(b.build, b.subfolder()) as hosts:
        hosts.set_mtu(mtu)
        peers = {port: lambda port=port: hosts.ferrule(port, size, iters, b.cpus(2))[0]
                 for port in ("packet:e0", *OTHER_PORTS)}
        values = medians(b, peers, "ports")
    first = {"packet:e0": values.pop("packet:e0")}
    return Group(f"RDMA WRITE of 1 MiB over a veth with MTU {mtu}, by the kinds of ports",
                 [Result(port, value, first, "GB/s") for port, value in values.items()])


def rate(b):
    peers = {
        "ferrule": lambda: short_messages(b, 100000 if b.quick else 1000000),
        "memif, packets": lambda:
            jobs.raw_memif(b.build, "packets", b.cpus(2))["packets_per_s"] / 1e6,
    }
    others = medians(b, peers, "rate")
    ours = others.pop("ferrule")
    group = Group("Messages a second",
                  [Result("64-byte WRITEs, millions a second", ours, others, target=0.2)])
    b.explain(group, lambda _: short_messages(b, 5000000))
    return group


# The port for users, which counts for the target, and another one.
PORTS = (("packet:e0", "ferrule"), ("net_af_packet0,iface=e0", "ferrule, DPDK's AF_PACKET"))


def ethernet_part(b, group, share, switched, ports):
    """Runs `ports` and TCP over one link with this loss."""
    size, seconds = 1 << 20, 1 if b.quick else 3
    iters = (1000 if b.quick else 3000) // (1 if share == 0 else 2)
    lost = f"{100 * share:g} % lost" + (" at a switch" if switched else "")
    with Hosts(b.build, b.subfolder(), switched) as hosts:
        if share:
            try:
                hosts.lose(share)
            except (*FAILURES, Unavailable) as why:
                group.notes.append(f"Without {lost}: {why}")
                return
        peers = {name: lambda port=port: hosts.ferrule(port, size, iters, b.cpus(2))
                 for port, name in ports}
        peers["iperf3"] = lambda: hosts.tcp(seconds, b.cpus(2))
        got = alternate(b.rounds, peers, f"ethernet, {lost}")
        values = {who: median([run[0] for run in runs]) for who, runs in got.items()}
        tcp = {"iperf3": values.pop("iperf3")} if "iperf3" in values else None
        part = Group("", [Result(f"{who}, {lost}", ours, tcp, "GB/s",
                                 target=1 if who == "ferrule" else None)
                          for who, ours in values.items()])
        b.explain(part, lambda _: peers["ferrule"]())
    group.results += part.results
    group.profiles += part.profiles
    if share:
        shares = ", ".join(f"{who} {number(median([run[1] for run in runs]), '%')}"
                           for who, runs in got.items())
        group.notes.append(f"With {lost}, the classifier dropped: {shares}.")


def ethernet(b):
    """Several ports, the first of which counts for the target, and TCP, without and with loss. The
    kernel reports a loss to the sender, except behind a switch."""
    group = Group("RDMA WRITE of 1 MiB over Ethernet: veth, MTU 9000, two namespaces", [])
    for share in (0, 0.01) if b.quick else (0, 0.001, 0.01):
        ethernet_part(b, group, share, False, PORTS[:1] if b.quick else PORTS)
    for share in (0.01,) if b.quick else (0.001, 0.01):
        ethernet_part(b, group, share, True, PORTS[:1])
    return group


FIRST_INSTRUCTIONS = 553 + 333 + 720 + 822 # docs/reference/performance-parts.md


# The ICRC of other processors: the kernel of bench_protocol, and the most for both ends.
KERNELS = (("avx2", "with ICRC, VPCLMULQDQ without AVX-512", 1500),
           ("pclmul", "with ICRC, PCLMULQDQ", None))


def packet_instructions(b, *options):
    """Instructions of each stage of a 4 KiB WRITE, and all of requester, responder, encode and
    decode."""
    out = jobs.run([f"{b.build}/tests/bench/bench_protocol", "--counts", *options])
    counts = {stage: int(count) for stage, count in
              re.findall(r"^WRITE 4 KiB\s+(\w+)\s+[\d.]+\s+(\d+)", out, re.MULTILINE)}
    if not counts:
        raise Unavailable("bench_protocol cannot count instructions here")
    return counts, sum(counts[stage] for stage in ("requester", "responder", "encode", "decode"))


def arm64_instructions():
    out = jobs.run([os.path.join(os.path.dirname(__file__), "..", "count-arm64.sh")])
    return int(re.search(r"^WRITE 4 KiB\s+(\d+)", out, re.MULTILINE).group(1))


def instructions(b):
    """Instructions of a 4 KiB WRITE at both ends, also with the ICRC of other processors."""
    counts, now = packet_instructions(b)
    group = Group("Instructions of a 4 KiB packet, sender plus receiver", [
        Result("with ICRC", now, {"first measurement": FIRST_INSTRUCTIONS}, less_is_better=True,
               target=2),
        Result("beyond the ICRC (and the copy)", now - 2 * counts["icrc"], limit=1500)])
    others = [(what, limit, lambda name=name: packet_instructions(b, "--icrc", name)[1])
              for name, what, limit in KERNELS]
    if not b.quick: # takes half a minute
        others.append(("with ICRC, arm64", 2000, arm64_instructions))
    for what, limit, count in others:
        try:
            group.results.append(Result(what, count(), limit=limit))
        except (*FAILURES, Unavailable) as why:
            group.notes.append(f"Without \"{what}\": {why}")
    return group


def local(b):
    """A process on the local fabric: its first device, its memory, many links."""
    links = 256 if b.quick else 4096
    runs = [jobs.local(b.build, 0) for _ in range(b.rounds)]
    many = jobs.local(b.build, links)

    def middle(key):
        return median([run[key] for run in runs])

    return Group("The local fabric", [
        Result("the first device of a process opens", middle("first_open_ms"), None, "ms",
               less_is_better=True, limit=2),
        Result("a process with a device, resident", middle("resident_kb") / 1024, None, "MiB",
               less_is_better=True, limit=8),
        Result(f"{links} links of a device, memory of each", many["kb_a_link"], None, "KiB",
               less_is_better=True),
        Result(f"{links} links of a device, connected within", many["connect_ms"], None, "ms",
               less_is_better=True)])


def idle(b):
    """Two processes with a connected queue pair; one waits for an event or in a call."""
    messages = 10 if b.quick else 60
    socket = "the kernel's socket"
    names = {socket: "pipe", "ferrule event": "event", "ferrule wait": "wait"}
    got = alternate(b.rounds, {
        name: lambda how=how: jobs.wake(b.build, how, messages, b.cpus(2))
        for name, how in names.items()}, "idle")

    def middle(name, key):
        return median([run[key] for run in got[name]])

    results = []
    for name, call in (("ferrule event", "frl_get_cq_event()"), ("ferrule wait", "frl_cq_wait()")):
        for what, key, limit in (("p50", "p50_us", 100), (f"max of {messages}", "max_us", None)):
            others = {socket: middle(socket, key)} if socket in got else None
            results.append(Result(f"{call}, after 50 ms idle, {what}", middle(name, key),
                                  others, "us", less_is_better=True, limit=limit))
        results.append(Result(f"{call}, share of a core meanwhile", middle(name, "share"), None,
                              "%", limit=0.01))
    group = Group("A process that waits", results)
    b.explain(group, lambda _: jobs.wake(b.build, "event", messages, b.cpus(2)))
    return group


ROWS = {
    "allreduce-2": lambda b: allreduce.group(b, 2),
    "allreduce-4": lambda b: allreduce.group(b, 4),
    "allreduce-8": lambda b: allreduce.group(b, 8),
    "malloc-2": lambda b: allreduce.malloc_memory(b, 2),
    "malloc-4": lambda b: allreduce.malloc_memory(b, 4),
    "in-place": allreduce.in_place,
    "write-local": write_local,
    "copies": copies,
    "latency": latency,
    "rate": rate,
    "ethernet": ethernet,
    "ports": ports,
    "instructions": instructions,
    "local": local,
    "idle": idle,
    "faults": faults.group,
    **verbs.ROWS,
}
