#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Rounds of the bench: runs that are repeated, and ratios, with invented times."""
import contextlib
import io
import unittest

from distance import Distance
from table import Unavailable, alternate, compare


class Machine:
    """Distances before and after each run, in order, and the runs."""

    def __init__(self, *distances):
        self.distances, self.runs = list(distances), 0

    def measure(self):
        return self.distances.pop(0)

    def run(self):
        self.runs += 1
        return self.runs


def rounds_of(machine, *sizes, tries=4):
    """The Distance after rounds of so many runs each, and all results."""
    distance, got = Distance(machine.measure, tries), []
    with contextlib.redirect_stderr(io.StringIO()):
        for runs in sizes:
            distance.begin_round()
            got += [distance.run(machine.run) for _ in range(runs)]
    assert not machine.distances, "some were not measured"
    return distance, got


class Distances(unittest.TestCase):
    def test_similar_distances_fit(self):
        distance, got = rounds_of(Machine(30, 28, 50, 56, 29, 30), 3)
        self.assertEqual((got, distance.repeated, distance.kept_unlike), ([1, 2, 3], 0, 0))

    def test_run_is_repeated_if_distance_changes(self):
        distance, got = rounds_of(Machine(30, 160, 160, 161), 1)
        self.assertEqual((got, distance.repeated, distance.kept_unlike), ([2], 1, 0))
        self.assertEqual(distance.distances, [161])

    def test_second_run_is_compared_with_first(self):
        distance, got = rounds_of(Machine(30, 30, 160, 160, 30, 31), 2)
        self.assertEqual((got, distance.repeated), ([1, 3], 1))

    def test_rounds_are_independent(self):
        distance, got = rounds_of(Machine(30, 30, 30, 30, 160, 160, 160, 160), 2, 2)
        self.assertEqual((got, distance.repeated), ([1, 2, 3, 4], 0))
        self.assertIn("more than 60 ns in 2 of 4 runs", distance.text())

    def test_last_try_is_kept(self):
        distance, got = rounds_of(Machine(*[30, 160] * 2), 1, tries=2)
        self.assertEqual((got, distance.repeated, distance.kept_unlike), ([2], 1, 1))
        self.assertEqual(distance.as_json(),
                         {"distances_ns": [160], "repeated": 1, "kept_unlike": 1})

    def test_unknown_distance_fits(self):
        distance, got = rounds_of(Machine(None, None, None, 30), 2)
        self.assertEqual((got, distance.repeated), ([1, 2], 0))
        self.assertEqual(rounds_of(Machine(None, None), 1)[0].text(), "")


class Rounds(unittest.TestCase):
    def test_in_turns(self):
        order = []
        with contextlib.redirect_stderr(io.StringIO()):
            got = alternate(2, {"ferrule": lambda: order.append("a") or 1,
                                "other": lambda: order.append("b") or 2}, "test")
        self.assertEqual((order, got), (list("abab"), {"ferrule": [1, 1], "other": [2, 2]}))

    def test_missing_program_is_left_out(self):
        def missing():
            raise Unavailable("there is none")
        with contextlib.redirect_stderr(io.StringIO()):
            got = alternate(2, {"ferrule": lambda: 1, "other": missing}, "test")
        self.assertEqual(got, {"ferrule": [1, 1]})
        self.assertEqual(alternate.without.pop(),
                         {"row": "test", "peer": "other", "why": "there is none"})

    def test_ratio_is_of_the_rounds(self):
        # Ratios to the best peer: 3 (b), 3 (b), 2 (c). That of the medians would be 40 / 20 = 2.
        result = compare("rounds", [2, 20, 20], {"b": [6, 60, 60], "c": [9, 90, 40]}, "us",
                         less_is_better=True, target=3)
        self.assertEqual((result.ours, result.others), (20, {"b": 60, "c": 40}))
        self.assertEqual((result.ratio, result.passes), (3, True))

    def test_ratio_of_rates(self):
        self.assertEqual(compare("rate", [8, 8], {"b": [4, 2], "c": [2, 4]}, "GB/s").ratio, 2)

    def test_no_other_program(self):
        result = compare("alone", [1, 3], {}, "us", target=2)
        self.assertEqual((result.ours, result.ratio, result.passes), (2, None, None))


if __name__ == "__main__":
    unittest.main()
