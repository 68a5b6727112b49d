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
# guests, to see that rxe behaves as the rows expect. Needs root for the taps: they, and all
# processes, are in namespaces that end with the test. FRL_INTEROP_DIR, FRL_BIN: build folders of
# tests/interop and examples, from meson. Skipped with status 77 and the reason where something is
# missing, but never with CI=true: there it must run.
# shellcheck source=tests/interop/lib.sh
. "$(dirname "$0")/lib.sh"

build=${FRL_INTEROP_DIR:-$here/../../build/tests/interop}
bin=${FRL_BIN:-$here/../../build/tools}

need_namespaces
for program in "$build/ferrule-peer" "$bin/ferrule-pingpong"; do
	[ -x "$program" ] || skip "SKIP: $program is not built"
done
guest=$build/guest
build_guest "$guest" rxe "$build/rxe-peer"
in_namespaces "${precedence[@]}" python3 -B "$here/interop.py" --guest "$guest" \
	--ferrule-peer "$build/ferrule-peer" --pingpong "$bin/ferrule-pingpong" "$@"
