#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# /init of a guest with a NIC that DPDK drives, at 00:10.0. The kernel drives the one at 00:11.0: it
# has ferrule.control=ADDRESS/LENGTH of the kernel's command line, and ferruled listens there. Then
# the guest runs the lines that arrive on the serial console, and answers each with "__DONE__
# STATUS". Busybox sh.
export PATH=/bin:/usr/bin HOME=/tmp
nic=0000:00:10.0

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/hugepages /run
mount -t tmpfs shm /dev/shm
mount -t hugetlbfs huge /dev/hugepages
dmesg -n 1
for module in crc32_generic virtio_pci virtio_net; do
	modprobe $module
done

# interface_of ADDRESS: the kernel's name of a PCI device.
interface_of() {
	for path in /sys/bus/pci/devices/"$1"/net/* /sys/bus/pci/devices/"$1"/virtio*/net/*; do
		[ ! -e "$path" ] || basename "$path"
	done
}

# bind DRIVER: binds the NIC to a driver. Prints which one has it then.
bind() {
	echo "$1" >/sys/bus/pci/devices/$nic/driver_override
	[ ! -e /sys/bus/pci/devices/$nic/driver ] ||
		echo $nic >/sys/bus/pci/devices/$nic/driver/unbind
	modprobe "$1"
	# Nothing loads this module automatically.
	[ "$1" != vfio-pci ] || modprobe vfio_iommu_type1 allow_unsafe_interrupts=1
	echo $nic >/sys/bus/pci/drivers_probe
	basename "$(readlink /sys/bus/pci/devices/$nic/driver)"
}

# rxe_on ADDRESS/LENGTH DRIVER: the kernel drives the NIC, with rxe0 on it.
rxe_on() {
	bind "$2" || return 1
	data=$(interface_of $nic)
	ip link set "$data" mtu 9000
	ip addr add "$1" dev "$data"
	ip link set "$data" up
	modprobe ib_uverbs && modprobe rdma_rxe && rdma link add rxe0 type rxe netdev "$data"
}

# huge N: frees N huge pages of 2 MiB, no two of them adjacent.
huge() {
	echo $((2 * $1)) >/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
	huge-holes "$1" >/tmp/huge &
	while ! grep -q free /tmp/huge; do
		sleep 0.1
	done
	cat /tmp/huge
}

control=
read -r words </proc/cmdline
for word in $words; do
	case $word in
	ferrule.control=*) control=${word#*=} ;;
	esac
done
echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
ip link set lo up
eth=$(interface_of 0000:00:11.0)
ip addr add "$control" dev "$eth"
ip link set "$eth" up

# shellcheck disable=SC3045 # busybox has it
ulimit -l unlimited
export FRL_CONTROL=/run/ferrule/ferruled.sock FRL_TUNER_COSTS=default FRL_TUNER_CACHE=
# The other guest may get no processor for seconds: retries go on for 85 s.
export FRL_ACK_TIMEOUT=18
mkdir -m 755 /run/ferrule
# The other guest may get no processor for seconds.
printf 'insecure = true;\nlisten_address = "0.0.0.0";\nkeepalive_ms = 600000;\n' \
	>/tmp/ferruled.conf
ferruled --config /tmp/ferruled.conf --socket $FRL_CONTROL >/tmp/ferruled.log 2>&1 &
while [ ! -S $FRL_CONTROL ]; do
	sleep 0.1
done

stty -echo -onlcr
echo __READY__
while read -r line; do
	eval "$line"
	echo "__DONE__ $?"
done
poweroff -f
