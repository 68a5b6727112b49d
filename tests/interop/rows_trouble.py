# SPDX-License-Identifier: BSD-3-Clause
"""Rows of what goes wrong around a NIC, in the guest with rxe0 and rxe1: what keeps a program from
opening it, and links and devices that go away while an allreduce runs with a rank here. Each must
say what is wrong, or go on with right results; nothing hangs."""
import re

from job import SECONDS, SETTINGS, Job, words
from link import Failure, expect

USER = "user"
IP = "10.9.0.1/24"
BENCH = "--op allreduce --min 256K --max 256K --iters 0"
REPEAT = 60
# For jobs that lose their only rail: nothing else ends one whose requests rxe does not complete
# (docs/design/testing-processes.md). Any end of such a job is accepted. A job that must succeed has
# no such limit.
TIMEOUT = {"FRL_COLL_TIMEOUT_S": "60"}
ADVICE = {
    "no permission": ("no permission to open", "/dev/infiniband/uverbs*", "group", "udev"),
    "no files": ("there is no /dev/infiniband/uverbs0", "--device=/dev/infiniband"),
    "no provider": ("libibverbs does not support rxe0", "ibverbs-providers"),
    "no memory lock": ("cannot register", "64 KiB may be locked (ulimit -l)",
                       "limits.d", "LimitMEMLOCK"),
    "no such device": ("there is no RDMA device 'mlx5_0', but rxe", ),
}


def says(text, *wanted):
    flat = " ".join(text.split())
    for word in wanted:
        if word not in flat:
            raise Failure(f"'{word}' is not in: {flat[-900:]}")


def as_user(command):
    """That user is nobody in particular."""
    return f"su {USER} -c '{command}'"


def make_user(guest):
    guest.shell(f"mkdir -p /etc; echo '{USER}:x:1000:1000::/tmp:/bin/sh' >/etc/passwd; "
                f"echo '{USER}:x:1000:' >/etc/group; chmod 1777 /tmp")


def bench(options, environment=""):
    return (f"{words(SETTINGS)} {environment} timeout {SECONDS} ferrule-bench -n 2 {options} "
            "--iters 0 2>&1")


def refused(guest, before, command, after, case):
    """A program fails with the advice of that case."""
    status, text = guest.shell(f"{before}; {command} >/tmp/said 2>&1; status=$?; {after}; "
                               "cat /tmp/said; (exit $status)", SECONDS + 10)
    says(text, *ADVICE[case])
    expect("exit status", status, 1)


def any_user(guest):
    """A user that may open the device and lock memory needs no other right."""
    status, text = guest.shell(as_user(f"{bench('--port verbs:rxe0 --count 100000')}"),
                               SECONDS + 10)
    says(text, "# OK: every result was right")
    expect("exit status", status, 0)


def first_usable(guest):
    """`verbs` is a port that is up."""
    status, text = guest.shell(
        f"ip link set eth0 down; {bench('--port verbs --count 1')}; status=$?; "
        "ip link set eth0 up; (exit $status)", SECONDS + 10)
    says(text, "verbs:rxe1", "# OK: every result was right")
    expect("exit status", status, 0)


def start(hosts, rails, repeat=REPEAT, **settings):
    """Rank 0 in the guest and rank 1 here, with so many rails."""
    guest = hosts.guest
    job = Job(hosts, "ferrule-bench", 2, f"{BENCH} --repeat {repeat}", **settings)
    inside = ["--port verbs:rxe0", "--port verbs:rxe1"]
    here = [f"--port net_af_packet0,iface={guest.roce} --ip {IP}",
            f"--port net_af_packet1,iface={guest.rail} --ip 10.9.80.1/24"]
    job.start_inside(0, " ".join(inside[:rails]))
    job.start_here(1, " ".join(here[:rails]))
    return job


def goes_on(hosts, before, after):
    """One of two rails has a fault; the job goes on over the other one. While an interface is down,
    rxe may take 50 s to destroy a queue pair on it (docs/design/testing-processes.md): rank 0 is in
    the kernel for so long, and the job waits for it."""
    job = start(hosts, 2)
    try:
        there = job.wait_results(5)
        hosts.guest.shell(before)
        job.wait_results(there + 8)
        hosts.guest.shell(after)
        said = job.succeed()
    finally:
        hosts.guest.shell(after)
        job.end()
    says(said[0], "# OK: every result was right")
    expect("results", job.results(), REPEAT)
    if there + 8 > REPEAT:
        raise Failure("all was done before the fault")


