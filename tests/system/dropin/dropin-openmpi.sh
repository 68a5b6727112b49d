#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Open MPI by UCX over the drop-in libibverbs: sums of four ranks, all checked.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/system/dropin/dropin_lib.sh
. "$(dirname "$0")/dropin_lib.sh"

needs mpirun.openmpi mpicc.openmpi
"$run" --uverbs true 2>"$temp/uverbs" || skip "$(cat "$temp/uverbs")"
mpicc.openmpi -O2 -o "$temp/mpi-sums" "$(dirname "$0")/mpi_sums.c" 2>"$temp/cc" ||
	skip "mpicc.openmpi cannot compile: $(cat "$temp/cc")"
as_root=()
[ "$(id -u)" -ne 0 ] || as_root=(--allow-run-as-root)

for transport in rc_v ud_v; do
	passes "sums-$transport" "$run" --uverbs mpirun.openmpi "${as_root[@]}" --oversubscribe \
		-n 4 --mca pml ucx --mca osc ucx -x UCX_NET_DEVICES=frl0:1 \
		-x "UCX_TLS=$transport,self" "$temp/mpi-sums"
	grep -q 'all sums of 4 ranks are right' "$temp/sums-$transport.out" && continue
	fail "sums-$transport: the ranks do not say that their sums are right"
	show "$temp/sums-$transport.out"
done
finish
