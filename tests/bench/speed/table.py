# SPDX-License-Identifier: BSD-3-Clause
"""Medians of alternating runs, ratios, targets."""
import math
import statistics
import sys


def alternate(rounds, runners, note):
    """Runs each {name: function} once a round; returns {name: [what it returned]}."""
    got = {name: [] for name in runners}
    for number in range(1, rounds + 1):
        for name, function in runners.items():
            print(f"{note}, round {number} of {rounds}: {name}", file=sys.stderr)
            got[name].append(function())
    return got


def median(values):
    return statistics.median(values)


def median_by_key(runs):
    """[{key: number}] to {key: median}, of the keys that all have."""
    keys = set.intersection(*(set(run) for run in runs))
    return {key: median([run[key] for run in runs]) for key in sorted(keys)}


def geometric_mean(values):
    return math.exp(sum(math.log(value) for value in values) / len(values))


class Result:
    """One line: a ratio of Ferrule's to the others', where more is better for Ferrule if
    `at_least`, and its target."""

    def __init__(self, row, what, ours, others, ratio, target, at_least=True, unit=""):
        self.row, self.what, self.ours, self.others = row, what, ours, others
        self.ratio, self.target, self.at_least, self.unit = ratio, target, at_least, unit

    @property
    def passes(self):
        if self.target is None:
            return None
        return self.ratio >= self.target if self.at_least else self.ratio <= self.target

    def as_json(self):
        return {"row": self.row, "what": self.what, "ferrule": self.ours, "others": self.others,
                "unit": self.unit, "ratio": self.ratio, "target": self.target,
                "at_least": self.at_least, "pass": self.passes}


def text_of(value):
    if value is None:
        return "-"
    if isinstance(value, dict):
        return ", ".join(f"{name} {text_of(number)}" for name, number in value.items())
    return f"{value:.4g}"


def markdown(results):
    lines = ["| row | what | Ferrule | others | ratio | target | |",
             "|---|---|---:|---:|---:|---:|---|"]
    verdict = {True: "pass", False: "**miss**", None: ""}
    for r in results:
        target = "" if r.target is None else f"{'>=' if r.at_least else '<='} {r.target:g}"
        lines.append(f"| {r.row} | {r.what} | {text_of(r.ours)} {r.unit} | {text_of(r.others)} "
                     f"| {r.ratio:.2f} | {target} | {verdict[r.passes]} |")
    return "\n".join(lines)


def human(size):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"
