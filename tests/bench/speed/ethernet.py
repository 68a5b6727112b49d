# SPDX-License-Identifier: BSD-3-Clause
"""
Two hosts on this machine, joined by two links: e0 is measured, the daemons connect over c0. The
kernel has 10.9.1.x on e0, Ferrule 10.1.1.x. Links are veth pairs; with a switch, e0 of each host
leads to a bridge in a namespace of its own. Loss is a classifier that drops packets at random,
TCP's and AF_PACKET's alike. It is at the egress of e0 at both ends, where the kernel reports the loss to
the sender, or at the switch's ports, where it does not.
"""
import json
import os
import re
import subprocess
import time

from jobs import Pair, find, own, pingpong_tables, run
from table import Unavailable

DROP = """
#include <linux/bpf.h>
static unsigned (*random32)(void) = (void *)7; /* bpf_get_prandom_u32() */
__attribute__((section("classifier"), used)) int drop(void *packet)
{{
	return random32() < {limit}u ? 2 : -1; /* TC_ACT_SHOT, or what the filter says by default */
}}
char _license[] __attribute__((section("license"), used)) = "Dual BSD/GPL";
"""


def ip(*words):
    run(["ip", *words])


class Hosts:
    """The two namespaces, each with a daemon, and the switch's, if there is one. The `with` removes
    them."""

    def __init__(self, build, work, switched=False):
        if os.geteuid():
            raise Unavailable("network namespaces need root")
        find("ip")
        self.build, self.work = build, work
        self.names = [f"frlspeed{side}{os.getpid()}" for side in "ab"]
        self.switch = f"frlspeeds{os.getpid()}" if switched else None
        self.daemons = []
        self.share = 0

    def __enter__(self):
        try:
            self.make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def make(self):
        a, b = self.names
        for name in self.names:
            ip("netns", "add", name)
        if self.switch:
            self.make_switch()
        for link in ("c0",) if self.switch else ("e0", "c0"):
            ip("link", "add", link, "netns", a, "type", "veth", "peer", "name", link, "netns", b)
        for number, name in enumerate(self.names, 1):
            ip("-n", name, "link", "set", "lo", "up")
            for network, link in ((1, "e0"), (2, "c0")):
                ip("-n", name, "addr", "add", f"10.9.{network}.{number}/24", "dev", link)
                ip("-n", name, "link", "set", link, "mtu", "9000", "up")
            self.start_daemon(number, name)

    def make_switch(self):
        inside = ["-n", self.switch]
        ip("netns", "add", self.switch)
        ip(*inside, "link", "add", "switch", "type", "bridge")
        ip(*inside, "link", "set", "switch", "mtu", "9000", "up")
        for name, (_, port) in zip(self.names, self.lossy()):
            ip("link", "add", "e0", "netns", name, "type", "veth", "peer", "name", port, "netns",
               self.switch)
            ip(*inside, "link", "set", port, "mtu", "9000", "up", "master", "switch")

    def set_mtu(self, mtu):
        for name in self.names:
            ip("-n", name, "link", "set", "e0", "mtu", str(mtu))

    def lossy(self):
        """Returns namespace and link at which packets to each host are dropped."""
        if self.switch:
            return [(self.switch, f"port{number}") for number in range(2)]
        return [(name, "e0") for name in reversed(self.names)]

    def socket(self, name):
        return os.path.join(self.work, name, "sock")

    def start_daemon(self, number, name):
        os.mkdir(os.path.join(self.work, name))
        conf = os.path.join(self.work, name, "conf")
        with open(conf, "w", encoding="ascii") as f:
            f.write(f'host = "{name}";\nlisten_address = "10.9.2.{number}";\n'
                    "insecure = true;\nidle_exit_ms = 0;\n")
        daemon = Pair(["ip", "netns", "exec", name, f"{self.build}/daemon/ferruled", "--config",
                       conf, "--socket", self.socket(name)])
        self.daemons.append(daemon)
        for _ in range(100):
            if os.path.exists(self.socket(name)):
                return
            time.sleep(0.1)
        raise RuntimeError(f"ferruled does not listen:\n{daemon.said()}")

    def __exit__(self, *_):
        for daemon in self.daemons:
            daemon.__exit__()
        for name in filter(None, (*self.names, self.switch)):
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)

    def lose(self, share):
        """Drops this share of all packets from now on, each way."""
        source = os.path.join(self.work, "drop.c")
        with open(source, "w", encoding="ascii") as f:
            f.write(DROP.format(limit=int(share * 2**32)))
        multiarch = run(["gcc", "-print-multiarch"]).strip()
        run([find("clang"), "-O2", "-target", "bpf", f"-I/usr/include/{multiarch}", "-c", source,
             "-o", source + ".o"])
        for name, link in self.lossy():
            tc = self.tc(name)
            run([*tc, "qdisc", "add", "dev", link, "clsact"])
            run([*tc, "filter", "add", "dev", link, "egress", "bpf", "da", "obj", source + ".o",
                 "sec", "classifier"])
        self.share = share

    def tc(self, name):
        return ["ip", "netns", "exec", name, find("tc"), "-s"]

    def counters(self):
        """Returns the packets to the receiver that the link took, and that the classifier dropped.
        Both count a frame that is not segmented yet as one packet."""
        if not self.share:
            return 0, 0
        name, dev = self.lossy()[0]
        link = json.loads(run(["ip", "-n", name, "-s", "-j", "link", "show", "dev", dev]))
        qdisc = run([*self.tc(name), "qdisc", "show", "dev", dev, "clsact"])
        return (link[0]["stats64"]["tx"]["packets"],
                int(re.search(r"\(dropped (\d+)", qdisc).group(1)))

    def share_lost(self, before):
        """Returns the share of lost packets since then. Fails if it is not the requested one."""
        taken, dropped = (now - then for now, then in zip(self.counters(), before))
        packets = taken + dropped
        expected = packets * self.share
        if abs(dropped - expected) > 5 * max(expected, 1) ** 0.5:
            raise RuntimeError(f"{dropped} of {packets} packets were dropped, which is not "
                               f"{self.share:.1%}")
        return dropped / max(packets, 1)

    def inside(self, side, command):
        return ["ip", "netns", "exec", self.names[side], "env",
                f"FRL_CONTROL={self.socket(self.names[side])}", *command]

    def ferrule(self, port, size, iters, cpus):
        """Returns GB/s of RDMA WRITEs, and the share that was lost."""
        program, before = f"{self.build}/tools/ferrule-pingpong", self.counters()
        ends = [["--port", port, "--ip", f"10.1.1.{n}/24"] for n in (1, 2)]
        serve = own([program, "--listen", "speed", *ends[0]])
        ask = own([program, "--connect", "10.9.2.1:speed", "--op", "write", "--test", "bandwidth",
                   "--sizes", str(size), "--iters", str(iters), "--places", "1", *ends[1]])
        with Pair(self.inside(0, serve), cpus) as server:
            server.wait_for("waiting for a client")
            out = run(self.inside(1, ask), cpus)
            server.wait()
        return pingpong_tables(out)[("RDMA WRITE", "bandwidth")][size][1], self.share_lost(before)

    def tcp(self, seconds, cpus):
        """Returns GB/s of one TCP stream in the same direction, and the share that was lost."""
        command, before = [find("iperf3"), "-p", "5201"], self.counters()
        with Pair(self.inside(0, [*command, "-s", "-1", "--forceflush"]), cpus) as server:
            server.wait_for("Server listening")
            out = run(self.inside(1, [*command, "-c", "10.9.1.1", "-t", str(seconds), "-J"]), cpus)
        speed = json.loads(out)["end"]["sum_received"]["bits_per_second"] / 8e9
        return speed, self.share_lost(before)
