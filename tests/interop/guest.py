# SPDX-License-Identifier: BSD-3-Clause
"""The Linux guest: QEMU, its two taps, and a shell on its serial console.

eth0 of the guest is where rxe is; the host's end of it (a tap without a kernel address) is
Ferrule's. eth1 carries the TCP connections of the test, so that netem on eth0 leaves them alone.
A guest with two rails has another NIC like eth0, eth2, with rxe1 on it.
"""
import contextlib
import os
import queue
import re
import socket
import subprocess
import threading
import time

BOOT_SECONDS = 600  # catches hangs: several guests may boot beside other work


def run(*command):
    subprocess.run(command, check=True)


def make_tap(name, bridge=None):
    """A tap that carries path MTU 4096 and to which the kernel says nothing by itself. Its queue
    holds a whole message of unreliable connections, while the guest is slow."""
    run("ip", "tuntap", "add", "dev", name, "mode", "tap")
    silence(name)
    run("ip", "link", "set", name, "mtu", "9000", "txqueuelen", "10000", "up")
    if bridge:
        run("ip", "link", "set", name, "master", bridge)


def silence(interface):
    with open(f"/proc/sys/net/ipv6/conf/{interface}/disable_ipv6", "w", encoding="ascii") as file:
        file.write("1")


class GuestSilent(RuntimeError):
    """The guest does not end a command. Commands that could hang have a time limit in the guest:
    this one hangs in the kernel, where no signal ends it."""


class Machine:
    """A virtual machine with one processor, without KVM: it is started, runs lines of shell, and is
    ended. Subclasses say by which command(), what they have besides."""

    def __init__(self, folder, log):
        self.folder = folder
        self.log = open(log, "wb")

    def qemu(self, mib, append):
        """The command without its NICs: so much memory, and the kernel's arguments."""
        return [
            "qemu-system-x86_64", "-accel", "tcg,thread=single", "-cpu", "max", "-smp", "1",
            "-m", str(mib), "-display", "none", "-monitor", "none", "-no-reboot",
            "-chardev", f"socket,id=console,fd={self.qemu_end.fileno()}",
            "-serial", "chardev:console", "-kernel", os.path.join(self.folder, "kernel"),
            "-initrd", os.path.join(self.folder, "initrd.gz"), "-append",
            # A guest without a processor for a moment would take its timer for broken, and end.
            f"console=ttyS0 quiet panic=-1 no_timer_check {append}"]

    def start(self):
        """Boots it (again, after stop()); wait_booted() waits for it."""
        self.lines = queue.Queue()
        # Not standard input and output: QEMU's devices write to them, too.
        self.console, self.qemu_end = socket.socketpair()
        with self.qemu_end:
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                pass_fds=[self.qemu_end.fileno()])
        threading.Thread(target=self._read, args=(self.console, self.lines), daemon=True).start()

    def _read(self, console, lines):
        with contextlib.suppress(OSError), console.makefile("rb") as stream:
            for line in stream:
                self.log.write(line)
                self.log.flush()
                lines.put(line.decode(errors="replace").rstrip("\r\n"))
        lines.put(None)

    def _wait(self, pattern, seconds):
        """The lines up to the one that matches, and the match; None when there was none."""
        lines, end = [], time.monotonic() + seconds
        while True:
            try:
                line = self.lines.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                return lines, None
            if line is None:
                return lines, None
            match = re.search(pattern, line)
            if match:
                if match.start():
                    lines.append(line[:match.start()])
                return lines, match
            lines.append(line)

    def wait_booted(self):
        if self._wait(r"__READY__", BOOT_SECONDS)[1]:
            return
        # Includes the output of QEMU.
        with open(self.log.name, encoding="utf-8", errors="replace") as log:
            raise RuntimeError("the guest does not boot:\n" + log.read()[-2000:])

    def shell(self, command, seconds=120):
        """Runs a line in the guest; its exit status and what it wrote."""
        with contextlib.suppress(OSError):  # whoever has ended does not answer either
            self.console.sendall((command + "\n").encode())
        lines, match = self._wait(r"__DONE__ (\d+)", seconds)
        if not match:
            raise GuestSilent(f"no answer from the guest to: {command}\n" + "\n".join(lines))
        return int(match.group(1)), "\n".join(lines)

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.console.close()


class Guest(Machine):
    """A running guest. `number` tells guests apart: 10.9.0.NUMBER, fd09::NUMBER, on VLAN 7
    10.9.70.NUMBER, and on the second rail 10.9.80.NUMBER."""

    CONTROL_PORT = 7000

    def __init__(self, folder, number, log, bridge=None, dump=None, rails=1):
        super().__init__(folder, log)
        self.number, self.dump = number, dump
        self.roce = f"roce{number}"
        self.control = f"10.9.{number}.2"
        self.host = f"10.9.{number}.1"
        make_tap(self.roce, bridge)
        self.rail = f"rail{number}" if rails > 1 else None
        if self.rail:
            make_tap(self.rail)
        run("ip", "tuntap", "add", "dev", f"ctl{number}", "mode", "tap")
        run("ip", "addr", "add", f"{self.host}/24", "dev", f"ctl{number}")
        run("ip", "link", "set", f"ctl{number}", "up")
        self.start()

    def command(self):
        number = self.number
        append = (f"ferrule.ip4=10.9.0.{number}/24 "
                  f"ferrule.ip6=fd09::{number}/64 ferrule.vlan=10.9.70.{number}/24 "
                  f"ferrule.control={self.control}/24 ferrule.port={self.CONTROL_PORT}")
        taps = [self.roce, f"ctl{number}"]
        if self.rail:
            taps.append(self.rail)
            append += f" ferrule.rail=10.9.80.{number}/24"
        command = self.qemu(400, append)
        # Frames as they are: no checksum or segmentation offload.
        for index, tap in enumerate(taps):
            command += [
                "-netdev", f"tap,id=n{index},ifname={tap},script=no,downscript=no,vnet_hdr=off",
                "-device", f"virtio-net-pci,netdev=n{index},mac=52:54:00:0{index}:00:0{number},"
                "host_mtu=9000,romfile="]
        if self.dump:
            command += ["-object", f"filter-dump,id=dump,netdev=n0,file={self.dump}"]
        return command
