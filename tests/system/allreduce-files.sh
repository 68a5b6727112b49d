#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Four processes sum the real gradients: right, the same bits on every rank, whatever the buckets.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

# sums NAME OPTION...: all four outputs are there and equal.
sums() {
	local name=$1 rank
	shift
	passes "$name" "$allreduce" -n 4 --input "$data/rank%r.safetensors" \
		--output "$temp/$name/rank%r.safetensors" --check "$data/sum.safetensors" "$@"
	grep -q OK "$temp/$name.out" || fail "$name: no OK in the table"
	for rank in 0 1 2 3; do
		cmp "$temp/$name/rank0.safetensors" "$temp/$name/rank$rank.safetensors" ||
			fail "$name: the result of rank $rank differs from that of rank 0"
	done
}

sums default
sums small-buckets --bucket-mb 1
sums thread --progress thread
cmp "$temp/default/rank0.safetensors" "$temp/thread/rank0.safetensors" ||
	fail "the progress thread gives another result"

# The size of the input's data is that of the output's: F32 in, F32 out.
for rank in 0 1 2 3; do
	[ "$(stat -c %s "$data/rank$rank.safetensors")" -le \
		"$(($(stat -c %s "$temp/default/rank$rank.safetensors") + 4096))" ] ||
		fail "the output of rank $rank is too short"
done

# A wrong reference must be found: the sum of rank 0 alone is not the sum of all.
refuses wrong-reference . -- "$allreduce" -n 3 --input "$data/rank%r.safetensors" \
	--check "$data/sum.safetensors"
show "$temp/default.out"
finish
