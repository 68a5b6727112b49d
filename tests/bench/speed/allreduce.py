# SPDX-License-Identifier: BSD-3-Clause
"""Allreduce of float32 among ranks on one machine, compared with MPI."""
import jobs
from table import (BY_ROUND, Group, Result, alternate, common_keys, compare, geometric_mean,
                   human, number, target_of, verdict_of)

KIB, MIB = 1 << 10, 1 << 20
TCP_TARGET = 5
MEAN_TARGET = 4
MALLOC_MEAN_TARGET = 3 # of buffers of malloc()


def target(ranks, size):
    """Target as a speed-up over the best MPI: at most 1.5 times its time is 1 / 1.5."""
    if ranks == 2:
        return 2 if size >= 64 * KIB else 1 if size >= 4 * KIB else 1 / 1.5
    return 1.5 if size >= 256 * KIB else 1 / 1.5


def runners(b, ranks, sweep):
    cpus = b.cpus(ranks)
    peers = {
        "ferrule": lambda: jobs.ferrule_allreduce(b.build, ranks, sweep, cpus),
        "openmpi": lambda: jobs.openmpi_allreduce(b.work, ranks, sweep, cpus),
        "mpich": lambda: jobs.mpich_allreduce(b.work, ranks, sweep, cpus),
    }
    if ranks == 2:
        peers["openmpi, tcp"] = lambda: jobs.openmpi_allreduce(b.work, ranks, sweep, cpus, "tcp")
    if b.tuned:
        for name, algorithm in (("ring", 4), ("segmented", 5), ("rabenseifner", 6)):
            peers[f"openmpi {name}"] = lambda algorithm=algorithm: jobs.openmpi_allreduce(
                b.work, ranks, sweep, cpus, algorithm=algorithm)
    return peers


def measure(b, ranks, sweep):
    """Returns ({who: [{size: microseconds} of each round]} out of place, the same in place, of one
    round only)."""
    note = f"allreduce, n = {ranks}"
    first = alternate(1, runners(b, ranks, sweep), f"{note}, in place too" if sweep.in_place else
                      note)
    again = runners(b, ranks, sweep.out_of_place())
    rest = alternate(b.rounds - 1, {who: again[who] for who in first}, note)
    return ({who: [run[0] for run in runs + rest[who]]
             for who, runs in first.items() if who in rest},
            {who: [runs[0][1]] for who, runs in first.items() if who in rest})


def compare_size(what, times, size, others, target=None):
    """Returns the Result of one size, compared with the others that have it in all rounds."""
    have = {who: [run[size] for run in times[who]] for who in ("ferrule", *others)
            if all(size in run for run in times[who])}
    return compare(what, have.pop("ferrule"), have, "us", less_is_better=True, target=target)


def group(b, ranks):
    sweep = jobs.Sweep(8, 64 * MIB) if not b.quick else \
        jobs.Sweep(8, (8 if ranks == 2 else 2) * MIB, 16 if ranks == 2 else 64, in_place=False)
    out, inside = measure(b, ranks, sweep)
    tcp = "openmpi, tcp" if "openmpi, tcp" in out else None
    memory = [who for who in out if who not in ("ferrule", tcp)]
    results, cells = [], [header(memory, tcp, sweep.in_place)]
    for size in common_keys(out["ferrule"]):
        name = f"n = {ranks}, {human(size)}"
        main = compare_size(name, out, size, memory, target(ranks, size))
        results.append(main)
        row = [human(size), number(main.ours), *(number(main.others.get(who)) for who in memory),
               number(main.ratio), target_of(main), verdict_of(main)]
        if tcp:
            over = compare_size(f"{name}, over TCP", out, size, [tcp], TCP_TARGET)
            results.append(over)
            row += [number(over.others.get(tcp)), number(over.ratio), verdict_of(over)]
        if sweep.in_place:
            there = compare_size(f"{name}, in place", inside, size, memory)
            results.append(there)
            row += [number(there.ours), number(there.ratio)]
        cells.append(row)
    made = Group(f"Allreduce of {ranks} ranks, microseconds", results, cells, [
        BY_ROUND,
        "All programs sum the same buffers again and again, so caches keep what fits. "
        "Ferrule does every other operation from the end, and finds the part touched last."])
    if ranks == 2:
        add_mean(made, MEAN_TARGET)
    b.explain(made, lambda worst: once_more(b, ranks, worst))
    return made


