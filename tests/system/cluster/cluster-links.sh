#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# An operator's day on three hosts, second part: links that go down for 1, 2 and 3 seconds, or for
# good, on the management network and on the data network. The table "Networks" of
# docs/guide/operations.md lists the expected results.
# shellcheck source=tests/system/cluster/cluster_jobs.sh
. "$(dirname "$0")/cluster_jobs.sh"

read_table Networks
daemon_settings=('keepalive_ms = 20000;' 'hello_ms = 60000;')
set_up_cluster

# pull NODE NETWORK, plug NODE NETWORK: the cable of its port there; 0: management, 1: data.
pull() {
	ip link set "$1-$2" down
}
plug() {
	ip link set "$1-$2" up
	[ "$2" -ne 0 ] || wait_until reaches "$1" || fail "$1 reaches no other host"
}

# reaches NODE: whether the daemon of another host answers.
reaches() {
	on "$1" root bash -c ": </dev/tcp/10.9.0.3/7476" 2>/dev/null
}

# silence NODE NETWORK, listen NODE NETWORK: the switch stops or resumes forwarding there.
silence() {
	ip link set "$1-$2" nomaster
}
listen() {
	ip link set "$1-$2" master "$([ "$2" -eq 0 ] && echo mgmt || echo data)"
}

# flap NODE NETWORK: three times. The times are examples of what an operator sees; no result depends
# on them.
flap() {
	local seconds before
	for seconds in 1 2 3; do
		before=$(results)
		pull "$1" "$2"
		sleep "$seconds"
		plug "$1" "$2"
		wait_until has_results_or_ended $((before + 4)) ||
			fail "no result after $seconds s without link"
	done
}

# For a host whose daemon does not keep the job, and of the one whose daemon does.
test_management_flaps() {
	job_settings=("$patient" "FRL_CONTROL_LOST_S=$event_limit")
	survives member-flaps flap node-2 0
	survives keeper-flaps flap node-1 0
}

# Waits until the daemon of node-1 has given up the one there.
test_management_away() {
	job_settings=("$patient" "FRL_CONTROL_LOST_S=$event_limit")
	survives away stay_away node-2
	expect 'The management network is away, and data flows' 'the daemon of node-1' \
		"$temp/node-1/ferruled.log"
}

stay_away() {
	mark=$(wc -l <"$temp/node-1/ferruled.log")
	pull "$1" 0
	wait_until says_since "$temp/node-1/ferruled.log" 'but data flows' ||
		ended "${pids[0]}" || fail "the daemon of node-1 does not give up"
	plug "$1" 0
}

test_management_gone() {
	job_settings=("$patient" FRL_CONTROL_LOST_S=2)
	start_job management by_settings "${endless[@]}"
	pull node-2 0
	end_job 1 0 1 2
	expect 'The management network is away for longer' 'ranks there' "${said[1]}"
	expect 'The management network is away for longer' 'other ranks' "${said[0]}" "${said[2]}"
	plug node-2 0
}

test_data_flaps() {
	job_settings=("$patient")
	survives data-flaps flap node-2 1
}

test_data_gone() {
	job_settings=()
	start_job data by_settings "${endless[@]}"
	silence node-2 1
	end_job 1 0 1 2
	expect 'The data network is away for longer' 'all ranks' "${said[@]}"
	listen node-2 1
}

for name in management_flaps management_away management_gone data_flaps data_gone; do
	before=$failures
	"test_$name"
	[ "$failures" -eq "$before" ] || echo "in test_$name"
done
all_shown
shut_down
finish
