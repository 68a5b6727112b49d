# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Ranks with two Ethernet ports each, for lib.sh: every rank is in a network namespace of its own,
# and its ports e0 and e1 are cabled to the switches (bridges) e0 and e1 in another one. Ferrule has
# 10.1.0.1R on port e0 of rank R and 10.1.1.1R on port e1. Ranks meet at the test's one daemon.
#	[ frlPID-0 ] e0 ---- e0-0 [     switch e0      ] e0-1 ---- e0 [ frlPID-1 ]
#	[ frlPID-0 ] e1 ---- e1-0 [ frlPID: switch e1  ] e1-1 ---- e1 [ frlPID-1 ]   and so on
# shellcheck source=tests/system/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ "$(id -u)" -eq 0 ] || skip "network namespaces need root"
command -v ip >/dev/null || skip "there is no ip command (package iproute2)"

switches=frl$$
cabled=0

remove_namespaces() {
	local rank
	for rank in $(seq 0 $((cabled - 1))); do
		ip netns del "$switches-$rank" 2>/dev/null || true
	done
	ip netns del "$switches" 2>/dev/null || true
}
at_exit+=(remove_namespaces)

# or_skip WHAT COMMAND...: skips the test if a container does not allow it.
or_skip() {
	local what=$1
	shift
	"$@" 2>"$temp/netns" || skip "$what: $(tr '\n' ' ' <"$temp/netns")"
}

# cable RANKS: makes the network for that many ranks.
cable() {
	local rank rail
	or_skip "cannot make network namespaces" ip netns add "$switches"
	or_skip "cannot run in a network namespace" ip netns exec "$switches" true
	for rail in e0 e1; do
		or_skip "cannot make a bridge" ip -n "$switches" link add "$rail" type bridge \
			mcast_snooping 0
		ip -n "$switches" link set "$rail" mtu 9000 up
	done
	for rank in $(seq 0 $(($1 - 1))); do
		or_skip "cannot make network namespaces" ip netns add "$switches-$rank"
		cabled=$((rank + 1))
		ip -n "$switches-$rank" link set lo up
		for rail in e0 e1; do
			or_skip "cannot make a veth pair" ip link add "$rail-$rank" \
				netns "$switches" type veth \
				peer name "$rail" netns "$switches-$rank"
			ip -n "$switches" link set "$rail-$rank" mtu 9000 master "$rail" up
			ip -n "$switches-$rank" link set "$rail" mtu 9000 up
		done
	done
}

# pull RANK RAIL, plug RANK RAIL: disconnects or connects the rank's end of the cable, which the
# rank can see.
pull() {
	ip -n "$switches-$1" link set "$2" down
}
plug() {
	ip -n "$switches-$1" link set "$2" up
}

# silence RANK RAIL: the switch forwards nothing from and to that port, and the link stays up; until
# listen RANK RAIL.
silence() {
	ip -n "$switches" link set "$2-$1" nomaster
}
listen() {
	ip -n "$switches" link set "$2-$1" master "$2"
}

# start_ranks RANKS OPTION...: ferrule-bench on both rails, in $pids; $temp/rankR.out has the output
# of each. Lines of rank 0 begin with the time in seconds.
start_ranks() {
	local n=$1 rank
	shift
	pids=()
	rm -f "$temp"/rank?.out
	for rank in $(seq 0 $((n - 1))); do
		ip netns exec "$switches-$rank" "$bench" -n "$n" --rank "$rank" --job rails \
			--port 'net_af_packet0,iface=e0' --ip "10.1.0.1$rank/24" \
			--port 'net_af_packet1,iface=e1' --ip "10.1.1.1$rank/24" "$@" \
			> >(if [ "$rank" -eq 0 ]; then stamp; else cat; fi >"$temp/rank$rank.out") \
			2>&1 &
		pids+=("$!")
	done
	started+=("${pids[@]}")
}

stamp() {
	local line
	while IFS= read -r line; do
		echo "$EPOCHREALTIME $line"
	done
}

# From the output of rank 0: the number of results, and the longest time between two of them, in ms.
rows() {
	awk '$2 ~ /^[0-9]+$/ { n++ } END { print n + 0 }' "$temp/rank0.out"
}
has_rows() {
	[ -s "$temp/rank0.out" ] && [ "$(rows)" -ge "$1" ]
}
longest_gap() {
	awk '$2 ~ /^[0-9]+$/ { if (last && $1 - last > most) most = $1 - last; last = $1 }
		END { printf "%d\n", most * 1000 }' "$temp/rank0.out"
}

# show_ranks: their output without the table.
show_ranks() {
	local rank
	for rank in "${!pids[@]}"; do
		grep 'ferrule-' "$temp/rank$rank.out" | sed "s/^/    rank$rank.out: /" || true
	done
}
