# SPDX-License-Identifier: BSD-3-Clause
"""Measures Ferrule and other software in turns. Runs are repeated if the hypervisor has moved the
processors (docs/reference/performance.md)."""
import argparse
import json
import os
import re
import signal
import sys
import tempfile
import time

from distance import TRIES, by_program
from profile import profile
from rows import ROWS
from table import FAILURES, Unavailable, alternate, processor

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
QUICK_S = 50 # rows that would begin later are left out


class Bench:
    """State that all rows share."""

    def __init__(self, options, work):
        self.build, self.work = options.build, work
        self.quick, self.tuned, self.profiled = options.quick, options.tuned, options.profile
        self.rounds = options.rounds or (1 if options.quick else 3)
        self.available = sorted(os.sched_getaffinity(0))
        self.folders = 0

    def cpus(self, ranks):
        """Returns the processors for all programs: as many as ranks, if there are that many."""
        return ",".join(str(cpu) for cpu in self.available[:ranks])

    def subfolder(self):
        self.folders += 1
        path = os.path.join(self.work, str(self.folders))
        os.mkdir(path, mode=0o700)
        return path

    def explain(self, group, again):
        """With --profile: profiles the result that misses its target most; again(result) runs it
        once more."""
        worst = group.worst()
        if not self.profiled or not worst:
            return
        print(f"profile of {worst.what}", file=sys.stderr)
        try:
            group.profiles += profile(self.subfolder(), worst.what, lambda: again(worst))
        except (*FAILURES, Unavailable) as why:
            print(f"no profile of {worst.what}: {why}", file=sys.stderr)


def parse():
    parser = argparse.ArgumentParser(prog="tests/bench/run.sh", description=__doc__)
    parser.add_argument("--build", default="build", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true",
                        help="less of everything, under a minute; no run is repeated")
    parser.add_argument("--rounds", type=int, help="of each peer, in turns (3; quick: 1)")
    parser.add_argument("--only", metavar="ROW,...", help=f"of {', '.join(ROWS)}")
    parser.add_argument("--tuned", action="store_true",
                        help="Open MPI's other allreduce algorithms as further peers")
    parser.add_argument("--profile", action="store_true",
                        help="perf's samples of what misses its target most, of each row; needs "
                        "perf (Debian: linux-perf)")
    parser.add_argument("--json", metavar="FILE", help="write all numbers there as well")
    parser.add_argument("--markdown", metavar="FILE", help="write the tables there as well; in a "
                        f"file that has the lines {BEGIN} and {END}, between them")
    options = parser.parse_args()
    options.names = options.only.split(",") if options.only else list(ROWS)
    unknown = [name for name in options.names if name not in ROWS]
    if unknown:
        parser.error(f"unknown row: {', '.join(unknown)}; there are {', '.join(ROWS)}")
    return options


def measure(bench, names):
    """([(name, group, seconds)], [{row, why}])"""
    groups, left_out, start = [], [], time.monotonic()
    for name in names:
        began = time.monotonic()
        try:
            if bench.quick and began - start > QUICK_S:
                raise Unavailable(f"this quick run has taken {began - start:.0f} s already")
            groups.append((name, ROWS[name](bench), time.monotonic() - began))
        except Unavailable as why:
            left_out.append({"row": name, "why": str(why)})
        except FAILURES as error:
            left_out.append({"row": name, "why": f"failed: {error!r}"})
    return groups, left_out


def text_of(head, groups, left_out):
    results = [r for _, group, _ in groups for r in group.results]
    judged = [r.passes for r in results if r.passes is not None]
    parts = [head, *(group.markdown() for _, group, _ in groups),
             *(f"{row['row']} without {row['peer']}: {row['why'].splitlines()[0]}"
               for row in alternate.without),
             *(f"{row['row']} left out: {row['why']}" for row in left_out),
             f"{sum(judged)} of {len(judged)} targets are reached."]
    return "\n\n".join(parts) + "\n"


def write_markdown(path, text):
    before, after = "", ""
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            found = re.fullmatch(f"(.*{BEGIN}\n).*?({END}.*)", f.read(), re.DOTALL)
        if found:
            before, after = found.group(1) + "\n", "\n" + found.group(2)
    with open(path, "w", encoding="utf-8") as f:
        f.write(before + text + after)


def end(*_):
    """Lets the running row clean up: processes, daemons, namespaces."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.exit(1)


def main():
    options = parse()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    options.build = os.path.abspath(options.build)
    load, began = os.getloadavg()[0], time.monotonic()
    with tempfile.TemporaryDirectory() as work:
        bench = Bench(options, work)
        alternate.distance = by_program(f"{options.build}/tests/bench/bench_line",
                                        1 if options.quick else TRIES)
        groups, left_out = measure(bench, options.names)
    head = (f"{time.strftime('%Y-%m-%d')}, {len(bench.available)} processors ({processor()}), load "
            f"at the start {load:.2f}, medians of {bench.rounds} rounds, "
            f"{time.monotonic() - began:.0f} s.{alternate.distance.text()}")
    text = text_of(head, groups, left_out)
    print(text, end="")
    if options.markdown:
        write_markdown(options.markdown, text)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as f:
            json.dump({"load": load, "rounds": bench.rounds, "quick": options.quick,
                       "processors": len(bench.available), "left_out": left_out,
                       "without": alternate.without,
                       "distance": alternate.distance.as_json(),
                       "rows": [{"row": name, "seconds": round(seconds, 1),
                                 "results": [r.as_json() for r in group.results]}
                                for name, group, seconds in groups]}, f, indent=1)
            f.write("\n")
    return 1 if any(row["why"].startswith("failed") for row in left_out) else 0


if __name__ == "__main__":
    sys.exit(main())
