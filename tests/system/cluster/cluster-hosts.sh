#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# An operator's day on three hosts, third part: a host that loses its power and comes back, one that
# is drained, and one whose certificate has expired. The table "Hosts" of docs/guide/operations.md
# lists the expected results.
# shellcheck source=tests/system/cluster/cluster_jobs.sh
. "$(dirname "$0")/cluster_jobs.sh"

read_table Hosts
daemon_settings=('keepalive_ms = 20000;' 'hello_ms = 60000;')
set_up_cluster

# power_off NODE: none of its later packets arrives anywhere.
power_off() {
	ip link del "$1-0"
	ip link del "$1-1"
	kill -KILL "${init_of[$1]}"
	wait_until ended "${init_of[$1]}"
}

test_host_gone() {
	job_settings=()
	start_job gone by_settings "${endless[@]}"
	power_off node-3
	end_job 1 0 1
	expect 'A host is gone' 'other ranks' "${said[0]}" "${said[1]}"
	expect 'A host is gone' 'the daemon of node-1' "$temp/node-1/ferruled.log"
	job_settings=("$patient")
	boot node-3
	start_ferruled node-3
	start_job again by_settings --max 64K --iters 3
	end_job 0 0 1 2
}

test_drained() {
	survives drained drain node-2
	control node-2 drain --undo >/dev/null
}

# drain NODE: a running job continues, a new one is refused.
drain() {
	local running=("${pids[@]}") output=("${said[@]}")
	control "$1" drain --reason 'new disks' >"$temp/drain.out"
	start_rank train 1 by_settings
	pids[1]=$rank_pid
	end_job 1 1
	expect 'A host is drained' 'new ranks there' "$temp/train-1.out"
	pids=("${running[@]}")
	said=("${output[@]}")
}

test_certificate() {
	survives certificate expire node-3
	end_ferruled node-3 TERM 0
	start_ferruled node-3
	start_rank train 2 by_settings
	wait "$rank_pid" && fail "a rank behind an expired certificate succeeds"
	expect 'A certificate has expired' 'ranks there' "$temp/train-2.out"
	expect 'A certificate has expired' 'the daemon that it dials' "$temp/node-1/ferruled.log"
	make_certificate node-3 -days 365
	signal node-3 HUP ferruled
	start_job renewed by_settings --max 64K --iters 3
	end_job 0 0 1 2
}

# expire NODE: its certificate; the daemon reads it again.
expire() {
	make_certificate "$1" -days -1
	mark=$(wc -l <"$temp/$1/ferruled.log")
	signal "$1" HUP ferruled
	wait_until says_since "$temp/$1/ferruled.log" 'settings have been read again' ||
		fail "$1: the settings are not read again"
}

for name in host_gone drained certificate; do
	before=$failures
	"test_$name"
	[ "$failures" -eq "$before" ] || echo "in test_$name"
done
all_shown
shut_down
finish
