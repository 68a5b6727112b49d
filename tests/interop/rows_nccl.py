# SPDX-License-Identifier: BSD-3-Clause
"""Rows of the NCCL plugin: its harness (tests/nccl) with the plugin on rxe in the guest, both sides
of a row there, and one there and one on a software device of this machine. The rows also check
the text that a failed connection writes into NCCL's log."""
import os
import re
import subprocess

from guest import run
from job import words
from link import Failure, expect
from rows_names import wait_for

SECONDS = 600  # catches hangs: for all rows of a harness
PLUGIN = "libnccl-net-ferrule.so"
INSIDE_PLUGIN = f"/usr/bin/{PLUGIN}"
PORT = 7003  # where the sides meet
# Either end may get no processor for seconds: these limits catch hangs. Other tests check how soon
# a dead peer is noticed, and that no call blocks.
SETTINGS = "--sides processes --dead 120 --seconds 150 --slow-ms 60000 --verbose"
PATIENT = {"FERRULE_TIMEOUT_S": "120"}
INSIDE = "verbs:rxe0"
PSNS, MTU = 1 << 24, 4096
CUT_AFTER = 12 << 20  # bytes; at most 4 MiB are under way

# A few of each version, and of two rails. The guest is slow: other tests have the costly rows.
NEWEST = ("properties reload window events group ll128 race truncated abort abort-send abort-recv "
          "killed-send killed-recv")
OLDEST = "properties self window ll abort-recv killed-recv"
FUSED = "early killed-send"
APART = "early abort abort-send abort-recv killed-send killed-recv"

RESULT = re.compile(r"^(ok|FAILED|skipped) +v(\d+) +(\S+) +(\S+) +([\d.]+ s) *(.*)$")
SENTENCE = re.compile(
    r" WARN .*NET/Ferrule : (sending to|receiving from) nccl-harness \(process \d+ on \w+, "
    r"10\.9\.\d+\.\d+\) over \S+, QP 0x[0-9a-f]+ to QP 0x[0-9a-f]+, "
    r"(?:sent up to|unacknowledged from|expecting) PSN (\d+): (.*)$", re.MULTILINE)
# The surviving side, and its message about the other one.
REASONS = {
    "abort-send": ("receiving from", "the peer has closed the connection"),
    "abort-recv": ("sending to", "the peer has closed the connection"),
    "killed-send": ("receiving from", "has ended"),
    "killed-recv": ("sending to", "has ended"),
}


class Said:
    """The output of a harness: the result of each row, and the log that follows it."""

    def __init__(self, text):
        self.results, self.logs = {}, {}
        row = None
        for line in text.splitlines():
            match = RESULT.match(line)
            if match:
                row = match.group(4)
                self.results[row] = match.groups()
                self.logs[row] = ""
            elif row:
                self.logs[row] += line + "\n"

    def sentence(self, row):
        """About a connection that failed: "sending to" or "receiving from", PSN and reason."""
        match = SENTENCE.search(self.logs[row])
        if not match:
            raise Failure(f"row {row}: no connection has failed: {self.logs[row][-2000:]}")
        return match.group(1), int(match.group(2)), match.group(3)


def says(said, row, verb, *reasons):
    """Returns the PSN of the failed connection. Fails if it has none of these reasons."""
    got = said.sentence(row)
    if got[0] != verb or not any(reason in got[2] for reason in reasons):
        wanted = " or ".join(reasons)
        raise Failure(f"row {row}: {got[0]} ...: {got[2]}, instead of {verb} ...: {wanted}")
    return got[1]


def check(said, rows, sides=("sending to", "receiving from")):
    """All rows ran and passed; of those with a fault a side that is here has said why."""
    for row in rows.split():
        if row not in said.results:
            raise Failure(f"row {row} did not run")
        outcome, version, where, _, seconds, why = said.results[row]
        print(f"        ran      v{version} {where} {row} ({seconds})")
        if outcome != "ok":
            raise Failure(f"row {row}, v{version}: {outcome}: {why}\n{said.logs[row][-2000:]}")
        verb, reason = REASONS.get(row, (None, None))
        if verb in sides:
            says(said, row, verb, reason)


def command_inside(options, rows, devices, settings):
    return (f"FERRULE_DEVICES='{devices}' FERRULE_REQUIRE=1 {words(settings)} "
            f"timeout {SECONDS} nccl-harness {SETTINGS} {options} {INSIDE_PLUGIN} {rows}")


