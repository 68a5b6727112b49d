#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Ranks on two hosts, each a network namespace with a name and a daemon of its own: the addresses
# that MASTER_ADDR, FRL_JOB_HOST and unique ids lead to, and the errors when the daemon there cannot
# be reached.
#	[ frlaPID ] m0 10.9.2.1 --- daemons' TCP ---- m0 10.9.2.2 [ frlbPID ]
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"

[ "$(id -u)" -eq 0 ] || skip "network namespaces need root"
command -v ip >/dev/null || skip "there is no ip command (package iproute2)"
launch_peer=$bin/../tests/launch-peer
[ -x "$launch_peer" ] || skip "$launch_peer is not built"

a=frla$$
b=frlb$$

remove_namespaces() {
	ip netns del "$a" 2>/dev/null || true
	ip netns del "$b" 2>/dev/null || true
}
at_exit+=(remove_namespaces)
{ ip netns add "$a" && ip netns add "$b"; } 2>"$temp/netns" ||
	skip "cannot make network namespaces: $(tr '\n' ' ' <"$temp/netns")"
ip link add m0 netns "$a" type veth peer name m0 netns "$b" 2>"$temp/netns" ||
	skip "cannot make a veth pair: $(tr '\n' ' ' <"$temp/netns")"
for i in 1 2; do
	name=$a
	[ "$i" -eq 1 ] || name=$b
	ip -n "$name" link set lo up
	ip -n "$name" addr add "10.9.2.$i/24" dev m0
	ip -n "$name" link set m0 up
	mkdir -m 700 "$temp/$name"
	cat >"$temp/$name.conf" <<-CONF
		host = "$name";
		listen_address = "10.9.2.$i";
		insecure = true;
		keepalive_ms = 60000;
		hello_ms = 60000;
	CONF
done
unshare --uts true 2>/dev/null || skip "cannot give a process another host name"

cat >"$temp/named" <<-'SCRIPT'
	#!/bin/sh
	hostname "$1" && shift && exec "$@"
SCRIPT
chmod +x "$temp/named"

# on HOST COMMAND...: runs there, by the host's name.
on() {
	env "FRL_CONTROL=$temp/$1/ferruled.sock" ip netns exec "$1" unshare --uts \
		"$temp/named" "$@"
}

# host NAME OPTION...: starts its daemon; the process id is in $daemon.
host() {
	start_daemon "$temp/$1/ferruled.sock" ip netns exec "$1" "$ferruled" "${@:2}"
}

# stop: ends the daemons of both hosts.
stop() {
	local pid
	for pid in "$daemon_a" "$daemon_b"; do
		kill -TERM "$pid"
		wait "$pid" || fail "a daemon ends with status $?"
	done
}

# both NAME COMMAND-ON-A COMMAND-ON-B: rank 0 on the first host, rank 1 on the second.
both() {
	local pid
	on "$a" sh -c "$2" >"$temp/$1.0" 2>&1 &
	pid=$!
	on "$b" sh -c "$3" >"$temp/$1.1" 2>&1 || fail "$1: rank 1 does not succeed"
	wait "$pid" || fail "$1: rank 0 does not succeed"
	grep -qx 'rank 0 of 2 has met the others' "$temp/$1.0" &&
		grep -qx 'rank 1 of 2 has met the others' "$temp/$1.1" && return
	fail "$1: they have not met"
	show "$temp/$1.0" "$temp/$1.1"
}

# torch RANK ADDRESS: the command of a rank.
torch() {
	echo "RANK=$1 WORLD_SIZE=2 MASTER_ADDR=$2 MASTER_PORT=29500 exec '$launch_peer' environment"
}

test_address() {
	both address "$(torch 0 10.9.2.1)" "$(torch 1 10.9.2.1)"
	# On their own host all of these lead to the daemon there.
	both names "$(torch 0 "$a")" "$(torch 1 10.9.2.1)"
	both loopback "$(torch 0 localhost)" "$(torch 1 10.9.2.1)"
}

test_job_host() {
	local common="export FRL_JOB=named FRL_RANKS=2 FRL_JOB_HOST=10.9.2.2"
	both job-host "$common; FRL_RANK=0 exec '$launch_peer' environment" \
		"$common; FRL_RANK=1 exec '$launch_peer' environment"
}

# meet_by_id NAME: the ranks meet by the id that the first host has made.
meet_by_id() {
	both "$1" "exec '$launch_peer' join 0 2 <'$temp/id'" \
		"exec '$launch_peer' join 1 2 <'$temp/id'"
}

