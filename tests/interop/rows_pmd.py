# SPDX-License-Identifier: BSD-3-Clause
"""Rows over NICs that DPDK drives: every operation at sizes around the path MTU, the programs, and
a link that goes down and comes back."""
import hashlib
import itertools
import re
import subprocess

import peer as p
import rows_data
from link import Failure, expect
from pmd_guest import NIC

numbers = itertools.count()  # of logs
SECONDS = 600  # catches hangs: the guests may get a small part of a processor
WAIT = "--wait 600"  # of ferrule-pingpong, for the other end: the same


def data_rows(pairs, mtus):
    for active, passive in pairs:
        way = f"{active.name}->{passive.name}"
        for mtu in mtus:
            for opcode, name in rows_data.NAMES.items():
                yield (f"RC {name} {mtu} {way}", rows_data.transfers,
                       (active, passive, p.RC, opcode, "IPv4", mtu))
        for kind, opcode in ((p.UC, p.WRITE_IMM), (p.UD, p.SEND_IMM)):
            for mtu in (mtus[0], mtus[-1]):
                yield (f"{rows_data.KINDS[kind]} {rows_data.NAMES[opcode]} IPv6 {mtu} {way}",
                       rows_data.transfers, (active, passive, kind, opcode, "IPv6", mtu))
        yield f"RC atomics {way}", rows_data.atomics, (active, passive, "IPv4")
        yield f"RC, UC, UD, VLAN {way}", rows_data.network, (active, passive, "VLAN")
        yield f"RC, UC, UD, link-local {way}", rows_data.network, (active, passive, "link-local")
        yield (f"UD multicast IPv6 {way}", rows_data.multicast,
               (active, passive, "IPv6", "ff1e::4711", "ff1e::4712"))
        yield f"RC 16 elements {way}", rows_data.many_pieces, (active, passive)
        yield f"RC both ways {way}", rows_data.both_ways, (active, passive)


# ---- programs, one in each guest


def free_nic(guest, program):
    """Ends a program that may run there, and waits for its end."""
    guest.must(f"killall -q {program}; while killall -q -0 {program}; do sleep 0.1; done; :")


def port(guest):
    return f"--port {NIC} --ip {guest.ip}/24"


def begin(guest, command, name):
    """In the background. Returns its log, of a name of its own: a program that was ended may still
    write its status when the next one runs. finish() waits for it."""
    log = f"/tmp/{name}-{next(numbers)}"
    guest.must(f"(timeout {SECONDS} {command} >{log} 2>&1; echo $? >{log}.new; "
               f"mv {log}.new {log}.status) & :")
    return log


def finish(guest, log):
    text = guest.must(f"while [ ! -e {log}.status ]; do sleep 0.2; done; cat {log}", SECONDS + 30)
    status = guest.must(f"cat {log}.status")
    if status != "0":
        raise Failure(f"guest {guest.number}: status {status}: "
                      + " / ".join(text.split("\n")[-8:]))
    return text


def serve(guest, environment=""):
    """Begins ferrule-pingpong as the server, and waits until it offers its service. Returns its
    log."""
    log = begin(guest, f"env {environment} ferrule-pingpong --listen pp {port(guest)} {WAIT}",
                "server")
    guest.must(f"until grep -q '^waiting for a client' {log} || [ -e {log}.status ]; do "
               "sleep 0.1; done", SECONDS + 30)
    if guest.shell(f"[ -e {log}.status ]")[0] == 0:
        finish(guest, log)
    return log


def pingpong(server, client, options):
    try:
        served = serve(server)
        asked = begin(client, f"ferrule-pingpong --connect {server.control}:pp {port(client)} "
                              f"{WAIT} {options}", "client")
        text = finish(client, asked)
        finish(server, served)
    finally:
        free_nic(server, "ferrule-pingpong")
    return text


def all_operations(server, client, mtu):
    sizes = f"--verify --sizes 8,{mtu - 1},{mtu},{mtu + 1},64K"
    text = pingpong(server, client, f"--mtu {mtu} {sizes} --iters 30")
    expect("results", len(re.findall(r"^ +\d+ +30 ", text, re.MULTILINE)), 4 * 5)


def from_many_places(server, client):
    pingpong(server, client, "--op write --sizes 5000 --places 64 --iters 300")


