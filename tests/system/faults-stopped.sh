#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# A rank is stopped (SIGSTOP) in the middle of a collective, of each kind that differs in who waits
# for whom, with 2, 4 and 8 ranks. It goes on before the timeout, and so does the job, with right
# results; then it is stopped for good, and all others fail in time, with a report that says that
# this rank does not answer, and what each of the others waits for.
# shellcheck source=tests/system/faults_lib.sh
. "$(dirname "$0")/faults_lib.sh"

# Who is in the report, besides rank $2: what it waits for, or that it is done or has not started.
check_report() {
	local n=$1 victim=$2 what=$3 text rank other
	for rank in $(others "$n" "$victim"); do
		text=$(grep -E 'failed: .*made no progress on rank [0-9]+ for [12]000 ms' \
			"$temp/rank$rank.out") || {
			fail "$what: rank $rank does not report a timeout"
			continue
		}
		grep -q "rank $victim: no answer" <<<"$text" ||
			fail "$what: rank $rank does not say that rank $victim gives no answer"
		for other in $(others "$n" "$victim"); do
			! grep -q "rank $other: no answer" <<<"$text" ||
				fail "$what: rank $rank blames rank $other"
			grep -qE "on rank $other for|rank $other (waits|is|has)" <<<"$text" ||
				fail "$what: rank $rank does not say what rank $other does"
		done
	done
}

stop_one() {
	local n=$1 op=$2 victim=$(($1 / 2)) before what="$2 of $1 ranks"
	export FRL_COLL_TIMEOUT_S=$((n < 8 ? 1 : 2)) # there are few processors
	start_ranks "$n" "$op" 1000000
	kill -STOP "${pids[$victim]}"
	sleep 0.4 # less than the timeout, and more than it takes to notice
	before=$(rows)
	kill -CONT "${pids[$victim]}"
	wait_until 10 has_rows $((before + 4)) || fail "$what: the job does not go on"
	kill -STOP "${pids[$victim]}"
	# shellcheck disable=SC2046
	end_with 1 "$what" $(others "$n" "$victim")
	echo "$what: rank $victim stopped for good, the others ended after $took ms"
	[ "$took" -lt 5000 ] || fail "$what: it took $took ms"
	check_report "$n" "$victim" "$what"
	kill -CONT "${pids[$victim]}"
	end_with 1 "$what, which went on," "$victim"
}

for_each_fault stop_one
finish
