#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# A rank is stopped (SIGSTOP) in the middle of a collective, one for each pattern of ranks that wait
# for others, with 2, 4 and 8 ranks. It continues before the timeout, and so does the job, with
# right results. Then it is stopped for good. All others fail, and report that this rank does not
# answer, and which event each of the others waits for.
# shellcheck source=tests/system/faults/faults_lib.sh
. "$(dirname "$0")/faults_lib.sh"

# check_report RANKS VICTIM WHAT: each rank but the victim reports on all others: the event that
# they wait for, or that they are done or have not started.
check_report() {
	local n=$1 victim=$2 what=$3 text rank other
	for rank in $(others "$n" "$victim"); do
		text=$(grep -E "failed: .*made no progress on rank [0-9]+ for [0-9]+ ms" \
			"$temp/rank$rank.out") || {
			fail "$what: rank $rank does not report a timeout"
			continue
		}
		grep -q "rank $victim: no answer" <<<"$text" ||
			fail "$what: rank $rank does not say that rank $victim gives no answer"
		for other in $(others "$n" "$victim"); do
			grep -qE "on rank $other for|rank $other(:| waits| is| has)" <<<"$text" ||
				fail "$what: rank $rank does not say what rank $other does"
		done
	done
}

is_stopped() {
	grep -q '^State:.*stopped' "/proc/$1/status"
}

# go_on RANKS OP VICTIM: while the rank is stopped another job begins and ends, and rank 0 prints
# only results that were under way.
go_on() {
	local n=$1 op=$2 victim=$3 before what="$2 of $1 ranks"
	local -x FRL_COLL_TIMEOUT_S=$program_limit
	start_ranks "$n" "$op" 1000000
	kill -STOP "${pids[$victim]}"
	wait_until is_stopped "${pids[$victim]}" || fail "$what: rank $victim goes on"
	before=$(rows)
	passes other "$bench" -n 2 --max 64K --iters 20
	[ "$(rows)" -le $((before + 4)) ] || fail "$what: the others do not wait"
	kill -CONT "${pids[$victim]}"
	wait_until has_rows_or_ended $((before + 8))
	has_rows $((before + 8)) || fail "$what: the job does not go on"
	kill -9 "${pids[@]}"
	wait "${pids[@]}" 2>/dev/null || true
	started=()
}

# stop_for_good RANKS OP VICTIM: the others report that rank alone.
stop_for_good() {
	local n=$1 op=$2 victim=$3 what="$2 of $1 ranks" other
	local -x FRL_COLL_TIMEOUT_S=10
	start_ranks "$n" "$op" 1000000
	kill -STOP "${pids[$victim]}"
	# shellcheck disable=SC2046
	end_with 1 "$what" $(others "$n" "$victim")
	kill -CONT "${pids[$victim]}"
	end_with 1 "$what, which went on," "$victim"
	for other in $(others "$n" "$victim"); do
		! grep -qs "rank $other: no answer" "$temp"/rank?.out ||
			fail "$what: rank $other is said to give no answer"
	done
	check_report "$n" "$victim" "$what"
}

stop_one() {
	local victim=$(($1 / 2))
	go_on "$1" "$2" "$victim"
	stop_for_good "$1" "$2" "$victim"
	echo "$2 of $1 ranks: rank $victim stopped for good, the others have ended"
}

for_each_fault stop_one
finish