def benchmark(guests):
    # The second guest's rank reaches the job at the first one's daemon.
    logs = [begin(guest, f"ferrule-bench -n 2 --rank {rank} --job bench@{guests[0].control} "
                         f"{port(guest)} --op allreduce,alltoall --min 8 --max 256K --factor 32 "
                         "--iters 3", "bench")
            for rank, guest in enumerate(guests)]
    for guest, log in zip(guests, logs):
        finish(guest, log)


def gradients(guests, options):
    """The example's, summed by the guests and by processes of this machine: the same bytes."""
    expected = f"{options.folder}/sum%r.safetensors"
    subprocess.run(
        [f"{options.build}/tools/ferrule-allreduce", "-n", "2", "--input",
         f"{options.data}/rank%r.safetensors", "--output", expected], check=True,
        stdout=subprocess.DEVNULL)
    logs = [begin(guest, f"ferrule-allreduce -n 2 --rank {rank} --job sum@{guests[0].control} "
                         f"{port(guest)} --input /data/rank%r.safetensors "
                         "--output /tmp/sum%r.safetensors", "sum")
            for rank, guest in enumerate(guests)]
    for rank, guest in enumerate(guests):
        finish(guest, logs[rank])
        with open(expected.replace("%r", str(rank)), "rb") as file:
            wanted = hashlib.sha256(file.read()).hexdigest()
        got = guest.must(f"sha256sum /tmp/sum{rank}.safetensors").split()[0]
        expect(f"sum of rank {rank}", got, wanted)


def status_of(guest, log):
    return guest.must(f"while [ ! -e {log}.status ]; do sleep 0.2; done; cat {log}.status",
                      SECONDS + 30)


def without_link(server, client):
    """The NIC has no link from the start: the program says so, and so does its failure. The row
    tests what comes when retries are exhausted, after 5 s, or after the default of --wait."""
    soon = "FRL_ACK_TIMEOUT=14"
    server.set_link(False)
    try:
        serve(client, soon)
        log = begin(server, f"env {soon} ferrule-pingpong --connect {client.control}:pp "
                            f"{port(server)} --sizes 8", "server")
        expect("status", status_of(server, log), "1")
        said = server.must(f"cat {log}")
        if f"{NIC} has no link: check its cable" not in said:
            raise Failure(f"it does not say that the NIC has no link, but: {said}")
    finally:
        server.set_link(True)
        free_nic(server, "ferrule-pingpong")
        free_nic(client, "ferrule-pingpong")


def link_comes_back(server, client):
    """The link goes away under way, until nothing is sent any more, and comes back: nothing is
    lost. Retries go on for far longer: eight times 4.3 s at least."""
    count = 5000
    try:
        served = serve(server, "FRL_ACK_TIMEOUT=20")
        asked = begin(
            client, f"env FRL_ACK_TIMEOUT=20 ferrule-pingpong --connect {server.control}:pp "
                    f"{port(client)} {WAIT} --verify --op send --test latency --sizes 8,1000 "
                    f"--iters {count}", "client")
        client.must(f"while ! grep -q '^ *8 ' {asked} && [ ! -e {asked}.status ]; do "
                    "sleep 0.1; done")
        server.set_link(False)
        client.must("sleep 1")
        server.set_link(True)
        text = finish(client, asked)
        expect("results", len(re.findall(rf"^ +(8|1000) +{count} ", text, re.MULTILINE)), 2)
        finish(server, served)
    finally:
        server.set_link(True)
        free_nic(server, "ferrule-pingpong")


def huge_pages(guest):
    """Which memory has physical addresses that stay, with pages that do not lie together."""
    guest.must("CK_RUN_CASE=shared_huge_pages_stay test_dpdk physical")


def program_rows(guests, options):
    one, two = guests
    if not one.iommu:
        yield "physical addresses of huge pages", huge_pages, (one,)
    for mtu in (512, 1024, 2048, 4096):
        yield f"ferrule-pingpong {mtu}", all_operations, (one, two, mtu)
    yield "ferrule-pingpong from 64 places", from_many_places, (one, two)
    yield "ferrule-bench", benchmark, (guests,)
    yield "allreduce of the example's gradients", gradients, (guests, options)
    yield "no link from the start", without_link, (one, two)
    if options.model == "virtio-packed":
        # QEMU 7.2 drops packets that are sent without a link, and decrements its count of chains
        # under way each time (virtqueue_packed_drop_all(); "inuse" of x-query-virtio-queue-status
        # is -1). After that it takes nothing from the ring any more.
        print("skipped a link that comes back: QEMU's packed rings do not", flush=True)
    else:
        yield "a link that comes back", link_comes_back, (one, two)
