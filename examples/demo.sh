#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Run this first. It installs what is missing, builds, and sums real gradients, over four processes
# that share memory, and then over two DPDK ports that are joined by a memif, as over a network: by
# RoCEv2 packets with ICRC. Then it says what a packet costs. No NIC, and no root but for the
# installation. With --installed it builds nothing: programs are those that are installed, and
# results go into the current folder.
set -eu

examples=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ "${1:-}" = --installed ]; then
	allreduce=ferrule-allreduce
	# Debian's packages recommend it.
	has_dpdk=$(/sbin/ldconfig -p | grep -o 'librte_eal\.so.*' || true)
else
	cd "$examples/.."
	scripts/install-deps.sh build
	# Without Check (the tests install it) the tests are left out.
	[ -f build/build.ninja ] || meson setup build -Dtests=auto
	ninja -C build
	allreduce=build/tools/ferrule-allreduce
	has_dpdk=$(find build -maxdepth 1 -name ferrule-dpdk.so)
fi

echo
"$allreduce" -n 4 \
	--input "$examples/data/rank%r.safetensors" \
	--output 'out/rank%r.safetensors' \
	--check "$examples/data/sum.safetensors"

echo
if [ ! "$has_dpdk" ]; then
	echo "The sum over DPDK ports is left out: there is no DPDK."
	exit
fi

# The first two ranks alone, once through shared memory, to compare with.
mkdir -p out/memory out/dpdk
"$allreduce" -n 2 --input "$examples/data/rank%r.safetensors" \
	--output 'out/memory/rank%r.safetensors' >out/memory/log

# rank NUMBER ROLE: without shared memory, which is for ranks of one machine.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
socket=$folder/memif
rank() {
	FRL_SHM=0 "$allreduce" -n 2 --rank "$1" --job "demo-$$" \
		--port "net_memif0,role=$2,socket=$socket,socket-abstract=no" \
		--ip "10.77.0.$(($1 + 1))/24" \
		--input "$examples/data/rank%r.safetensors" --output 'out/dpdk/rank%r.safetensors'
}
rank 0 server >out/dpdk/log0 2>out/dpdk/errors0 &
server=$!
# A memif's client does not wait for its server.
until [ -S "$socket" ] || ! kill -0 "$server" 2>/dev/null; do
	sleep 0.01
done
if ! rank 1 client >out/dpdk/log1 2>&1 || ! wait "$server"; then
	kill "$server" 2>/dev/null || true
	cat out/dpdk/errors0 out/dpdk/log1 >&2
	exit 1
fi
cat out/dpdk/log0
cmp out/memory/rank0.safetensors out/dpdk/rank0.safetensors
cmp out/memory/rank0.safetensors out/dpdk/rank1.safetensors
echo "The sums of the two ways are the same, bit by bit."
if [ -x build/tests/bench/bench_protocol ]; then
	# Counted step by step, so on any machine.
	build/tests/bench/bench_protocol --counts | awk '
		/^WRITE 4 KiB/ && $4 ~ /^(r|e|d)/ { n += $6 }
		END {
			print "A packet with 4 KiB takes", n, "instructions of the protocol, both" \
				" ends together, ICRC included."
		}'
fi
