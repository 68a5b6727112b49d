# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154
#
# Functions of the tests that run programs of other projects over the drop-in libibverbs. Sourced
# after lib.sh. The programs come from Debian, unmodified.

run=$bin/ferrule-run
for program in "$run" "$bin/../dropin/rdma/libibverbs.so.1"; do
	[ -e "$program" ] || skip "$program is not built"
done
[ -z "${FRL_SANITIZED:-}" ] || skip "programs of other projects have no sanitizer's runtime"

needs() {
	local program
	for program in "$@"; do
		command -v "$program" >/dev/null || skip "there is no $program"
	done
}

# tcp_listens PORT: some process of the server's network namespace listens there.
tcp_listens() {
	local port
	port=$(printf ':%04X' "$1")
	"${on_server[@]}" cat /proc/net/tcp /proc/net/tcp6 |
		awk -v port="$port" '$4 == "0A" && substr($2, length($2) - 4) == port { found = 1 }
			END { exit !found }'
}

# tcp_is_free PORT: nobody listens there.
tcp_is_free() {
	! tcp_listens "$1"
}

# pair NAME PORT COMMAND...: runs the command as a server, and once it listens at the port runs it
# with the argument $server_name as a client. Both must end with status 0. Output: $temp/NAME-server
# and $temp/NAME-client. $server_run and $client_run are put in front of the commands. $on_server
# runs a command in the server's network namespace, where that is another one.
server_run=()
client_run=()
server_name=localhost
on_server=()
pair() {
	local name=$1 port=$2 status=0 before=$failures server
	shift 2
	wait_until tcp_is_free "$port" || fail "$name: the port $port stays in use"
	timeout -k 5 "$program_limit" "${server_run[@]}" "$@" >"$temp/$name-server" 2>&1 &
	server=$!
	started+=("$server")
	wait_until listens_or_ended "$server" "$port" || fail "$name: the server does not listen"
	timeout -k 5 "$program_limit" "${client_run[@]}" "$@" "$server_name" \
		>"$temp/$name-client" 2>&1 || status=$?
	if [ "$status" -ne 0 ]; then
		fail "$name: exit status $status of the client: $*"
		kill "$server" 2>/dev/null || true
	fi
	status=0
	wait "$server" || status=$?
	unset 'started[-1]'
	[ "$status" -eq 0 ] || fail "$name: exit status $status of the server: $*"
	[ "$failures" -eq "$before" ] || show "$temp/$name-server" "$temp/$name-client"
}

listens_or_ended() {
	tcp_listens "$2" || ended "$1"
}
