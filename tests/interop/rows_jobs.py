# SPDX-License-Identifier: BSD-3-Clause
"""Rows with collectives: ferrule-allreduce of the real gradients, and ferrule-bench, whose ranks
are in the guest, on verbs:rxe0, and here, on software devices that the daemon here leases.

    [ guest: ranks on verbs:rxe0 ]--tap--[ bridge jobs ]--veth--[ rank here on job0, job1 ]
"""
import hashlib
import os
import re
import subprocess

from guest import run, silence
from job import SETTINGS, Job, words
from link import Failure, expect

SECONDS = 180
BRIDGE = "jobs"
PORTS = ("job0", "job1")  # leased from the fabric: see rows_names.py
HERE = "--fabric jobs"
INSIDE = "--port verbs:rxe0"
INPUT = "rank%r.safetensors"
REFERENCE = "sum.safetensors"


def cable(guest):
    """Two ranks here and the guest are on one network."""
    run("ip", "link", "add", BRIDGE, "mtu", "9000", "type", "bridge", "mcast_snooping", "0")
    for port in PORTS:
        run("ip", "link", "add", port, "mtu", "9000", "type", "veth", "peer", "name", port + "b",
            "mtu", "9000")
        run("ip", "link", "set", port + "b", "master", BRIDGE)
    run("ip", "link", "set", guest.roce, "master", BRIDGE)
    for name in (BRIDGE, *PORTS, *(port + "b" for port in PORTS)):
        silence(name)
        run("ip", "link", "set", name, "up")


def uncable(guest):
    run("ip", "link", "set", guest.roce, "nomaster")
    for name in (BRIDGE, *PORTS):
        run("ip", "link", "del", name)


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def digest_inside(guest, path):
    status, text = guest.shell(f"sha256sum {path}")
    if status:
        raise Failure(f"no result in the guest: {text}")
    return text.split()[0]


class Gradients:
    """The sums over the local fabric, with the algorithm that all use; and where files are."""

    def __init__(self, hosts, data, folder):
        self.hosts, self.data, self.folder = hosts, data, folder
        self.sums = {}

    def of_local_fabric(self, ranks):
        """A digest; made once."""
        if ranks not in self.sums:
            output = os.path.join(self.folder, "local%r")
            done = subprocess.run(
                [os.path.join(self.hosts.build, "tools/ferrule-allreduce"), "-n", str(ranks),
                 "--input", os.path.join(self.data, INPUT), "--output", output],
                env={**self.hosts.environment, **SETTINGS, "FRL_ALGO": "ring"}, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS, check=False)
            expect(f"status on the local fabric ({done.stdout[-300:]})", done.returncode, 0)
            self.sums[ranks] = digest(output.replace("%r", "0"))
        return self.sums[ranks]


def allreduce_inside(gradients):
    """Both ranks in the guest; the same bits as over the local fabric."""
    guest = gradients.hosts.guest
    status, text = guest.shell(
        f"{words(SETTINGS)} FRL_ALGO=ring timeout {SECONDS} ferrule-allreduce -n 2 {INSIDE} "
        f"--input /data/{INPUT} --output /tmp/inside%r 2>&1", SECONDS + 10)
    if status or "verbs:rxe0" not in text:
        raise Failure(f"status {status}: {text[-600:]}")
    for rank in (0, 1):
        expect(f"digest of rank {rank}", digest_inside(guest, f"/tmp/inside{rank}"),
               gradients.of_local_fabric(2))


def allreduce(gradients, inside, algorithm):
    """Four ranks, these in the guest: checked against the sums in float64, the same bits on all
    ranks, and with the ring those of the local fabric."""
    guest, settings = gradients.hosts.guest, {"FRL_ALGO": algorithm} if algorithm else {}
    job = Job(gradients.hosts, "ferrule-allreduce", 4, "", **settings)
    output = os.path.join(gradients.folder, job.name + ".%r")
    try:
        for rank in range(4):
            folder, start = ("/data", job.start_inside) if rank in inside else (
                gradients.data, job.start_here)
            where = f"/tmp/{job.name}.%r" if rank in inside else output
            start(rank, f"{INSIDE if rank in inside else HERE} --input {folder}/{INPUT} "
                        f"--output {where} --check {folder}/{REFERENCE}")
        said = job.succeed()
    finally:
        job.end()
    if "OK" not in said[0]:
        raise Failure(f"rank 0 says nothing of the check: {said[0]}")
    digests = [digest_inside(guest, f"/tmp/{job.name}.{rank}") if rank in inside
               else digest(output.replace("%r", str(rank))) for rank in range(4)]
    expect("digests of the four results", digests, [digests[0]] * 4)
    if algorithm == "ring":
        expect("digest of the result", digests[0], gradients.of_local_fabric(4))


def bench_inside(hosts):
    """Each operation once, both ranks in the guest."""
    status, text = hosts.guest.shell(
        f"{words(SETTINGS)} timeout {SECONDS} ferrule-bench -n 2 {INSIDE} --op all "
        "--count 5000 --iters 0 2>&1", SECONDS + 10)
    if status or not re.search(r"^# OK: every result was right", text, re.MULTILINE):
        raise Failure(f"status {status}: {text[-600:]}")


def bench(hosts, options):
    """One rank in the guest, one here."""
    job = Job(hosts, "ferrule-bench", 2, options)
    try:
        job.start_inside(0, INSIDE)
        job.start_here(1, HERE)
        said = job.succeed()
    finally:
        job.end()
    if "# OK: every result was right" not in said[0]:
        raise Failure(f"rank 0 does not say that all is right: {said[0][-600:]}")


def rows(hosts, data, folder):
    gradients = Gradients(hosts, data, folder)
    yield "allreduce of gradients, both ranks in the guest", allreduce_inside, (gradients,)
    for inside, algorithm in (((0, 1), "ring"), ((1, 3), None)):
        yield (f"allreduce of gradients, ranks {inside[0]} and {inside[1]} of 4 in the guest, "
               f"{algorithm or 'any algorithm'}", allreduce, (gradients, inside, algorithm))
    yield "ferrule-bench, all operations in the guest", bench_inside, (hosts,)
    yield "ferrule-bench, allreduce, guest and here", bench, (
        hosts, "--op allreduce --min 8 --max 1M --factor 32 --iters 2")
    yield "ferrule-bench, alltoall as int8, guest and here", bench, (
        hosts, "--op alltoall --wire int8 --min 4K --max 64K --factor 16 --iters 2")
