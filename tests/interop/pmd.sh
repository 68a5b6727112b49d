#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Ferrule over a NIC that QEMU emulates and DPDK drives, with DMA: between two guests with such a
# NIC, and against Linux' rxe in a third. One line a row; status 1 when a row failed.
#
#	[ guest 1: 00:10.0, 10.9.0.1 ]--tap data1--+
#	[ guest 2: 00:10.0, 10.9.0.2 ]--tap data2--+--bridge roce
#	[ guest 3: rxe on eth0, .3   ]--tap roce3--+
#	[ guests 1 and 2: 00:11.0, the kernel's, 10.9.200.1 and .2 ]--taps--bridge cpu, 10.9.200.254
#
# pmd.sh MODEL virtual|physical [--only REGEX]: a NIC of pmd_guest.py, by virtual addresses (VFIO
# and an IOMMU) or by physical ones (uio_pci_generic and huge pages that are not adjacent). Needs
# root for the taps: they, and all processes, are in namespaces that end with the test. FRL_BUILD:
# the build folder. Skipped with status 77 and the reason where something is missing.
# shellcheck source=tests/interop/lib.sh
. "$(dirname "$0")/lib.sh"

build=${FRL_BUILD:-$here/../../build}
interop=$build/tests/interop
programs=("$interop/ferrule-peer" "$interop/huge-holes" "$build/daemon/ferruled"
	"$build/daemon/ctl/ferrulectl" "$build/tests/unit/test_dpdk" "$build/ferrule-dpdk.so")
for name in info pingpong allreduce bench; do
	programs+=("$build/tools/ferrule-$name")
done

need_namespaces
for program in "${programs[@]}" "$interop/rxe-peer" "$build/tools/ferrule-pcap"; do
	[ -x "$program" ] || skip "SKIP: $program is not built"
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
data=$(cd "$here/../../examples/data" && pwd)
# In the build folder, so that tests make them once. A lock orders tests that begin together.
exec 9>"$interop/guest-pmd.lock"
flock 9
build_guest "$interop/guest-pmd" pmd "${programs[@]}" -- "$data"/rank[01].safetensors
build_guest "$interop/guest-pmd-rxe" rxe "$interop/rxe-peer"
flock -u 9
in_namespaces python3 -B "$here/pmd.py" --guest "$interop/guest-pmd" \
	--rxe "$interop/guest-pmd-rxe" --build "$build" --data "$data" --folder "$folder" "$@" ||
	status=$?
rm -rf "$folder"
exit "${status:-0}"
