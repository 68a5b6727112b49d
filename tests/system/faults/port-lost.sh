#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Ranks with two rails each lose one of them in the middle of a collective: they go on over the
# other, without an error and with right results. The link comes back, the other one is lost, and so
# on. Without any rail left all of them fail, and name the rank and the rails. The time without
# progress is printed. FRL_FAULTS=all: every collective with 2, 4 and 8 ranks.
# shellcheck source=tests/system/rails_lib.sh
. "$(dirname "$0")/../rails_lib.sh"

needs_dpdk

# runs WHAT: waits for results; otherwise the ranks are ended.
runs() {
	wait_until has_rows_or_ended 5
	has_rows 5 && return
	fail "$1: there are no results"
	kill "${pids[@]}" 2>/dev/null || true
	wait "${pids[@]}" || true
	started=()
	show_ranks
	return 1
}
has_rows_or_ended() {
	has_rows "$1" || ended "${pids[0]}"
}

# end_with STATUS WHAT: all ranks end by themselves.
end_with() {
	local rank status
	for rank in "${!pids[@]}"; do
		wait_until ended "${pids[$rank]}" || fail "$2: rank $rank hangs"
		alive "${pids[$rank]}" && kill -9 "${pids[$rank]}"
		status=0
		wait "${pids[$rank]}" || status=$?
		[ "$status" -eq "$1" ] || fail "$2: exit status $status of rank $rank"
	done
	started=()
}

# The data that rank 0 reports as sent over rail $1, as a number and a unit.
sent_over() {
	sed -nE "s/.*# rail $1 of rank 0: .*, ([0-9.]+ [KMG]?i?B) sent.*/\1/p" "$temp/rank0.out"
}

# lose RANKS OP COUNT REPEAT HOW: rank 1 loses its port e1, by pull or by silence. If the job was
# done before, it is tried again with more work.
lose() {
	local repeat
	for repeat in "$4" $(($4 * 4)) $(($4 * 16)) $(($4 * 64)); do
		! lose_once "$1" "$2" "$3" "$repeat" "$5" || return 0
		echo "all was done before the loss: $repeat results"
	done
	fail "$2 of $1 ranks, $5: all was always done before the loss"
}

# errexit is off here, since the caller reads the status.
lose_once() {
	local n=$1 op=$2 how=$5 what="$2 of $1 ranks, $5" before rail
	start_ranks "$n" --op "$op" --count "$3" --iters 0 --repeat "$4"
	runs "$what" || return 0
	"$how" 1 e1 || fail "$what: $how fails"
	before=$(rows)
	# The next ones may have been under way.
	wait_until has_rows_or_ended $((before + 8)) || fail "$what: no result after the loss"
	[ "$how" = silence ] || plug 1 e1 || fail "$what: plug fails"
	end_with 0 "$what"
	[ "$how" = pull ] || listen 1 e1 || fail "$what: listen fails"
	grep -q '# OK: every result was right' "$temp/rank0.out" || fail "$what: not right"
	[ "$(rows)" -eq "$4" ] || fail "$what: $(rows) of $4 results"
	[ "$((before + 8))" -le "$4" ] || return 1
	for rail in 0 1; do
		grep -qE '^[0-9.]+ [MG]iB' <<<"$(sent_over "$rail")" ||
			fail "$what: rail $rail has carried $(sent_over "$rail")"
	done
	echo "$what: lost after $before results; stood still for $(longest_gap) ms;" \
		"rank 0 sent $(sent_over 0) over rail 0, $(sent_over 1) over rail 1"
	[ "$failures" -eq 0 ] || show_ranks
}

# lose_in_turn TURNS REPEAT: rank 1 loses one of its ports, then the other one when the first is
# back, and so on. If the job was done before the last loss, it is tried again with more work.
lose_in_turn() {
	local repeat
	for repeat in "$2" $(($2 * 4)) $(($2 * 16)) $(($2 * 64)); do
		! lose_in_turn_once "$1" "$repeat" || return 0
		echo "in turn: all was done before the last loss: $repeat results"
	done
	fail "in turn: all was always done before the last loss"
}

# errexit is off here, too.
lose_in_turn_once() {
	local turns=$1 repeat=$2 turn before too_late=
	start_ranks 2 --count 512K --iters 0 --repeat "$repeat"
	runs "in turn" || return 0
	for turn in $(seq 0 $((turns - 1))); do
		pull 1 "e$((turn % 2))" || fail "in turn: pull fails"
		before=$(rows)
		wait_until has_rows_or_ended $((before + 4)) ||
			fail "in turn: no result after the loss of e$((turn % 2)), loss $turn"
		plug 1 "e$((turn % 2))" || fail "in turn: plug fails"
		before=$(rows)
		wait_until has_rows_or_ended $((before + 4)) || fail "in turn: no result"
		[ "$((before + 4))" -le "$repeat" ] || too_late=1
	done
	end_with 0 "in turn"
	[ -z "$too_late" ] || return 1
	grep -q '# OK: every result was right' "$temp/rank0.out" || fail "in turn: not right"
	echo "one port, then the other one, $turns times: stood still for $(longest_gap) ms"
	[ "$failures" -eq 0 ] || show_ranks
}

# Both ports of rank 1.
lose_all() {
	local rank
	export FRL_COLL_TIMEOUT_S=10
	start_ranks 2 --count 64K --iters 0 --repeat 1000000
	runs "no rail" || return 0
	pull 1 e0
	pull 1 e1
	end_with 1 "no rail"
	for rank in 0 1; do
		grep -qE 'failed: .*rank 1.*rail [01]' "$temp/rank$rank.out" ||
			fail "no rail: rank $rank does not name rank and rail"
	done
	unset FRL_COLL_TIMEOUT_S
	plug 1 e0
	plug 1 e1
	show_ranks
}

if [ "${FRL_FAULTS:-}" = all ]; then
	cable 8
	for how in pull silence; do
		for n in 2 4 8; do
			lose "$n" allreduce 512K 100 "$how"
			lose "$n" alltoall "$((512 / n))K" 100 "$how"
			lose "$n" broadcast 512K 100 "$how"
		done
	done
else
	cable 8
	lose 2 allreduce 512K 80 pull
	lose 4 alltoall 128K 60 silence
	lose 8 broadcast 512K 60 pull
fi
lose_in_turn 5 120
lose_all
finish
