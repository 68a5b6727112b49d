#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Verbs programs of two hosts over Ethernet: two namespaces, one packet socket each.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/system/dropin/dropin_lib.sh
. "$(dirname "$0")/dropin_lib.sh"

needs ibv_rc_pingpong ib_write_lat ib_send_bw
two_hosts e0
ip -n "$a" addr add 10.9.1.1/24 dev e0
ip -n "$b" addr add 10.9.1.2/24 dev e0

# hosts NAME PORT COMMAND...: a server in $a, a client in $b.
hosts() {
	local name=$1 port=$2 status=0 before=$failures server
	shift 2
	timeout -k 5 "$program_limit" ip netns exec "$a" env \
		FRL_VERBS_DEVICES=packet:e0=10.8.1.1/24 "$run" "$@" >"$temp/$name-server" 2>&1 &
	server=$!
	started+=("$server")
	wait_until listens_there "$server" "$port" || fail "$name: the server does not listen"
	timeout -k 5 "$program_limit" ip netns exec "$b" env \
		FRL_VERBS_DEVICES=packet:e0=10.8.1.2/24 "$run" "$@" 10.9.1.1 \
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

listens_there() {
	ended "$1" || [ -n "$(ip netns exec "$a" ss -Hltn "sport = :$2")" ]
}

for type in rc uc ud srq; do
	hosts "pingpong-$type" 18515 "ibv_${type}_pingpong" -d frl0 -g 1 -c -n 200
done
hosts pingpong-events 18515 ibv_rc_pingpong -d frl0 -g 1 -c -n 200 -e
hosts write-lat 18515 ib_write_lat -d frl0 -x 1 -F -n 100
hosts send-bw 18515 ib_send_bw -d frl0 -x 1 -F -n 200 -q 4
hosts link-local 18515 ibv_rc_pingpong -d frl0 -g 0 -c -n 100
finish
