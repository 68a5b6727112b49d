#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Programs for libibverbs over Ferrule's drop-in libibverbs.so.1, against Linux: the same programs
# run over rxe in a guest in QEMU. The rows are those of dropin.py; one line a row; status 1 when a
# row failed.
#
#	[ guest: rxe on eth0 10.9.0.2 fd09::2 ]--tap roce2--[ drop-in 10.9.0.1 fd09::1, AF_PACKET ]
#	[        eth1 10.9.2.2                ]--tap ctl2---[ kernel 10.9.2.1, TCP of programs    ]
#
# dropin.sh [--only REGEX] [--repeat N] [--dump FILE]: only rows whose name matches; more than once;
# a pcap of the packets. FRL_BUILD: the build folder, from meson. Requirements, skipping and failing
# are as in interop.sh.
# shellcheck source=tests/interop/lib.sh
. "$(dirname "$0")/lib.sh"

build=${FRL_BUILD:-$here/../../build}
folder=$build/dropin/rdma
peer=$build/tests/interop/rxe-peer
perftest=(ib_write_bw ib_write_lat ib_send_bw ib_send_lat ib_read_bw ib_read_lat ib_atomic_lat)

# meson adds the drop-in's folder. The guest's programs need Debian's libibverbs.
unset LD_LIBRARY_PATH

need_namespaces
for file in "$folder/libibverbs.so.1" "$peer"; do
	[ -e "$file" ] || skip "SKIP: $file is not built"
done
programs=("$peer")
for name in "${perftest[@]}"; do
	programs+=("$(command -v "$name")") ||
		skip "SKIP: there is no $name; \`scripts/install-deps.sh interop\` installs it"
done
guest=$build/tests/interop/guest-dropin
build_guest "$guest" rxe "${programs[@]}"
in_namespaces "${precedence[@]}" python3 -B "$here/dropin.py" --guest "$guest" \
	--folder "$folder" --peer "$peer" "$@"
