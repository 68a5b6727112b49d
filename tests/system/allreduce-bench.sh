#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The benchmark checks every result: 1 to 8 ranks, sizes that no rank count divides, few elements
# and many.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

for ranks in 1 2 3 4 5 6 7 8; do
	passes "n$ranks-odd" "$allreduce" -n "$ranks" --bench --min 4 --max 100000 --factor 7 \
		--iters 3 --warmup 1
	passes "n$ranks" "$allreduce" -n "$ranks" --bench --min 8 --max 1M --factor 64 \
		--iters 3 --warmup 1
done
passes pingpong "$pingpong" --local --op all --verify --sizes 1,64,4095,4096,4097,1000000

# Numbers that nobody could write down are a failure; of a file this is known before the sweep.
small=(-n 2 --bench --min 8 --max 64 --iters 3)
full() {
	"$@" >/dev/full
}
export -f full
if [ -c /dev/full ]; then
	refuses full-bench 'standard output' -- bash -c 'full "$@"' - "$allreduce" "${small[@]}"
	refuses full-pingpong 'standard output' -- \
		bash -c 'full "$@"' - "$pingpong" --local --sizes 8 --iters 10
	refuses full-help 'standard output' -- bash -c 'full "$@"' - "$allreduce" --help
fi
passes json "$allreduce" "${small[@]}" --json "$temp/new/folder/numbers.json"
grep -q busbw "$temp/new/folder/numbers.json" || fail "json: no numbers"
refuses json-folder 'is a directory' -- "$allreduce" "${small[@]}" --json "$temp/new"
: >"$temp/file"
refuses json-nowhere "$temp/file/numbers" -- "$allreduce" "${small[@]}" --json "$temp/file/numbers"
! grep -q '#' "$temp/json-folder.out" "$temp/json-nowhere.out" || fail "it swept all the same"

# What is no regular file is written to and stays. (Not the true /dev/null: the test may be root.)
ln -s /proc/self/fd/1 "$temp/stdout"
passes json-stdout "$allreduce" "${small[@]}" --json "$temp/stdout"
[ -L "$temp/stdout" ] || fail "the link to standard output was replaced"
grep -q busbw_gbps "$temp/json-stdout.out" || fail "json-stdout: no numbers"
grep -q '# OK' "$temp/json-stdout.out" || fail "json-stdout: no table"
mkfifo "$temp/fifo"
timeout 60 cat "$temp/fifo" >"$temp/from-fifo" &
started+=("$!")
passes json-fifo "$allreduce" "${small[@]}" --json "$temp/fifo"
wait "${started[@]}" || fail "nobody wrote to the FIFO"
started=()
[ -p "$temp/fifo" ] || fail "the FIFO was replaced"
grep -q busbw "$temp/from-fifo" || fail "json-fifo: no numbers came out"
mkdir "$temp/elsewhere"
for name in dangling there; do
	ln -s "elsewhere/$name.json" "$temp/$name"
done
echo old >"$temp/elsewhere/there.json"
for name in dangling there; do
	passes "json-$name" "$allreduce" "${small[@]}" --json "$temp/$name"
	[ -L "$temp/$name" ] || fail "json-$name: the link was replaced"
	grep -q busbw "$temp/elsewhere/$name.json" || fail "json-$name: no numbers"
done
finish
