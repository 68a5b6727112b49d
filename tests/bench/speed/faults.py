# SPDX-License-Identifier: BSD-3-Clause
"""Time to detect a death, and the service of a daemon to correct clients under a flood."""
import contextlib
import os
import signal
import socket
import time

import jobs
from jobs import Pair, find, own, run
from table import Group, Result, alternate, median

WAIT_S = 60 # longer is a hang
RANKS = 4
FLOODERS = 200


@contextlib.contextmanager
def daemon(b):
    """Starts a control daemon for this row. Returns the path of its socket."""
    folder = b.subfolder()
    path, conf = os.path.join(folder, "sock"), os.path.join(folder, "conf")
    with open(conf, "w", encoding="ascii") as f:
        f.write("max_sessions_per_user = 1000;\n")
    with Pair([f"{b.build}/daemon/ferruled", "--private", "--config", conf, "--socket",
               path]) as server:
        server.wait_for("ready on")
        yield path


def kill_and_wait(pid, process):
    """Returns milliseconds from the death of one process to the end of the other."""
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    process.wait(timeout=WAIT_S)
    return 1000 * (time.monotonic() - began)


def peer_of_ferrule(b):
    """A process whose peer is killed names the peer, and ends."""
    program = f"{b.build}/tools/ferrule-pingpong"
    connect = [program, "--connect", "localhost:speed", "--op", "send", "--test", "latency",
               "--sizes", "8,64M", "--iters", "1000"]
    with daemon(b) as control:
        env = {"FRL_CONTROL": control}
        with Pair(own([program, "--listen", "speed"]), None, env) as server, \
                Pair(connect, None, env) as client:
            client.wait_for("^ *8 ")
            took = kill_and_wait(client.server.pid, server.server)
            server.wait_for(r"client\) is gone")
    return took


def peer_of_socket():
    """The kernel's part: a process in recv() wakes up."""
    ours, theirs = socket.socketpair()
    with ours:
        pid = os.fork()
        if pid == 0:
            ours.close()
            signal.pause()
        theirs.close()
        began = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        ours.recv(1)
        took = 1000 * (time.monotonic() - began)
        os.waitpid(pid, 0)
    return took


def kill_a_rank(job, program):
    """Returns milliseconds until the launcher has ended, and with it all ranks."""
    job.wait_for(r"^ +\d+ ") # a first result
    ranks = [pid for pid, name in jobs.in_session(job.server.pid)
             if name == program and pid != job.server.pid]
    if len(ranks) != RANKS:
        raise RuntimeError(f"{len(ranks)} of {RANKS} ranks are there:\n{job.said()}")
    return kill_and_wait(max(ranks), job.server)


def rank_of_ferrule(b):
    with Pair(own([f"{b.build}/tools/ferrule-bench", "-n", str(RANKS), "--min", "4K", "--max",
                   "4M", "--iters", "0", "--repeat", "1000000"])) as job:
        took = kill_a_rank(job, "ferrule-bench")
        job.wait_for(r"rank \d")
    return took


def rank_of_openmpi(b):
    program = jobs.mpi_program(b.work, "openmpi")
    with Pair([find("mpirun.openmpi"), "--allow-run-as-root", "--oversubscribe", "--bind-to",
               "none", "--mca", "mpi_yield_when_idle", "1", "-n", str(RANKS), program, "--min",
               "4K", "--max", "64M"]) as job:
        return kill_a_rank(job, os.path.basename(program))


def ask(b, control):
    """Returns milliseconds of a request with its answer: the median, and the longest."""
    out = run([f"{b.build}/tests/daemon-client", "ask", control, "50" if b.quick else "300"])
    return [int(word) / 1000 for word in out.split()]


def ask_beside_flood(b):
    with daemon(b) as control, \
            Pair([f"{b.build}/tests/daemon-client", "flood", control, str(FLOODERS)]):
        return ask(b, control)


def ask_in_peace(b):
    with daemon(b) as control:
        return ask(b, control)


def group(b):
    deaths = 3 if b.quick else 10

    def several(function, *arguments):
        return lambda: [function(*arguments) for _ in range(deaths)]

    got = alternate(b.rounds, {
        "ferrule, peer": several(peer_of_ferrule, b), "socket": several(peer_of_socket),
        "ferrule, rank": several(rank_of_ferrule, b), "openmpi": several(rank_of_openmpi, b),
        "ferrule, flood": lambda: ask_beside_flood(b), "no flood": lambda: ask_in_peace(b)},
        "faults")
    results = []
    for ours, theirs, what, limit in (
            ("ferrule, peer", "socket", "a process whose peer is killed ends", 100),
            ("ferrule, rank", "openmpi", f"a job of {RANKS} ranks ends, one of which is killed", 3000)):
        for name, of in (("median", median), ("longest", max)):
            times = {who: of(sum(got[who], [])) for who in (ours, theirs) if who in got}
            our_time = times.pop(ours)
            results.append(Result(f"{what}, {name} of {deaths * b.rounds}", our_time, times, "ms",
                                  less_is_better=True, limit=limit))
    for at, name in enumerate(("median", "longest")):
        calm = {"no flood": median([run[at] for run in got["no flood"]])} \
            if "no flood" in got else None
        results.append(Result(f"a request to ferruled, {FLOODERS} flooding it, {name}",
                              median([run[at] for run in got["ferrule, flood"]]), calm, "ms",
                              less_is_better=True, limit=100 if at == 0 else None))
    return Group("How soon a death is known, and a flood", results)
