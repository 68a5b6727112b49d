# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Functions that the tests of ferruled share, besides lib.sh.
# shellcheck source=tests/system/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

client=$bin/../tests/daemon-client
[ -x "$client" ] || skip "$client is not built"

# A free port: derived from the process id, so that parallel jobs differ.
free_port() {
	local port
	for port in $(seq $((20000 + ($$ * 7 + $1 * 101) % 10000)) 32000); do
		if ! ss -Hltn "sport = :$port" 2>/dev/null | grep -q .; then
			echo "$port"
			return
		fi
	done
}

# run_daemon NAME OPTION...: with socket $temp/NAME.sock and log $temp/NAME.log. Its process id is
# in $daemon when it is ready.
run_daemon() {
	local name=$1
	shift
	"$ferruled" --socket "$temp/$name.sock" "$@" >>"$temp/$name.log" 2>&1 &
	daemon=$!
	started+=("$daemon")
	wait_until grep -qs ' ready on ' "$temp/$name.log" && return
	fail "$name is not ready"
	show "$temp/$name.log"
	finish
}

# stop_daemon PID: ends it in good order.
stop_daemon() {
	local status=0
	kill -TERM "$1" 2>/dev/null || true
	wait "$1" || status=$?
	[ "$status" -eq 0 ] || fail "the daemon ended with status $status"
}

# says NAME PATTERN: within 10 s its log has a line that matches (grep -E).
says() {
	wait_until grep -qsE -- "$2" "$temp/$1.log" && return
	fail "the log of $1 does not say '$2'"
	show "$temp/$1.log"
}

open_files() {
	find "/proc/$1/fd" -mindepth 1 | wc -l
}

resident_kb() {
	awk '$1 == "VmRSS:" { print $2 }' "/proc/$1/status"
}
