#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# /init of the guest: loads rxe, puts it on eth0 and then runs the lines that arrive on the serial
# console. Answers each with "__DONE__ STATUS". Busybox sh. From the kernel's command line:
# ferrule.ip4=ADDRESS/LENGTH and ferrule.ip6=ADDRESS/LENGTH of eth0, ferrule.vlan=ADDRESS/LENGTH of
# its VLAN 7, ferrule.control=ADDRESS/LENGTH of eth1, where rxe-peer listens at port ferrule.port;
# and ferrule.rail=ADDRESS/LENGTH of eth2, if there is one, which is rxe1.
export PATH=/bin:/usr/bin

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
dmesg -n 1

# rxe finds its CRC by name only, so modprobe does not load it.
for module in crc32_generic virtio_pci virtio_net ib_uverbs rdma_rxe 8021q sch_netem sch_ingress \
	cls_matchall act_mirred; do
	modprobe "$module" || echo "no module $module"
done
modprobe ifb numifbs=1

ip4=
ip6=
vlan=
control=
port=
rail=
read -r words </proc/cmdline
for word in $words; do
	case $word in
	ferrule.ip4=*) ip4=${word#*=} ;;
	ferrule.ip6=*) ip6=${word#*=} ;;
	ferrule.vlan=*) vlan=${word#*=} ;;
	ferrule.control=*) control=${word#*=} ;;
	ferrule.port=*) port=${word#*=} ;;
	ferrule.rail=*) rail=${word#*=} ;;
	esac
done

# Duplicate address detection would delay the IPv6 GIDs for seconds.
echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad
ip link set lo up
ip link set eth0 mtu 9000
ip addr add "$ip4" dev eth0
ip link set eth0 up
ip -6 addr add "$ip6" dev eth0
ip addr add "$control" dev eth1
ip link set eth1 up
rdma link add rxe0 type rxe netdev eth0
ip link add link eth0 name eth0.7 type vlan id 7
ip addr add "$vlan" dev eth0.7
ip link set eth0.7 up
if [ -n "$rail" ]; then
	ip link set eth2 mtu 9000
	ip addr add "$rail" dev eth2
	ip link set eth2 up
	rdma link add rxe1 type rxe netdev eth2
fi

(
	while :; do
		rxe-peer --listen "$port" --device rxe0
		sleep 0.1
	done
) >/tmp/rxe-peer.log 2>&1 &

# The link-local address comes when the link is up, a moment later.
until ip -6 addr show dev eth0 | grep -q fe80; do
	sleep 0.2
done

stty -echo -onlcr
echo __READY__
while read -r line; do
	eval "$line"
	echo "__DONE__ $?"
done
poweroff -f
