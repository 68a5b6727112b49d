#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# unpack.sh HARNESS HARNESS_VERBS PLUGIN [kernels]: rows of the harness with FERRULE_UNPACK=1, over
# the local fabric, with the double of libcuda: the properties of devices, and messages that the
# harness fetches out of packets as NCCL's kernels would.
harness=$1
harness_verbs=$2
plugin=$3
kernels=${4-}
keep_settings='FERRULE_.*|FRL_.*|FAKE_.*'
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../system/lib.sh"

[ -r "$plugin" ] || skip "$plugin is not built"

# Limits only end rows that hang.
limits=(--dead "$event_limit" --seconds "$program_limit" --slow-ms "$((event_limit * 1000))")
player=$harness
export FERRULE_TIMEOUT_S=5
export FERRULE_UNPACK=1
export FERRULE_DEVICES=local
export FRL_HELD_FRAMES=4096

# rows NAME=VALUE... -- OPTION|ROW...: runs them in this environment.
rows() {
	local settings=()
	while [ "$1" != -- ]; do
		settings+=("$1")
		shift
	done
	shift
	env "${settings[@]}" "$player" "${limits[@]}" --mem cuda --expect pointers=gpu \
		"$@" || fail "rows with ${settings[*]:-no settings}: $*"
}

# off WARNING NAME=VALUE...: UNPACK is off, and the log gives the reason.
off() {
	local warning=$1
	shift
	env "$@" "$player" --expect unpack=0 --expect "warning=$warning" "$plugin" \
		unpack-properties || fail "off because of $*"
}

# The properties of devices, and refusals where UNPACK is impossible. Tables before v9 do not say
# that a receive's protocol is LL (src/transport/net.cc, v2.24.3), so there a tuner is not enough.
rows -- --abi 12,11,10,9 --expect unpack=1 "$plugin" unpack-properties
rows -- --abi 8,7,6 --expect unpack=0 --expect 'warning=off.*table v[67]' "$plugin" \
	unpack-properties
rows NCCL_PROTO=Simple -- --abi all --expect unpack=1 "$plugin" unpack-properties
rows NCCL_PROTO=^LL128 NCCL_ALLOC_P2P_NET_LL_BUFFERS=1 -- --abi all --expect unpack=1 "$plugin" \
	unpack-properties
rows FERRULE_UNPACK=0 -- --abi 12,7 --expect unpack=0 "$plugin" unpack-properties
off 'off.*NCCL_PROTO forces LL128' NCCL_PROTO=Simple,LL128
off 'off.*NCCL_PROTO forces LL128' NCCL_PROTO=^LL
off 'off.*NCCL_PROTO excludes Simple' NCCL_PROTO=LL
off 'off.*NCCL_NET_SHARED_BUFFERS=0' NCCL_NET_SHARED_BUFFERS=0
off 'off.*NCCL_PAT_ENABLE is set' NCCL_PAT_ENABLE=1
off 'off.*OPTIONAL_RECV_COMPLETION=0' NCCL_NET_OPTIONAL_RECV_COMPLETION=0
rows NCCL_PAT_ENABLE=0 -- --expect unpack=1 "$plugin" unpack-properties
off 'off.*FERRULE_GPU=0' FERRULE_GPU=0
off 'off.*FRL_GPU_TIER=off' FRL_GPU_TIER=off
off 'off.*GPU 0 cannot access host memory' FAKE_CUDA_ATTRIBUTES=99=0
off 'off.*no GPU' FAKE_CUDA_DEVICES=0
player=$harness_verbs off 'off.*is an RDMA NIC' FERRULE_DEVICES=verbs

rows FAKE_CUDA_HOST_APART=1 -- --sides threads "$plugin" self sizes zero flush unpack-mixed \
	unpack-late unpack-limit unpack-forget unpack-host unpack-again
rows -- --sides processes "$plugin" unpack-starve truncated abort abort-recv killed-send \
	killed-recv
rows -- --abi 9 --sides threads "$plugin" unpack-mixed unpack-limit
rows NCCL_PROTO=Simple -- --abi 7 --sides threads "$plugin" unpack-mixed unpack-limit
rows -- --abi 11,10 --sides threads "$plugin" unpack-mixed
rows NCCL_PROTO=Simple -- --abi 8 --sides threads "$plugin" unpack-mixed