test_unique_id() {
	on "$a" "$launch_peer" id >"$temp/id" || fail "no id"
	grep -q ':10.9.2.1:7476$' "$temp/id" || fail "the id leads nowhere: $(cat "$temp/id")"
	meet_by_id unique-id
	on "$a" env FRL_JOB_HOST=10.9.2.2 "$launch_peer" id >"$temp/id" || fail "no id"
	meet_by_id unique-id-host
}

# finds HOST COMMAND...: the first host's place leads to HOST.
finds() {
	local found
	found=$("${@:2}" "$launch_peer" host "$place") || fail "no host"
	[ "$found" = "host '$1'" ] || fail "the place $place is found at: $found"
}

test_place() {
	place=$(on "$a" "$launch_peer" place) || fail "no place"
	finds "" on "$a"
	finds 10.9.2.1:7476 on "$b"
}

# Daemons that other hosts cannot reach.
test_private() {
	refuses private-address 'no ferruled listens' -- "${on_b[@]}" env RANK=1 WORLD_SIZE=2 \
		MASTER_ADDR=10.9.2.1 MASTER_PORT=29500 "$launch_peer" environment
	on "$a" "$launch_peer" id >"$temp/id" || fail "no id"
	refuses private-id "id is of another .*unreachable from this one .$b" 'listen_address' -- \
		"${on_b[@]}" "$launch_peer" join 1 2 <"$temp/id"
	place=$(on "$a" "$launch_peer" place) || fail "no place"
	refuses private-place "place is of another .*unreachable from this one .$b" \
		'listen_address' -- "${on_b[@]}" "$launch_peer" host "$place"
	# On the host that made it the id is valid all the same.
	finds "" on "$a"
	on "$a" "$launch_peer" join 0 1 <"$temp/id" >"$temp/alone" 2>&1 ||
		fail "an id is not good at home: $(cat "$temp/alone")"
	on "$a" env RANK=0 WORLD_SIZE=1 MASTER_ADDR=10.9.2.1 MASTER_PORT=1 \
		"$launch_peer" environment >"$temp/alone" 2>&1 ||
		fail "the own address is not this host: $(cat "$temp/alone")"
}

# A wildcard address: the id has the host's name. A loopback address: other hosts cannot reach it.
test_listening() {
	"$launch_peer" id >"$temp/id" || fail "no id"
	grep -q ':-[^:]*$' "$temp/id" || fail "nothing listens, and the id says $(cat "$temp/id")"
	on "$a" "$launch_peer" id >"$temp/id" || fail "no id"
	grep -q ":$a:7476$" "$temp/id" || fail "the id does not name the host: $(cat "$temp/id")"
	on "$b" "$launch_peer" id >"$temp/id" || fail "no id"
	grep -q ":-$b$" "$temp/id" || fail "the id leads to a loopback address: $(cat "$temp/id")"
}

# Without a fabric between the hosts the error names the missing setting, and no rank waits.
test_local_fabric() {
	local pid
	on "$a" "$bench" -n 2 --rank 0 --job local@10.9.2.1 >"$temp/local-0.out" 2>&1 &
	pid=$!
	refuses local-1 'rank 0 is on another host .*FRL_FABRIC' -- \
		"${on_b[@]}" "$bench" -n 2 --rank 1 --job local@10.9.2.1
	wait "$pid" && fail "rank 0 succeeds without a way to rank 1"
	grep -qE 'rank 1 is on another host .*FRL_FABRIC' "$temp/local-0.out" ||
		fail "rank 0 does not name the setting: $(cat "$temp/local-0.out")"
	on "$a" "$pingpong" --listen local >"$temp/listen.out" 2>&1 &
	pid=$!
	refuses connect 'peer is on another host .*FRL_FABRIC' -- \
		"${on_b[@]}" "$pingpong" --connect 10.9.2.1:local
	kill "$pid" 2>/dev/null || true
	wait "$pid" 2>/dev/null || true
}

on_b=(env "FRL_CONTROL=$temp/$b/ferruled.sock" ip netns exec "$b")
host "$a" --config "$temp/$a.conf"
daemon_a=$daemon
host "$b" --config "$temp/$b.conf"
daemon_b=$daemon
for name in address job_host unique_id place local_fabric; do
	before=$failures
	"test_$name"
	[ "$failures" -eq "$before" ] || echo "in test_$name"
done
stop
host "$a" --private --config "$temp/ferruled.conf"
daemon_a=$daemon
host "$b" --config "$temp/$b.conf"
daemon_b=$daemon
test_private
stop
sed -i 's/^listen_address.*/listen_address = "0.0.0.0";/' "$temp/$a.conf"
sed -i 's/^listen_address.*/listen_address = "127.0.0.1";/' "$temp/$b.conf"
host "$a" --config "$temp/$a.conf"
host "$b" --config "$temp/$b.conf"
test_listening
finish
