# SPDX-License-Identifier: BSD-3-Clause
"""Rows with the standard tools in the guest (ibv_rc_pingpong and its relatives) at the one end and
`ferrule-pingpong --compat ibv` at the other, either of them as the server."""
import os
import re
import subprocess
import time

from link import Failure

TCP_PORT = 18515
LISTENING = f":{TCP_PORT:04X} 0*:0000 0A"  # a line of /proc/net/tcp
SECONDS = 120  # catches hangs
ITERS = 200


def guest_command(kind, size, mtu, gid):
    command = f"ibv_{kind}_pingpong -d rxe0 -g {gid} -n {ITERS} -s {size}"
    return command if kind == "ud" else f"{command} -m {mtu}"


def ferrule_command(program, guest, kind, size, mtu, gid):
    command = [program, "--compat", "ibv", "--type", kind,
               "--port", f"net_af_packet0,iface={guest.roce}", "--ip", "10.9.0.1/24,fd09::1/64",
               "--size", str(size), "--iters", str(ITERS), "--gid-index", str(gid),
               "--wait", str(SECONDS)]
    return command if kind == "ud" else command + ["--mtu", str(mtu)]


def listening_here():
    with open("/proc/net/tcp", encoding="ascii") as four, \
            open("/proc/net/tcp6", encoding="ascii") as six:
        return re.search(LISTENING, four.read() + six.read())


def wait_for(what, condition):
    end = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > end:
            raise Failure(f"no {what} within {SECONDS} s")
        time.sleep(0.05)


def check(who, status, text):
    if status:
        raise Failure(f"{who} ended with status {status}: " + " / ".join(text.split("\n")[-6:]))


def host_serves(guest, here, there, environment=None):
    """Runs the command `here`, words, as a server, and the guest's command `there` as its client.
    `environment`: that of `here`."""
    name = os.path.basename(here[0])
    process = subprocess.Popen(here, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               universal_newlines=True, env=environment)
    try:
        wait_for(f"listening {name}", lambda: process.poll() is not None or listening_here())
        status, text = guest.shell(f"timeout {SECONDS} {there} {guest.host}", 2 * SECONDS)
        if not status:
            process.wait(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise Failure(f"{name} does not end") from None
    finally:
        process.kill()
        said = process.communicate()[0].strip()
    check("the guest's tool", status, f"{text.strip()}\n{name}: {said}")
    check(name, process.returncode, said)


def guest_serves(guest, here, there, environment=None):
    """The same with the guest as the server."""
    name = os.path.basename(here[0])
    guest.shell(f"rm -f /tmp/status; (timeout {SECONDS} {there} >/tmp/tool 2>&1; "
                "echo $? >/tmp/status) &")
    wait_for("listening tool in the guest", lambda: guest.shell(
        f"[ -s /tmp/status ] || cat /proc/net/tcp /proc/net/tcp6 | grep -q '{LISTENING}'")[0] == 0)
    try:
        done = subprocess.run(
            here + [guest.control], timeout=SECONDS, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, universal_newlines=True, check=False, env=environment)
    except subprocess.TimeoutExpired:
        raise Failure(f"{name} does not end") from None
    finally:
        # `timeout` ends the program there.
        text = guest.shell("until [ -s /tmp/status ]; do sleep 0.2; done; cat /tmp/tool",
                           2 * SECONDS)[1]
    check(name, done.returncode, done.stdout.strip() + "\nguest: " + text.strip())
    status = guest.shell("exit_status=$(cat /tmp/status); [ \"$exit_status\" = 0 ]")[0]
    check("the guest's tool", status, text.strip())


def rows(program, guest):
    table = [("rc", 1, 1024, 4), ("rc", 5000, 1024, 6), ("rc", 20000, 4096, 4),
             ("uc", 1, 1024, 4), ("uc", 5000, 1024, 6), ("uc", 20000, 4096, 4),
             ("ud", 1, 1024, 4), ("ud", 1000, 1024, 6),
             ("srq", 1, 1024, 4), ("srq", 5000, 1024, 6), ("srq", 20000, 4096, 4)]
    for kind, size, mtu, family in table:
        # Both ends: [1] is the IPv4 address, [2] the IPv6 address.
        options = (kind, size, mtu, 1 if family == 4 else 2)
        arguments = (guest, ferrule_command(program, guest, *options), guest_command(*options))
        name = f"ibv_{kind}_pingpong, {size} bytes, path MTU {mtu}, IPv{family}"
        yield f"{name}, ferrule-pingpong serves", host_serves, arguments
        yield f"{name}, the guest serves", guest_serves, arguments
