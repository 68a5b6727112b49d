#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The drop-in libibverbs against Linux: runs the rows, one line each. Called by dropin.sh, which
has made a network and a process namespace for it, so that nothing outlives it."""
import argparse
import os
import sys

import rows_data
import rows_errors
import rows_loss
import rows_programs
from guest import Guest, run
from interop import FERRULE_IP, FERRULE_PORT, PeerProcess, Runner, run_tool_rows, with_rxe
from peer import Peer


class Dropin(Peer):
    """The peer program for libibverbs on this machine. It behaves as Ferrule does."""

    def __init__(self, guest):
        self.tap = guest.roce
        super().__init__("drop-in", "127.0.0.1", FERRULE_PORT)

    def connect(self, seconds=120):
        super().connect(seconds)
        self.backend = "ferrule"

    def frames(self):
        with open("/proc/net/dev", encoding="ascii") as file:
            for line in file:
                name, _, numbers = line.partition(":")
                if name.strip() == self.tap:
                    return int(numbers.split()[1])
        raise RuntimeError(f"there is no {self.tap}")


def chosen(rows):
    """The rows without QP1, which libibverbs does not give to programs."""
    return (row for row in rows if not row[0].startswith("QP1 "))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--guest", required=True, help="folder that build-guest.sh filled")
    parser.add_argument("--folder", required=True, help="folder of the drop-in libibverbs.so.1")
    parser.add_argument("--peer", required=True, help="peer program over libibverbs")
    parser.add_argument("--only", help="rows whose names match this regular expression")
    parser.add_argument("--repeat", type=int, default=1, help="run every row so many times")
    parser.add_argument("--dump", help="file for the packets at the guest's NIC, pcap")
    options = parser.parse_args()
    run("ip", "link", "set", "lo", "up")
    runner = Runner(options.only, options.repeat)
    guest = Guest(options.guest, 2, os.path.join(options.guest, "console.log"), dump=options.dump)
    environment = {**os.environ, "LD_LIBRARY_PATH": options.folder, "FRL_CONTROL": "off",
                   "FRL_VERBS_DEVICES": f"packet:{guest.roce}={FERRULE_IP}"}
    process = PeerProcess([options.peer, "--listen", str(FERRULE_PORT), "--device", "frl0"],
                          os.path.join(options.guest, "peer.log"), environment)
    try:
        guest.wait_booted()
        print(f"guest up after {runner.seconds():.1f} s", flush=True)
        with with_rxe(runner, guest, process, Dropin(guest)) as pairs:
            runner.run(chosen(rows_data.rows(pairs)))
            runner.run(rows_errors.rows(pairs))
            runner.run(rows_loss.rows(pairs, guest))
        run_tool_rows(runner, guest, rows_programs.rows(guest, environment))
    finally:
        process.stop(0)
        guest.stop()
    return runner.report()


if __name__ == "__main__":
    sys.exit(main())
