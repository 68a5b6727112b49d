#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Over Ethernet: a veth pair between two network namespaces, through AF_PACKET. Each is a host with
# a control daemon. The kernel has 10.9.1.x on it (for the daemons), Ferrule 10.1.1.x and fd00:1::x.
#
#	[ frlaPID: 10.9.1.1, 10.1.1.1 ] e0 ------ veth ------ e0 [ frlbPID: 10.9.1.2, 10.1.1.2 ]
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

port='net_af_packet0,iface=e0'
two_hosts e0
start_hosts e0

# both NAME -- COMMAND-IN-A... -- COMMAND-IN-B...: both run at once and must both end well.
both() {
	local name=$1 first=() status=0 other
	shift 2
	while [ "$1" != -- ]; do
		first+=("$1")
		shift
	done
	shift
	timeout -k 5 60 env "FRL_CONTROL=$temp/$a.sock" ip netns exec "$a" "${first[@]}" \
		>"$temp/$name-a.out" 2>&1 &
	other=$!
	started+=("$other")
	timeout -k 5 60 env "FRL_CONTROL=$temp/$b.sock" ip netns exec "$b" "$@" \
		>"$temp/$name-b.out" 2>&1 || status=$?
	if [ "$status" -ne 0 ]; then
		fail "$name: exit status $status of $*"
		kill "$other" 2>/dev/null || true
	fi
	status=0
	wait "$other" || status=$?
	started=()
	[ "$status" -eq 0 ] || fail "$name: exit status $status of ${first[*]}"
	[ "$failures" -eq 0 ] || show "$temp/$name-a.out" "$temp/$name-b.out"
}

for mtu in 1500 9000; do
	ip -n "$a" link set e0 mtu "$mtu"
	ip -n "$b" link set e0 mtu "$mtu"
	for op in send write; do
		both "pingpong-$op-$mtu" -- \
			"$pingpong" --server --port "$port" --ip 10.1.1.1/24 -- \
			"$pingpong" --connect 10.9.1.1 --port "$port" --ip 10.1.1.2/24 \
			--op "$op" --verify --sizes 1,64,4097,100000 --iters 200
	done
	job_options=(-n 2 --job train@10.9.1.1 --port "$port" --input "$data/rank%r.safetensors")
	both "allreduce-$mtu" -- \
		"$allreduce" "${job_options[@]}" --rank 0 --ip 10.1.1.1/24 \
		--output "$temp/$mtu-%r.safetensors" -- \
		"$allreduce" "${job_options[@]}" --rank 1 --ip 10.1.1.2/24 \
		--output "$temp/$mtu-%r.safetensors"
	cmp "$temp/$mtu-0.safetensors" "$temp/$mtu-1.safetensors" ||
		fail "MTU $mtu: the ranks have different results"
done
cmp "$temp/1500-0.safetensors" "$temp/9000-0.safetensors" ||
	fail "the result depends on the MTU"

both bench-ipv6 -- \
	"$bench" -n 2 --rank 0 --job train@10.9.1.1 --port "$port" \
	--ip fd00:1::1/64 --min 8 --max 256K --factor 32 --iters 3 -- \
	"$bench" -n 2 --rank 1 --job train@10.9.1.1 --port "$port" \
	--ip fd00:1::2/64 --min 8 --max 256K --factor 32 --iters 3

# Payload that stays in packet buffers: the rows of a unit test, between two ports of one process.
if [ -x "$bin/../tests/test_api_fragments" ]; then
	ip link add e1 netns "$a" type veth peer name e2 netns "$a"
	for e in e1 e2; do
		ip -n "$a" link set "$e" mtu 9000 up
	done
	FRL_TEST_ENDS='net_af_packet0,iface=e1 net_af_packet1,iface=e2' FRL_CONTROL=off \
		timeout -k 5 60 ip netns exec "$a" "$bin/../tests/test_api_fragments" \
		>"$temp/fragments.out" 2>&1 || {
		fail "payload in packet buffers"
		show "$temp/fragments.out"
	}
fi
finish
