#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Ferrule on Linux' RDMA stack: its programs run in a guest with rxe in QEMU, on the device
# verbs:rxe0, against themselves and against a software device of this machine. The rows are those
# of verbs.py; one line a row; status 1 when a row failed.
#
#	[ guest: Ferrule on rxe 10.9.0.2 ]--tap roce2--[ Ferrule 10.9.0.1, AF_PACKET ]
#	[        ferruled 10.9.2.2       ]--tap ctl2---[ ferruled 10.9.2.1           ]
#
# verbs.sh [--only REGEX]: only rows whose name matches. FRL_BUILD: the build folder, from meson.
# Requirements, skipping and failing are as in interop.sh.
# shellcheck source=tests/interop/lib.sh
. "$(dirname "$0")/lib.sh"

build=${FRL_BUILD:-$here/../../build}
tests=$build/tests
programs=("$tests/interop/rxe-peer" "$tests/interop/ferrule-peer" "$tests/cm-peer"
	"$tests/unit/test_api" "$tests/nccl/nccl-harness"
	"$build/daemon/ferruled" "$build/libnccl-net-ferrule.so")
[ ! -e "$build/ferrule-dpdk.so" ] || programs+=("$build/ferrule-dpdk.so")
for name in info pingpong allreduce bench; do
	programs+=("$build/tools/ferrule-$name")
done

need_namespaces
for program in "${programs[@]}"; do
	[ -x "$program" ] || skip "SKIP: $program is not built"
done
guest=$tests/interop/guest-verbs
data=$(cd "$here/../../examples/data" && pwd)
build_guest "$guest" rxe "${programs[@]}" -- "$data"/*.safetensors
in_namespaces python3 -B "$here/verbs.py" --guest "$guest" --build "$build" \
	--data "$data" "$@"
