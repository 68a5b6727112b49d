#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Over Ethernet: a veth pair between two network namespaces, through AF_PACKET. Each is a host with
# a control daemon. The kernel has 10.9.1.x on it (for the daemons), Ferrule 10.1.1.x and fd00:1::x.
#
#	[ frlaPID: 10.9.1.1, 10.1.1.1 ] e0 ------ veth ------ e0 [ frlbPID: 10.9.1.2, 10.1.1.2 ]
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"

needs_dpdk

port='net_af_packet0,iface=e0'
two_hosts e0
start_hosts e0

for mtu in 1500 9000; do
	ip -n "$a" link set e0 mtu "$mtu"
	ip -n "$b" link set e0 mtu "$mtu"
	for op in send write; do
		on_hosts "pingpong-$op-$mtu" -- \
			"$pingpong" --server --port "$port" --ip 10.1.1.1/24 \
			--wait "$event_limit" -- \
			"$pingpong" --connect 10.9.1.1 --port "$port" --ip 10.1.1.2/24 \
			--wait "$event_limit" --op "$op" --verify \
			--sizes 1,64,4097,100000 --iters 200
	done
	job_options=(-n 2 --job train@10.9.1.1 --port "$port" --input "$data/rank%r.safetensors")
	on_hosts "allreduce-$mtu" -- \
		"$allreduce" "${job_options[@]}" --rank 0 --ip 10.1.1.1/24 \
		--output "$temp/$mtu-%r.safetensors" -- \
		"$allreduce" "${job_options[@]}" --rank 1 --ip 10.1.1.2/24 \
		--output "$temp/$mtu-%r.safetensors"
	cmp "$temp/$mtu-0.safetensors" "$temp/$mtu-1.safetensors" ||
		fail "MTU $mtu: the ranks have different results"
done
cmp "$temp/1500-0.safetensors" "$temp/9000-0.safetensors" ||
	fail "the result depends on the MTU"

on_hosts bench-ipv6 -- \
	"$bench" -n 2 --rank 0 --job train@10.9.1.1 --port "$port" \
	--ip fd00:1::1/64 --min 8 --max 256K --factor 32 --iters 3 -- \
	"$bench" -n 2 --rank 1 --job train@10.9.1.1 --port "$port" \
	--ip fd00:1::2/64 --min 8 --max 256K --factor 32 --iters 3

payload_in_buffers net_af_packet0,iface=e1 net_af_packet1,iface=e2
finish
