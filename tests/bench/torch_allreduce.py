#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares backends of torch.distributed on this machine, in turns: torch_allreduce.py BACKEND...

Times of dist.all_reduce() of float32 in place between two ranks, and of a step of
examples/torch/digits.py with DistributedDataParallel. The first backend is compared with the best
of the others. Each round runs each backend once, in new processes; the table has medians.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
for part in ("tests/bench/speed", "tests/python", "examples/torch", "python"):
    sys.path.insert(0, str(ROOT / part))

from table import Group, Result, alternate, human, median, median_by_key, number  # noqa: E402
from table import processor, target_of, verdict_of  # noqa: E402 (of the folders above)
# PyTorch needs Python's own profile.py.
sys.path.remove(str(ROOT / "tests/bench/speed"))
import digits  # noqa: E402
import torch_jobs  # noqa: E402

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

RANKS = 2
# Bytes, and calls in a round.
SIZES = {1 << 10: 1000, 64 << 10: 1000, 1 << 20: 300, 16 << 20: 30, 64 << 20: 10}
STEPS = 200
WARM_UP = 5  # of that many, a part of the calls before those that are measured
STEP = "step"
ALONE = "alone"
TARGET = 5  # times gloo
STEP_TARGET = 1.1


def timed(function, calls):
    """Returns the mean time of a call in us, back to back, on the slower rank."""
    for _ in range(calls // WARM_UP + 1):
        function()
    dist.barrier()
    began = time.perf_counter_ns()
    for _ in range(calls):
        function()
    mean = torch.tensor((time.perf_counter_ns() - began) / calls / 1000)
    dist.all_reduce(mean, dist.ReduceOp.MAX)
    return mean.item()


def time_all_reduce(size, calls):
    tensor = torch.full((size // 4,), float(dist.get_rank() + 1))
    dist.all_reduce(tensor)
    if not bool((tensor == 3).all()):
        raise RuntimeError(f"the sum of {size} bytes is wrong")
    tensor.zero_()
    return timed(lambda: dist.all_reduce(tensor), calls)


def time_step(steps, wrap):
    """A step of the example on the same images, with `wrap` around the model."""
    training, _ = digits.load_images(digits.DATA)
    images, labels = training[:digits.BATCH]
    model = wrap(digits.make_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return timed(lambda: digits.train_step(model, optimizer, images, labels), steps)


def rank_main(options):
    """A rank. Rank 0 prints the times."""
    torch.set_num_threads(1)
    torch_jobs.init_group(options.backends[0], options.rank, RANKS, options.store)
    share = 10 if options.quick else 1
    times = {str(size): time_all_reduce(size, max(calls // share, 3))
             for size, calls in SIZES.items()}
    times[STEP] = time_step(STEPS // share, DistributedDataParallel)
    times[ALONE] = time_step(STEPS // share, lambda model: model)
    dist.destroy_process_group()
    if options.rank == 0:
        print(json.dumps(times), flush=True)
    if options.backends[0] != "ferrule":
        os._exit(0)  # gloo of torch 2.10 sometimes ends the process with a signal at exit


def run(backend, quick):
    """Runs both ranks. Returns {size, "step" or "alone": us}."""
    with tempfile.TemporaryDirectory(prefix="ferrule-torch-") as path:
        torch_jobs.prepare_environment(backend, path)
        command = [sys.executable, __file__, backend, "--store", f"{path}/store"]
        command += ["--quick"] if quick else []
        ranks = [subprocess.Popen([*command, "--rank", str(rank)], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True) for rank in range(RANKS)]
        try:
            outputs = [rank.communicate(timeout=torch_jobs.LIMIT) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
    for rank, (_, errors) in zip(ranks, outputs):
        if rank.returncode:
            raise RuntimeError(f"a rank of {backend} failed: {errors[-2000:]}")
    return json.loads(outputs[0][0].splitlines()[-1])


def group_of(times, backends):
    """Returns the table of {backend: {key: us}}."""
    ours, others = backends[0], backends[1:]

    def result(what, key, target=None):
        return Result(what, times[ours][key], {name: times[name][key] for name in others}, "us",
                      less_is_better=True, target=target)

    target = TARGET if ours == "ferrule" and others == ["gloo"] else None
    results = [result(human(size), str(size), target) for size in SIZES]
    results.append(result("DDP, digits", STEP, target and STEP_TARGET))
    cells = [["dist.all_reduce(), us", *backends, "times better", "target", ""]]
    for one in results:
        cells.append([one.what, *(number(value) for value in (one.ours, *one.others.values())),
                      number(one.ratio), target_of(one), verdict_of(one)])
    alone = median([times[name][ALONE] for name in backends])
    return Group(f"PyTorch {torch.__version__}, {RANKS} ranks", results, cells,
                 [f"DDP, digits: a step of examples/torch/digits.py. Without DDP a step takes "
                  f"{number(alone)} us on each rank."])


GNUPLOT = """
set terminal svg noenhanced size 900,600 font "sans,13" background "white"
set key left top Left reverse
set logscale x 2
set logscale y 10
set format y "%g"
set grid xtics ytics linetype 1 linecolor rgb "#d0d0d0" linewidth 0.5
set border 3
set tics nomirror
set offsets graph 0.02, graph 0.02, 0, 0
set xlabel "size"
set ylabel "time of dist.all_reduce() in place (us)"
"""
COLORS = ("0072b2", "d55e00", "009e73", "cc79a7", "e69f00", "56b4e9")


def plot(path, times):
    """Draws the times by size, with gnuplot. The file is written completely or not at all."""
    script, lines = GNUPLOT, []
    tics = ", ".join(f'"{human(size)}" {size}' for size in SIZES)
    script += f"set xtics ({tics})\n"
    for n, (backend, values) in enumerate(times.items()):
        rows = "\n".join(f"{size} {values[str(size)]}" for size in SIZES)
        script += f"$times{n} << END\n{rows}\nEND\n"
        name = "".join(c for c in backend if c.isalnum() or c in "-_")
        lines.append(f'$times{n} using 1:2 with linespoints linecolor rgb "#'
                     f'{COLORS[n % len(COLORS)]}" pointtype {5 + 2 * n} linewidth 1.7 '
                     f'title "{name}"')
    script += "plot " + ", ".join(lines) + "\n"
    drawn = subprocess.run(["gnuplot"], input=script, stdout=subprocess.PIPE, text=True,
                           check=True).stdout
    new = path.with_suffix(".new")
    new.write_text(drawn, encoding="utf-8")
    os.replace(new, path)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("backends", nargs="+", metavar="BACKEND", help="ferrule, gloo, ...")
    parser.add_argument("--rounds", type=int, default=3, help="of each backend, in turns (3)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the calls")
    parser.add_argument("--plot", metavar="FILE.svg", type=pathlib.Path,
                        help="draw times by size there; needs gnuplot")
    parser.add_argument("--json", metavar="FILE", type=pathlib.Path,
                        help="write all numbers there as well")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parse()
    if options.rank is not None:
        return rank_main(options)
    os.environ["OMP_NUM_THREADS"] = "1"
    load, began = os.getloadavg()[0], time.monotonic()
    got = alternate(options.rounds, {name: lambda name=name: run(name, options.quick)
                                     for name in options.backends}, "torch")
    times = {name: median_by_key(runs) for name, runs in got.items()}
    backends = [name for name in options.backends if name in times]
    if not backends:
        return 1
    group = group_of(times, backends)
    print(f"{time.strftime('%Y-%m-%d')}, {len(os.sched_getaffinity(0))} processors "
          f"({processor()}), load at the start {load:.2f}, medians of {options.rounds} rounds, "
          f"{time.monotonic() - began:.0f} s.\n\n{group.markdown()}")
    if options.plot:
        plot(options.plot, {name: times[name] for name in backends})
    if options.json:
        options.json.write_text(json.dumps({"load": load, "rounds": got, "results": [
            one.as_json() for one in group.results]}, indent=1) + "\n", encoding="utf-8")
    return 0 if len(backends) == len(options.backends) else 1


if __name__ == "__main__":
    sys.exit(main())
