#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Ports and options that cannot work: exit status not 0, in time, and a message with the remedy.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"

needs_dpdk

# on_port NAME PATTERN... -- PORT OPTION...
on_port() {
	local name=$1 patterns=()
	shift
	while [ "$1" != -- ]; do
		patterns+=("$1")
		shift
	done
	local port=$2
	shift 2
	refuses "$name" "${patterns[@]}" -- \
		"$pingpong" --server --ip 10.1.1.1/24 --port "$port" "$@"
}

on_port devargs 'net_no_such_driver' -- 'net_no_such_driver0,iface=lo'
on_port no-interface 'frl-none' 'ip link' -- 'net_af_packet0,iface=frl-none'
on_port no-iface-key 'iface' -- 'net_af_packet0'
# The message has the text that EAL would print.
FRL_EAL_ARGS='--no-such-option' on_port eal-option "unrecognized option '--no-such-option'" \
	'check FRL_EAL_ARGS' -- net_null0
FRL_EAL_ARGS='--in-memory --huge-dir' on_port eal-argument \
	"option '--huge-dir' requires an argument" -- net_null0
for name in eal-option eal-argument; do
	[ "$(wc -l <"$temp/$name.out")" -eq 1 ] || {
		fail "$name: more than one line"
		show "$temp/$name.out"
	}
done
if unshare -rm sh -c 'mount -t tmpfs none /sys' 2>/dev/null; then
	refuses no-sys '/sys/devices/system/cpu is not there' 'mount sysfs' -- \
		unshare -rm sh -c 'mount -t tmpfs none /sys && exec "$@"' - \
		"$pingpong" --server --ip 10.1.1.1/24 --port net_null0
else
	echo "not tried: no /sys (namespaces are not allowed)"
fi
refuses no-address -- "$pingpong" --server --port 'net_af_packet0,iface=lo'
refuses bad-address 'banana' -- "$pingpong" --server --port 'net_af_packet0,iface=lo' --ip banana
refuses bad-ranks -- "$allreduce" -n 0
refuses bad-option -- "$allreduce" --no-such-option
for option in input output check; do
	refuses "empty-$option" -- "$allreduce" -n 2 "--$option" ''
	grep -q "\\--$option: the file name is empty" "$temp/empty-$option.out" ||
		fail "empty-$option: the message does not say so"
done
refuses no-input -- "$allreduce" -n 2

interface=frlm$$
remove_interface() {
	ip link del "$interface" 2>/dev/null || true
}
if [ "$(id -u)" -eq 0 ] && ip link add "$interface" type veth peer name "${interface}p" 2>/dev/null
then
	at_exit+=(remove_interface)
	ip link set "$interface" mtu 1500 up
	ip link set "${interface}p" mtu 1500 up
	on_port mtu "$interface" 'mtu' -- "net_af_packet0,iface=$interface" --mtu 4096
	chmod a+rx "$temp"
	if setpriv --reuid=65534 --regid=65534 --clear-groups test -x "$pingpong"; then
		refuses no-permission 'CAP_NET_RAW|root|permission' -- \
			setpriv --reuid=65534 --regid=65534 --clear-groups \
			"$pingpong" --server --ip 10.1.1.1/24 \
			--port "net_af_packet0,iface=$interface"
	else
		echo "not tried: no permission (other users cannot reach $pingpong)"
	fi
else
	echo "not tried: small MTU (needs root and veth)"
	# Without root any raw socket is refused.
	[ "$(id -u)" -eq 0 ] ||
		on_port no-permission 'CAP_NET_RAW|root|permission' -- 'net_af_packet0,iface=lo'
fi
finish
