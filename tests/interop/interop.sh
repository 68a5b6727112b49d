#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Ferrule against Linux: a guest with rxe in QEMU, joined to Ferrule by a tap, and the rows of
# rows_*.py over it. One line a row; status 1 when a row failed.
#
#	[ guest: rxe on eth0 10.9.0.2 fd09::2 ]--tap roce2--[ Ferrule 10.9.0.1 fd09::1, AF_PACKET ]
#	[        eth1 10.9.2.2                ]--tap ctl2---[ kernel 10.9.2.1, TCP of the test    ]
#
# interop.sh [--only REGEX] [--repeat N] [--dump FILE] [--verbose] [--calibrate]: only rows whose
# name matches; more than once; a pcap of the packets; Ferrule's counters; rxe against rxe in two
# guests, to see that what is expected of rxe is what it does. Needs root for the taps: they, and
# all processes, are in namespaces that end with the test. FRL_INTEROP_DIR, FRL_BIN: build folders
# of tests/interop and examples, from meson. Skipped with status 77 and the reason where something
# is missing, but never with CI=true: there it must run.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
build=${FRL_INTEROP_DIR:-$here/../../build/tests/interop}
bin=${FRL_BIN:-$here/../../build/examples}

skip() {
	echo "$1"
	if [ "${CI:-}" = true ]; then
		echo "FAILED: with CI=true this test must not be skipped"
		exit 1
	fi
	exit 77
}

[ "$(id -u)" -eq 0 ] || skip "SKIP: interop needs root for network namespaces and taps"
command -v python3 >/dev/null || skip "SKIP: there is no python3"
command -v ip >/dev/null || skip "SKIP: there is no ip command (package iproute2)"
[ -c /dev/net/tun ] || skip "SKIP: there is no /dev/net/tun"
namespaces=(unshare --net --pid --fork --kill-child --mount-proc)
reason=$("${namespaces[@]}" ip tuntap add dev probe mode tap 2>&1) ||
	skip "SKIP: cannot make namespaces with a tap: $reason"
for program in "$build/ferrule-peer" "$bin/ferrule-pingpong"; do
	[ -x "$program" ] || skip "SKIP: $program is not built"
done

guest=$build/guest
status=0
said=$("$here/build-guest.sh" "$guest" "$build/rxe-peer") || status=$?
[ "$status" -ne 77 ] || skip "$said"
[ "$status" -eq 0 ] || {
	echo "FAILED: build-guest.sh: $said"
	exit 1
}

# A signal for this script ends everything in the namespaces; unshare itself does not listen.
"${namespaces[@]}" python3 -B "$here/interop.py" --guest "$guest" \
	--ferrule-peer "$build/ferrule-peer" --pingpong "$bin/ferrule-pingpong" "$@" &
pid=$!
trap 'kill -9 "$pid" 2>/dev/null || true' EXIT
trap 'exit 1' INT TERM HUP
wait "$pid"