rows -- --split --abi 12,11,10,9 --sides threads "$plugin" unpack-mixed

# Without its tuner NCCL would receive by LL into memory of the GPU: a connection is without UNPACK,
# unless NCCL's settings exclude LL.
rows -- --no-tuner --abi 12,10,9 --sides threads --expect on=0 \
	--expect "warning=does not use Ferrule's tuner.*NCCL_PROTO=Simple" "$plugin" unpack-quota
# Within a host the tuner excludes nothing.
rows -- --one-host --abi 12,10,9 --sides threads --expect on=0 \
	--expect "warning=does not use Ferrule's tuner.*NCCL_PROTO=Simple" "$plugin" unpack-quota
rows NCCL_PROTO=Simple -- --no-tuner --sides threads "$plugin" unpack-mixed
rows NCCL_PROTO=^LL128 NCCL_ALLOC_P2P_NET_LL_BUFFERS=1 -- --no-tuner --sides threads "$plugin" \
	unpack-mixed

# The entries that the tuner excludes. LL stays if its buffers are in memory of the host.
player=$harness
tuner() {
	local excluded=$1 step=$2
	shift 2
	env "$@" "$player" --expect "excluded=$excluded" --expect "step=$step" "$plugin" tuner ||
		fail "the tuner with $*"
}
tuner ll+ll128 2 FERRULE_UNPACK=1
tuner ll128 2 NCCL_ALLOC_P2P_NET_LL_BUFFERS=1
tuner ll128 2 NCCL_PROTO=Simple
tuner ll128 2 FERRULE_UNPACK=0
tuner none 2 FERRULE_UNPACK=0 NCCL_PROTO=^LL
player=$harness_verbs tuner none 0 FERRULE_DEVICES=verbs FERRULE_UNPACK=0
player=$harness_verbs tuner ll128 0 FERRULE_DEVICES=verbs FERRULE_UNPACK=0 FERRULE_GPU=0
player=$harness_verbs tuner ll128 0 FERRULE_DEVICES=verbs FERRULE_UNPACK=0 FRL_GPU_TIER=off
rows FERRULE_QPS=4 FERRULE_DEVICES='local;local' -- --fuse 2 --sides threads "$plugin" \
	unpack-mixed abort leaks

# Kernels that wait are no hazard to code that calls no driver.
rows FAKE_CUDA_LOADING=lazy -- --expect unpack=1 "$plugin" unpack-properties
rows FAKE_CUDA_LOADING=lazy -- --sides threads "$plugin" unpack-quiet unpack-mixed

# With a smaller MTU a slice needs more packets than a connection has at least: UNPACK is off.
rows FRL_PATH_MTU=1024 FRL_HELD_FRAMES=1030 -- --sides threads "$plugin" unpack-slice
rows FRL_PATH_MTU=1024 NCCL_BUFFSIZE=16777216 -- --sides threads --expect on=0 "$plugin" \
	unpack-quota

# More connections than packet buffers: they are refused, or Ferrule's kernels move the data.
rows FRL_HELD_FRAMES=816 -- --sides threads --expect on=2 "$plugin" unpack-quota
rows FAKE_CUDA_FAIL=cuMemHostRegister:2:2:0 -- --sides threads --expect on=0 "$plugin" unpack-quota
rows FAKE_CUDA_HOST_APART=1 FAKE_CUDA_MEMORY=8192 FERRULE_DEVICES='local;local' -- "$plugin" \
	unpack-far
# A port must open although nobody asked for its buffers: those of each port take 73 MiB, and a
# process with 220 MiB of data has no room for the third one. Stacks of threads count, too: with 8
# MiB each there may be no room for a thread.
printf '#!/bin/sh\nulimit -s 1024 && ulimit -d 225280 && exec "%s" "$@"\n' \
	"$(realpath "$player")" >"$temp/limited"
chmod +x "$temp/limited"
usual=$player
player=$temp/limited
rows FRL_HELD_FRAMES=0 FERRULE_DEVICES='local;local;local' -- --fuse 3 --sides threads \
	--expect on=0 "$plugin" unpack-quota
player=$usual
[ -z "$kernels" ] ||
	rows FRL_HELD_FRAMES=816 FERRULE_GPU=1 FAKE_CUDA_LOADING=eager -- --sides threads \
		"$plugin" channels
finish
