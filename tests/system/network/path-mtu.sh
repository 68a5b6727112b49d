#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Two hosts with an MTU of 9000, and two switches between them, joined by a link with 1500: large
# packets are lost without notice. Small messages pass. A large one fails with an error that says
# so, and passes with the path MTU that the error names.
#	[ frlaPID: 10.1.1.1 ] e1 -- [ frlcPID: bridge - 1500 - bridge ] -- e1 [ frlbPID: 10.1.1.2 ]
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"

two_hosts e0
start_hosts e0
c=frlc$$
remove_switch() {
	ip netns del "$c" 2>/dev/null || true
}
at_exit+=(remove_switch)
ip netns add "$c"
ip -n "$c" link add middle1 mtu 1500 type veth peer name middle2 mtu 1500
i=0
for name in "$a" "$b"; do
	i=$((i + 1))
	ip -n "$c" link add "bridge$i" type bridge 2>"$temp/bridge" ||
		skip "cannot make a bridge: $(tr '\n' ' ' <"$temp/bridge")"
	ip link add e1 netns "$name" mtu 9000 type veth peer name "outer$i" netns "$c" mtu 9000
	ip -n "$name" link set e1 up
	for link in "outer$i" "middle$i"; do
		ip -n "$c" link set "$link" master "bridge$i" up
	done
	ip -n "$c" link set "bridge$i" up
done

# pair NAME PORT MTU OPTION...: a server in A and a client in B; the client's status is in $status.
pair() {
	local name=$1 port=$2 mtu=$3 server
	shift 3
	env "FRL_CONTROL=$temp/$a.sock" "FRL_PATH_MTU=$mtu" ip netns exec "$a" "$pingpong" \
		--listen "$name" --port "$port" --ip 10.1.1.1/24 >"$temp/$name-a.out" 2>&1 &
	server=$!
	started+=("$server")
	status=0
	timeout -k 5 "$program_limit" env "FRL_CONTROL=$temp/$b.sock" "FRL_PATH_MTU=$mtu" \
		ip netns exec "$b" "$pingpong" --connect "10.9.1.1:$name" --port "$port" \
		--ip 10.1.1.2/24 "$@" >"$temp/$name.out" 2>&1 || status=$?
	all_end "$server"
}

# lost NAME: one of the ends reports which packets are lost.
lost() {
	local words='IP packets of 41[0-9]{2} bytes are lost, of 10[0-9]{2} not'
	grep -qE "$words: set FRL_PATH_MTU=1024" "$temp/$1.out" "$temp/$1-a.out" &&
		grep -q 'raise the MTU between 10.1.1.[12] and 10.1.1.[12]' \
			"$temp/$1.out" "$temp/$1-a.out" && return
	fail "$1: neither end says what is lost"
	show "$temp/$1.out" "$temp/$1-a.out"
}

ports=(packet:e1)
! has_dpdk || ports+=('net_af_packet0,iface=e1')
for port in "${ports[@]}"; do
	kind=${port%%[:0]*}
	pair "$kind" "$port" 0 --op write --test bandwidth --sizes 64,256,64K --iters 10
	[ "$status" -ne 0 ] || fail "$kind: large packets pass"
	lost "$kind"
	pair "$kind-right" "$port" 1024 --op write --verify --sizes 64,64K --iters 10
	[ "$status" -eq 0 ] || {
		fail "$kind-right: with FRL_PATH_MTU=1024 it does not pass"
		show "$temp/$kind-right.out" "$temp/$kind-right-a.out"
	}
done

# Ranks report it, too, and do not take each other for gone.
bench=("$bench" -n 2 --job mtu@10.9.1.1 --port packet:e1 --min 64K --max 64K --iters 1)
env "FRL_CONTROL=$temp/$a.sock" ip netns exec "$a" "${bench[@]}" --rank 0 --ip 10.1.1.1/24 \
	>"$temp/ranks-a.out" 2>&1 &
started+=("$!")
refuses ranks . -- env "FRL_CONTROL=$temp/$b.sock" ip netns exec "$b" "${bench[@]}" --rank 1 \
	--ip 10.1.1.2/24
all_end "${started[-1]}"
lost ranks
finish
