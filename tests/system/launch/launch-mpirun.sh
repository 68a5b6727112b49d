#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Ranks that mpirun of Open MPI starts (PMIx), or mpiexec of MPICH (Hydra) when launch-mpich.sh runs
# this. They meet, again and again, beside MPI in the same process. A rank that is killed, or never
# comes, ends the job, and a good end is one for mpirun as well.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"

launch_peer=$bin/../tests/launch-peer
[ -x "$launch_peer" ] || skip "$launch_peer is not built"

# find_program PATTERN NAME...: the first one that is installed and whose --version matches; or
# nothing.
find_program() {
	local name
	for name in "${@:2}"; do
		if "$name" --version 2>&1 | grep -qE "$1"; then
			echo "$name"
			return
		fi
	done
}
launcher=${launcher:-open-mpi}
if [ "$launcher" = hydra ]; then
	mpirun=$(find_program 'HYDRA' mpiexec.hydra mpiexec.mpich mpiexec)
	[ -n "$mpirun" ] || skip "there is no MPICH (package mpich)"
	run=("$mpirun")
else
	mpirun=$(find_program 'Open ?MPI|OpenRTE' mpirun.openmpi mpirun)
	[ -n "$mpirun" ] || skip "there is no Open MPI (package openmpi-bin)"
	run=("$mpirun" --oversubscribe)
	[ "$(id -u)" -ne 0 ] || run+=(--allow-run-as-root)
fi

# A build with LeakSanitizer: libpmix itself leaks some memory each time.
echo 'leak:libpmix' >"$temp/leaks"
export LSAN_OPTIONS=suppressions=$temp/leaks:print_suppressions=0
export ASAN_OPTIONS=fast_unwind_on_malloc=0

# met NAME RANKS TIMES: each of the ranks has met the others that often.
met() {
	local rank
	for ((rank = 0; rank < $2; rank++)); do
		[ "$(grep -cx "rank $rank of $2 has met the others" "$temp/$1.out")" -eq "$3" ] &&
			continue
		fail "$1: rank $rank has not met the others $3 times"
		show "$temp/$1.out"
	done
}

# Messages of launch-peer when Open MPI 4.1 has lost a rank that joins again, or that comes while
# another one leaves. The others then wait in vain for the rank that could not join.
forgotten='rank 0 has not published the name of the job'
forgotten+='|the PMIx server of the launcher .*has not answered'
in_vain='allgather: Connection timed out: waited [0-9]+ ms for rank'

# was_forgotten OUT STATUS: this is the only reason why the command has failed.
was_forgotten() {
	[ "$2" -eq 1 ] && grep -qE "$forgotten" "$1" &&
		! grep -E '^(detect|join|allgather|ranks|too)[a-z ]*: ' "$1" |
		grep -qvE "$forgotten|$in_vain"
}

# again NAME COMMAND...: the command ends with status 0, at a later try where Open MPI loses a rank.
again() {
	local out=$temp/$1.out try status
	if [ "$launcher" = hydra ]; then
		passes "$@"
		return
	fi
	for try in 1 2 3 4 5; do
		status=0
		LAUNCH_PEER_MS=20000 timeout -k 5 "$program_limit" "${@:2}" >"$out" 2>&1 ||
			status=$?
		[ "$status" -ne 0 ] || return 0
		was_forgotten "$out" "$status" || break
		echo "$1: try $try: Open MPI has forgotten a rank"
	done
	fail "$1: exit status $status at try $try: ${*:2}"
	show "$out"
}

test_meet() {
	again "$launcher-meet" "${run[@]}" -n 4 "$launch_peer" environment 5
	met "$launcher-meet" 4 5
	passes "$launcher-many" "${run[@]}" -n 64 "$launch_peer" environment
	met "$launcher-many" 64 1
	again "$launcher-launch" "${run[@]}" -n 3 "$launch_peer" launch 2
	met "$launcher-launch" 3 3
	# A shell in between, and one rank that computes alone first.
	passes "$launcher-late" "${run[@]}" -n 3 sh -c "[ \"\${PMIX_RANK:-\$PMI_RANK}\" -ne 0 ] ||
		sleep 0.3; '$launch_peer' environment; exit \$?"
	met "$launcher-late" 3 1
	again "$launcher-detect" "${run[@]}" -n 2 "$launch_peer" detect
	grep -qE 'rank 1 of 2, 1 of 2 here' "$temp/$launcher-detect.out" ||
		fail "$launcher: $(cat "$temp/$launcher-detect.out")"
}

