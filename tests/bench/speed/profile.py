# SPDX-License-Identifier: BSD-3-Clause
"""Profiles rows that missed their target: perf's samples of Ferrule's programs."""
import os
import re

import jobs
from table import Unavailable

LINES = 12
LEAST_PERCENT = 2
STARTING = re.compile(r"ld-linux|\[unknown\]") # samples before a program begins


class Profile:
    def __init__(self, head, lines):
        self.head, self.lines = head, lines


def top_of(report):
    """Returns the lines of `perf report` with the largest shares."""
    found = re.findall(r"^\s*([\d.]+)%\s+(\S+)\s+\[([.k])\]\s+(\S+)", report, re.MULTILINE)
    rows = sorted(((float(share), where, kind, what) for share, where, kind, what in found
                   if not STARTING.search(where)), reverse=True)
    return [f"{share:5.1f} %  {what}" + ("  (kernel)" if kind == "k" else f"  ({where})")
            for share, where, kind, what in rows if share >= LEAST_PERCENT][:LINES]


def profile(work, what, again):
    """Runs `again` with all of Ferrule's programs under perf. Returns one profile for each sampled
    program, server and client."""
    jobs.find("perf")
    files = []

    def recorded(command):
        files.append(os.path.join(work, f"perf.{len(files)}"))
        return ["perf", "record", "-q", "-F", "1999", "-o", files[-1], "--", *command]

    jobs.own.wrap = recorded
    try:
        again()
    finally:
        jobs.own.wrap = None
    profiles = []
    for number, path in enumerate(files):
        report = jobs.run(["perf", "report", "-i", path, "--stdio", "--no-children", "-g", "none",
                           "-F", "overhead,dso,symbol", "--sort", "dso,symbol"])
        lines = top_of(report)
        if not lines:
            raise Unavailable("perf has no samples")
        end = "" if len(files) == 1 else " (server)" if number == 0 else " (client)"
        profiles.append(Profile(f"Profile of {what}{end}:", lines))
    return profiles
