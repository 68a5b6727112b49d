#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Ferrule on Linux' RDMA stack: runs the rows, one line each. Called by verbs.sh, which has made a
network and a process namespace for it, so that nothing outlives it."""
import argparse
import os
import re
import sys
import tempfile

import rows_api
import rows_data
import rows_errors
import rows_jobs
import rows_names
import rows_nccl
import rows_trouble
from guest import Guest, run
from interop import FERRULE_PORT, FerruleProcess, Runner
from peer import Peer

INSIDE_PORT = 7001
LEFT_OUT = re.compile(r"^QP1 ")  # the kernel's, with hardware


class Inside(Peer):
    """Ferrule in the guest: what it does is what rxe does."""

    def connect(self, seconds=120):
        super().connect(seconds)
        self.backend = "verbs"


def across(options, runner, guest):
    """The peer program over Ferrule at both ends, on rxe and on a tap."""
    guest.shell(f"(while :; do ferrule-peer --listen {INSIDE_PORT} --device verbs:rxe0; "
                "sleep 0.1; done) >/tmp/ferrule-peer.log 2>&1 &")
    process = FerruleProcess(os.path.join(options.build, "tests/interop/ferrule-peer"), guest,
                             os.path.join(options.guest, "ferrule.log"))
    try:
        inside = Inside("guest", guest.control, INSIDE_PORT)
        here = Peer("here", "127.0.0.1", FERRULE_PORT)
        pairs = [(here, inside), (inside, here)]
        for rows in (rows_data, rows_errors):
            runner.run(row for row in rows.rows(pairs) if not LEFT_OUT.search(row[0]))
        for peer in (inside, here):
            peer.reset()
            peer.close()
        status = process.stop(60)
        if status:
            runner.failed.append(("ferrule-peer", f"ended with status {status}"))
    finally:
        process.stop(0)


def jobs(options, runner, hosts, folder):
    rows_jobs.cable(hosts.guest)
    try:
        runner.run(rows_jobs.rows(hosts, options.data, folder))
    finally:
        rows_jobs.uncable(hosts.guest)


def by_name(options, runner, guest):
    with tempfile.TemporaryDirectory() as folder:
        hosts = rows_names.Hosts(guest, options.build, folder)
        try:
            runner.run(rows_names.rows(hosts))
            runner.run(rows_nccl.rows(hosts))
            jobs(options, runner, hosts, folder)
            runner.run(rows_trouble.rows(hosts))
        finally:
            hosts.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--guest", required=True, help="folder that build-guest.sh filled")
    parser.add_argument("--build", required=True, help="build folder")
    parser.add_argument("--data", required=True, help="folder of the gradients")
    parser.add_argument("--only", help="rows whose names match this regular expression")
    options = parser.parse_args()
    run("ip", "link", "set", "lo", "up")
    runner = Runner(options.only, 1)
    guest = Guest(options.guest, 2, os.path.join(options.guest, "console.log"), rails=2)
    try:
        guest.wait_booted()
        print(f"guest up after {runner.seconds():.1f} s", flush=True)
        runner.run(rows_api.rows(guest, options.build))
        across(options, runner, guest)
        by_name(options, runner, guest)
        runner.run(rows_api.last_rows(guest))
    finally:
        guest.stop()
    return runner.report()


if __name__ == "__main__":
    sys.exit(main())
