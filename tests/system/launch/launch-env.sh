#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Ranks that get their number from the environment: FRL_RANK and the like, torchrun's variables set
# by hand, and unique ids, passed on in a file and a pipe. Also the errors for a rank that is
# missing, doubled, or has other settings than the others.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"

launch_peer=$bin/../tests/launch-peer
[ -x "$launch_peer" ] || skip "$launch_peer is not built"
host=$(hostname)
# The work of four ranks of ferrule-allreduce.
sum=(--input "$data/rank%r.safetensors" --check "$data/sum.safetensors")

# Launchers of one rank: `"$settings" RANK RANKS JOB COMMAND...`, `"$torch" RANK RANKS PORT
# COMMAND...`, `"$by_id" RANK RANKS FILE PROGRAM`.
settings=$temp/settings
torch=$temp/torch
by_id=$temp/by-id
cat >"$settings" <<-'SCRIPT'
	#!/usr/bin/env bash
	FRL_RANK=$1 FRL_RANKS=$2 FRL_JOB=$3 exec "${@:4}"
SCRIPT
cat >"$torch" <<-'SCRIPT'
	#!/usr/bin/env bash
	export RANK=$1 WORLD_SIZE=$2 MASTER_ADDR=${master:-localhost} MASTER_PORT=$3
	LOCAL_RANK=$1 LOCAL_WORLD_SIZE=$2 exec "${@:4}"
SCRIPT
cat >"$by_id" <<-'SCRIPT'
	#!/usr/bin/env bash
	exec "$4" join "$1" "$2" <"$3"
SCRIPT
chmod +x "$settings" "$torch" "$by_id"

# each NAME RANKS LAUNCHER ARGUMENT COMMAND...: runs the command as each of the ranks; all must
# pass.
each() {
	local name=$1 ranks=$2 launcher=$3 argument=$4 rank pids=() others=("${started[@]}")
	for ((rank = 0; rank < ranks; rank++)); do
		"$launcher" "$rank" "$ranks" "$argument" "${@:5}" >"$temp/$name.$rank" 2>&1 &
		pids+=("$!")
	done
	started+=("${pids[@]}")
	for ((rank = 0; rank < ranks; rank++)); do
		wait "${pids[$rank]}" && continue
		fail "$name: rank $rank: exit status $?"
		show "$temp/$name.$rank"
	done
	started=("${others[@]}")
}

# says NAME.RANK PATTERN: its output matches.
says() {
	grep -qE -- "$2" "$temp/$1" && return
	fail "$1 does not say '$2'"
	show "$temp/$1"
}

test_settings() {
	each settings 4 "$settings" train "$allreduce" "${sum[@]}"
	says settings.0 'rank 0: 4 ranks, launched by settings'
	says settings.3 'rank 3: OK'
}

test_torchrun_by_hand() {
	local address
	for address in "$host" localhost 127.0.0.1 ::1; do
		export master=$address
		each torch 4 "$torch" 29500 "$launch_peer" environment 3
		says torch.3 'rank 3 of 4 has met'
	done
	unset master
	each files 4 "$torch" 29500 "$allreduce" "${sum[@]}"
	says files.0 'launched by torchrun'
}

# One launch several times, and then another one; a name that has no room for a number.
test_again() {
	each again 3 "$settings" train "$launch_peer" launch 3
	says again.2 'rank 2 of 3 has met'
	each long 2 "$settings" "$(printf 'j%.0s' {1..64})" "$launch_peer" environment 12
	refuses at 'FRL_JOB is "j@localhost".*FRL_JOB_HOST' -- \
		env FRL_RANK=0 FRL_RANKS=2 FRL_JOB=j@localhost "$launch_peer" detect
}

# The program that listens there is no server.
test_deaf() {
	refuses deaf 'has not answered for 15 s|built without it' -- "$launch_peer" deaf
}

# A rank that was started again while one of the first time has not ended; one with another port.
test_jobs_beside_each_other() {
	export TORCHELASTIC_RUN_ID=run/1
	"$torch" 0 2 29500 "$launch_peer" environment >"$temp/stale" 2>&1 &
	started+=("$!")
	TORCHELASTIC_RESTART_COUNT=1 each again 2 "$torch" 29500 "$launch_peer" environment
	each port 2 "$torch" 29501 "$launch_peer" environment
	TORCHELASTIC_RUN_ID=run_1 each run 2 "$torch" 29500 "$launch_peer" environment
	unset TORCHELASTIC_RUN_ID
	alive "${started[0]}" || fail "a rank alone has ended: $(cat "$temp/stale")"
	kill "${started[0]}"
	wait "${started[0]}" && fail "a rank alone has met another one"
	started=()
}

