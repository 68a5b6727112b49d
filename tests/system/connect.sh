#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Processes of one machine that connect by name through a control daemon: accepted, rejected,
# cancelled, too late, many at once, killed; and a daemon that is killed while they work. cm-peer
# (tests/system/cm_peer.c) does what it is told line by line.
# shellcheck source=tests/system/peer_lib.sh
. "$(dirname "$0")/peer_lib.sh"

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
	# One of the user's may be at work already, where programs without XDG_RUNTIME_DIR look.
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
	say_to client "connect - service 10000"
	say_to server "connect - other 10000"
	hear client '^connecting'
	a=$(number)
	hear server '^connecting'
	b=$(number)
	ask client '^request' request 10000
	ask client '^accepted' accept "$(number)"
	ask server '^request' request 10000
	ask server '^accepted' accept "$(number)"
	ask client '^established' wait "$a" 10000
	ask server '^established' wait "$b" 10000
	ask client '^closed' close "$a"
	ask server '^closed' close "$b"
	ask client '^unlistened' unlisten
}

test_refusals() {
	ask client '^connecting' connect - service 10000 question
	c=$(number)
	ask server '^request' request 10000
	ask server '^rejected' reject "$(number)" not-today because
	ask client '^error ECONNREFUSED not-today$' wait "$c" 10000
	ask client '^connecting' connect - nothing 10000
	ask client '^error ECONNREFUSED .*nothing' wait "$(number)" 10000
	ask client '^error EADDRINUSE .*service' listen service
}

test_cancel() {
	ask client '^connecting' connect - service 10000
	c=$(number)
	ask server '^request' request 10000
	s=$(number)
	ask client '^closed' close "$c"
	ask server "^ended $s ECONNRESET the peer has given up" end "$s" 10000
	ask server '^error ECONNRESET .*given up' accept "$s"
	ask server '^closed' close "$s"
}

test_too_late() {
	ask client '^connecting' connect - service 100
	c=$(number)
	ask server '^request' request 10000
	s=$(number)
	ask client '^error ETIMEDOUT .*service.*answer' wait "$c" 10000
	ask server "^ended $s ETIMEDOUT" end "$s" 10000
	ask client '^closed' close "$c"
	ask server '^closed' close "$s"
}

test_many() {
	local i n=1000 first first_request
	for ((i = 0; i < n; i++)); do
		say_to client "connect - service 20000"
	done &
	hear client '^connecting'
	first=$(number)
	for ((i = 1; i < n; i++)); do
		hear client '^connecting'
	done
	wait $!
	for ((i = 0; i < n; i++)); do
		say_to server "request 10000"
	done &
	hear server '^request'
	first_request=$(number)
	for ((i = 1; i < n; i++)); do
		hear server '^request'
	done
	wait $!
	for i in 0 $((n / 2)) $((n - 1)); do
		ask server '^accepted' accept $((first_request + i))
		ask client '^established' wait $((first + i)) 10000
	done
	ask server '^closed' close $((first_request + 1))
	ask client '^error ECONNREFUSED' wait $((first + 1)) 10000
	talk client $((first + n - 1)) server $((first_request + n - 1))
}

# A process is killed: its peer's queue pair fails with the reason, at once. Of some times the best
# one counts: others may have the processor.
test_killed() {
	local best=1000000 i
	for ((i = 0; i < 8 && best >= 100000; i++)); do
		kill_one "victim$i"
		[ "$took" -ge "$best" ] || best=$took
	done
	echo "the peer of a killed process knows after $best us"
	[ "$best" -lt 100000 ] || fail "a killed process was noticed after $best us"
}

kill_one() {
	local before reason
	peer "$1"
	meet "$1" server
	say_to server "end $s 10000"
	disown "${pids[$1]}" # its end is nothing to report
	before=$(date +%s%N)
	kill -9 "${pids[$1]}"
	reason="process ${pids[$1]} \(cm-peer\) .*ended"
	hear server "^ended $s ECONNRESET $reason; ERR process"
	took=$((($(date +%s%N) - before) / 1000))
	hang_up "$1"
	ask server '^closed' close "$s"
}

# Connections outlive the daemon, and the next one knows them.
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

# ferrule-pingpong meets by name, whoever is there first, and says who is gone.
test_pingpong() {
	local out=$temp/listen.out status=0 client
	"$pingpong" --listen demo >"$out" 2>&1 &
	started+=("$!")
	passes pingpong-connect "$pingpong" --connect localhost:demo --sizes 8,5000 --iters 50 \
		--verify
	wait $! || fail "ferrule-pingpong --listen: exit status $?"
	grep -q 'served it' "$out" || fail "ferrule-pingpong --listen says: $(cat "$out")"

	"$pingpong" --connect :demo --op send --test latency --sizes 8,64M --iters 200 \
		>"$temp/victim.out" 2>&1 &
	client=$!
	started+=("$client")
	disown "$client"
	"$pingpong" --listen demo >"$out" 2>&1 &
	started+=("$!")
	wait_until 10 grep -q '^ *8 ' "$temp/victim.out" || fail "the client does not start"
	kill -9 "$client"
	wait $! || status=$?
	[ "$status" -eq 1 ] || fail "the server of a killed client: exit status $status"
	grep -q "client) is gone: process $client (ferrule-pingpong) .* has ended" "$out" ||
		fail "the server of a killed client says: $(cat "$out")"
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
# It ends by itself, for want of anything to do.
wait_until 20 test ! -S "$temp/runtime/ferrule/ferruled.sock" ||
	fail "the private daemon does not end"
[ "$failures" -eq 0 ] || show "$FRL_CONTROL.log"
finish
