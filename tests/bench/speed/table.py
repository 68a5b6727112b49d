# SPDX-License-Identifier: BSD-3-Clause
"""Medians of alternating runs, how many times better Ferrule is, targets, and tables of them."""
import math
import os
import re
import statistics
import subprocess
import sys

FAILURES = (RuntimeError, OSError, LookupError, ValueError, subprocess.SubprocessError)


class Unavailable(Exception):
    """A program or a requirement of a measurement is missing here; the text says why."""


def alternate(rounds, runners, note):
    """
    Runs each {name: function} once a round. Returns {name: [results]}, without programs that are
    missing or failed; `alternate.without` lists these. Ferrule must not fail. Repeats
    runs whose processors are not as distant as before, if `alternate.distance` is set.
    """
    got = {name: [] for name in runners}
    distance = alternate.distance
    for number in range(1, rounds + 1):
        if distance:
            distance.begin_round()
        for name in list(got):
            print(f"{note}, round {number} of {rounds}: {name}", file=sys.stderr)
            try:
                run = runners[name]
                got[name].append(distance.run(run) if distance else run())
            except (*FAILURES, Unavailable) as why:
                if name.startswith("ferrule"):
                    raise
                said = str(why) if isinstance(why, Unavailable) else f"failed: {why!r}"
                print(f"{note}: without {name}: {said}", file=sys.stderr)
                alternate.without.append({"row": note, "peer": name, "why": said})
                del got[name]
    return got


alternate.without = []
alternate.distance = None


def median(values):
    return statistics.median(values)


def common_keys(runs):
    """Returns the keys, sorted, that all dicts of a list have."""
    return sorted(set.intersection(*(set(run) for run in runs)))


def median_by_key(runs):
    """Converts [{key: number}] to {key: median}, for keys that all have."""
    return {key: median([run[key] for run in runs]) for key in common_keys(runs)}


def geometric_mean(values):
    return math.exp(sum(math.log(value) for value in values) / len(values))


class Result:
    """
    Results of Ferrule and of others, in `unit`. `ratio` is how many times better Ferrule is than
    the best of the others: twice the rate, or half the time (`less_is_better`), is 2. It follows
    from the results unless it is given. The target is a ratio as well. `limit` is a target
    independent of others: the most that Ferrule may need. A result with neither is printed only.
    """

    def __init__(self, what, ours, others=None, unit="", *, less_is_better=False, target=None,
                 limit=None, ratio=None):
        self.what, self.ours, self.others, self.unit = what, ours, others or {}, unit
        self.target, self.limit = target, limit
        self.ratio = ratio
        if self.others and ratio is None:
            best = (min if less_is_better else max)(self.others.values())
            self.ratio = best / ours if less_is_better else ours / best

    @property
    def passes(self):
        if self.limit is not None:
            return self.ours <= self.limit
        return None if self.target is None or self.ratio is None else self.ratio >= self.target

    @property
    def shortfall(self):
        """Returns the factor by which the target is missed."""
        if self.passes is not False:
            return 1
        return self.target / self.ratio if self.limit is None else self.ours / self.limit

    def as_json(self):
        return {"what": self.what, "ferrule": self.ours, "others": self.others,
                "unit": self.unit, "ratio": self.ratio, "target": self.target,
                "limit": self.limit, "pass": self.passes}


def present(got, *names):
    """Returns the entries with these names, without programs that were left out."""
    return {name: got[name] for name in names if name in got}


BY_ROUND = "*Times better* is the median of the rounds' ratios."


def compare(what, ours, others, unit, *, less_is_better=False, target=None):
    """
    Returns a Result. `ours` has one number for each round, and `others` is {name: the same}. Their
    values are medians. The ratio is the median of the rounds' ratios, each to the best of the
    others in that round: between rounds, the hypervisor may move processors (distance.py).
    """
    rounds = zip(ours, *others.values()) if others else ()
    ratios = [min(theirs) / mine if less_is_better else mine / max(theirs)
              for mine, *theirs in rounds]
    return Result(what, median(ours), {who: median(values) for who, values in others.items()},
                  unit, less_is_better=less_is_better, target=target,
                  ratio=median(ratios) if ratios else None)


class Group:
    """A row of the bench: results and their table. `cells` are those of a separate table with a
    header; otherwise each result is a line."""

    def __init__(self, title, results, cells=None, notes=()):
        self.title, self.results, self.cells = title, results, cells
        self.notes, self.profiles = list(notes), []

    def worst(self):
        """Returns the result that misses its target most, or None."""
        missed = [r for r in self.results if r.passes is False]
        return max(missed, key=lambda r: r.shortfall) if missed else None

    def markdown(self):
        cells = self.cells or [
            ["what", "Ferrule", "others", "times better", "target", ""],
            *([r.what, number(r.ours, r.unit),
               ", ".join(f"{name} {number(value, r.unit)}" for name, value in r.others.items()),
               "" if r.ratio is None else number(r.ratio), target_of(r), verdict_of(r)]
              for r in self.results)]
        lines = [f"### {self.title}", "", *pipes(cells)]
        for note in self.notes:
            lines += ["", note]
        for profile in self.profiles:
            lines += ["", profile.head, "", "```", *profile.lines, "```"]
        return "\n".join(lines)


def number(value, unit=""):
    """Formats with three significant digits, or all before the point."""
    if value is None:
        return ""
    if unit == "%":
        return f"{100 * value:.2f} %"
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 0.1 else 4
    return f"{value:.{digits}f}" + (f" {unit}" if unit else "")


def target_of(result):
    if result.limit is not None:
        return f"<= {number(result.limit, result.unit)}"
    return "" if result.target is None else f">= {result.target:.3g}"


def verdict_of(result):
    if result.passes is None:
        return "" if result.target is None else "no peer"
    return "pass" if result.passes else "**miss**"


def pipes(cells):
    """Returns the lines of a table; all columns but the first are aligned right."""
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    return [lines[0], "|---|" + "---:|" * (len(cells[0]) - 1), *lines[1:]]


def human(size):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def processor():
    """Returns the name of the processor."""
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        found = re.search(r"^model name\s*: (.*)$", f.read(), re.MULTILINE)
    return found.group(1) if found else os.uname().machine
