#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# A rank is stopped (SIGSTOP) in the middle of a collective, of each kind that differs in who waits
# for whom, with 2, 4 and 8 ranks. It goes on before the timeout, and so does the job, with right
# results; then it is stopped for good, and all others fail, with a report that says that this rank
# does not answer, and what each of the others waits for.
# shellcheck source=tests/system/faults_lib.sh
. "$(dirname "$0")/faults_lib.sh"

# check_report RANKS VICTIM WHAT: of the ranks but the victim, what each says of all others: what
# it waits for, or that it is done or has not started.
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

# blames_others RANKS VICTIM: a rank that lives is said to give no answer. Ranks have a second to
# answer, in which one may get no processor.
blames_others() {
	local other
	for other in $(others "$1" "$2"); do
		! grep -qs "rank $other: no answer" "$temp"/rank?.out || return 0
	done
	return 1
}

is_stopped() {
	grep -q '^State:.*stopped' "/proc/$1/status"
}

# stand_still: rank 0 has no result for a while.
stand_still() {
	local before
	before=$(rows)
	sleep 0.2
	[ "$(rows)" -eq "$before" ]
}

stop_one() {
	local n=$1 op=$2 victim=$(($1 / 2)) before what="$2 of $1 ranks" try
	export FRL_COLL_TIMEOUT_S=10
	for try in 1 2 3 4 5; do
		start_ranks "$n" "$op" 1000000
		kill -STOP "${pids[$victim]}"
		wait_until is_stopped "${pids[$victim]}" || fail "$what: rank $victim goes on"
		wait_until stand_still || fail "$what: the others do not wait"
		before=$(rows)
		kill -CONT "${pids[$victim]}"
		wait_until has_rows $((before + 4)) || fail "$what: the job does not go on"
		kill -STOP "${pids[$victim]}"
		# shellcheck disable=SC2046
		end_with 1 "$what" $(others "$n" "$victim")
		kill -CONT "${pids[$victim]}"
		end_with 1 "$what, which went on," "$victim"
		blames_others "$n" "$victim" || break
		echo "$what: a rank that lives has not answered in time, try $try"
	done
	! blames_others "$n" "$victim" || fail "$what: another rank than $victim is blamed"
	check_report "$n" "$victim" "$what"
	echo "$what: rank $victim stopped for good, the others have ended"
}

for_each_fault stop_one
finish
