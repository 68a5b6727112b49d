#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Ferrule against Linux: runs the rows, one line each. Called by interop.sh, which has made a
network and a process namespace for it, so that nothing outlives it."""
import argparse
import contextlib
import os
import re
import subprocess
import sys
import time

import rows_data
import rows_errors
import rows_loss
import rows_tools
from guest import Guest, GuestSilent, run, silence
from link import Failure
from peer import Peer, PeerError, PeerGone

FERRULE_PORT = 7000
FERRULE_IP = "10.9.0.1/24,fd09::1/64,10.9.70.1/24@7"


class Runner:
    """Runs rows and counts. `revive` is called when a peer program has ended or hangs, or rxe has
    stalled. A row that met a stall of rxe is begun again, a few times in all."""

    MAX_STALLS = 6
    MAX_SECONDS = 1500  # no row is begun after that: it catches hangs

    def __init__(self, only, repeat):
        self.only = re.compile(only) if only else None
        self.repeat = repeat
        self.start = time.monotonic()
        self.failed = []
        self.passed = self.stalls = 0
        self.revive = lambda: None

    def seconds(self):
        return time.monotonic() - self.start

    def run(self, rows):
        chosen = [row for row in rows if not self.only or self.only.search(row[0])]
        for row in chosen * self.repeat:
            if self.seconds() > self.MAX_SECONDS * self.repeat:
                self.failed.append((f"{row[0]} and what follows", "out of time"))
                return
            while not self._one(*row):
                self.stalls += 1

    def _one(self, name, function, arguments):
        """False: rxe has stalled, the row is to be run again."""
        start, reason = time.monotonic(), None
        try:
            rows_loss.unless_stalled(function, arguments)
        except (rows_loss.RxeStalled, GuestSilent) as error:
            reason = f"rxe has stalled: {error}"
            self.revive()
            if self.stalls < self.MAX_STALLS * self.repeat:
                print(f"again   {name}: {reason}", flush=True)
                return False
        except (Failure, PeerError) as error:
            reason = str(error)
        except PeerGone as error:
            reason = str(error)
            self.revive()
        seconds = time.monotonic() - start
        if reason is None:
            self.passed += 1
            print(f"ok      {name} ({seconds:.2f} s)", flush=True)
        else:
            self.failed.append((name, reason))
            print(f"FAILED  {name} ({seconds:.2f} s): {reason}", flush=True)
        return True

    def report(self):
        """The last lines, with the reasons again: of a long log only its end may be kept. Returns
        the exit status."""
        print(f"{self.passed} rows passed, {len(self.failed)} failed in {self.seconds():.0f} s")
        for name, reason in self.failed:
            print(f"failed: {name}: {reason}")
        return 1 if self.failed or not self.passed else 0


class PeerProcess:
    """A peer program on this machine."""

    def __init__(self, command, log, environment=None):
        self.command, self.environment = command, environment
        self.log = open(log, "w", encoding="utf-8")
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log,
                                        env=self.environment)

    def stop(self, seconds):
        """Its exit status; it is killed after so many seconds."""
        try:
            return self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


class FerruleProcess(PeerProcess):
    """A peer program over Ferrule on the guest's tap."""

    def __init__(self, program, guest, log):
        super().__init__([program, "--listen", str(FERRULE_PORT), "--ip", FERRULE_IP,
                          "--device", f"packet:{guest.roce}"], log)


@contextlib.contextmanager
def with_rxe(runner, guest, process, here):
    """For rows between rxe and `here`, a peer whose program is `process`: the pairs of peers, both
    ways. The program ends with them."""
    rxe = Peer("rxe", guest.control, guest.CONTROL_PORT)

    def revive():
        """Both ends anew: a peer that is stuck in rxe does not even die."""
        rxe.close()
        here.close()
        guest.stop()
        guest.start()
        print(f"the {here.name} peer ended with status {process.stop(1)}", flush=True)
        process.start()
        guest.wait_booted()
        here.connect()
        rxe.connect()

    runner.revive = revive
    yield [(here, rxe), (rxe, here)]
    here.reset()
    here.close()
    status = process.stop(60)
    if status:
        runner.failed.append((f"the {here.name} peer", f"ended with status {status}"))


def run_tool_rows(runner, guest, rows):
    """Runs rows whose programs, at both ends, are started for them."""
    def revive():
        guest.stop()
        guest.start()
        guest.wait_booted()

    runner.revive = revive
    runner.run(rows)


def against_ferrule(options, runner):
    guest = Guest(options.guest, 2, os.path.join(options.guest, "console.log"), dump=options.dump)
    process = FerruleProcess(options.ferrule_peer, guest, os.path.join(options.guest,
                                                                       "ferrule.log"))
    try:
        guest.wait_booted()
        print(f"guest up after {runner.seconds():.1f} s", flush=True)
        ferrule = Peer("ferrule", "127.0.0.1", FERRULE_PORT)
        with with_rxe(runner, guest, process, ferrule) as pairs:
            runner.run(rows_data.echo_rows(guest))
            runner.run(rows_data.rows(pairs))
            runner.run(rows_errors.rows(pairs))
            runner.run(rows_loss.rows(pairs, guest))
            if options.verbose:
                print(" ".join(f"{name}={value[0]}" for name, value in
                               ferrule.call("counters").items()))
        run_tool_rows(runner, guest, rows_tools.rows(options.pingpong, guest))
    finally:
        process.stop(0)
        guest.stop()


def against_itself(options, runner):
    """Two guests: what the rows expect of rxe is what rxe does to rxe."""
    run("ip", "link", "add", "roce", "mtu", "9000", "type", "bridge")
    silence("roce")
    run("ip", "link", "set", "roce", "up")
    guests = [Guest(options.guest, number, os.path.join(options.guest, f"console{number}.log"),
                    "roce", options.dump if number == 1 else None) for number in (1, 2)]
    try:
        for guest in guests:
            guest.wait_booted()
        one, two = [Peer(f"rxe{guest.number}", guest.control, guest.CONTROL_PORT)
                    for guest in guests]
        pairs = [(one, two)]
        runner.run(rows_data.rows(pairs))
        runner.run(rows_errors.rows(pairs))
        # rxe takes the acknowledgement of a retransmitted SEND for the answer to the atomic behind
        # it, as rxe gives the SEND the PSN of that atomic.
        runner.run(rows_loss.rows(pairs + [(two, one)], guests[0], atomics=False))
    finally:
        for guest in guests:
            guest.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--guest", required=True, help="folder that build-guest.sh filled")
    parser.add_argument("--ferrule-peer", help="peer program over Ferrule")
    parser.add_argument("--pingpong", help="ferrule-pingpong")
    parser.add_argument("--only", help="rows whose names match this regular expression")
    parser.add_argument("--repeat", type=int, default=1, help="run every row so many times")
    parser.add_argument("--calibrate", action="store_true", help="rxe against rxe")
    parser.add_argument("--dump", help="file for the packets at (the first) guest's NIC, pcap")
    parser.add_argument("--verbose", action="store_true", help="also Ferrule's counters")
    options = parser.parse_args()
    run("ip", "link", "set", "lo", "up")
    runner = Runner(options.only, options.repeat)
    (against_itself if options.calibrate else against_ferrule)(options, runner)
    return runner.report()


if __name__ == "__main__":
    sys.exit(main())
