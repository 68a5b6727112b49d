#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Damaged and differing safetensors files: an error that names file, tensor and reason, exit status
# not 0, no output.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"

# safetensors FILE HEADER BYTES: a file of this JSON header and that many bytes of data.
safetensors() {
	{
		safetensors_header "$2"
		head -c "$3" /dev/zero
	} >"$1"
}

# pair NAME HEADER BYTES: rank 0 gets good tensors, rank 1 the given ones.
good='{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},'
good+='"b":{"dtype":"F32","shape":[2,2],"data_offsets":[16,32]}}'
pair() {
	mkdir -p "$temp/$1"
	safetensors "$temp/$1/rank0.safetensors" "$good" 32
	safetensors "$temp/$1/rank1.safetensors" "$2" "$3"
}

# rejected NAME PATTERN...: the pair is refused and there is no output, not even a temporary one.
rejected() {
	local name=$1
	shift
	refuses "$name" "$@" -- "$allreduce" -n 2 --input "$temp/$name/rank%r.safetensors" \
		--output "$temp/$name/out/rank%r.safetensors"
	if [ -n "$(find "$temp/$name/out" -type f 2>/dev/null)" ]; then
		fail "$name: there is output: $(ls -A "$temp/$name/out")"
	fi
}

# tensor NAME DTYPE SHAPE FROM TO
tensor() {
	printf '"%s":{"dtype":"%s","shape":%s,"data_offsets":[%s,%s]}' "$@"
}

pair good "$good" 32
passes good "$allreduce" -n 2 --input "$temp/good/rank%r.safetensors" \
	--output "$temp/good/out/rank%r.safetensors"
cmp "$temp/good/out/rank0.safetensors" "$temp/good/out/rank1.safetensors" || fail "good: differ"

pair missing "$good" 32
rm "$temp/missing/rank1.safetensors"
rejected missing 'rank1\.safetensors' 'no such file'

pair truncated "$good" 31
rejected truncated 'rank1\.safetensors'
for bytes in 0 4 8 20; do
	pair "short$bytes" "$good" 32
	truncate -s "$bytes" "$temp/short$bytes/rank1.safetensors"
	rejected "short$bytes" 'rank1\.safetensors'
done

pair overlapping "{$(tensor a F32 '[4]' 0 16),$(tensor b F32 '[2,2]' 8 24)}" 24
rejected overlapping 'rank1\.safetensors' "'?[ab]'?" 'overlap|offset'

pair outside "{$(tensor a F32 '[4]' 0 16),$(tensor b F32 '[2,2]' 16 32)}" 24
rejected outside 'rank1\.safetensors'

pair huge "{$(tensor a F32 '[4]' 0 16),$(tensor b F32 '[4611686018427387904,4]' 16 32)}" 32
rejected huge 'rank1\.safetensors' "b"

pair negative "{$(tensor a F32 '[4]' 0 16),$(tensor b F32 '[-2,-2]' 16 32)}" 32
rejected negative 'rank1\.safetensors' "b"

pair backwards "{$(tensor a F32 '[4]' 0 16),$(tensor b F32 '[2,2]' 32 16)}" 32
rejected backwards 'rank1\.safetensors' "b"

pair mismatch "{$(tensor a F32 '[4]' 0 16),$(tensor b F32 '[3]' 16 32)}" 32
rejected mismatch 'rank1\.safetensors' "b"

pair dtype "{$(tensor a F32 '[4]' 0 16),$(tensor b F99 '[2,2]' 16 32)}" 32
rejected dtype 'rank1\.safetensors' "b" 'F99|dtype'

pair float16 "{$(tensor a F32 '[4]' 0 16),$(tensor b F16 '[2,2]' 16 24)}" 24
rejected float16 'rank1\.safetensors' "b" 'F16'

pair json '{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]' 16
rejected json 'rank1\.safetensors'

pair shape "{$(tensor a F32 '[4]' 0 16),$(tensor b F32 '[4]' 16 32)}" 32
rejected shape 'different|differ' "b"

pair name "{$(tensor a F32 '[4]' 0 16),$(tensor c F32 '[2,2]' 16 32)}" 32
rejected name 'different|differ' "c"

pair count "{$(tensor a F32 '[4]' 0 16)}" 16
rejected count 'different|differ'

# Where the output cannot be written, no file is left.
pair nowhere "$good" 32
: >"$temp/nowhere/file"
refuses nowhere 'nowhere/file' -- "$allreduce" -n 2 --input "$temp/nowhere/rank%r.safetensors" \
	--output "$temp/nowhere/file/rank%r.safetensors"

# One rank cannot write: no rank has output, not even a temporary one.
pair half "$good" 32
mkdir -p "$temp/half/out/0"
: >"$temp/half/out/1"
refuses half 'out/1/sums' -- "$allreduce" -n 2 --input "$temp/half/rank%r.safetensors" \
	--output "$temp/half/out/%r/sums.safetensors"
[ -z "$(find "$temp/half/out/0" -type f)" ] || fail "half: rank 0 wrote all the same"
rm "$temp/half/out/1"
mkdir -p "$temp/half/out/1/sums.safetensors"
refuses half-folder 'is a directory' -- "$allreduce" -n 2 \
	--input "$temp/half/rank%r.safetensors" --output "$temp/half/out/%r/sums.safetensors"
[ -z "$(find "$temp/half/out" -type f)" ] || fail "half-folder: rank 0 wrote all the same"

# The C1 control characters of UTF-8 stay out of messages as well.
pair control "{$(tensor a F32 '[4]' 0 16),$(tensor "$(printf '\302\233')31m" F16 '[2,2]' 16 24)}" 24
rejected control '\?31m'
! LC_ALL=C grep -q "$(printf '\302\233')" "$temp/control.out" || fail "control: it came through"
finish