test_refused() {
	local host
	refuses nothing 'FRL_RANK' 'torchrun' 'mpirun' 'srun' -- "$launch_peer" detect
	refuses program '-n is missing' 'RANK .torchrun.' -- "$allreduce" --input a
	refuses half 'MASTER_PORT is not set' -- \
		env RANK=0 WORLD_SIZE=2 MASTER_ADDR=a "$allreduce" --input a
	refuses bad 'RANK is "7"; it must be a number from 0 to 3' -- \
		"$torch" 7 4 1 "$launch_peer" detect
	refuses launcher 'FRL_LAUNCHER is "mpi"; it must be one of' -- \
		env FRL_LAUNCHER=mpi "$launch_peer" detect
	refuses many '65 ranks: this program has at most 64' -- \
		"$settings" 0 65 j "$allreduce" --input a
	refuses pmix 'PMIx' -- env PMIX_NAMESPACE=gone PMIX_RANK=0 \
		"PMIX_SERVER_URI4=gone.0;tcp4://127.0.0.1:1" "$launch_peer" detect
	for host in 192.0.2.1 no-such-host.invalid; do
		refuses "$host" "host $host: this user.s private daemon" -- env RANK=0 \
			WORLD_SIZE=2 "MASTER_ADDR=$host" MASTER_PORT=1 "$launch_peer" environment
	done
	refuses missing 'waited 1000 ms for rank 1, 2' -- env LAUNCH_PEER_MS=1000 \
		"$torch" 0 3 29500 "$launch_peer" environment
}

# Two ranks 0: another one, and one of a job of three, are refused.
test_twice() {
	"$torch" 0 2 29500 "$launch_peer" hold >"$temp/first" 2>&1 &
	started+=("$!")
	"$torch" 1 2 29500 "$launch_peer" hold >"$temp/second" 2>&1 &
	started+=("$!")
	wait_until grep -qs holds "$temp/first" || fail "two ranks do not meet"
	refuses twice 'rank 0 of job .* has joined before' -- "$torch" 0 2 29500 \
		"$launch_peer" environment
	refuses size 'job .* has 2 ranks, not 3' -- "$torch" 2 3 29500 "$launch_peer" environment
	# The first rank is notified of the failure of the second one.
	disown "${started[1]}"
	kill -9 "${started[1]}"
	wait "${started[0]}" && fail "the first rank does not fail"
	says first 'rank 1 is gone: process .*launch-peer'
	started=()
}

test_unique_id() {
	local other=$temp/other
	passes id "$launch_peer" id
	each by-file 4 "$by_id" "$temp/id.out" "$launch_peer"
	says by-file.2 'rank 2 of 4 has met'
	"$launch_peer" id | tee >("$launch_peer" join 1 2 >"$temp/pipe.1" 2>&1) |
		"$launch_peer" join 0 2 >"$temp/pipe.0" 2>&1 ||
		fail "ranks do not meet through pipes"
	wait_until grep -qs 'rank 1 of 2 has met' "$temp/pipe.1" || fail "rank 1 is not there"
	# It looks like the daemon of another host.
	mkdir -m 700 "$other"
	start_daemon "$other/ferruled.sock" "$ferruled" --private --config "$temp/ferruled.conf"
	"$launch_peer" id >"$temp/id"
	refuses elsewhere 'is of another control daemon .*listen_address.*FRL_JOB_HOST' -- \
		env "FRL_CONTROL=$other/ferruled.sock" "$launch_peer" join 0 2 <"$temp/id"
	# Started again it is the same server, for which the id is valid.
	kill -9 "${daemons[0]}"
	wait "${daemons[0]}" || true
	start_daemon "$FRL_CONTROL" "$ferruled" --private --config "$temp/ferruled.conf"
	each after 2 "$by_id" "$temp/id" "$launch_peer"
	FRL_JOB_HOST=localhost "$launch_peer" id >"$temp/id"
	each localhost 2 "$by_id" "$temp/id" "$launch_peer"
	refuses long 'at most 64 characters' -- \
		env "FRL_JOB_HOST=$(printf 'h%.0s' {1..65})" "$launch_peer" id
	refuses none 'not a unique id' -- "$launch_peer" join 0 2 <"$temp/ferruled.conf"
}

test_many() {
	each many 64 "$settings" many "$launch_peer" environment
}

for name in settings torchrun_by_hand again deaf jobs_beside_each_other refused twice unique_id \
	many; do
	before=$failures
	"test_$name"
	[ "$failures" -eq "$before" ] || echo "in test_$name"
done
finish
