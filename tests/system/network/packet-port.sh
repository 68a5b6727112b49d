#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Ports of packet sockets (packet:IFACE) over a veth pair between two network namespaces, each a
# host with a control daemon. There segmented frames pass whole. Then the kernel is made to segment
# them, and the packets on the wire are checked. And such a port talks to one of net_af_packet.
#	[ frlaPID: 10.9.1.1, 10.1.1.1 ] e0 ------ veth ------ e0 [ frlbPID: 10.9.1.2, 10.1.1.2 ]
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"

two_hosts e0
ip -n "$a" link set e0 mtu 9000
ip -n "$b" link set e0 mtu 9000
start_hosts e0

# pingpong NAME PORT-IN-A IP-IN-A PORT-IN-B IP-IN-B OPTION...: a server in A, a client in B.
pingpong() {
	local name=$1 server=(--port "$2" --ip "$3") client=(--port "$4" --ip "$5")
	shift 5
	on_hosts "$name" -- "$pingpong" --server "${server[@]}" --wait "$event_limit" -- \
		"$pingpong" --connect 10.9.1.1 "${client[@]}" --wait "$event_limit" --verify "$@"
}

sizes=(--sizes '1,64,4097,100000,1048577' --iters 50)
pingpong whole packet:e0 10.1.1.1/24 packet:e0 10.1.1.2/24 "${sizes[@]}"
pingpong ipv6 packet:e0 fd00:1::1/64 packet:e0 fd00:1::2/64 "${sizes[@]}"
pingpong tagged packet:e0 10.1.1.1/24@7 packet:e0 10.1.1.2/24@7 "${sizes[@]}"
pingpong short packet:e0 10.1.1.1/24 packet:e0 10.1.1.2/24 --mtu 256 "${sizes[@]}"
pingpong alone packet:e0,gso=off 10.1.1.1/24 packet:e0 10.1.1.2/24 "${sizes[@]}"
# Over a veth it would get frames of 64 KiB with unfinished checksums.
if has_dpdk; then
	pingpong meets net_af_packet0,iface=e0 10.1.1.1/24 packet:e0,gso=off 10.1.1.2/24 \
		"${sizes[@]}"
fi

# Only the daemons reach each other: the end that gives up first gives the reason.
env "FRL_CONTROL=$temp/$a.sock" ip netns exec "$a" "$pingpong" --listen vlan --port packet:e0 \
	--ip 10.1.1.1/24@7 >"$temp/vlan-a.out" 2>&1 &
started+=("$!")
refuses vlan . -- env "FRL_CONTROL=$temp/$b.sock" ip netns exec "$b" \
	"$pingpong" --connect 10.9.1.1:vlan --port packet:e0 --ip 10.1.1.2/24
all_end "${started[-1]}"
grep -q 'a request failed: transport retries exhausted: the peer does not answer' \
	"$temp/vlan-a.out" "$temp/vlan.out" || {
	fail "vlan: neither end says why it gave up"
	show "$temp/vlan-a.out" "$temp/vlan.out"
}

payload_in_buffers packet:e1 packet:e2

# From here on the kernel segments every frame before it leaves.
for name in "$a" "$b"; do
	ip -n "$name" link set e0 gso_max_size 4096 2>"$temp/gso" ||
		skip "cannot have frames cut: $(tr '\n' ' ' <"$temp/gso")"
done

# The segments are right: the ICRC covers the identification field that the kernel increments.
capture() {
	: >"$temp/capture.out"
	ip netns exec "$a" python3 -c '
import socket, struct, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
s.bind(("e0", 0))
with open(sys.argv[1], "wb") as f:
	f.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
	print("ready", flush=True)
	numbered = 0
	while True:
		frame = s.recv(65535)
		if frame[6:12] == bytes.fromhex(sys.argv[2]):
			if frame[12:14] == b"\x08\0" and frame[18:20] != b"\0\0":
				numbered += 1
				if numbered == 100:
					print("numbered", flush=True)
			f.write(struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame)
			f.flush()
' "$1" "$2" >"$temp/capture.out" 2>&1 &
	capturing=$!
	started+=("$capturing")
	wait_until grep -q ready "$temp/capture.out" && return
	fail "cannot capture"
	show "$temp/capture.out"
}
if command -v python3 >/dev/null && [ -x "$bin/ferrule-pcap" ]; then
	mac=$(ip netns exec "$b" cat /sys/class/net/e0/address | tr -d :)
	capture "$temp/cut.pcap" "$mac"
	pingpong cut packet:e0 10.1.1.1/24 packet:e0 10.1.1.2/24 --op write --test bandwidth \
		--sizes 100000 --iters 20
	kill "$capturing" 2>/dev/null || true
	wait "$capturing" 2>/dev/null || true
	"$bin/ferrule-pcap" "$temp/cut.pcap" >"$temp/cut.out" 2>&1 || fail "ferrule-pcap"
	# 25 packets each: the first, those in its middle, and the last.
	grep -Eq ' bad_icrc=0 .*RC_WRITE_MIDDLE=[0-9]{3,}' "$temp/cut.out" ||
		fail "what the kernel cut is not what it should be"
	# Otherwise nothing was joined or segmented.
	grep -q numbered "$temp/capture.out" ||
		fail "no packet has an identification of the kernel's"
	! grep -q truncated "$temp/cut.out" || fail "frames of more than one packet on the wire"
	[ "$failures" -eq 0 ] || show "$temp/cut.out"
else
	echo "what is on the wire was not looked at: no python3, or ferrule-pcap is not built"
fi
! grep -l 'does not segment UDP frames' "$temp"/*.out ||
	fail "the kernel does not segment UDP frames"
finish
