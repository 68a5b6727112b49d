#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Processes of one machine that connect by name through a control daemon: accepted, rejected,
# cancelled, too late, many at once, killed; and a daemon that is killed while they work. cm-peer
# (tests/system/cm_peer.c) runs commands line by line.
# shellcheck source=tests/system/peer_lib.sh
. "$(dirname "$0")/../peer_lib.sh"

test_private_daemon() {
	local runtime=$temp/runtime
	mkdir -m 0700 "$runtime"
	FRL_CONTROL=auto FRL_DAEMON=$ferruled XDG_RUNTIME_DIR=$runtime peer lonely
	if [ -S /run/ferrule/ferruled.sock ]; then
		leave lonely # this machine has one of its own
		return
	fi
	ask lonely '^listening' listen service
	meet lonely lonely
	ask lonely '^closed' close "$c"
	leave lonely
	# A daemon of the user may already run, where programs without XDG_RUNTIME_DIR look.
	[ -S "$runtime/ferrule/ferruled.sock" ] || [ -S "/tmp/ferrule-$(id -u)/ferruled.sock" ] ||
		fail "no private daemon was started"
}

test_between() {
	meet client server
	talk client "$c" server "$s"
	talk server "$s" client "$c"
	both_closed client "$c" server "$s"
}

test_self() {
	meet server server
	talk server "$c" server "$s"
	both_closed server "$s" server "$c"
}

test_crosswise() {
	local a b
	ask client '^listening' listen other
	say_to client "connect - service $ms"
	say_to server "connect - other $ms"
	hear client '^connecting'
	a=$(number)
	hear server '^connecting'
	b=$(number)
	ask client '^request' request "$ms"
	ask client '^accepted' accept "$(number)"
	ask server '^request' request "$ms"
	ask server '^accepted' accept "$(number)"
	ask client '^established' wait "$a" "$ms"
	ask server '^established' wait "$b" "$ms"
	ask client '^closed' close "$a"
	ask server '^closed' close "$b"
	ask client '^unlistened' unlisten
}

test_refusals() {
	ask client '^connecting' connect - service "$ms" question
	c=$(number)
	ask server '^request' request "$ms"
	ask server '^rejected' reject "$(number)" not-today because
	ask client '^error ECONNREFUSED not-today$' wait "$c" "$ms"
	ask client '^connecting' connect - nothing "$ms"
	ask client '^error ECONNREFUSED .*nothing' wait "$(number)" "$ms"
	ask client '^error EADDRINUSE .*service' listen service
}

test_cancel() {
	ask client '^connecting' connect - service "$ms"
	c=$(number)
	ask server '^request' request "$ms"
	s=$(number)
	ask client '^closed' close "$c"
	ask server "^ended $s ECONNRESET the peer has cancelled" end "$s" "$ms"
	ask server '^error ECONNRESET .*cancelled' accept "$s"
	ask server '^closed' close "$s"
}

# The request must reach the server before the client gives it up. If it comes later, it is tried
# again, with more time and a server that has seen none of it.
test_too_late() {
	local wait_ms
	for wait_ms in 100 1000 10000; do
		peer "late$wait_ms"
		ask "late$wait_ms" '^listening' listen "late$wait_ms"
		ask client '^connecting' connect - "late$wait_ms" "$wait_ms"
		c=$(number)
		ask "late$wait_ms" '^(request|error ETIMEDOUT)' request "$wait_ms"
		s=$(number)
		ask client "^error ETIMEDOUT .*late$wait_ms.*answer" wait "$c" "$ms"
		ask client '^closed' close "$c"
		[ "$s" = ETIMEDOUT ] || break
		leave "late$wait_ms"
	done
	ask "late$wait_ms" "^ended $s ETIMEDOUT" end "$s" "$ms"
	ask "late$wait_ms" '^closed' close "$s"
	leave "late$wait_ms"
}

