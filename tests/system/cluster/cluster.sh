#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# An operator's day on three hosts, first part: jobs of unprivileged users, started in each way, and
# ranks and control daemons that die. The table "Ranks and daemons" of docs/guide/operations.md
# lists the expected results.
# shellcheck source=tests/system/cluster/cluster_jobs.sh
. "$(dirname "$0")/cluster_jobs.sh"

read_table 'Ranks and daemons'
set_up_cluster

# right WAY RANKS: a job gives right results.
right() {
	local -a all
	ranks=$2
	mapfile -t all < <(seq 0 $((ranks - 1)))
	start_job "$1-$2" "$1" --max 256K --iters 3
	end_job 0 "${all[@]}"
	grep -q '# OK: every result was right' "${said[0]}" || fail "$1 of $2 ranks: not right"
	ranks=3
}

# Two ranks of a host share its interface.
test_launchers() {
	right by_settings 3
	right by_torchrun 3
	right by_settings 6
}

# By mpirun on node-1, which starts the other ranks by rsh.
test_mpirun() {
	local node servers=()
	if ! on node-1 alice mpirun --version 2>/dev/null | grep -q 'Open MPI'; then
		echo "not tried: mpirun (package openmpi-bin)"
		return
	fi
	for node in "${nodes[@]}"; do
		on "$node" alice rsh --serve "10.9.0.${node#node-}" >"$temp/$node/rsh.log" 2>&1 &
		servers+=("$!")
	done
	started+=("${servers[@]}")
	for node in "${nodes[@]}"; do
		wait_until on node-1 alice rsh "$node" true 2>/dev/null || fail "no rsh of $node"
	done
	on node-1 alice FRL_FABRIC=roce timeout "$program_limit" mpirun --mca plm_rsh_agent rsh \
		--mca oob_tcp_if_include eth0 --host node-1,node-2,node-3 -n 3 -x FRL_FABRIC \
		ferrule-bench --max 64K --iters 3 >"$temp/mpirun.out" 2>&1 ||
		fail "mpirun: exit status $?"
	grep -q '# OK: every result was right' "$temp/mpirun.out" || {
		fail "mpirun: not right"
		show "$temp/mpirun.out"
	}
	for node in "${nodes[@]}"; do
		signal "$node" TERM python3
	done
	wait "${servers[@]}" || true
}

test_rank_killed() {
	start_job killed by_settings "${endless[@]}"
	signal node-3 KILL ferrule-bench
	end_job 1 0 1
	expect 'A rank is killed' 'other ranks' "${said[@]:0:2}"
}

test_rank_stopped() {
	job_settings=()
	start_job stopped by_settings "${endless[@]}"
	signal node-3 STOP ferrule-bench
	end_job 1 0 1
	expect 'A rank is stopped (SIGSTOP, a debugger)' 'other ranks' "${said[@]:0:2}"
	signal node-3 KILL ferrule-bench
	# nsenter stops with its child.
	kill -CONT "$(children "${pids[2]}")"
	wait "${pids[2]}" || true
	job_settings=("$patient")
}

test_killed_qp() {
	local qp
	start_job ended by_settings "${endless[@]}"
	qp=$(control node-1 --json qps | field \
		'[(qp["qpn"], qp["pid"]) for qp in report["qps"] if qp["state"] == "RTS"][0]')
	read -r -a qp <<<"$(tr -d '(),' <<<"$qp")"
	control node-1 --pid "${qp[1]}" kill-qp "${qp[0]}" --reason 'wrong cable' >/dev/null ||
		fail "kill-qp: exit status $?"
	end_job 1 0 1 2
	expect 'An operator kills a queue pair' 'all ranks' "${said[@]}"
}

test_daemon_stopped() {
	end_ferruled node-2 TERM 0
	start_rank train 1 by_settings
	pids[1]=$rank_pid
	said[1]=$temp/train-1.out
	end_job 1 1
	expect 'A control daemon does not run' 'new ranks there' "$temp/train-1.out"
	start_ferruled node-2
	# The daemon that the library has started in its place.
	wait_until has_no_private node-2 || fail "the private daemon does not end"
	on node-2 alice sh -c 'rm -r /tmp/ferrule-*'
}

has_no_private() {
	on "$1" alice sh -c '! ls /tmp/ferrule-*/ferruled.sock' >/dev/null 2>&1
}

test_daemon_back() {
	local event='A control daemon is killed, and started again by systemd'
	survives member-back restart node-2
	survives keeper-back restart node-1
	expect "$event" 'the daemon' "$temp"/node-[12]/ferruled.log
}

# restart NODE: as systemd does after a crash.
restart() {
	end_ferruled "$1" KILL 137
	start_ferruled "$1"
}

test_daemon_gone() {
	job_settings=("$patient" FRL_CONTROL_LOST_S=2)
	start_job member by_settings "${endless[@]}"
	end_ferruled node-2 KILL 137
	end_job 1 0 1 2
	expect 'A control daemon is not back in time' 'ranks there' "${said[1]}"
	expect 'A control daemon is not back in time' 'other ranks' "${said[0]}" "${said[2]}"
	start_ferruled node-2
	start_job keeper by_settings "${endless[@]}"
	end_ferruled node-1 KILL 137
	end_job 1 0 1 2
	expect 'The daemon that keeps the job is not back in time' 'ranks there' "${said[0]}"
	expect 'The daemon that keeps the job is not back in time' 'other ranks' "${said[@]:1}"
	start_ferruled node-1
	job_settings=("$patient")
}

for name in launchers mpirun rank_killed rank_stopped killed_qp daemon_stopped \
	daemon_back daemon_gone; do
	before=$failures
	"test_$name"
	[ "$failures" -eq "$before" ] || echo "in test_$name"
done
all_shown
shut_down
finish