def malloc_memory(b, ranks):
    """Buffers of malloc(), as users have them; sums in place are judged."""
    sweep = jobs.Sweep(64 * KIB, 64 * MIB, malloc=True) if not b.quick else \
        jobs.Sweep(64 * KIB, 4 * MIB, 8, malloc=True)
    peers = runners(b, ranks, sweep)
    peers.pop("openmpi, tcp", None)
    runs = alternate(b.rounds, peers, f"allreduce, n = {ranks}, malloc()")
    out, inside = ({who: [run[place] for run in got] for who, got in runs.items()}
                   for place in (0, 1))
    others = [who for who in out if who != "ferrule"]
    results, cells = [], [["n bytes", "in place", *others, "times better", "target", "",
                           "out of place", *others, "times better"]]
    for size in common_keys(inside["ferrule"]):
        name = f"n = {ranks}, {human(size)}, malloc()"
        there = compare_size(f"{name}, in place", inside, size, others, 2)
        away = compare_size(f"{name}, out of place", out, size, others)
        results += [there, away]
        cells.append([human(size), number(there.ours),
                      *(number(there.others.get(who)) for who in others), number(there.ratio),
                      target_of(there), verdict_of(there), number(away.ours),
                      *(number(away.others.get(who)) for who in others), number(away.ratio)])
    made = Group(f"Allreduce of {ranks} ranks with buffers of malloc(), microseconds", results,
                 cells, [BY_ROUND])
    if ranks == 2:
        add_mean(made, MALLOC_MEAN_TARGET)
    return made


def in_place(b):
    """Ferrule's memory: the same sum in place and out of place."""
    sweep = jobs.Sweep(KIB, 64 * MIB) if not b.quick else jobs.Sweep(KIB, MIB, 8)
    runs = alternate(b.rounds, {"ferrule": runners(b, 2, sweep)["ferrule"]}, "in place")["ferrule"]
    out, inside = ([run[place] for run in runs] for place in (0, 1))
    results = [compare(human(size), [run[size] for run in inside],
                       {"out of place": [run[size] for run in out]}, "us", less_is_better=True,
                       target=1 / 1.1) for size in common_keys(inside)]
    return Group("Allreduce of 2 ranks in place, microseconds", results, notes=[BY_ROUND])


def header(memory, tcp, in_place):
    return ["n bytes", "Ferrule", *memory, "times better", "target", ""] + \
        ([tcp, f"times, target {TCP_TARGET}", ""] if tcp else []) + \
        (["in place", "times better"] if in_place else [])


def add_mean(made, target):
    """Adds the mean of the sizes for which bandwidth matters."""
    long = [r.ratio for r in made.results if r.target == 2 and r.ratio]
    if long:
        mean = Result("n = 2, geometric mean of 64 KiB and more", None, target=target,
                      ratio=geometric_mean(long))
        made.results.append(mean)
        made.notes.append(f"Geometric mean from 64 KiB on: {number(mean.ratio)} times better, "
                          f"target {target_of(mean)}: {verdict_of(mean)}.")


def once_more(b, ranks, worst):
    """Runs the size that misses most, for long enough to take samples."""
    sizes = [8 << k for k in range(24) if f", {human(8 << k)}" in worst.what] or [MIB]
    sweep = jobs.Sweep(sizes[-1], sizes[-1], in_place=False)
    jobs.ferrule_allreduce(b.build, ranks, sweep, b.cpus(ranks), repeat=10)
