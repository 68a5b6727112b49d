# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Jobs that are disturbed in the middle of collectives, for lib.sh: each operation and number of
# ranks in the pairs of $faults, or with FRL_FAULTS=all every operation with every number.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"

faults=('2 allreduce' '2 broadcast' '4 alltoall' '8 allreduce' '8 broadcast')
if [ "${FRL_FAULTS:-}" = all ]; then
	faults=({2,4,8}' '{allreduce,alltoall,broadcast})
fi

# Counts the results that rank 0 has printed.
rows() {
	grep -cE '^ +[0-9]+ ' "$temp/rank0.out" || true
}
has_rows() {
	[ "$(rows)" -ge "$1" ]
}

has_rows_or_ended() {
	has_rows "$1" || ended "${pids[0]}"
}

# start_ranks RANKS OP REPEAT: the ranks check results all the time. Processes are in $pids, the
# output of rank R in $temp/rankR.out. They work when this returns.
start_ranks() {
	local rank
	pids=()
	rm -f "$temp"/rank?.out
	for rank in $(seq 0 $(($1 - 1))); do
		"$bench" -n "$1" --rank "$rank" --job faults --op "$2" --min 1K --max 256K \
			--factor 256 --iters 0 --repeat "$3" >"$temp/rank$rank.out" 2>&1 &
		pids+=("$!")
	done
	started+=("${pids[@]}")
	wait_until has_rows_or_ended 4
	has_rows 4 || fail "$2 of $1 ranks: nothing is printed"
}

# end_with STATUS WHAT RANK...: these ranks end by themselves, with this status.
end_with() {
	local status=$1 what=$2 rank got
	shift 2
	for rank in "$@"; do
		wait_until ended "${pids[$rank]}" || fail "$what: rank $rank hangs"
	done
	for rank in "$@"; do
		alive "${pids[$rank]}" && kill -9 "${pids[$rank]}"
		got=0
		wait "${pids[$rank]}" || got=$?
		[ "$got" -eq "$status" ] || fail "$what: exit status $got of rank $rank"
	done
}

# others RANKS RANK: all but that one.
others() {
	seq 0 $(($1 - 1)) | grep -vx "$2"
}

# show_ranks: their output without the results.
show_ranks() {
	local rank
	for rank in "${!pids[@]}"; do
		grep 'ferrule-' "$temp/rank$rank.out" | sed "s/^/    rank$rank.out: /" || true
	done
}

# for_each_fault FUNCTION: calls it with RANKS, OP.
for_each_fault() {
	local fault before
	for fault in "${faults[@]}"; do
		before=$failures
		"$1" "${fault% *}" "${fault#* }"
		started=()
		[ "$failures" -eq "$before" ] || show_ranks
	done
}
