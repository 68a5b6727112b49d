#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Two hosts, each a network namespace with a daemon that leases ports of a fabric: processes that
# connect by name across hosts, over AF_PACKET, jobs, and processes, daemons and links that fail
# meanwhile.
#	[ frlaPID ] m0 10.9.1.1 --- daemons' TCP ---- m0 10.9.1.2 [ frlbPID ]
#	[ 10.1.1.1-9 ] e0 --------- RoCE ------------ e0 [ 10.1.1.11-19 ]
#	               e1 --------- RoCE ------------ e1
# shellcheck source=tests/system/peer_lib.sh
. "$(dirname "$0")/../peer_lib.sh"

needs_dpdk

ctl=$bin/../daemon/ctl/ferrulectl
[ -x "$ctl" ] || skip "$ctl is not built"
two_hosts m0 e0 e1
for i in 1 2; do
	name=$a
	[ "$i" -eq 1 ] || name=$b
	ip -n "$name" addr add "10.9.1.$i/24" dev m0
	cat >"$temp/$name.conf" <<-CONF
		host = "$name";
		listen_address = "10.9.1.$i";
		insecure = true;
		keepalive_ms = 60000;
		hello_ms = 60000;
		hold_ms = 60000;
		fabrics = ( {
			name = "eth";
			ports = [ "net_af_packet0,iface=e0", "net_af_packet0,iface=e1" ];
			addresses = [ "10.1.1.$((i * 10 - 9))-10.1.1.$((i * 10 - 1))/24" ];
			any_user = true;
		} );
	CONF
done

# host NAME: starts its daemon; the process id is in $daemon_of.
declare -A daemon_of
host() {
	start_daemon "$temp/$1.sock" ip netns exec "$1" "$ferruled" --config "$temp/$1.conf"
	daemon_of[$1]=$daemon
}

# kill_daemon NAME
kill_daemon() {
	kill -9 "${daemon_of[$1]}"
	wait "${daemon_of[$1]}" 2>/dev/null || true
	rm -f "$temp/$1.sock" # or the next one seems to be there already
}

# on HOST: following commands run there.
on() {
	peer_run=(env "FRL_CONTROL=$temp/$1.sock" ip netns exec "$1")
}

# control HOST COMMAND...: the output of ferrulectl there.
control() {
	local name=$1
	shift
	"$ctl" --socket "$temp/$name.sock" "$@"
}

# field JSON-EXPRESSION: of the JSON on standard input.
field() {
	python3 -c "import json, sys; report = json.load(sys.stdin); print($1)"
}

host "$a"
host "$b"
on "$b"
peer server --fabric eth
ask server '^listening' listen service
on "$a"
peer client --fabric eth

test_across() {
	meet client server 10.9.1.2
	talk client "$c" server "$s"
	talk server "$s" client "$c"
}

test_seen() {
	local qpn
	control "$b" --json ports >"$temp/ports.json"
	[ "$(field 'report["ports"][0]["addresses"][0]' <"$temp/ports.json")" = 10.1.1.11/24 ] ||
		fail "ferrulectl ports does not show the leased address: $(cat "$temp/ports.json")"
	control "$a" --json qps >"$temp/qps.json"
	[ "$(field 'report["qps"][0]["peer_host"]' <"$temp/qps.json")" = "$b" ] ||
		fail "ferrulectl qps does not show the peer's host: $(cat "$temp/qps.json")"
	[ "$(field 'report["qps"][0]["tx_packets"] > 0' <"$temp/qps.json")" = True ] ||
		fail "ferrulectl qps has counted no packet: $(cat "$temp/qps.json")"
	qpn=$(field 'report["qps"][0]["qpn"]' <"$temp/qps.json")
	control "$a" --json why "$qpn" >"$temp/why.json"
	[ "$(field 'report["peer_view"]["state"]' <"$temp/why.json")" = RTS ] ||
		fail "ferrulectl why does not have the peer's view: $(cat "$temp/why.json")"
	wait_until shows connected peers || fail "ferrulectl peers shows none"
}

# shows TEXT COMMAND...: ferrulectl on the first host prints it.
shows() {
	control "$a" "${@:2}" >"$temp/shown" && grep -q "$1" "$temp/shown"
}

test_leases_run_out() {
	peer second --fabric eth
	refuses third 'all 2 ports of fabric eth are leased' -- \
		"${peer_run[@]}" "$peer_program" --fabric eth
	refuses lost 'there is no fabric "ib"' -- "${peer_run[@]}" "$peer_program" --fabric ib
	leave second
	peer second --fabric eth
	# A port's description follows its opening: the control thread sends it later.
	wait_until shows 10.1.1.3 ports || fail "an address was leased again at once"
	leave second
}

test_nobody_there() {
	ask client '^connecting' connect 10.9.1.2:9 service "$ms"
	ask client '^error ECONNREFUSED .*no ferruled listens' wait "$(number)" "$ms"
	ask client '^connecting' connect 10.9.1.9 service 1000
	ask client '^error E(TIMEDOUT|HOSTUNREACH)' wait "$(number)" "$ms"
	ask client '^connecting' connect nowhere.invalid service "$ms"
	ask client '^error EHOSTUNREACH' wait "$(number)" "$ms"
}

# The daemon of the other host dies: data goes on, and the next daemon learns the state.
test_daemon_killed() {
	kill_daemon "$b"
	talk client "$c" server "$s"
	talk server "$s" client "$c"
	host "$b"
	local old_c=$c old_s=$s
	meet client server 10.9.1.2
	talk client "$c" server "$s"
	both_closed client "$c" server "$s"
	talk client "$old_c" server "$old_s"
	both_closed server "$old_s" client "$old_c"
}

