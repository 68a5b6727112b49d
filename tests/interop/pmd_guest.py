# SPDX-License-Identifier: BSD-3-Clause
"""A guest with a NIC that QEMU emulates and DPDK drives: in its own process space, with DMA."""
import json
import socket

from guest import GuestSilent, Machine, make_tap, run
from link import Failure

NIC = "0000:00:10.0"
HUGE_PAGES = 60

# QEMU's device, and the kernel's driver for it.
MODELS = {
    "e1000": ("e1000", "e1000"),
    "e1000e": ("e1000e", "e1000e"),
    "vmxnet3": ("vmxnet3", "vmxnet3"),
    "virtio": ("virtio-net-pci,disable-legacy=on,disable-modern=off,host_mtu=9000", "virtio-pci"),
    "virtio-legacy": ("virtio-net-pci,disable-legacy=off,disable-modern=on,host_mtu=9000",
                      "virtio-pci"),
    "virtio-packed": ("virtio-net-pci,disable-legacy=on,disable-modern=off,host_mtu=9000,packed=on",
                      "virtio-pci"),
}


class PmdGuest(Machine):
    """`number` tells guests apart, as Guest's does: 10.9.0.NUMBER and fd09::NUMBER are for the NIC.
    10.9.200.NUMBER is the kernel's. With an IOMMU the NIC uses virtual addresses (vfio-pci),
    without one physical addresses (uio_pci_generic)."""

    def __init__(self, image, folder, number, model, iommu, bridges):
        super().__init__(image, f"{folder}/console{number}.log")
        self.number, self.iommu = number, iommu
        self.device, self.kernel_driver = MODELS[model]
        if iommu and "virtio" in self.device:
            self.device += ",iommu_platform=on"
        self.ip = f"10.9.0.{number}"
        self.control = f"10.9.200.{number}"
        self.monitor = f"{folder}/monitor{number}"
        self.taps = [f"data{number}", f"cpu{number}"]
        for tap, bridge in zip(self.taps, bridges):
            make_tap(tap, bridge)
        self.start()

    def command(self):
        number = self.number
        append = f"ferrule.control={self.control}/24 {'intel_iommu=on' if self.iommu else ''}"
        command = self.qemu(768, append) + ["-machine", "q35", "-nodefaults", "-qmp",
                                            f"unix:{self.monitor},server=on,wait=off"]
        if self.iommu:
            command += ["-device", "intel-iommu,intremap=off,aw-bits=48"]
        for index, (tap, device) in enumerate(zip(self.taps, (self.device, "virtio-net-pci"))):
            command += [
                "-netdev", f"tap,id=n{index},ifname={tap},script=no,downscript=no,vnet_hdr=off",
                "-device", f"{device},netdev=n{index},mac=52:54:00:1{index}:00:0{number},"
                f"addr={0x10 + index:#x},romfile="]
        return command

    def stop(self):
        super().stop()
        for tap in self.taps:
            run("ip", "link", "del", tap)

    def ask_monitor(self, command, **arguments):
        """QEMU's answer."""
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.connect(self.monitor)
            with monitor.makefile("rw") as lines:
                lines.readline()
                for execute, words in (("qmp_capabilities", {}), (command, arguments)):
                    lines.write(json.dumps({"execute": execute, "arguments": words}) + "\n")
                    lines.flush()
                    answer = json.loads(lines.readline())
                    while "event" in answer:
                        answer = json.loads(lines.readline())
        if "error" in answer:
            raise RuntimeError(f"QEMU does not {command}: {answer['error']['desc']}")
        return answer["return"]

    def set_link(self, is_up):
        """The carrier of the NIC."""
        self.ask_monitor("set_link", name="n0", up=is_up)

    def capture(self, path):
        """Writes what the NIC sends and receives into a file, from now on."""
        self.ask_monitor("object-add", **{"qom-type": "filter-dump", "id": "capture",
                                          "netdev": "n0", "file": path, "maxlen": 65536})

    def must(self, command, seconds=600):
        """Runs a line, which has to succeed; what it wrote."""
        try:
            status, text = self.shell(command, seconds)
        except GuestSilent as error:
            raise Failure(f"guest {self.number}: {error}") from None
        if status:
            raise Failure(f"guest {self.number}: {command}: status {status}: "
                          + " / ".join(text.split("\n")[-8:]))
        return text

    def bind(self):
        """Gives the NIC to DPDK. Returns what there is for it."""
        driver = "vfio-pci" if self.iommu else "uio_pci_generic"
        if self.must(f"bind {driver}") != driver:
            raise RuntimeError(f"guest {self.number}: {driver} does not take the NIC")
        return driver if self.iommu else f"{driver}, {self.must(f'huge {HUGE_PAGES}')}"
