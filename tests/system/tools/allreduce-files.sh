#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Four processes sum the real gradients: the sums are right, with the same bits on every rank, for
# all bucket sizes. Small files of every type, with every operation, give the bytes that are listed
# here.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"

# sums NAME OPTION...: all four outputs exist and are equal.
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

# A wrong reference must be found: the data of rank 0 alone is not the sum.
refuses wrong-reference . -- "$allreduce" -n 3 --input "$data/rank%r.safetensors" \
	--check "$data/sum.safetensors"

# reduces DTYPE BYTES OP RESULT RANK0 RANK1: a tensor of two elements, BYTES each; numbers in hex.
reduces() {
	local name=$1-$3 rank header
	header="{\"t\":{\"dtype\":\"$1\",\"shape\":[2],\"data_offsets\":[0,$(($2 * 2))]}}"
	mkdir "$temp/$name"
	for rank in 0 1; do
		{
			safetensors_header "$header"
			printf '%b' "${@:$((rank + 5)):1}"
		} >"$temp/$name/in$rank"
	done
	{
		safetensors_header "$header"
		printf '%b' "$4"
	} >"$temp/$name/right"
	passes "$name" "$allreduce" -n 2 --input "$temp/$name/in%r" --output "$temp/$name/out%r" \
		--op "$3"
	for rank in 0 1; do
		cmp <(tail -c $(($2 * 2)) "$temp/$name/out$rank") \
			<(tail -c $(($2 * 2)) "$temp/$name/right") ||
			fail "$name: another result on rank $rank"
	done
}

# Small numbers; integers that wrap, and signed and unsigned order.
reduces U8 1 sum '\x04\x01' '\x01\xff' '\x03\x02'
reduces I8 1 min '\xff\x02' '\xff\x02' '\x03\x03'
reduces I32 4 max '\x03\0\0\0\0\0\0\0' '\x03\0\0\0\xff\xff\xff\xff' '\x01\0\0\0\0\0\0\0'
reduces U32 4 max '\x03\0\0\0\xff\xff\xff\xff' '\x03\0\0\0\xff\xff\xff\xff' \
	'\x01\0\0\0\0\0\0\0'
reduces I64 8 avg '\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0' \
	'\x01\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff' \
	'\x03\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0'
reduces U64 8 prod '\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x80' \
	'\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x80' \
	'\x03\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0'
reduces F16 2 sum '\x00\x44\x00\x3e' '\x00\x3c\x00\x38' '\x00\x42\x00\x3c'
reduces BF16 2 avg '\x00\x40\x40\x3f' '\x80\x3f\x00\x3f' '\x40\x40\x80\x3f'
reduces F32 4 prod '\0\0\x40\x40\0\0\0\x3f' '\0\0\x80\x3f\0\0\0\x3f' \
	'\0\0\x40\x40\0\0\x80\x3f'
reduces F64 8 min '\0\0\0\0\0\0\xf0\x3f\0\0\0\0\0\0\xf0\xbf' \
	'\0\0\0\0\0\0\xf0\x3f\0\0\0\0\0\0\xf0\x3f' \
	'\0\0\0\0\0\0\x08\x40\0\0\0\0\0\0\xf0\xbf'
reduces F8_E4M3 1 sum '\x48\x3c' '\x38\x30' '\x44\x38'
reduces F8_E5M2 1 max '\x42\x3c' '\x3c\x38' '\x42\x3c'
grep -q '2 elements, float8_e5m2, max' "$temp/F8_E5M2-max.out" || fail "another type or operation"

# Sums of halves have an error bound, too: those of rank 0 and 1 are 4 and 1.5.
{
	safetensors_header '{"t":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}}'
	printf '%b' '\0\0\0\0\0\0\x10\x40\0\0\0\0\0\0\xf8\x3f'
} >"$temp/halves"
passes halves "$allreduce" -n 2 --input "$temp/F16-sum/in%r" --check "$temp/halves"
grep -q '2^-11' "$temp/halves.out" || fail "another bound: $(cat "$temp/halves.out")"
printf '\x41' | dd of="$temp/halves" bs=1 seek="$(($(stat -c %s "$temp/halves") - 9))" \
	conv=notrunc status=none # 4 becomes 2^18
refuses halves-wrong FAILED -- "$allreduce" -n 2 --input "$temp/F16-sum/in%r" \
	--check "$temp/halves"
refuses check-op 'compares sums' -- "$allreduce" -n 2 --input "$temp/F16-sum/in%r" --op max \
	--check "$temp/halves"
refuses check-type 'not of int32' -- "$allreduce" -n 2 --input "$temp/I32-max/in%r" \
	--check "$temp/halves"
refuses op "--op 'premul_sum': use sum" -- "$allreduce" -n 2 --input a --op premul_sum
show "$temp/default.out"
finish
