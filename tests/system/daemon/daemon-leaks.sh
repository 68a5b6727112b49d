#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Processes connect and are killed, again and again: nothing is left in the daemon, in the process
# that they connected to, or as a file or socket of the machine. FRL_CYCLES is the number of rounds.
# shellcheck source=tests/system/peer_lib.sh
. "$(dirname "$0")/../peer_lib.sh"

cycles=${FRL_CYCLES:-40}
warm_up=8
slack=2048 # KiB: memory is not given back at once

killed=()

cycle() {
	local name=victim$1
	peer "$name"
	killed+=("${pids[$name]}")
	meet "$name" server
	disown "${pids[$name]}"
	kill -9 "${pids[$name]}"
	hang_up "$name"
	ask server "^ended $s ECONNRESET" end "$s" "$ms"
	ask server '^closed' close "$s"
	rm -f "$temp/$name".*
}

files_of() {
	find "/proc/$1/fd" -mindepth 1 | wc -l
}

memory_of() {
	awk '$1 == "VmRSS:" { print $2 }' "/proc/$1/status"
}

peer server
ask server '^listening service$' listen service
for ((i = 0; i < warm_up; i++)); do
	cycle "$i"
done
server=${pids[server]}
things=$(leavings)
daemon_files=$(files_of "$daemon")
server_files=$(files_of "$server")
daemon_memory=$(memory_of "$daemon")
server_memory=$(memory_of "$server")
killed=()
for ((i = 0; i < cycles; i++)); do
	cycle $((warm_up + i))
done
same_files() {
	[ "$(files_of "$daemon")" -le "$daemon_files" ] &&
		[ "$(files_of "$server")" -le $((server_files + 2)) ]
}
wait_until same_files || fail "descriptors: the daemon has $(files_of "$daemon"), had" \
	"$daemon_files; the process has $(files_of "$server"), had $server_files"
daemon_grown=$(($(memory_of "$daemon") - daemon_memory))
server_grown=$(($(memory_of "$server") - server_memory))
echo "$cycles cycles: the daemon has grown by $daemon_grown KiB, the process by $server_grown KiB"
[ "$daemon_grown" -le 512 ] || fail "the daemon has grown by $daemon_grown KiB"
[ "$server_grown" -le "$slack" ] ||
	fail "the process has grown by $server_grown KiB"
gone() {
	[ -z "$(left_behind "$things" "${killed[@]}")" ]
}
wait_until gone || fail "left behind: $(left_behind "$things" "${killed[@]}")"
stats=$("$bin/../daemon/ctl/ferrulectl" --socket "$FRL_CONTROL" stats)
grep -q '^1 processes, 1 ports, 1 listeners, 0 connections' <<<"$stats" ||
	fail "the daemon still has: $stats"
leave server
[ "$failures" -eq 0 ] || show "$FRL_CONTROL.log"
finish
