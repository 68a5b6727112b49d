#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Two hosts whose control network fails for a while; the data network does not. Connections and a
# job survive outages shorter than keepalive_ms, and longer ones while data flows.
#	[ frlaPID ] m0 10.9.1.1 --- daemons' TCP ---- m0 10.9.1.2 [ frlbPID ]
#	            e0 ------------ RoCE ------------ e0
#	            e1 ------------ RoCE ------------ e1
# shellcheck source=tests/system/peer_lib.sh
. "$(dirname "$0")/../peer_lib.sh"

ctl=$bin/../daemon/ctl/ferrulectl
[ -x "$ctl" ] || skip "$ctl is not built"
keepalive_s=12
two_hosts m0 e0 e1
for i in 1 2; do
	name=$a
	[ "$i" -eq 1 ] || name=$b
	ip -n "$name" addr add "10.9.1.$i/24" dev m0
	cat >"$temp/$name.conf" <<-CONF
		host = "$name";
		listen_address = "10.9.1.$i";
		insecure = true;
		keepalive_ms = $((keepalive_s * 1000));
		hello_ms = 60000;
		fabrics = ( {
			name = "eth";
			ports = [ "packet:e0", "packet:e1" ];
			addresses = [ "10.1.1.$((i * 10 - 9))-10.1.1.$((i * 10 - 1))/24" ];
			any_user = true;
		} );
	CONF
	start_daemon "$temp/$name.sock" ip netns exec "$name" \
		"$ferruled" --config "$temp/$name.conf"
done

# on HOST: following commands run there.
on() {
	peer_run=(env "FRL_CONTROL=$temp/$1.sock" ip netns exec "$1")
}

# outage COMMAND...: takes the control network down while the command runs. Packets go to a MAC
# address that nobody has, so each kernel only sees that there is no answer.
outage() {
	ip -n "$a" neigh replace 10.9.1.2 lladdr 02:00:00:00:00:99 nud permanent dev m0
	ip -n "$b" neigh replace 10.9.1.1 lladdr 02:00:00:00:00:99 nud permanent dev m0
	"$@" || fail "the outage is not noticed"
	ip -n "$a" neigh del 10.9.1.2 dev m0
	ip -n "$b" neigh del 10.9.1.1 dev m0
}

# meet_again: waits until the daemons are connected.
meet_again() {
	local name
	for name in "$a" "$b"; do
		wait_until answers "$name" || fail "the daemons do not meet again"
	done
}
answers() {
	"$ctl" --socket "$temp/$1.sock" --json peers | python3 -c '
import json, sys
peers = json.load(sys.stdin)["peers"]
sys.exit(not (peers and peers[0]["state"] == "connected" and peers[0]["silent_s"] < 1))'
}

says() {
	grep -q -- "$2" "$temp/$1.sock.log"
}

# Nothing uses the connection meanwhile.
test_idle() {
	meet client server 10.9.1.2
	outage wait_until says "$a" 'TCP retransmits: reconnecting'
	meet_again
	talk client "$c" server "$s"
	both_closed client "$c" server "$s"
	meet client server 10.9.1.2
	both_closed client "$c" server "$s"
}

test_job() {
	local rank status ranks=() hosts=("$a" "$b")
	for rank in 0 1; do
		on "${hosts[$rank]}"
		FRL_FABRIC=eth "${peer_run[@]}" "$bench" -n 2 --rank "$rank" --job train@10.9.1.1 \
			--min 64K --max 64K --iters 100 --repeat 1000000 \
			>"$temp/train$rank.out" 2>&1 &
		ranks+=("$!")
	done
	started+=("${ranks[@]}")
	wait_until grep -qE '^ +[0-9]+ ' "$temp/train0.out" || fail "the job does not run"
	outage sleep $((2 * keepalive_s))
	for name in "$a" "$b"; do
		wait_until says "$name" 'but data flows' ||
			fail "$name does not say why the job goes on"
	done
	meet_again
	for rank in 0 1; do
		alive "${ranks[$rank]}" || fail "rank $rank has ended"
	done
	# The ranks are notified of each other again.
	disown "${ranks[1]}"
	kill -9 "${ranks[1]}"
	status=0
	wait "${ranks[0]}" || status=$?
	[ "$status" -eq 1 ] || fail "exit status $status of rank 0"
	grep -q 'rank 1 is gone' "$temp/train0.out" || fail "rank 0 does not miss rank 1"
	[ "$failures" -eq 0 ] || grep ferrule- "$temp"/train?.out
}

on "$b"
peer server --fabric eth
ask server '^listening' listen service
on "$a"
peer client --fabric eth
test_idle
leave client
leave server
test_job
[ "$failures" -eq 0 ] || show "$temp/$a.sock.log" "$temp/$b.sock.log"
finish
