#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# A rank is stopped (SIGSTOP) in the middle of collectives: without a timeout the others wait, and
# when it goes on so does the job; with one they fail in time, and say that this rank, and no other,
# does not answer.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

ranks=3
no_longer_alive() {
	! alive "$1"
}
# lines_of FILE: sizes that it has printed.
lines_of() {
	grep -cE '^ +[0-9]+ ' "$1" || true
}
prints_more() {
	[ "$(lines_of "$1")" -gt "$2" ]
}

# join_all ITERS MAX: ranks that meet without a launcher, in $pids.
join_all() {
	local rank
	pids=()
	rm -f "$temp"/rank?.out
	for rank in $(seq 0 $((ranks - 1))); do
		"$bench" -n "$ranks" --rank "$rank" --job stop --min 4K --max "$2" --factor 4 \
			--iters "$1" >"$temp/rank$rank.out" 2>&1 &
		pids+=("$!")
	done
	started+=("${pids[@]}")
	wait_until 20 prints_more "$temp/rank0.out" 0 || fail "nothing is printed"
}

stop_and_go_on() {
	local rank status lines
	join_all 400 256K
	kill -STOP "${pids[1]}"
	sleep 0.3 # what was under way is done
	lines=$(lines_of "$temp/rank0.out")
	sleep 1
	[ "$(lines_of "$temp/rank0.out")" -le $((lines + 1)) ] || fail "the others do not wait"
	kill -CONT "${pids[1]}"
	for rank in $(seq 0 $((ranks - 1))); do
		status=0
		wait "${pids[$rank]}" || status=$?
		[ "$status" -eq 0 ] || fail "went on: exit status $status of rank $rank"
	done
	started=()
	show "$temp"/rank?.out
}

stop_for_good() {
	local rank status start
	export FRL_COLL_TIMEOUT_S=1
	join_all 2000 64M
	kill -STOP "${pids[1]}"
	start=$(date +%s%N)
	for rank in 0 2; do
		wait_until 10 no_longer_alive "${pids[$rank]}" || fail "rank $rank hangs"
		status=0
		wait "${pids[$rank]}" || status=$?
		[ "$status" -eq 1 ] || fail "stopped: exit status $status of rank $rank"
		grep -qE 'rank 1: no answer' "$temp/rank$rank.out" ||
			fail "stopped: rank $rank does not say who gives no answer"
		! grep -qE 'rank [02]: no answer' "$temp/rank$rank.out" ||
			fail "stopped: rank $rank blames another one"
	done
	echo "the others ended after $((($(date +%s%N) - start) / 1000000)) ms"
	kill -CONT "${pids[1]}"
	wait_until 10 no_longer_alive "${pids[1]}" || fail "rank 1 hangs when it goes on"
	wait "${pids[1]}" || true
	started=()
	show "$temp"/rank?.out
}

stop_and_go_on
stop_for_good
finish
