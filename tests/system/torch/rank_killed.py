#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs examples/torch/digits.py as one rank; the last rank kills itself: rank_killed.py FOLDER ...

It does so in each of the first three tries of torchrun, within an epoch, after a checkpoint. The
other ranks write the error that they get to FOLDER/TRY.RANK.lost, with the milliseconds since then.
"""
import os
import pathlib
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "examples" / "torch"))
import digits  # noqa: E402 (of the folder above)

KILLS = 3
KILL_EPOCH = 1.5  # of a try


def kill_at(step, marker):
    """Replaces digits.train_step() by a function that ends this process in the step."""
    steps, train_step = 0, digits.train_step

    def counted(*arguments):
        nonlocal steps
        steps += 1
        if steps == step:
            marker.write_text(str(time.monotonic_ns()), encoding="utf-8")
            os.kill(os.getpid(), signal.SIGKILL)
        return train_step(*arguments)

    digits.train_step = counted


def main():
    folder = pathlib.Path(sys.argv.pop(1))
    tries = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    marker = folder / f"{tries}.killed"
    if rank == ranks - 1 and tries < KILLS:
        training, _ = digits.load_images(digits.DATA)
        kill_at(int(KILL_EPOCH * (len(training) // ranks // digits.BATCH)), marker)
    # torchrun ends the other ranks when it sees that one has ended. They must see it by themselves.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        digits.main()
    except Exception as error:
        if marker.exists():
            since = time.monotonic_ns() - int(marker.read_text(encoding="utf-8"))
            (folder / f"{tries}.{rank}.lost").write_text(f"{name_of(error)} {since // 10**6}\n",
                                                         encoding="utf-8")
        raise


def name_of(error):
    """Errors that pass through C++ become RuntimeError; their text has the original name."""
    text = f"{type(error).__name__}: {error}"
    return "PeerLostError" if "PeerLostError" in text else type(error).__name__


if __name__ == "__main__":
    main()
