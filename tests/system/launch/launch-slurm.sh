#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Ranks that srun starts, with PMIx and without: a Slurm of this test's own, with a controller and
# two slurmd, n0 and n1, on this machine; its files, its ports and its munged end with the test.
# shellcheck source=tests/system/daemon_lib.sh
. "$(dirname "$0")/../daemon_lib.sh"

launch_peer=$bin/../tests/launch-peer
[ -x "$launch_peer" ] || skip "$launch_peer is not built"
PATH=$PATH:/usr/sbin:/sbin
for program in munged slurmctld slurmd srun salloc scancel sinfo; do
	command -v "$program" >/dev/null ||
		skip "there is no $program (packages slurm-wlm and munge)"
done
# A build with LeakSanitizer: libpmix itself leaks some memory each time.
echo 'leak:libpmix' >"$temp/leaks"
export LSAN_OPTIONS=suppressions=$temp/leaks:print_suppressions=0
export ASAN_OPTIONS=fast_unwind_on_malloc=0
user=$(id -un)
name=$(hostname -s)
# ---- a cluster

# Both nodes keep files for PMIx by the same name, so each has a folder and a configuration.
configure() {
	local node
	head -c 1024 /dev/urandom >"$temp/munge.key"
	chmod 400 "$temp/munge.key"
	mkdir "$temp/state"
	cat >"$temp/slurm.conf" <<-CONF
		ClusterName=ferrule$$
		SlurmctldHost=$name(127.0.0.1)
		SlurmctldPort=$(free_port 1)
		SlurmUser=$user
		SlurmdUser=$user
		AuthType=auth/munge
		CredType=cred/munge
		AuthInfo=socket=$temp/munge.sock
		StateSaveLocation=$temp/state
		SlurmdSpoolDir=$temp/%n/spool
		SlurmctldPidFile=$temp/slurmctld.pid
		SlurmdPidFile=$temp/%n/slurmd.pid
		SlurmctldParameters=node_reg_mem_percent=1
		SlurmdParameters=config_overrides
		DebugFlags=NO_CONF_HASH
		ProctrackType=proctrack/linuxproc
		TaskPlugin=task/none
		JobAcctGatherType=jobacct_gather/none
		SelectType=select/linear
		SchedulerType=sched/builtin
		SwitchType=switch/none
		MpiDefault=none
		ReturnToService=2
		KillWait=2
		NodeName=n0 NodeHostname=$name NodeAddr=127.0.0.1 Port=$(free_port 2) CPUs=4
		NodeName=n1 NodeHostname=$name NodeAddr=127.0.0.1 Port=$(free_port 3) CPUs=4
		PartitionName=all Nodes=n0,n1 Default=YES State=UP MaxTime=10
	CONF
	for node in n0 n1; do
		mkdir -p "$temp/$node/spool" "$temp/$node/pmix"
		cp "$temp/slurm.conf" "$temp/$node/"
		echo "PMIxCliTmpDirBase=$temp/$node/pmix" >"$temp/$node/mpi.conf"
	done
	cp "$temp/n0/mpi.conf" "$temp/"
	export SLURM_CONF=$temp/slurm.conf
}

# service NAME COMMAND...: in the background, until the test ends.
service() {
	"${@:2}" >"$temp/$1.log" 2>&1 &
	started+=("$!")
}

both_are_idle() {
	[ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ]
}

# One Slurm for all tests, since it takes long to give a node to the next job.
allocate() {
	timeout "$program_limit" salloc -N2 --no-shell >"$temp/salloc" 2>&1 || true
	allocation=$(sed -nE 's/.*Granted job allocation ([0-9]+).*/\1/p' "$temp/salloc")
	[ -n "$allocation" ] && return
	show "$temp"/*.log "$temp/salloc"
	fail "no nodes are allocated"
	finish
}

# of_cluster: the processes that this test's Slurm has started, which have no parent here.
of_cluster() {
	grep -lzs "^SLURM_CONF=$temp/n" /proc/[0-9]*/environ | sed 's|^/proc/||; s|/environ$||'
}

is_quiet() {
	[ "$(of_cluster | wc -l)" -le 2 ] # the two slurmd themselves
}

