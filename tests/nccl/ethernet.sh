#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# ethernet.sh HARNESS PLUGIN PER-MILLE [HARNESS-OPTION|ROW]...: rows of the harness on
# libnccl-net-ferrule.so over Ethernet, between two network namespaces. PER-MILLE frames of a
# thousand are lost, as many come twice and as many late. With `acks` only acknowledgements are
# lost, and all packets must be of the traffic class that --traffic-class gives. FRL_NCCL_WIRE is
# the path of nccl-lossy-wire.
harness=$1
plugin=$2
bad=$3
shift 3
keep_settings='FERRULE_.*|FRL_.*|FAKE_.*'
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../system/lib.sh"
# shellcheck source=tests/nccl/ethernet_lib.sh
. "$(dirname "$0")/ethernet_lib.sh"

[ -r "$plugin" ] || skip "$plugin is not built"
make_hosts "$bad"
# Limits only end rows that hang.
limits=(--dead "$event_limit" --seconds "$program_limit" --slow-ms "$((event_limit * 1000))")
read -r -d '' -a options <<<"$(host_options)" || true
status=0
"$harness" --sides processes "${limits[@]}" "${options[@]}" \
	--set "0:FERRULE_DEVICES=$(ferrule_devices 0)" \
	--set "1:FERRULE_DEVICES=$(ferrule_devices 1)" "$plugin" "$@" || status=$?
if [ "$bad" != 0 ]; then
	end_wire
	# shellcheck disable=SC2154 # end_wire sets it
	echo "the wire: $wire_did"
	grep -q ' [1-9][0-9]* lost' <<<"$wire_did" || fail "the wire has lost nothing"
	if [[ " $* " =~ \ --traffic-class\ ([0-9]+)\  ]]; then
		grep -Eq "class: ${BASH_REMATCH[1]}: [0-9]+\$" <<<"$wire_did" ||
			fail "packets are not all of traffic class ${BASH_REMATCH[1]}"
	fi
fi
[ "$status" -eq 0 ] || fail "rows of the harness"

# set_speed MBIT: sets the speed of the tap t0 in $a, as `ethtool -s` does (ETHTOOL_SSET).
set_speed() {
	ip netns exec "$a" python3 -c '
import ctypes, fcntl, socket, struct, sys
low, high = int(sys.argv[1]) & 0xffff, int(sys.argv[1]) >> 16
command = ctypes.create_string_buffer(struct.pack(
	"<IIIHBBBBBBIIHBBI8x", 2, 0, 0, low, 1, 0, 0, 0, 0, 0, 0, 0, high, 0, 0, 0))
request = struct.pack("<16sQ16x", b"t0", ctypes.addressof(command))
fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0x8946, request)' "$1"
}

# The speed of a leased port is that of its link, and not the 10 Gbit/s that NCCL assumes without
# one.
if [ "$bad" = 0 ]; then
	ip -n "$a" tuntap add dev t0 mode tap 2>"$temp/tap" ||
		skip "cannot make a tap: $(tr '\n' ' ' <"$temp/tap")"
	ip -n "$a" link set t0 up
	set_speed 40000 2>"$temp/speed" ||
		skip "cannot set the speed of a tap: $(tail -n 1 "$temp/speed")"
	# first_speed MBIT DEVICES
	first_speed() {
		ip netns exec "$a" env "FRL_CONTROL=$temp/$a/sock" "FERRULE_DEVICES=$2" \
			"$harness" "${limits[@]}" --expect "speed=$1" "$plugin" properties ||
			fail "the speed of the first port of $2"
	}
	first_speed 40000 fabric:taps
	# With several ports none is opened to ask its speed, as it may be another process's.
	first_speed 10000 'fabric:taps;packet:t0 ip=10.9.0.9/24'
	first_speed 40000 'packet:t0 ip=10.9.0.9/24;fabric:taps'
fi
finish