test_allreduce() {
	passes "$launcher-files" "${run[@]}" -n 4 "$allreduce" --input "$data/rank%r.safetensors" \
		--output "$temp/$launcher%r.safetensors" --check "$data/sum.safetensors"
	grep -qE "rank 0: 4 ranks, launched by (pmix|hydra)" "$temp/$launcher-files.out" ||
		fail "$launcher: $(cat "$temp/$launcher-files.out")"
	# Hydra ends by SIGPIPE, and loses output of ranks, if it writes to ranks that have ended
	# already: then once more.
	# shellcheck disable=SC2016
	refuses "$launcher-usage" '--input is missing' -- sh -c 'status=141
		while [ $status -eq 141 ]; do
			status=0
			"$@" || status=$?
		done
		exit $status' sh "${run[@]}" -n 2 "$allreduce"
}

all_hold() {
	[ "$(grep -cs 'process [0-9]* holds' "$1")" -eq 3 ]
}

# The launcher fails, and all ranks end.
test_killed() {
	local out=$temp/$launcher-killed.out job pids status=0
	timeout "$program_limit" "${run[@]}" -n 3 "$launch_peer" hold >"$out" 2>&1 &
	job=$!
	started+=("$job")
	wait_until all_hold "$out" || fail "$launcher: the ranks do not meet"
	mapfile -t pids < <(sed -nE 's/.*process ([0-9]+) holds.*/\1/p' "$out")
	kill -9 "${pids[1]}"
	wait "$job" || status=$?
	case $status in 0 | 124) fail "$launcher: status $status" ;; esac
	all_end "${pids[@]}"
	started=()
}

# One rank never comes: it ends when the others have given it up. They name the rank that they
# waited for.
test_missing() {
	local pattern='waited 3000 ms for rank 0'
	[ "$launcher" = hydra ] ||
		pattern='rank 0 has not published the name of the job within 3000 ms'
	refuses "$launcher-missing" "$pattern" -- env LAUNCH_PEER_MS=3000 "${run[@]}" -n 3 sh -c \
		"if [ \"\${PMIX_RANK:-\$PMI_RANK}\" -eq 0 ]; then
			until [ -e '$temp/given-up1' ] && [ -e '$temp/given-up2' ]; do
				sleep 0.1
			done
			exit 0
		fi
		'$launch_peer' environment && exit
		: >'$temp/given-up'\"\${PMIX_RANK:-\$PMI_RANK}\"
		exit 1"
}

# Beside MPI, which has a connection to the launcher as well.
test_with_mpi() {
	local compiler=mpicc.mpich library=$bin/.. order
	[ "$launcher" = hydra ] || compiler=mpicc.openmpi
	if ! command -v "$compiler" >/dev/null; then
		echo "not tried: MPI in the same process (there is no $compiler)"
		return
	fi
	if grep -q __asan_init "$library/libferrule.so"; then
		echo "not tried: MPI in the same process (the library has sanitizers)"
		return
	fi
	passes "$launcher-cc" "$compiler" -I"$system_root/lib/include" \
		"$system_root/tests/system/launch/launch_mpi.c" -o "$temp/launch-mpi" -L"$library" \
		-lferrule -Wl,-rpath,"$library"
	for order in first last; do
		passes "$launcher-$order" "${run[@]}" -n 3 "$temp/launch-mpi" "$order"
		grep -qx 'both agree' "$temp/$launcher-$order.out" ||
			fail "$launcher: $(cat "$temp/$launcher-$order.out")"
	done
}

# mpiexec of MPICH reports too little about ranks on two hosts.
test_hydra_on_hosts() {
	refuses hydra-hosts 'several hosts' 'FRL_JOB' -- \
		"${run[@]}" -n 2 env MPI_LOCALNRANKS=1 "$launch_peer" environment
	passes hydra-named "${run[@]}" -genv FRL_JOB named -genv FRL_JOB_HOST "$(hostname)" -n 2 \
		env MPI_LOCALNRANKS=1 "$launch_peer" environment
	met hydra-named 2 1
}

# At once, of one user, at one daemon. Each mpirun of Open MPI has a folder of its own: otherwise
# they race when they make and remove the folder that they share.
test_jobs_beside_each_other() {
	local pids=() i joins=1
	[ "$launcher" != hydra ] || joins=5
	for i in 1 2 3; do
		mkdir "$temp/session$i"
		OMPI_MCA_orte_tmpdir_base=$temp/session$i timeout "$program_limit" "${run[@]}" \
			-n 2 "$launch_peer" environment "$joins" >"$temp/beside$i" 2>&1 &
		pids+=("$!")
	done
	started+=("${pids[@]}")
	for i in 1 2 3; do
		wait "${pids[$((i - 1))]}" && continue
		fail "$launcher: one of three jobs: status $?"
		show "$temp/beside$i"
	done
	started=()
}

tests=(meet allreduce killed missing with_mpi jobs_beside_each_other)
if [ "$launcher" = hydra ]; then
	tests+=(hydra_on_hosts)
elif "${run[@]}" -n 1 "$launch_peer" detect 2>&1 | grep -q 'built without it'; then
	skip "this build has no PMIx"
fi
for name in "${tests[@]}"; do
	before=$failures
	"test_$name"
	[ "$failures" -eq "$before" ] || echo "in test_$name"
done
finish
