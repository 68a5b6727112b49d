# SPDX-License-Identifier: BSD-3-Clause
"""Rows with unmodified programs for libibverbs: over the drop-in at the one end and over rxe in the
guest at the other, either of them as the server."""
from rows_loss import disturbed
from rows_tools import guest_serves, host_serves

# Both ends: [1] is the IPv4 address, [2] the IPv6 address.
PINGPONGS = [
    ("rc", "-g 1 -n 100 -c"), ("rc", "-g 2 -n 50 -c -s 20000 -m 4096"), ("rc", "-g 1 -n 100 -c -e"),
    ("uc", "-g 1 -n 100 -c"), ("ud", "-g 1 -n 100 -c -s 1024"), ("srq", "-g 1 -n 100 -c")]

# A side of perftest has as many reads outstanding as the other's device takes. rxe takes 128, more
# than other devices have.
READS = "-o 16"

PERFTESTS = [
    ("ib_write_bw", "-c RC"), ("ib_write_bw", "-c UC"), ("ib_write_lat", "-c RC"),
    ("ib_write_lat", "-c UC"), ("ib_send_bw", "-c RC"), ("ib_send_bw", "-c UC"),
    ("ib_send_bw", "-c UD"), ("ib_send_lat", "-c RC"), ("ib_send_lat", "-c UC"),
    ("ib_send_lat", "-c UD"), ("ib_send_lat", "-c RC -e"), ("ib_read_bw", READS),
    ("ib_read_lat", READS), ("ib_atomic_lat", f"{READS} -A CMP_AND_SWAP"),
    ("ib_atomic_lat", f"{READS} -A FETCH_AND_ADD")]


def perftest(name, options, iterations=50):
    """The program and its options. All messages in flight have room in every queue: unreliable
    connections lose none."""
    size = "" if "atomic" in name or "UD" in options else " -s 4000"
    return name, f"{options} -x 1 -F -n {iterations}{size}"


def commands():
    for kind, options in PINGPONGS:
        yield f"ibv_{kind}_pingpong", options
    for name, options in PERFTESTS:
        yield perftest(name, options)


def lossy():
    """Programs that run with loss. Both ends keep their queue pairs until both have their last
    completion. ibv_rc_pingpong is not among them: its server exits after its own completions, and
    if its last ACK is lost, the client's last request never completes."""
    yield perftest("ib_send_lat", "-c RC", 200)
    yield perftest("ib_send_bw", "-c RC", 200)
    yield perftest("ib_write_bw", "-c RC", 200)


def rows(guest, environment):
    for serve, server in ((host_serves, "the drop-in"), (guest_serves, "rxe")):
        for name, options in commands():
            here, there = (f"{name} -d {device} {options}" for device in ("frl0", "rxe0"))
            yield (f"{name} {options}, {server} serves", serve,
                   (guest, here.split(), there, environment))
        for name, options in lossy():
            here, there = (f"{name} -d {device} {options}" for device in ("frl0", "rxe0"))
            yield (f"{name} {options}, loss 1 %, {server} serves", disturbed,
                   (guest, "loss 1%", serve, (guest, here.split(), there, environment), {}))
