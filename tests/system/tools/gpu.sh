#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The programs with buffers in memory of a GPU, which is the double of CUDA's driver: they work, and
# report failures of CUDA. It shows nothing about a GPU.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"

gpu_allreduce=$bin/gpu_allreduce
double=${FRL_FAKE_LIBCUDA:-$bin/../tests/fakes/cuda}
[ -x "$gpu_allreduce" ] || skip "$gpu_allreduce is not built"
[ -r "$double/libcuda.so.1" ] || skip "$double/libcuda.so.1 is not built"
# Removes the double: meson adds the folders of a test's dependencies.
without=
while read -r -d : folder; do
	[ -z "$folder" ] || [ -e "$folder/libcuda.so.1" ] || without+=${without:+:}$folder
done <<<"${LD_LIBRARY_PATH:-}:"
export LD_LIBRARY_PATH=$double${without:+:$without}
# A program that leaves something with the driver fails.
export FAKE_CUDA_LEAKS=1

if ! "$gpu_allreduce" 1 100 >"$temp/first.out" 2>&1 &&
	grep -q 'built without GPU kernels' "$temp/first.out"; then
	skip "this Ferrule was built without kernels for GPUs (no nvcc, or -Dcuda=disabled)"
fi

# ---- ranks as threads, and as processes

for n in 1 2 4; do
	passes "threads-$n" "$gpu_allreduce" "$n" 100003
	says "threads-$n" 'all ranks have the right sum' \
		'memory of GPU 0, reached by way of: mapped'
done
passes small "$gpu_allreduce" 3 5
for rank in 0 1; do
	FAKE_CUDA_DEVICES=2 "$gpu_allreduce" 2 70001 "$rank" gpus >"$temp/process-$rank.out" 2>&1 &
	started+=("$!")
done
for rank in 0 1; do
	wait "${started[$rank]}" || fail "rank $rank of two processes: $?"
	show "$temp/process-$rank.out"
done
started=()
says process-0 'rank 0 has the right sum'
says process-1 'rank 1 has the right sum'

# ---- every operation, checked by the bench

passes all-2 "$bench" -n 2 --mem cuda --op all --count 0,1,1000,60001 --iters 0 --quiet
passes all-4 "$bench" -n 4 --mem cuda:0 --op all --count 1,777 --iters 0 --quiet --offset 3
passes types "$bench" -n 2 --mem cuda --dtype all --redop all --count 999 --iters 0 --quiet \
	--data random
passes wires "$bench" -n 2 --mem cuda --wire all --count 20000 --iters 0 --quiet --data random
passes flight "$bench" -n 2 --mem cuda --inflight 4 --min 64 --max 256K --factor 16 --iters 3

# ---- single messages

passes pingpong "$pingpong" --local --mem cuda --verify --sizes 1,8,4095,4K,64K,300001 --iters 20
says pingpong 'memory of GPU 0 \(mapped\), every byte checked|every byte checked, memory of GPU 0'
passes host "$pingpong" --local --mem host --verify --sizes 8 --iters 5
# One end of each kind.
"$pingpong" --listen mixed --mem cuda --wait "$event_limit" >"$temp/server.out" 2>&1 &
started=("$!")
passes mixed "$pingpong" --connect localhost:mixed --wait "$event_limit" --verify \
	--sizes 8,64K --iters 20
wait "${started[0]}" || fail "the server with GPU memory: $?"
started=()

# ---- what is said when it does not work

refuses option "use host, cuda or cuda:N" -- "$bench" -n 2 --mem gpu
refuses both "exclude each other" -- "$bench" -n 2 --mem cuda --malloc
refuses pingpong-both "exclude each other" -- "$pingpong" --local --mem cuda --malloc
refuses number "there is no GPU 7: CUDA shows 1" -- "$pingpong" --local --mem cuda:7
FAKE_CUDA_DEVICES=0 refuses none "CUDA_ERROR_NO_DEVICE|shows no GPU" -- "$gpu_allreduce" 2
FAKE_CUDA_FAIL=cuMemAlloc:1:2:0 refuses memory "CUDA_ERROR_OUT_OF_MEMORY" -- "$gpu_allreduce" 2
FRL_GPU_TIER=off refuses off "FRL_GPU_TIER" -- "$gpu_allreduce" 2
FRL_GPU_TIER=dma-buf refuses tier "dma-buf" -- "$gpu_allreduce" 2
LD_LIBRARY_PATH=$without
if ! PATH=$PATH:/sbin:/usr/sbin ldconfig -p | grep -q 'libcuda\.so\.1'; then
	refuses absent "cannot load CUDA" "driver" -- "$gpu_allreduce" 2
fi
finish
