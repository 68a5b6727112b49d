# SPDX-License-Identifier: BSD-3-Clause
"""Jobs whose ranks run in the guest, on verbs devices, and on this machine, on software devices.
They meet at the control daemon here; each rank's daemon is that of its side (rows_names.Hosts)."""
import os
import re
import subprocess
import time

from link import Failure

SECONDS = 300  # catches hangs
# The same algorithms every time. Traffic between two ranks of one host must use the NIC as well.
SETTINGS = {"FRL_TUNER_CACHE": "", "FRL_TUNER_COSTS": "default", "FRL_SHM": "0"}
RESULT = re.compile(r"^ +\d+ +\d+ +float32 .*$", re.MULTILINE)  # a line of ferrule-bench


def words(settings):
    return " ".join(f"{name}={value}" for name, value in settings.items())


class Job:
    """Ranks of `program`, an example. Ended by end(), in any case."""

    started = 0

    def __init__(self, hosts, program, ranks, options, **settings):
        Job.started += 1
        self.name = f"job{Job.started}"
        self.hosts, self.guest = hosts, hosts.guest
        self.program, self.options = program, f"-n {ranks} {options}"
        self.settings = {**SETTINGS, **settings}
        self.inside, self.here = [], {}

    def file(self, rank, what):
        return f"/tmp/{self.name}.{rank}.{what}"

    def start_inside(self, rank, device):
        self.inside.append(rank)
        self.guest.shell(
            f"({words(self.settings)} timeout {SECONDS} {self.program} {self.options} "
            f"--rank {rank} --job {self.name}@{self.guest.host} {device} "
            f">{self.file(rank, 'said')} 2>&1; echo $? >{self.file(rank, 'status')}) &")

    def start_here(self, rank, device):
        command = [os.path.join(self.hosts.build, "tools", self.program),
                   *self.options.split(), "--rank", str(rank), "--job", self.name,
                   *device.split()]
        self.here[rank] = subprocess.Popen(
            command, text=True, env={**self.hosts.environment, **self.settings},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def said_inside(self, rank):
        return self.guest.shell(f"cat {self.file(rank, 'said')}")[1]

    def results(self):
        """How many lines of results the lowest rank in the guest has written."""
        return len(RESULT.findall(self.said_inside(self.inside[0])))

    def wait_results(self, number):
        """Until there are so many."""
        end = time.monotonic() + SECONDS
        while (there := self.results()) < number:
            if time.monotonic() > end or self._has_ended(self.inside[0]):
                raise Failure(f"{there} results instead of {number}: "
                              + self.said_inside(self.inside[0])[-300:])
            time.sleep(0.1)
        return there

    def _has_ended(self, rank):
        return self.guest.shell(f"[ -e {self.file(rank, 'status')} ]")[0] == 0

    def finish(self):
        """Waits for all ranks: what each has said, and its status."""
        end = time.monotonic() + SECONDS + 5
        said, statuses = {}, {}
        for rank, process in self.here.items():
            try:
                said[rank] = process.communicate(timeout=max(0.1, end - time.monotonic()))[0]
            except subprocess.TimeoutExpired:
                process.kill()
                said[rank] = process.communicate()[0] + f"(killed after {SECONDS} s)"
            statuses[rank] = process.returncode
        for rank in self.inside:
            while not self._has_ended(rank):
                if time.monotonic() > end:
                    raise Failure(f"rank {rank} in the guest hangs: {self.said_inside(rank)}")
                time.sleep(0.1)
            said[rank] = self.said_inside(rank)
            statuses[rank] = int(self.guest.shell(f"cat {self.file(rank, 'status')}")[1])
        return said, statuses

    def succeed(self):
        """Returns the output of each rank. Fails unless all exit with status 0."""
        said, statuses = self.finish()
        bad = {rank: said[rank][-600:] for rank, status in statuses.items() if status}
        if bad:
            raise Failure(f"exit status {statuses}: {bad}")
        return said

    def end(self):
        for process in self.here.values():
            if process.poll() is None:
                process.kill()
            process.communicate()
