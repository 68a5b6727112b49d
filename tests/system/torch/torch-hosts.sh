#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# DistributedDataParallel between two hosts: examples/torch/digits.py over packet: ports, which the
# ranks open themselves, or lease from the daemons of their hosts. The result is that of one host,
# to the bit. When a rank is killed, the other one reports it.
#	[ frlaPID: 10.9.1.1, 10.1.1.1 ] e0 ------ veth ------ e0 [ frlbPID: 10.9.1.2, 10.1.1.2 ]
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/system/torch/torch_lib.sh
. "$(dirname "$0")/torch_lib.sh"

two_hosts e0
# PyTorch's store uses the addresses 10.9.1.x. The daemons lease 10.1.2.x.
start_hosts e0 'fabrics = ( { name = "roce"; ports = [ "packet:e0" ];
	addresses = [ "10.1.2.HOST/24" ]; } );'

# trains_on_hosts NAME FABRIC PROGRAM ARGUMENT...: one rank under torchrun on each host. HOST in an
# argument is the number of the host.
trains_on_hosts() {
	local name=$1 run
	run=(env "FRL_FABRIC=$2" "$python" -m torch.distributed.run --nnodes 2 --nproc_per_node 1
		--master_addr 10.9.1.1 --master_port 29500 --redirects 1 --tee 1)
	shift 2
	on_hosts "$name" -- "${run[@]}" --node_rank 0 "${@//HOST/1}" --epochs 3 -- \
		"${run[@]}" --node_rank 1 "${@//HOST/2}" --epochs 3
}

own_port=packet:e0=10.1.1.HOST/24

test_one_host() {
	local rank pids=()
	for rank in 0 1; do
		FRL_FABRIC='' RANK=$rank WORLD_SIZE=2 MASTER_ADDR=10.9.1.1 MASTER_PORT=29500 \
			FRL_CONTROL=$temp/$a.sock timeout -k 5 "$program_limit" \
			ip netns exec "$a" "$python" "$digits" --epochs 3 \
			>"$temp/one-host-$rank.out" 2>&1 &
		pids+=("$!")
		started+=("$!")
	done
	for rank in 0 1; do
		wait "${pids[$rank]}" || fail "one host: rank $rank does not succeed"
	done
	[ "$failures" -eq 0 ] || show "$temp/one-host-"*.out
}

test_two_hosts() {
	local name
	trains_on_hosts own-ports "" "$digits" --device "$own_port"
	trains_on_hosts leased-ports roce "$digits"
	for name in own-ports leased-ports; do
		echo "    $name: $(result "$temp/$name-a.out")"
		[ "$(result "$temp/$name-a.out")" = "$(result "$temp/one-host-0.out")" ] ||
			fail "$name: the result is not that of one host"
	done
}

# dies NAME FABRIC ARGUMENT...: rank 1 kills itself, on its host.
dies() {
	local name=$1
	mkdir "$temp/$name"
	# In a subshell, since failures of the ranks are wanted.
	(trains_on_hosts "$name" "$2" "$system_root/tests/system/torch/rank_killed.py" \
		"$temp/$name" "${@:3}") >"$temp/$name.out" 2>&1
	lost "$temp/$name/0.0.lost" PeerLostError ||
		show "$temp/$name-a.out" "$temp/$name-b.out"
}

test_killed() {
	dies killed-own "" --device "$own_port"
	dies killed-leased roce
}

for name in one_host two_hosts killed; do
	before=$failures
	"test_$name"
	[ "$failures" -eq "$before" ] || echo "in test_$name"
done
finish
