#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# A rank is killed in the middle of a collective, one for each pattern of ranks that wait for
# others, with 2, 4 and 8 ranks: all others end and name that rank alone.
# shellcheck source=tests/system/faults/faults_lib.sh
. "$(dirname "$0")/faults_lib.sh"

all_have_failed() {
	local rank
	for rank in "$@"; do
		grep -q 'failed:' "$temp/rank$rank.out" || return 1
	done
}

kill_one() {
	local n=$1 op=$2 victim=$(($1 / 2)) rank survivors
	mapfile -t survivors < <(others "$n" "$victim")
	start_ranks "$n" "$op" 1000000
	kill -9 "${pids[$victim]}"
	wait_until all_have_failed "${survivors[@]}" || fail "$op of $n ranks: nobody says so"
	end_with 1 "$op of $n ranks" "${survivors[@]}"
	wait "${pids[$victim]}" 2>/dev/null || true
	for rank in "${survivors[@]}"; do
		grep -qE "failed: .*rank $victim is gone" "$temp/rank$rank.out" ||
			fail "$op of $n ranks: rank $rank does not name rank $victim"
		! grep -oE 'rank [0-9]+ is gone' "$temp/rank$rank.out" | grep -qv "rank $victim " ||
			fail "$op of $n ranks: rank $rank blames another one"
	done
}

for_each_fault kill_one
finish
