# SPDX-License-Identifier: BSD-3-Clause
"""
Repeats a run if the distance of the first two processors changed during the run, or since the first
run of its round. The distance is the time that a cache line takes from one to the other.

The hypervisor of a virtual machine may move processors to cores without a common cache, and back.
The distance is then several times as long, and so are the times of programs that exchange data.
"""
import subprocess
import sys

FACTOR = 2 # within it, distances count as the same
TRIES = 4  # of a run, with the first one
ONE_PROCESSOR = 77


def same(*distances):
    known = [distance for distance in distances if distance is not None]
    return not known or max(known) <= FACTOR * min(known)


class Distance:
    """`measure()` returns nanoseconds, or None if it cannot. A run is tried `tries` times at
    most."""

    def __init__(self, measure, tries=TRIES):
        self.measure, self.tries = measure, tries
        self.round_distance = None # after the first run of this round
        self.distances = []        # after each run that was kept
        self.repeated, self.kept_unlike = 0, 0

    def begin_round(self):
        self.round_distance = None

    def run(self, runner):
        """Returns runner()'s last result; repeats it while the distance differs."""
        for attempt in range(1, self.tries + 1):
            before = self.measure()
            result = runner()
            after = self.measure()
            fits = same(before, after, self.round_distance)
            if fits or attempt == self.tries:
                break
            self.repeated += 1
            print(f"a cache line took {before} ns before and {after} ns after this run (first run "
                  f"of the round: {self.round_distance}): once more", file=sys.stderr)
        self.kept_unlike += not fits
        if self.round_distance is None:
            self.round_distance = after
        self.distances.append(after)
        return result

    def text(self):
        """Returns a sentence for readers of the figures, or nothing."""
        known = sorted(distance for distance in self.distances if distance is not None)
        if not known:
            return ""
        said = f" A cache line took {known[0]} to {known[-1]} ns between the processors"
        if not same(known[0], known[-1]):
            far = sum(not same(known[0], distance) for distance in known)
            said += f", more than {FACTOR * known[0]} ns in {far} of {len(known)} runs"
        return f"{said}. {self.repeated} runs were repeated because this time had changed, and " \
            f"{self.kept_unlike} results were kept although it had."

    def as_json(self):
        return {"distances_ns": self.distances, "repeated": self.repeated,
                "kept_unlike": self.kept_unlike}


def by_program(path, tries=TRIES):
    """Returns a Distance that is measured by bench_line."""
    def measure():
        done = subprocess.run([path], stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode not in (0, ONE_PROCESSOR):
            print(f"{path} failed: distances are not compared", file=sys.stderr)
        return None if done.returncode else int(done.stdout)
    return Distance(measure, tries)