def only_rail_down(hosts):
    """The one rail goes down and stays so: both ranks fail in time, and say what it is about."""
    job = start(hosts, 1, 100000, **TIMEOUT)
    try:
        job.wait_results(5)
        hosts.guest.shell("ip link set eth0 down")
        said, statuses = job.finish()
    finally:
        hosts.guest.shell("ip link set eth0 up")
        job.end()
    expect("exit statuses", statuses, {0: 1, 1: 1})
    for rank, text in said.items():
        if not re.search(r"no link|retries exhausted|made no progress", text):
            raise Failure(f"rank {rank} does not say why: {text[-600:]}")
    says(said[0], "rank 1")
    says(said[1], "rank 0")


def only_rail_flaps(hosts):
    """The one rail goes down for a moment. rxe fails what it would send meanwhile (its requester
    completes it with IB_WC_LOC_QP_OP_ERR, or its retries run out); the rest is done. In any case
    the ranks end, and the next job has all it needs."""
    job = start(hosts, 1, **TIMEOUT)
    try:
        job.wait_results(5)
        hosts.guest.shell("ip link set eth0 down; ip link set eth0 up")
        said, statuses = job.finish()
    finally:
        job.end()
    if statuses == {0: 0, 1: 0}:
        says(said[0], "# OK: every result was right")
    elif statuses != {0: 1, 1: 1} or not re.search(
            r"no link|retries exhausted|made no progress|local queue pair operation error",
            said[0]):
        raise Failure(f"statuses {statuses}: {said[0][-600:]} / {said[1][-600:]}")
    again = start(hosts, 1, 1)
    try:
        again.succeed()
    finally:
        again.end()


def removed(hosts):
    """`rdma link del` waits, with rxe, for those that use the device, which do not notice; then
    it is gone."""
    guest = hosts.guest
    job = start(hosts, 2, 20)
    try:
        job.wait_results(5)
        guest.shell("(rdma link del rxe1; echo $? >/tmp/removed) &")
        said = job.succeed()
    finally:
        job.end()
    says(said[0], "# OK: every result was right")
    guest.shell("until [ -s /tmp/removed ]; do sleep 0.2; done")
    expect("rdma link del", guest.shell("cat /tmp/removed")[1].strip(), "0")
    status, text = guest.shell(bench("--port verbs:rxe1 --count 1"), SECONDS + 10)
    says(text, "there is no RDMA device 'rxe1', but rxe0")
    expect("exit status", status, 1)
    guest.shell("rdma link add rxe1 type rxe netdev eth2")


def rows(hosts):
    guest = hosts.guest
    make_user(guest)
    rxe0 = "--port verbs:rxe0 --count 1"
    table = [
        ("no permission", "no permission", "chmod 600 /dev/infiniband/uverbs*",
         as_user(bench(rxe0)), "chmod 666 /dev/infiniband/uverbs*"),
        ("no permission: ferrule-info", "no permission", "chmod 600 /dev/infiniband/uverbs*",
         as_user("ferrule-info verbs:rxe0"), "chmod 666 /dev/infiniband/uverbs*"),
        ("no /dev/infiniband", "no files", "mv /dev/infiniband /dev/gone", bench(rxe0),
         "mv /dev/gone /dev/infiniband"),
        ("no /dev/infiniband: ferrule-info", "no files", "mv /dev/infiniband /dev/gone",
         "ferrule-info verbs:rxe0", "mv /dev/gone /dev/infiniband"),
        ("no provider of libibverbs", "no provider", "mv /etc/libibverbs.d /etc/gone",
         bench(rxe0), "mv /etc/gone /etc/libibverbs.d"),
        ("no memory lock limit", "no memory lock", "true",
         as_user(f"ulimit -l 64; {bench('--port verbs:rxe0 --count 100000')}"), "true"),
        ("a device that is not there", "no such device", "true",
         bench("--port verbs:mlx5_0 --count 1"), "true"),
    ]
    for name, case, before, command, after in table:
        yield name, refused, (guest, before, command, after, case)
    yield "an ordinary user", any_user, (guest,)
    yield "verbs: the first port that is usable", first_usable, (guest,)
    for interface in ("eth0", "eth2"):
        yield (f"link of {interface} down and up, two rails", goes_on, (
            hosts, f"ip link set {interface} down", f"ip link set {interface} up"))
    yield "link down and up, one rail", only_rail_flaps, (hosts,)
    yield "link down, one rail", only_rail_down, (hosts,)
    yield "rdma link del while a job runs", removed, (hosts,)
