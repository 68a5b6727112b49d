#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# A rank is stopped (SIGSTOP) in the middle of collectives. Without a timeout the others wait, and
# when it continues so does the job. With a timeout they fail, and report that this rank alone does
# not answer.
# shellcheck source=tests/system/faults/faults_lib.sh
. "$(dirname "$0")/faults_lib.sh"

ranks=3

# stop_and_go_on: while the rank is stopped another job begins and ends.
stop_and_go_on() {
	local rank status before repeat
	for repeat in 1000 10000 100000; do
		start_ranks "$ranks" allreduce "$repeat"
		kill -STOP "${pids[1]}"
		# Results that were under way may be printed.
		passes first "$bench" -n 2 --max 64K --iters 20
		before=$(rows)
		passes second "$bench" -n 2 --max 64K --iters 20
		[ "$(rows)" -le $((before + 1)) ] || fail "the others do not wait"
		kill -CONT "${pids[1]}"
		for rank in $(seq 0 $((ranks - 1))); do
			status=0
			wait "${pids[$rank]}" || status=$?
			[ "$status" -eq 0 ] || fail "went on: exit status $status of rank $rank"
		done
		started=()
		[ "$(rows)" -le $((before + 1)) ] || return 0
		echo "the job had ended before it was stopped"
	done
	fail "the job had always ended before it was stopped"
}

# Ranks have until the timeout to answer.
stop_for_good() {
	local rank
	export FRL_COLL_TIMEOUT_S=10
	start_ranks "$ranks" allreduce 1000000
	kill -STOP "${pids[1]}"
	end_with 1 "stopped" 0 2
	kill -CONT "${pids[1]}"
	end_with 1 "stopped, which went on," 1
	started=()
	for rank in 0 2; do
		! grep -qs "rank $rank: no answer" "$temp"/rank?.out ||
			fail "stopped: rank $rank is said to give no answer"
		grep -qE 'rank 1: no answer' "$temp/rank$rank.out" ||
			fail "stopped: rank $rank does not say who gives no answer"
	done
	show_ranks
}

stop_and_go_on
stop_for_good
finish