def inside(guest, options, rows, devices):
    """Both sides in the guest."""
    command = command_inside(options, rows, devices, PATIENT)
    status, text = guest.shell(f"{command} 2>&1", SECONDS + 10)
    said = Said(text)
    check(said, rows)
    expect("exit status", status, 0)


class Pair:
    """A harness in the guest, for one side, and one here, for the other."""

    def __init__(self, hosts, guest_sends, rows, **settings):
        guest = self.guest = hosts.guest
        settings = {**PATIENT, **settings}
        self.own = "sending to" if guest_sends else "receiving from"
        self.other = "receiving from" if guest_sends else "sending to"
        meet = f"--meet {guest.host if guest_sends else guest.control}:{PORT}"
        sides = (0, 1) if guest_sends else (1, 0)
        guest.shell("rm -f /tmp/nccl.status; (" + command_inside(
            f"{meet} --side {sides[0]}", rows, INSIDE, settings)
            + " >/tmp/nccl 2>&1; echo $? >/tmp/nccl.status) &")
        environment = {
            **hosts.environment, **settings, "FERRULE_REQUIRE": "1",
            "FERRULE_DEVICES": f"packet:{guest.roce} ip=10.9.0.1/24"}
        self.process = subprocess.Popen(
            [os.path.join(hosts.build, "tests/nccl/nccl-harness"), *SETTINGS.split(),
             *meet.split(), "--side", str(sides[1]), os.path.join(hosts.build, PLUGIN),
             *rows.split()],
            env=environment, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT)

    def finish(self):
        """Returns the outputs and the exit statuses of both sides, the guest's first."""
        try:
            here = self.process.communicate(timeout=SECONDS)[0]
        finally:
            self.process.kill()
        wait_for("end of the harness in the guest",
                 lambda: self.guest.shell("[ -s /tmp/nccl.status ]")[0] == 0)
        text = self.guest.shell("cat /tmp/nccl")[1]
        status = int(self.guest.shell("cat /tmp/nccl.status")[1])
        return (Said(text), Said(here)), (status, self.process.returncode)


def apart(hosts, guest_sends):
    """One side in the guest, one here."""
    pair = Pair(hosts, guest_sends, APART)
    said, statuses = pair.finish()
    check(said[0], APART, (pair.own, ))
    check(said[1], APART, (pair.other, ))
    expect("exit statuses", statuses, (0, 0))


def bytes_of(interface):
    """That have come from the guest."""
    with open("/proc/net/dev", encoding="ascii") as file:
        line = next(line for line in file if line.strip().startswith(interface + ":"))
    return int(line.split(":")[1].split()[0])


def cut(hosts):
    """The link goes down in the middle of messages, and nobody tells the other side: the one that
    sends gives up in time, and the other one then hears of it. Their PSNs are near each other. The
    row tests FERRULE_TIMEOUT_S."""
    roce, before = hosts.guest.roce, bytes_of(hosts.guest.roce)
    pair = Pair(hosts, True, "pipeline", FERRULE_TIMEOUT_S="2")
    try:
        wait_for("data from the guest", lambda: bytes_of(roce) > before + CUT_AFTER)
        run("ip", "link", "set", roce, "down")
        said, statuses = pair.finish()
    finally:
        run("ip", "link", "set", roce, "up")
        pair.process.kill()
    expect("exit statuses", statuses, (1, 1))
    sent = says(said[0], "pipeline", "sending to", "retries exhausted")
    # The sender closes its connection and ends as soon as its plugin reports completion. Its
    # control thread may or may not have sent the reason; otherwise its daemon sees the process end.
    expected = says(said[1], "pipeline", "receiving from", "the peer has closed the connection",
                    "has ended")
    apart_by = (sent - expected + PSNS // 2) % PSNS - PSNS // 2
    if abs(apart_by) * MTU > CUT_AFTER // 2:
        raise Failure(f"sent up to PSN {sent}, while {expected} is expected")


def rows(hosts):
    guest = hosts.guest
    yield "NCCL plugin, table v12", inside, (guest, "--abi 12", NEWEST, INSIDE)
    yield "NCCL plugin, table v6", inside, (guest, "--abi 6", OLDEST, INSIDE)
    yield "NCCL plugin, two rails", inside, (guest, "--fuse 2", FUSED, "")
    yield "NCCL plugin, the guest sends", apart, (hosts, True)
    yield "NCCL plugin, the guest receives", apart, (hosts, False)
    yield "NCCL plugin, the link is cut", cut, (hosts,)
