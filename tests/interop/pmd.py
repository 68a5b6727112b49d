#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Ferrule over NICs that DPDK drives: runs the rows, one line each. Called by pmd.sh, which has
made a network and a process namespace for it, so that nothing outlives it."""
import argparse
import os
import re
import subprocess
import sys

import rows_pmd
from guest import Guest, run, silence
from interop import Runner
from link import Failure
from peer import Peer
from pmd_guest import MODELS, NIC, PmdGuest

PORT = 7000
HOST = "10.9.200.254"


def make_bridges():
    for name in ("roce", "cpu"):
        run("ip", "link", "add", name, "mtu", "9000", "type", "bridge")
        silence(name)
        run("ip", "link", "set", name, "up")
    run("ip", "addr", "add", f"{HOST}/24", "dev", "cpu")


def start_peer(guest):
    """ferrule-peer in a guest, over its NIC."""
    addresses = (f"10.9.0.{guest.number}/24,fd09::{guest.number}/64,"
                 f"10.9.70.{guest.number}/24@7")
    guest.must(f"(FRL_CONTROL=off ferrule-peer --listen {PORT} --device {NIC} --ip {addresses} "
               ">/tmp/peer.log 2>&1) & :")
    try:
        return Peer(f"ferrule{guest.number}", guest.control, PORT)
    except Exception as error:
        raise Failure(f"{error}; ferrule-peer says: {guest.shell('cat /tmp/peer.log')[1]}") \
            from None


def check_capture(path, build):
    """Every packet at the first guest's NIC has an ICRC that is right."""
    out = subprocess.run([f"{build}/tools/ferrule-pcap", path], capture_output=True, text=True,
                         check=True).stdout
    counts = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", out)}
    if not counts["roce"] or counts["bad_icrc"]:
        raise Failure(f"ferrule-pcap says {out}")
    print(f"{counts['roce']} packets", flush=True)


def run_rows(options, runner, guests, rxe):
    capture = f"{options.folder}/capture.pcap"
    guests[0].capture(capture)
    peers = [start_peer(guest) for guest in guests]
    linux = Peer("rxe", rxe.control, rxe.CONTROL_PORT)
    runner.run(rows_pmd.data_rows([(peers[0], peers[1])], (512, 1024, 2048, 4096)))
    runner.run(rows_pmd.data_rows([(peers[0], linux), (linux, peers[0])], (1024, 4096)))
    for guest, peer in zip(guests, peers):
        peer.close()
        rows_pmd.free_nic(guest, "ferrule-peer")
    runner.run(rows_pmd.program_rows(guests, options))
    # The last frame of a capture in progress may be cut.
    guests[0].ask_monitor("object-del", id="capture")
    runner.run([("every ICRC of the first guest's capture", check_capture,
                 (capture, options.build))])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("addresses", choices=("virtual", "physical"))
    parser.add_argument("--guest", required=True, help="folder of the guest with DPDK")
    parser.add_argument("--rxe", required=True, help="folder of the guest with rxe")
    parser.add_argument("--build", required=True, help="build folder")
    parser.add_argument("--data", required=True, help="folder of the gradients")
    parser.add_argument("--folder", required=True, help="for what the test writes")
    parser.add_argument("--only", help="rows whose names match this regular expression")
    options = parser.parse_args()
    run("ip", "link", "set", "lo", "up")
    make_bridges()
    runner = Runner(options.only, 1)
    machines = []
    try:
        for number in (1, 2):
            machines.append(PmdGuest(options.guest, options.folder, number, options.model,
                                     options.addresses == "virtual", ("roce", "cpu")))
        machines.append(Guest(options.rxe, 3, f"{options.folder}/console3.log", "roce"))
        for machine in machines:
            machine.wait_booted()
        for guest in machines[:2]:
            print(f"guest {guest.number}: {guest.bind()}", flush=True)
        print(f"guests up after {runner.seconds():.1f} s", flush=True)
        run_rows(options, runner, machines[:2], machines[2])
    finally:
        for machine in machines:
            machine.stop()
    return runner.report()


if __name__ == "__main__":
    sys.exit(main())