test_many() {
	local i n=1000 first first_request
	for ((i = 0; i < n; i++)); do
		say_to client "connect - service $ms"
	done &
	hear client '^connecting'
	first=$(number)
	for ((i = 1; i < n; i++)); do
		hear client '^connecting'
	done
	wait $!
	for ((i = 0; i < n; i++)); do
		say_to server "request $ms"
	done &
	hear server '^request'
	first_request=$(number)
	for ((i = 1; i < n; i++)); do
		hear server '^request'
	done
	wait $!
	for i in 0 $((n / 2)) $((n - 1)); do
		ask server '^accepted' accept $((first_request + i))
		ask client '^established' wait $((first + i)) "$ms"
	done
	ask server '^closed' close $((first_request + 1))
	ask client '^error ECONNREFUSED' wait $((first + 1)) "$ms"
	talk client $((first + n - 1)) server $((first_request + n - 1))
}

# A process is killed: its peer's queue pair fails with the reason.
test_killed() {
	local reason
	peer victim
	meet victim server
	say_to server "end $s $ms"
	disown "${pids[victim]}" # its end is nothing to report
	kill -9 "${pids[victim]}"
	reason="process ${pids[victim]} \(cm-peer\) .*ended"
	hear server "^ended $s ECONNRESET $reason; ERR process"
	hang_up victim
	ask server '^closed' close "$s"
}

# Connections outlive the daemon, and the next daemon knows them.
test_daemon_killed() {
	local old_c old_s
	meet client server
	old_c=$c
	old_s=$s
	kill -9 "$daemon"
	wait "$daemon" 2>/dev/null || true
	talk client "$c" server "$s"
	talk server "$s" client "$c"
	rm -f "$FRL_CONTROL"
	start_daemon "$FRL_CONTROL" "$ferruled" --private --config "$temp/ferruled.conf"
	meet client server
	talk client "$c" server "$s"
	both_closed client "$c" server "$s"
	talk client "$old_c" server "$old_s"
	both_closed server "$old_s" client "$old_c"
}

# ferrule-pingpong connects by name, whichever end starts first, and reports an end that is gone.
test_pingpong() {
	local out=$temp/listen.out status=0 client
	"$pingpong" --listen demo --wait "$event_limit" >"$out" 2>&1 &
	started+=("$!")
	passes pingpong-connect "$pingpong" --connect localhost:demo --wait "$event_limit" \
		--sizes 8,5000 --iters 50 --verify
	wait $! || fail "ferrule-pingpong --listen: exit status $?"
	grep -q 'served it' "$out" || fail "ferrule-pingpong --listen says: $(cat "$out")"

	"$pingpong" --connect :demo --wait "$event_limit" --op send --test latency --sizes 8,64M \
		--iters 200 >"$temp/victim.out" 2>&1 &
	client=$!
	started+=("$client")
	disown "$client"
	"$pingpong" --listen demo --wait "$event_limit" >"$out" 2>&1 &
	started+=("$!")
	wait_until grep -q '^ *8 ' "$temp/victim.out" || fail "the client does not start"
	kill -9 "$client"
	wait $! || status=$?
	[ "$status" -eq 1 ] || fail "the server of a killed client: exit status $status"
	grep -q "client) is gone: process $client (ferrule-pingpong) .* has ended" "$out" ||
		fail "the server of a killed client says: $(cat "$out")"

	refuses pingpong-wait 'cannot connect to service demo' -- \
		"$pingpong" --connect :demo --wait 1
}

test_private_daemon
peer server
ask server '^listening service$' listen service
peer client
for name in between self crosswise refusals cancel too_late killed daemon_killed many pingpong; do
	before=$failures
	"test_$name"
	[ "$failures" -eq "$before" ] || echo "in test_$name"
done
leave client
leave server
kill -TERM "$daemon"
wait "$daemon" || fail "the daemon: exit status $?"
# It ends by itself when nobody needs it.
wait_until test ! -S "$temp/runtime/ferrule/ferruled.sock" ||
	fail "the private daemon does not end"
[ "$failures" -eq 0 ] || show "$FRL_CONTROL.log"
finish
