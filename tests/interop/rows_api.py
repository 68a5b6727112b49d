# SPDX-License-Identifier: BSD-3-Clause
"""Rows of Ferrule's unit tests of its API, run in the guest on verbs:rxe0, and of ferrule-info. The
skipped tests are known by name, so that none is skipped unnoticed."""
import os
import re
import subprocess

from link import Failure, expect

SECONDS = 180

# Features that hardware or rxe lacks; the tests print the reasons.
SKIPPED = {
    "api": ["bad_memory:0", "failure:3"] + [f"reduce_on_receive:{i}" for i in range(4)],
    "api_connect": [
        "bad_modify:1", "connect_abandoned:0", "connect_abandoned:1", "connect_fails:0",
        "connect_in_steps_fails:0", "connect_while_connecting:0", "elsewhere:0",
        "link_of_two_connections:0", "link_of_two_connections:1", "link_that_goes_down:0", "name_of_link_in_use:0"],
    "api_datagrams": ["management:0", "qkeys:1"],
    "api_events": ["established:0", "refusals:0", "refusals:1", "shared_queue:2", "sleeper:0"],
    "api_gone": [
        "others_keep_their_payload:0", "posting_while_it_fails:0", "posting_while_it_fails:1",
        "read_from_a_queue_pair_that_goes:0", "read_from_a_queue_pair_that_goes:1",
        "send_to_a_queue_pair_that_went_long_ago:0",
        *(f"send_to_a_queue_pair_connected_anew:{i}" for i in range(7)),
        *(f"send_to_a_reset_queue_pair:{i}" for i in range(3, 7))],
    "api_memory": [
        "iova:1", "reregistration:0", "reregistration:1", "reregistration:2",
        "reregistration_after_another:0", "reregistration_in_two_threads:0",
        "reregistration_in_two_threads:1", "reregistration_in_two_threads:2",
        "reregistration_under_a_window:0", "window_of_a_destroyed_queue_pair:0",
        "window_of_a_destroyed_queue_pair:1", "windows_while_reregistering:0"],
    "api_queues": ["all_or_none:0", "resized:1"],
    "api_verbs": ["full:0", "limits_of_software:0"],
}

# Tests of the software device alone, or without a device.
NOT_HERE = {
    "api_endpoint": "it needs no device", "api_ethernet": "it is about the DPDK driver",
    "api_fork": "a child does not use its parent's hardware",
    "api_hooks": "hardware notifies a little later",
    "api_introduce": "only the local fabric has introductions",
    "api_introduce_fork": "only the local fabric has introductions",
    "api_multicast": "only the local fabric has no switch",
    "api_retries": "networks have finite retries",
    "api_unmap": "hardware pins memory", "api_unmap_races": "hardware pins memory",
    "api_fragments": "only software devices have packet buffers",
    "api_links": "only the local fabric has links",
    "api_mtu": "it is about path MTUs that networks do not have",
    "api_prompt": "what leaves with the call that posts it is the software device's choice",
    "api_sleep": "hardware is asked now and then",
}

SKIP = re.compile(r"^skipped: (\w+:\d+): (.*)$", re.MULTILINE)
ROW = re.compile(r":([PFE]):\w+:(\w+:\d+): (.*)$", re.MULTILINE)


def all_known(build):
    """No test of the API is forgotten here."""
    program = os.path.join(build, "tests", "unit", "test_api")
    listed = subprocess.run([program, "-l"], check=True, capture_output=True, text=True).stdout
    there = sorted(name for name in listed.split() if name.startswith("api"))
    for name in sorted(NOT_HERE):
        print(f"        skipped  {name}: {NOT_HERE[name]}")
    expect("unit tests", there, sorted([*SKIPPED, *NOT_HERE]))


def unit_test(guest, name):
    """All of its rows pass or are skipped, and those that are skipped are the known ones."""
    status, text = guest.shell(
        "FRL_CONTROL=off FRL_TEST_PORT=verbs:rxe0 CK_VERBOSITY=verbose "
        f"timeout {SECONDS} test_api {name} 2>&1",
        SECONDS + 10)
    skipped = dict(SKIP.findall(text))
    rows = ROW.findall(text)
    failed = [f"{row}: {said}" for result, row, said in rows if result != "P"]
    ran = [row for result, row, _ in rows if result == "P" and row not in skipped]
    for row in ran:
        print(f"        ran      {name} {row}")
    for row, reason in skipped.items():
        print(f"        skipped  {name} {row}: {reason}")
    if failed:
        raise Failure("; ".join(failed))
    expect("exit status", status, 0)
    expect("skipped rows", sorted(skipped), sorted(SKIPPED[name]))
    if not ran:
        raise Failure("no row ran")


def info(guest, command, status, *words):
    """ferrule-info after a command; words that its answer has."""
    got, text = guest.shell(f"{command}ferrule-info verbs:rxe0 2>&1")
    text = " ".join(text.split())
    for word in words:
        if word not in text:
            raise Failure(f"'{word}' is not in: {text}")
    expect("exit status of ferrule-info", got, status)


def info_here(program):
    """The local fabric, which needs no NIC."""
    done = subprocess.run([program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=SECONDS, check=False)
    if done.returncode or not re.search(r"^local +usable +active ", done.stdout, re.MULTILINE):
        raise Failure(f"status {done.returncode}: {done.stdout}")


def rows(guest, build):
    yield ("ferrule-info: local fabric, here", info_here,
           (os.path.join(build, "tools/ferrule-info"),))
    yield "ferrule-info: usable", info, (guest, "", 0, "verbs:rxe0 usable active 10.9.0.2",
                                         "4096", "eth0")
    yield "unit tests of the API", all_known, (build,)
    for name in sorted(SKIPPED):
        yield f"unit test {name}", unit_test, (guest, name)


def last_rows(guest):
    """Rows that make the port unusable. It stays unusable afterwards."""
    yield ("ferrule-info: link down", info, (guest, "ip link set eth0 down; ", 1,
                                             "verbs:rxe0 unusable down", "ip link set"))
    # Linux keeps that GID, whatever addresses the interface has.
    yield ("ferrule-info: only a link-local address", info, (
        guest, "ip link del eth0.7; ip -4 addr flush dev eth0; ip -6 addr flush dev eth0; "
        "ip link set eth0 up; ", 0, "verbs:rxe0 usable active fe80::5054:ff:fe00:2"))
