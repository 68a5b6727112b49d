# SPDX-License-Identifier: BSD-3-Clause
"""tests/bench/run.sh starts this; see there."""
import argparse
import json
import os
import platform
import sys
import tempfile
import time

import jobs
from rows import ROWS
from table import markdown


class Bench:
    """What all rows share."""

    def __init__(self, options, work):
        self.build, self.work = options.build, work
        self.quick, self.tuned = options.quick, options.tuned
        self.rounds = options.rounds or (1 if options.quick else 5)
        self.available = sorted(os.sched_getaffinity(0))
        self.folders = 0

    def cpus(self, ranks):
        """The same set for everybody: as many as there are ranks, if there are so many."""
        return ",".join(str(cpu) for cpu in self.available[:ranks])

    def subfolder(self):
        self.folders += 1
        path = os.path.join(self.work, str(self.folders))
        os.mkdir(path)
        return path


def parse():
    parser = argparse.ArgumentParser(prog="tests/bench/run.sh", description=__doc__)
    parser.add_argument("--build", default="build", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="less of everything, under a minute")
    parser.add_argument("--rounds", type=int, help="of each peer, in turns (5; quick: 1)")
    parser.add_argument("--only", metavar="ROW,...", help=f"of {', '.join(ROWS)}")
    parser.add_argument("--tuned", action="store_true",
                        help="Open MPI's other allreduce algorithms as further peers")
    parser.add_argument("--json", metavar="FILE", help="write all numbers there as well")
    options = parser.parse_args()
    options.names = options.only.split(",") if options.only else list(ROWS)
    unknown = [name for name in options.names if name not in ROWS]
    if unknown:
        parser.error(f"unknown row: {', '.join(unknown)}; there are {', '.join(ROWS)}")
    return options


def main():
    options = parse()
    options.build = os.path.abspath(options.build)
    load, results, left_out = os.getloadavg()[0], [], []
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as work:
        bench = Bench(options, work)
        for name in options.names:
            try:
                results += ROWS[name](bench)
            except jobs.Unavailable as why:
                left_out.append({"row": name, "why": str(why)})
            except (RuntimeError, OSError, KeyError) as error:
                left_out.append({"row": name, "why": f"failed: {error}"})
    print(f"{len(bench.available)} processors, {platform.processor() or platform.machine()}, "
          f"load at the start {load:.2f}, {bench.rounds} rounds, medians, "
          f"{time.monotonic() - started:.0f} s\n")
    print(markdown(results))
    for row in left_out:
        print(f"\n{row['row']} left out: {row['why']}")
    judged = [r.passes for r in results if r.passes is not None]
    print(f"\n{sum(judged)} of {len(judged)} targets reached")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as f:
            json.dump({"load": load, "rounds": bench.rounds, "quick": options.quick,
                       "processors": len(bench.available), "left_out": left_out,
                       "results": [r.as_json() for r in results]}, f, indent=1)
            f.write("\n")
    return 1 if any(row["why"].startswith("failed") for row in left_out) else 0


if __name__ == "__main__":
    sys.exit(main())
