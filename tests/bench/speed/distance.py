# SPDX-License-Identifier: BSD-3-Clause
"""
Repeats a run if the first two processors are not as distant as in the first run of its round.

The hypervisor of a virtual machine may move processors to cores without a common cache, and back. A cache line then takes
several times as long from one to the other, and so do programs that exchange data.
"""
import subprocess
import sys

FACTOR = 2 # within it, distances count as the same
TRIES = 4  # of a run, with the first one
ONE_PROCESSOR = 77


def same(a, b):
    return a is None or b is None or max(a, b) <= FACTOR * min(a, b)


class Distance:
    """`measure()` returns nanoseconds, or None if it cannot."""

    def __init__(self, measure):
        self.measure = measure
        self.wanted = None    # of this round: that of its first run
        self.lengths = []     # of all runs
        self.repeated, self.unlike = 0, 0

    def begin_round(self):
        self.wanted = None

    def run(self, runner):
        """Returns runner()'s last result; repeats it while the distance differs, TRIES at most."""
        for attempt in range(TRIES):
            before = self.measure()
            result = runner()
            after = self.measure()
            wanted = before if self.wanted is None else self.wanted
            fits = same(before, after) and same(wanted, before) and same(wanted, after)
            if fits:
                break
            if attempt + 1 < TRIES:
                self.repeated += 1
                print(f"a cache line took {before} ns before, and {after} ns after (here {wanted} "
                      "ns are compared): once more", file=sys.stderr)
        self.unlike += not fits
        if self.wanted is None:
            self.wanted = after
        self.lengths.append(after)
        return result

    def text(self):
        """Returns a sentence for readers of the figures, or nothing."""
        known = sorted(length for length in self.lengths if length is not None)
        if not known:
            return ""
        said = f" A cache line took {known[0]} to {known[-1]} ns between the processors"
        if not same(known[0], known[-1]):
            far = sum(not same(known[0], length) for length in known)
            said += f", more than {FACTOR * known[0]} ns in {far} of {len(known)} runs"
        return f"{said}. Runs were repeated {self.repeated} times because that differed, and " \
            f"{self.unlike} were kept nevertheless."


def by_program(path):
    """Returns a Distance that is measured by bench_line."""
    def measure():
        done = subprocess.run([path], stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode not in (0, ONE_PROCESSOR):
            print(f"{path} failed: distances are not compared", file=sys.stderr)
        return None if done.returncode else int(done.stdout)
    return Distance(measure)