test_killed() {
	peer victim --fabric eth
	meet victim server 10.9.1.2
	say_to server "end $s $ms"
	disown "${pids[victim]}"
	kill -9 "${pids[victim]}"
	hear server "^ended $s ECONNRESET process .*cm-peer.* on $a has ended; ERR process"
	hang_up victim
	ask server '^closed' close "$s"
}

# keepalive MS: sets it for both daemons. They use the values that they exchanged when they
# connected, so they must connect again.
keepalive() {
	local name
	sed -i "s/keepalive_ms = .*;/keepalive_ms = $1;/" "$temp/$a.conf" "$temp/$b.conf"
	for name in "$a" "$b"; do
		kill_daemon "$name"
		host "$name"
	done
}

# The daemons cannot reach each other: for each the other host is gone.
test_host_gone() {
	keepalive 5000
	meet client server 10.9.1.2
	ip -n "$a" link set m0 down
	ask client "^ended $c EHOSTDOWN .*; ERR " end "$c" "$ms"
	ask server "^ended $s EHOSTDOWN .*; ERR " end "$s" "$ms"
	ask client '^closed' close "$c"
	ask server '^closed' close "$s"
	ip -n "$a" link set m0 up
	wait_until reachable || fail "the hosts do not reach each other again"
	meet client server 10.9.1.2
	talk client "$c" server "$s"
	both_closed client "$c" server "$s"
	keepalive 60000
}

reachable() {
	ip netns exec "$a" timeout 5 bash -c ': </dev/tcp/10.9.1.2/7476' 2>/dev/null
}

# The link under the queue pairs is cut: `why` names the event that they wait for.
test_stalled() {
	local qpn
	meet client server 10.9.1.2
	qpn=$(control "$a" --json qps |
		field '[qp["qpn"] for qp in report["qps"] if qp["state"] == "RTS"][0]')
	ip -n "$a" link set e0 down
	ask server '^posted' post "$s"
	say_to client "send $c lost"
	wait_until stalls "$qpn" || fail "why says: $(control "$a" why "$qpn")"
	ip -n "$a" link set e0 up
	hear client '^sent'
	ask server "^received $s lost$" receive "$s"
	both_closed client "$c" server "$s"
}

stalls() {
	control "$a" why "$1" >"$temp/why.out" && grep -q 'has retransmitted' "$temp/why.out"
}

# start_job NAME OPTION...: a rank on each host; the first host keeps the job. Returns when it runs.
start_job() {
	local rank name=$1 hosts=("$a" "$b")
	shift
	ranks=()
	for rank in 0 1; do
		on "${hosts[$rank]}"
		FRL_FABRIC=eth "${peer_run[@]}" "$bench" -n 2 --rank "$rank" \
			--job "$name@10.9.1.1" "$@" >"$temp/$name$rank.out" 2>&1 &
		ranks+=("$!")
	done
	started+=("${ranks[@]}")
	wait_until grep -qE '^ +[0-9]+ ' "$temp/${name}0.out" || fail "job $name does not run"
}

# end_job NAME STATUS: of each rank.
end_job() {
	local rank status
	for rank in 0 1; do
		status=0
		wait "${ranks[$rank]}" || status=$?
		[ "$status" -eq "$2" ] || fail "job $1: exit status $status of rank $rank"
	done
	show "$temp/$1"[01].out
}

# Daemons are killed in the middle of jobs, in and between allgathers: no job notices, and every
# result is right.
test_job_survives() {
	local name
	meet client server 10.9.1.2
	both_closed client "$c" server "$s"
	start_job member --min 64K --max 256K --iters 1500
	kill_daemon "$b"
	host "$b"
	end_job member 0
	start_job keeper --min 64K --max 256K --iters 1500
	kill_daemon "$a"
	host "$a"
	end_job keeper 0
	start_job both --min 4 --max 64K --iters 1000
	for name in "$a" "$b" "$a" "$b"; do
		kill_daemon "$name"
		host "$name"
	done
	kill_daemon "$a"
	kill_daemon "$b"
	host "$b"
	host "$a"
	end_job both 0
}

# Or it ends with the reason.
test_job_ends() {
	export FRL_CONTROL_LOST_S=1
	start_job lost --min 64 --max 16M --iters 3000
	kill_daemon "$a"
	end_job lost 1
	grep -q 'daemon of this host.* not back within 1 s' "$temp/lost0.out" ||
		fail "rank 0 does not say that its daemon has gone"
	grep -q "daemon of $a, which keeps the job, .* not back within 1 s" "$temp/lost1.out" ||
		fail "rank 1 does not say that the keeper has gone"
	export FRL_CONTROL_LOST_S=$event_limit
	host "$a"
	start_job dead --min 64 --max 16M --iters 3000
	disown "${ranks[1]}"
	kill_daemon "$b"
	kill -9 "${ranks[1]}"
	host "$b"
	wait "${ranks[0]}" && fail "rank 0 does not miss rank 1"
	grep -q 'rank 1 is gone' "$temp/dead0.out" || fail "rank 0 does not name rank 1"
	show "$temp/dead0.out"
}

for name in across seen leases_run_out nobody_there daemon_killed killed host_gone stalled \
	job_survives job_ends; do
	before=$failures
	"test_$name"
	[ "$failures" -eq "$before" ] || echo "in test_$name"
done
leave client
leave server
[ "$failures" -eq 0 ] || show "$temp/$a.sock.log" "$temp/$b.sock.log"
finish
