#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Reducing gradients during the backward pass and after it, over a link of 100 Mb/s. The results are
# the same, bit by bit. Communication is in flight during the computation in the one case and not in
# the other. Computing, driving and waiting are parts of the time in all. Which one is faster
# depends on the link and on the load of the processors (docs/guide/tools.md), so the times are
# printed and not compared.
# shellcheck source=tests/system/rails_lib.sh
. "$(dirname "$0")/../rails_lib.sh"

needs_dpdk

train=$bin/ferrule-train
[ -x "$train" ] || skip "$train is not built"
command -v tc >/dev/null || skip "there is no tc command (package iproute2)"
options=(-n 2 --job overlap --data "$data/digits.csv" --epochs 5 --batch 240 --hidden "512,256"
	--bucket 64K --json --port 'net_af_packet0,iface=e0')

cable 2
for rank in 0 1; do
	or_skip "cannot make a slow link" ip netns exec "$switches-$rank" \
		tc qdisc add dev e0 root tbf rate 100mbit burst 64kb latency 500ms
done

# value NAME KEY: the first one in the output of rank 0 of that run.
value() {
	sed -n "s/^ *\"$2\": \"\{0,1\}\([^\",]*\).*/\1/p" "$temp/$1-0.out" | head -1
}

# run NAME OPTION...
run() {
	local name=$1 rank status pids=()
	shift
	for rank in 0 1; do
		FRL_ALGO=ring ip netns exec "$switches-$rank" "$train" "${options[@]}" \
			--rank "$rank" --ip "10.1.0.1$rank/24" "$@" >"$temp/$name-$rank.out" 2>&1 &
		pids+=("$!")
	done
	started+=("${pids[@]}")
	for rank in 0 1; do
		status=0
		wait "${pids[$rank]}" || status=$?
		[ "$status" -eq 0 ] || fail "$name: exit status $status of rank $rank"
		[ "$status" -eq 0 ] || show "$temp/$name-$rank.out"
	done
	started=()
	echo "$name: $(value "$name" total) s in all, $(value "$name" compute) s computing" \
		"($(value "$name" hidden) s of it with communication in flight)," \
		"$(value "$name" wait) s waiting; accuracy $(value "$name" accuracy)"
}

# parts NAME: the parts of its time.
parts() {
	awk -v total="$(value "$1" total)" -v compute="$(value "$1" compute)" \
		-v hidden="$(value "$1" hidden)" -v drive="$(value "$1" drive)" \
		-v wait="$(value "$1" wait)" 'BEGIN {
			exit !(total > 0 && compute > 0 && wait >= 0 && wait <= total &&
				compute + drive + wait <= total * 1.001 &&
				hidden <= compute * 1.001)
		}' || fail "$1: the times are no parts of a whole"
}

run on --overlap on
run off --overlap off
[ "$failures" -eq 0 ] || finish
parts on
parts off
for key in digest accuracy loss; do
	with=$(value on "$key")
	without=$(value off "$key")
	if [ -z "$with" ] || [ "$with" != "$without" ]; then
		fail "$key: $with with overlap, $without without"
	fi
done
awk -v on="$(value on hidden)" -v off="$(value off hidden)" \
	'BEGIN { exit !(on > 0 && off == 0) }' ||
	fail "in flight while computing: $(value on hidden) s with overlap," \
		"$(value off hidden) s without"
finish
