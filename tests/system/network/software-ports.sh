#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# DPDK's ports without a NIC, and packet: for comparison, between two network namespaces with a
# control daemon each. Every byte is checked. e0 carries the daemons' connections, e1 the data.
#	[ frlaPID: 10.9.1.1, 10.1.1.1 ] e0, e1 ---- veth ---- e0, e1 [ frlbPID: 10.9.1.2, 10.1.1.2 ]
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"

needs_dpdk

two_hosts e0 e1
start_hosts e0

sizes=(--sizes '1,1000,65536,1048577' --iters 20)

# set_mtu BYTES: sets the MTU of both ends of e1.
set_mtu() {
	ip -n "$a" link set e1 mtu "$1"
	ip -n "$b" link set e1 mtu "$1"
}

# run NAME PORT-IN-A PORT-IN-B BEFORE: BEFORE is a line of shell that the client waits for in B.
run() {
	on_hosts "$1" -- "$pingpong" --listen "$1" --port "$2" --ip 10.1.1.1/24 \
		--wait "$event_limit" -- \
		sh -c "$4"' && exec "$@"' client \
		"$pingpong" --connect "10.9.1.1:$1" --port "$3" --ip 10.1.1.2/24 --verify \
		--wait "$event_limit" "${sizes[@]}"
}

# has_mtu NAME MTU: the client of that row used this path MTU.
has_mtu() {
	grep -q "path MTU $2," "$temp/$1-b.out" && return
	fail "$1: its path MTU is not $2"
	show "$temp/$1-b.out"
}

set_mtu 9000
run pcap net_pcap0,iface=e1 net_af_packet0,iface=e1 :
has_mtu pcap 4096
# Nobody segments its frames there: it detects that.
run uncut net_af_packet0,iface=e1 packet:e1 :
has_mtu uncut 4096
grep -q 'batched frames in a row were lost' "$temp/uncut-b.out" ||
	fail "uncut: it does not say what it does instead"

# A socket of its own instead of an interface.
run vhost "net_vhost0,iface=$temp/vhost" "net_virtio_user0,path=$temp/vhost" \
	"until [ -S $temp/vhost ]; do sleep 0.1; done"
has_mtu vhost 4096
# Its end is killed: the driver then writes to a closed socket, which must not end a process.
env "FRL_CONTROL=$temp/$a.sock" ip netns exec "$a" "$pingpong" --listen killed \
	--port "net_vhost0,iface=$temp/killed" --ip 10.1.1.1/24 >"$temp/killed-a.out" 2>&1 &
server=$!
started+=("$server")
wait_until [ -S "$temp/killed" ] || fail "killed: there is no socket"
{
	wait_until grep -q '^ *8 ' "$temp/killed.out" && kill -9 "$server"
} &
started+=("$!")
refuses killed 'is gone|does not answer' -- env "FRL_CONTROL=$temp/$b.sock" \
	ip netns exec "$b" "$pingpong" --connect 10.9.1.1:killed \
	--port "net_virtio_user0,path=$temp/killed" --ip 10.1.1.2/24 --op write --test latency \
	--sizes 8,1M --iters 20000

# AF_XDP, if the kernel has it. A frame must fit a page there.
if python3 -c 'import socket; socket.socket(44, socket.SOCK_RAW).close()' 2>"$temp/xdp"; then
	refuses page 'MTU of e1 is 9000' 'ip link set e1 mtu 3000' -- \
		env "FRL_CONTROL=$temp/$a.sock" ip netns exec "$a" \
		"$pingpong" --listen page --port net_af_xdp0,iface=e1 --ip 10.1.1.1/24
	set_mtu 3000
	run xdp net_af_xdp0,iface=e1 net_af_packet0,iface=e1 :
	has_mtu xdp 2048
	run xdp-uncut net_af_xdp0,iface=e1 packet:e1 :
	has_mtu xdp-uncut 2048
else
	echo "no AF_XDP here: $(tail -n 1 "$temp/xdp")"
fi

# A tap that the port makes, in a bridge with e1. The bridge must not have the port's address.
set_mtu 1500
ip -n "$a" link add frlbridge type bridge 2>"$temp/bridge" ||
	skip "cannot make a bridge: $(tr '\n' ' ' <"$temp/bridge")"
ip -n "$a" link set e1 master frlbridge
ip -n "$a" link set frlbridge up
{
	wait_until grep -q 'waiting for a client' "$temp/tap-a.out" &&
		ip -n "$a" link set frltap address 02:00:00:00:00:99 &&
		ip -n "$a" link set frltap master frlbridge && : >"$temp/bridged"
} >"$temp/tap" 2>&1 &
started+=("$!")
run tap net_tap0,iface=frltap net_af_packet0,iface=e1 \
	"until [ -e $temp/bridged ]; do sleep 0.1; done"
has_mtu tap 1024
[ -e "$temp/bridged" ] || show "$temp/tap"

finish