# In good order: steps, nodes, controller, munged.
end_cluster() {
	local i
	timeout "$program_limit" scancel "$allocation" 2>/dev/null || true
	wait_until is_quiet || fail "steps do not end: $(of_cluster)"
	for ((i = ${#started[@]} - 1; i >= 0; i--)); do
		kill "${started[$i]}"
		wait "${started[$i]}" || true
	done
	started=()
}

# Runs however the test ends.
kill_cluster() {
	local pid
	for pid in $(of_cluster); do
		kill -9 "$pid" 2>/dev/null || true
	done
}
at_exit+=(kill_cluster)

configure
service munged munged --foreground --force --key-file="$temp/munge.key" \
	--socket="$temp/munge.sock" --pid-file="$temp/munged.pid" \
	--log-file="$temp/munged.txt" --seed-file="$temp/munge.seed" --num-threads=1
wait_until test -S "$temp/munge.sock" || skip "munged does not start: $(cat "$temp/munged.log")"
service slurmctld slurmctld -D -i
for node in n0 n1; do
	service "$node" env "SLURM_CONF=$temp/$node/slurm.conf" slurmd -D -N "$node"
done
if ! wait_until both_are_idle; then
	show "$temp"/*.log
	skip "Slurm does not start two nodes here"
fi
allocate

# ---- tests

# step OPTION...: the options of srun in the allocation.
step() {
	run=(srun "--jobid=$allocation" --overlap --wait="$program_limit" "$@")
}

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

test_pmix() {
	step --mpi=pmix -N2 -n4
	passes pmix-detect "${run[@]}" "$launch_peer" detect
	grep -qx "pmix: job '' at '', rank 3 of 4, 1 of 2 here" "$temp/pmix-detect.out" ||
		fail "pmix: $(cat "$temp/pmix-detect.out")"
	passes pmix "${run[@]}" "$launch_peer" environment 4
	met pmix 4 4
	passes pmix-files "${run[@]}" "$allreduce" --input "$data/rank%r.safetensors" \
		--check "$data/sum.safetensors"
	refuses pmix-missing 'rank 0 has not published the name of the job within 3000 ms' -- \
		env LAUNCH_PEER_MS=3000 "${run[@]}" sh -c \
		"if [ \"\$PMIX_RANK\" -eq 0 ]; then
			until [ \$(ls '$temp'/given-up? 2>/dev/null | wc -l) -eq 3 ]; do
				sleep 0.1
			done
			exit 0
		fi
		'$launch_peer' environment && exit
		: >'$temp'/given-up\$PMIX_RANK
		exit 1"
}

test_plain() {
	step -N1 -n3
	passes plain-node "${run[@]}" "$launch_peer" environment
	met plain-node 3 1
	# Nodes of one machine, with names that cannot be looked up.
	step -N2 -n4
	passes plain-detect "${run[@]}" "$launch_peer" detect
	grep -qx "slurm: job 'slurm-$allocation-[0-9]*-0' at 'n0', rank 2 of 4, 0 of 2 here" \
		"$temp/plain-detect.out" || fail "plain: $(cat "$temp/plain-detect.out")"
	passes plain env FRL_JOB_HOST=localhost "${run[@]}" "$launch_peer" environment
	met plain 4 1
	refuses plain-name 'host n0: this user.s private daemon' -- env LAUNCH_PEER_MS=3000 \
		"${run[@]}" "$launch_peer" environment
}

all_hold() {
	[ "$(grep -cs 'process [0-9]* holds' "$1")" -eq 4 ]
}

test_killed() {
	local out=$temp/killed.out srun pids status=0
	step --mpi=pmix -N2 -n4
	timeout "$program_limit" "${run[@]}" "$launch_peer" hold >"$out" 2>&1 &
	srun=$!
	started+=("$srun")
	wait_until all_hold "$out" || fail "the ranks do not meet"
	mapfile -t pids < <(sed -nE 's/.*process ([0-9]+) holds.*/\1/p' "$out")
	kill -9 "${pids[1]}"
	wait "$srun" || status=$?
	case $status in 0 | 124) fail "killed: status $status" ;; esac
	all_end "${pids[@]}"
	grep -q 'rank [0-3] is gone: process' "$out" || fail "nobody names the rank: $(cat "$out")"
	unset "started[-1]"
}

# mpirun takes the nodes from Slurm and starts its ranks itself. They join once: Open MPI 4.1
# sometimes loses a rank that joins again.
test_mpirun() {
	local mpirun=(mpirun.openmpi --oversubscribe -n 4)
	[ "$user" != root ] || mpirun+=(--allow-run-as-root)
	if ! command -v mpirun.openmpi >/dev/null; then
		echo "not tried: mpirun in an allocation (there is no Open MPI)"
		return
	fi
	passes mpirun env "SLURM_JOB_ID=$allocation" "SLURM_JOBID=$allocation" \
		SLURM_JOB_NODELIST='n[0-1]' SLURM_NODELIST='n[0-1]' SLURM_JOB_NUM_NODES=2 \
		SLURM_NNODES=2 SLURM_TASKS_PER_NODE='2(x2)' SLURM_OVERLAP=1 \
		"${mpirun[@]}" "$launch_peer" environment
	met mpirun 4 1
}

tests=(plain killed mpirun)
if ! srun --mpi=list 2>&1 | grep -qw pmix; then
	echo "not tried: PMIx (this Slurm has none)"
elif env PMIX_NAMESPACE=none PMIX_RANK=0 PMIX_SERVER_URI4=none "$launch_peer" detect 2>&1 |
	grep -q 'built without it'; then
	echo "not tried: PMIx (this build has none)"
else
	tests=(pmix "${tests[@]}")
fi
for name in "${tests[@]}"; do
	before=$failures
	start=$(date +%s%N)
	"test_$name"
	[ "$failures" -eq "$before" ] || echo "in test_$name"
	echo "$name: $((($(date +%s%N) - start) / 1000000)) ms"
done
[ "$failures" -eq 0 ] || show "$temp"/*.log
end_cluster
finish
