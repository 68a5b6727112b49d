# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Jobs on the hosts of cluster_lib.sh: alice's $ranks ranks over fabric roce, rank R on node R+1,
# and rank 3 on node-1 again.
# shellcheck source=tests/system/cluster/cluster_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/cluster_lib.sh"

ranks=3

# by_settings NAME RANK, by_torchrun NAME RANK: how a rank gets its number.
by_settings() {
	echo "FRL_JOB=$1" FRL_JOB_HOST=node-1 "FRL_RANK=$2" "FRL_RANKS=$ranks"
}
by_torchrun() {
	echo MASTER_ADDR=node-1 MASTER_PORT=29500 "RANK=$2" "WORLD_SIZE=$ranks" \
		"TORCHELASTIC_RUN_ID=$1"
}

# Other settings of a job's ranks: the data network must notice nothing, unless a test is about
# that: 79 ACK timeouts of 4.3 s, 6 min.
patient=FRL_ACK_TIMEOUT=20
job_settings=("$patient")

# start_rank NAME RANK WAY OPTION...: starts ferrule-bench; its process is $rank_pid.
start_rank() {
	local settings node=node-$(($2 % 3 + 1)) out=$temp/$1-$2.out
	read -r -a settings <<<"$("$3" "$1" "$2")"
	on "$node" alice FRL_FABRIC=roce FRL_TUNER_COSTS=default "${settings[@]}" \
		"${job_settings[@]}" ferrule-bench "${@:4}" >"$out" 2>&1 &
	rank_pid=$!
	started+=("$rank_pid")
}

# start_job NAME WAY OPTION...: returns when there are results. Ranks are $pids, their output files
# $said.
start_job() {
	local rank
	pids=()
	said=()
	for ((rank = 0; rank < ranks; rank++)); do
		start_rank "$1" "$rank" "${@:2}"
		pids+=("$rank_pid")
		said+=("$temp/$1-$rank.out")
	done
	wait_until has_results_or_ended 3
	[ "$(results)" -ge 3 ] && return
	fail "job $1 does not run"
	show_words "${said[@]}"
	finish
}

# results: how many lines of results rank 0 has printed.
results() {
	grep -cE '^ +[0-9]+ ' "${said[0]}" || true
}

has_results_or_ended() {
	[ "$(results)" -ge "$1" ] || ended "${pids[0]}"
}

# await_end RANK: waits as long as results keep coming.
await_end() {
	local before
	until ended "${pids[$1]}"; do
		before=$(results)
		wait_until has_more_or_ended "$before" "${pids[$1]}" && continue
		fail "rank $1 hangs"
		show_words "${said[@]}"
		finish
	done
}

has_more_or_ended() {
	[ "$(results)" -gt "$1" ] || ended "$2"
}

# end_job STATUS RANK...: these ranks end by themselves, with this status.
end_job() {
	local rank status
	for rank in "${@:2}"; do
		await_end "$rank"
		status=0
		wait "${pids[$rank]}" || status=$?
		[ "$status" -eq "$1" ] && continue
		fail "exit status $status of rank $rank"
		show_words "${said[$rank]}"
	done
}

# Jobs that last until something ends them.
# shellcheck disable=SC2034
endless=(--min 64K --max 64K --iters 0 --repeat 1000000)

# survives NAME COMMAND...: a job gives only right results, before and after the command. If it is
# done before, it is tried again with more work, as another job: the others' daemons may still know
# a rank whose daemon was out of reach.
survives() {
	local repeat before
	for repeat in 500 2000 8000 32000 128000; do
		start_job "$1-$repeat" by_settings --min 64K --max 64K --iters 0 \
			--repeat "$repeat"
		"${@:2}"
		before=$(results)
		wait_until has_results_or_ended $((before + 4)) || fail "$1: no result after it"
		end_job 0 0 1 2
		grep -q '# OK: every result was right' "${said[0]}" || fail "$1: not right"
		[ "$((before + 4))" -gt "$repeat" ] || return 0
		echo "$1: $repeat results were there before"
	done
	fail "$1: the job was always done before"
}
