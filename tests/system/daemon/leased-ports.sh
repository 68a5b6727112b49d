#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Leased packet: ports of a user without any capability: two hosts, several ranks each on one
# interface. ferruled, which becomes another user, opens their sockets. A hostile process reads only
# its own frames, and a socket that it keeps is given to no other process.
#	[ frlaPID: 10.9.1.1, 10.1.1.x ] e0 ------ veth ------ e0 [ frlbPID: 10.9.1.2, 10.1.2.x ]
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"

client=$bin/../tests/lease-client
[ -x "$client" ] || skip "$client is not built"
two_hosts e0
getent passwd nobody >/dev/null || skip "there is no user nobody"

# Programs and data may lie where other users have no access.
mkdir "$temp/bin" "$temp/work"
cp -P "$allreduce" "$pingpong" "$client" "$bin"/../libferrule.so* "$data"/*.safetensors \
	"$temp/bin/" 2>/dev/null || true # the library may be linked in
chmod -R a+rX "$temp"
chown nobody "$temp/work"
user=$(id -u nobody)

# start_host NAME N: leases have 10.1.N.x; on VLAN 7 they have MACs of their own.
start_host() {
	local name=$1 i=$2
	ip -n "$name" link set e0 mtu 9000
	ip -n "$name" addr add "10.9.1.$i/24" dev e0
	cat >"$temp/$name.conf" <<-CONF
		host = "$name";
		user = "nobody";
		listen_address = "10.9.1.$i";
		insecure = true;
		metrics_address = "";
		keepalive_ms = 60000;
		hello_ms = 60000;
		hold_ms = 100;
		fabrics = (
			{ name = "roce"; ports = [ "packet:e0" ]; users = [ "$user" ];
			  addresses = [ "10.1.$i.1-10.1.$i.4/16" ]; },
			{ name = "tagged"; ports = [ "packet:e0,gso=on" ]; users = [ "$user" ];
			  addresses = [ "10.2.$i.1-10.2.$i.4/16",
					"fd00:2:$i::1-fd00:2:$i::4/32" ]; vlan = 7;
			  mac_pool = "02:00:00:00:0$i:01-02:00:00:00:0$i:04"; },
			{ name = "kernels"; ports = [ "packet:e0,gso=off" ]; users = [ "$user" ];
			  addresses = [ "10.9.1.$i/24" ]; }
		);
	CONF
	start_daemon "$temp/$name.sock" ip netns exec "$name" "$ferruled" \
		--config "$temp/$name.conf"
	host_daemons+=("$daemon")
}
host_daemons=()
chmod 755 "$temp"
chown nobody "$temp" # the daemons' records
start_host "$a" 1
start_host "$b" 2
# The socket is there before the daemon drops its privileges and serves it.
has_net_raw_alone() {
	grep -qE '^CapEff:[[:space:]]+0000000000002000$' "/proc/$1/status"
}
for daemon in "${host_daemons[@]}"; do
	wait_until has_net_raw_alone "$daemon" ||
		fail "ferruled has not CAP_NET_RAW alone: $(grep CapEff "/proc/$daemon/status")"
done

# as_user HOST COMMAND...: without any capability, and unable to get one.
as_user() {
	local name=$1
	shift
	exec ip netns exec "$name" setpriv --reuid="$user" --regid=65534 --clear-groups \
		--bounding-set=-all --inh-caps=-all --no-new-privs \
		env -i "PATH=$PATH" "LD_LIBRARY_PATH=$temp/bin" "FRL_CONTROL=$temp/$name.sock" \
		"FRL_TUNER_CACHE=" FRL_TUNER_COSTS=default "FRL_CONTROL_LOST_S=$event_limit" \
		"FRL_SHM=${shm:-1}" "FRL_FABRIC=${fabric:-roce}" "$@"
}

# in_background NAME HOST COMMAND...: output: $temp/NAME.out
in_background() {
	local out=$temp/$1.out
	shift
	(as_user "$@") >"$out" 2>&1 &
	started+=("$!")
}

# all_pass NAME PID...
all_pass() {
	local name=$1 pid status
	shift
	all_end "$@"
	for pid in "$@"; do
		status=0
		wait "$pid" || status=$?
		[ "$status" -eq 0 ] || fail "$name: exit status $status"
	done
	[ "$failures" -eq 0 ] || show "$temp/$name"*.out
}

# Two ranks a host, four on one fabric, with packets between all of them.
for fabric in roce tagged; do
	ranks=()
	for rank in 0 1 2 3; do
		host=$a
		[ "$rank" -lt 2 ] || host=$b
		shm=0 in_background "$fabric-$rank" "$host" "$temp/bin/ferrule-allreduce" -n 4 \
			--rank "$rank" --job "$fabric@10.9.1.1" \
			--input "$temp/bin/rank%r.safetensors" \
			--output "$temp/work/$fabric%r.safetensors" \
			--check "$temp/bin/sum.safetensors"
		ranks+=("${started[-1]}")
	done
	all_pass "$fabric" "${ranks[@]}"
done

# meet NAME SERVER CLIENT: two processes, each with a lease.
meet() {
	local name=$1 server
	in_background "$name-server" "$2" "$temp/bin/ferrule-pingpong" --listen "$name" \
		--wait "$event_limit"
	server=${started[-1]}
	in_background "$name" "$3" "$temp/bin/ferrule-pingpong" --connect "10.9.1.1:$name" \
		--wait "$event_limit" --verify --op write --sizes '1,4097,100000,1048577' --iters 20
	all_pass "$name" "$server" "${started[-1]}"
}
for fabric in roce tagged; do
	meet "$fabric-hosts" "$a" "$b"
	# A switch sends nothing back to the sender's port: these two connect in the host.
	meet "$fabric-siblings" "$a" "$a"
done

# A container has a network namespace of its own, without any interface: it uses the daemon's.
pod=frlp$$
at_exit+=(remove_pod)
remove_pod() {
	ip netns del "$pod" 2>/dev/null || true
}
ip netns add "$pod"
ln -s "$a.sock" "$temp/$pod.sock"
fabric=roce
meet pod "$a" "$pod"
fabric=tagged
meet pod-tagged "$pod" "$b"
rm "$temp/$pod.sock"

fabric=kernels refuses kernels 'address 10.9.1.1 belongs to this host' -- bash -c "
	$(declare -f as_user)
	temp='$temp' user='$user' event_limit='$event_limit' fabric=kernels
	as_user '$a' '$temp/bin/ferrule-pingpong' --listen none --wait 5"
# The same without a lease.
refuses own-kernels 'address 10.9.1.1 belongs to this host' -- env FRL_CONTROL=off \
	ip netns exec "$a" "$pingpong" --server --port packet:e0 --ip 10.9.1.1/24 --wait 5

# ---- a hostile process of the same user, while others work

mkfifo "$temp/orders"
fabric=roce
(as_user "$a" "$temp/bin/lease-client" "$temp/$a.sock" roce) \
	<"$temp/orders" >"$temp/hostile.out" 2>&1 &
hostile=$!
started+=("$hostile")
exec 9>"$temp/orders"
wait_until grep -q tried "$temp/hostile.out" || {
	fail "the hostile process was not given a socket, or may do too much with it"
	show "$temp/hostile.out"
	finish
}
# order COMMAND PATTERN
order() {
	local lines
	lines=$(wc -l <"$temp/hostile.out")
	echo "$1" >&9
	answered() {
		[ "$(wc -l <"$temp/hostile.out")" -gt "$lines" ]
	}
	wait_until answered || fail "$1: no answer"
	tail -n 1 "$temp/hostile.out" | grep -qE "$2" || {
		fail "$1: $(tail -n 1 "$temp/hostile.out")"
		show "$temp/hostile.out"
	}
}
meet beside "$a" "$b"
meet beside-siblings "$a" "$a"
order count '^own 0 foreign 0$'

# The socket filters frames of other kinds and addresses, and receives one of its own.
ip=$(awk '$1 == "leased" { print $2 }' "$temp/hostile.out")
printf 'send %s\nend\n' "${ip%/*}" |
	(as_user "$b" "$temp/bin/lease-client" "$temp/$b.sock" roce) >"$temp/send.out" 2>&1 ||
	fail "frames for the hostile process are not sent"
grep -q '^sent$' "$temp/send.out" || show "$temp/send.out"
order wait '^own 1 foreign 0$'

# The lease ends, the socket stays: nobody gets its address, not even from the next daemon.
given() {
	grep -c " leases packet:e0 .*, $ip\$" "$temp/$a.sock.log"
}
before=$(given)
order close '^closed$'
says_kept() {
	grep -q "still has the socket of an ended lease: $ip" "$temp/$a.sock.log"
}
wait_until says_kept || fail "the daemon does not say that a socket is kept"
kill -9 "${host_daemons[0]}"
wait "${host_daemons[0]}" 2>/dev/null || true
start_daemon "$temp/$a.sock" ip netns exec "$a" "$ferruled" --config "$temp/$a.conf"
host_daemons[0]=$daemon
grep -q " $user roce $ip " "$temp/$a.sock.sockets" || fail "the socket is not recorded"
for i in 1 2 3 4 5; do
	meet "again-$i" "$a" "$b"
done
[ "$(given)" -eq "$before" ] ||
	fail "$ip was given out while another process had its socket"
order count '^own 1 foreign 0$'
order drop '^dropped$'
is_forgotten() {
	! grep -q "$ip" "$temp/$a.sock.sockets" 2>/dev/null
}
wait_until is_forgotten || fail "$ip is not forgotten when the socket is gone"
echo end >&9
exec 9>&-
all_end "$hostile"

# Nothing stays.
for daemon in "${host_daemons[@]}"; do
	kill -TERM "$daemon"
	wait "$daemon" || fail "a daemon ended with status $?"
done
stays=$(find "$temp" -maxdepth 1 -name 'frl*.sock*' ! -name '*.log')
[ -z "$stays" ] || fail "left behind: $stays"
[ "$failures" -eq 0 ] || show "$temp/$a.sock.log"
finish
