# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Two hosts on this machine, for tests over Ethernet. Source it after tests/system/lib.sh.
#	[ $a: 10.9.2.1, daemon ] c0 ------------- veth ------------- c0 [ $b: 10.9.2.2, daemon ]
#	[ $a: 10.9.1.1         ] e0 -- veth, or a wire that loses -- e0 [ $b: 10.9.1.2         ]
#
# Ferrule has 10.1.1.1 and 10.1.1.2 on e0; the daemons speak through c0, which loses nothing.
# shellcheck disable=SC2154 # temp, at_exit, started and ferruled are lib.sh's

a=frlna$$
b=frlnb$$
w=frlnw$$
wire=${FRL_NCCL_WIRE:-}
port=packet:e0

remove_hosts() {
	ip netns del "$a" 2>/dev/null || true
	ip netns del "$b" 2>/dev/null || true
	ip netns del "$w" 2>/dev/null || true
}

# make_hosts PER-MILLE: the share of frames on e0 that are lost (and as many doubled and late); 0: a
# plain veth; `acks`: only acknowledgements are lost.
make_hosts() {
	local bad=$1 name i=1
	[ "$(id -u)" -eq 0 ] || skip "network namespaces need root"
	command -v ip >/dev/null || skip "there is no ip command (package iproute2)"
	at_exit+=(remove_hosts)
	{ ip netns add "$a" && ip netns add "$b" && ip netns add "$w" &&
		ip netns exec "$a" true; } 2>"$temp/netns" ||
		skip "cannot make network namespaces: $(tr '\n' ' ' <"$temp/netns")"
	ip link add c0 netns "$a" type veth peer name c0 netns "$b" 2>"$temp/netns" ||
		skip "cannot make a veth pair: $(tr '\n' ' ' <"$temp/netns")"
	if [ "$bad" = 0 ]; then
		ip link add e0 netns "$a" type veth peer name e0 netns "$b"
	else
		# The wire program needs packets as they are on a wire, without offloads.
		port=net_af_packet0,iface=e0
		ip link add e0 netns "$a" type veth peer name wa netns "$w"
		ip link add e0 netns "$b" type veth peer name wb netns "$w"
	fi
	for name in "$a" "$b"; do
		ip -n "$name" link set lo up
		ip -n "$name" addr add "10.9.1.$i/24" dev e0
		ip -n "$name" addr add "10.9.2.$i/24" dev c0
		ip -n "$name" link set e0 mtu 9000 up
		ip -n "$name" link set c0 up
		printf 'host = "%s";\nlisten_address = "10.9.2.%s";\ninsecure = true;\n%s\n' \
			"$name" "$i" 'keepalive_ms = 60000; hello_ms = 60000;' >"$temp/$name.conf"
		echo 'fabrics = ( { name = "taps"; ports = ( "packet:t0" );' \
			'addresses = [ "10.1.3.1-10.1.3.2/24" ]; } );' >>"$temp/$name.conf"
		# Two daemons whose sockets share a folder would be one host.
		mkdir "$temp/$name"
		start_daemon "$temp/$name/sock" ip netns exec "$name" "$ferruled" \
			--config "$temp/$name.conf"
		i=$((i + 1))
	done
	[ "$bad" = 0 ] || start_wire "$bad"
}

start_wire() {
	[ -x "$wire" ] || skip "no nccl-lossy-wire ($wire)"
	ip -n "$w" link set wa mtu 9000 up
	ip -n "$w" link set wb mtu 9000 up
	ip netns exec "$w" "$wire" wa wb "$1" >"$temp/wire" 2>&1 &
	wire_process=$!
	started+=("$wire_process")
	wait_until grep -q ready "$temp/wire" || skip "no lossy wire: $(cat "$temp/wire")"
}

# Ends the wire and sets $wire_did to its counts. (A subshell could not wait for it.)
end_wire() {
	kill "$wire_process"
	wait "$wire_process" || true
	# shellcheck disable=SC2034 # for the tests
	wire_did=$(tail -n 1 "$temp/wire")
}

# The options of nccl-harness and nccl-bench that place the sides on the two hosts.
host_options() {
	local i name
	echo "--netns $a,$b"
	for i in 0 1; do
		name=$a
		[ "$i" -eq 0 ] || name=$b
		echo "--set $i:FRL_CONTROL=$temp/$name/sock"
		echo "--set $i:NCCL_SOCKET_IFNAME=e0"
	done
}

# ferrule_devices I: the value of FERRULE_DEVICES on host I, 0 or 1.
ferrule_devices() {
	echo "$port ip=10.1.1.$(($1 + 1))/24"
}
