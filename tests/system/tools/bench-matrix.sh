#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Every operation with every type, reduction, root and algorithm that supports it, in and out of
# place, with counts that no number of ranks divides, from unaligned buffers. Every element is
# compared. Numbers whose result is exact must match to the last bit; random ones and wire types
# within the bound of each element. All ranks must have the same result, and the same again. The
# list of cases that ran is read from the CSV: an algorithm that ran nothing of its list in
# docs/design/algorithms.md is a failure.
#
# With more ranks there are more cases than time: one in a few is tried, another one each time.
# FRL_SEED=N repeats a run, FRL_MATRIX=all tries all.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"

seed=${FRL_SEED:-$RANDOM}
echo "FRL_SEED=$seed"
counts=0,1,7,129,1000,4099
what=(--op all --dtype all --redop all --root all)
one=(--dtype float32 --redop sum --root 0 --count 129 --iters 0)
short=(--dtype float32 --wire "float16,bfloat16,int8")

# pairs ALGO WIRE OP...: the lines that must be there.
pairs() {
	local op
	for op in "${@:3}"; do
		echo "$1,$2,$op"
	done
}

# able RANKS: the abilities of algorithms on one host. (With several hosts there is also
# hierarchical: tests/sim.)
able() {
	local n=$1 wire
	local reducing=(allreduce reduce_scatter reduce)
	local copying=(allgather broadcast alltoall alltoallv gather scatter)

	pairs auto same "${reducing[@]}" "${copying[@]}" barrier sendrecv
	for wire in float16 bfloat16 int8; do
		pairs auto "$wire" "${reducing[@]}" "${copying[@]}" sendrecv
	done
	[ "$n" -gt 1 ] || return 0
	pairs direct same barrier
	pairs bruck same barrier
	pairs halving-doubling same allreduce
	[ $((n & (n - 1))) -ne 0 ] || pairs halving-doubling same reduce_scatter allgather
	pairs tree same allreduce broadcast reduce
	pairs pairwise same alltoall alltoallv reduce_scatter allgather
	for wire in same float16 bfloat16 int8; do
		pairs direct "$wire" "${reducing[@]}" "${copying[@]}"
		pairs ring "$wire" allgather broadcast
		[ "$wire" = int8 ] || pairs ring "$wire" "${reducing[@]}"
		pairs tree "$wire" gather scatter
		pairs bruck "$wire" allgather alltoall
	done
	pairs bruck int8 "${reducing[@]}"
}

# ran NAME: the cases in its CSV, in the format of `pairs`.
ran() {
	[ ! -e "$temp/$1.csv" ] || awk -F, 'NR > 1 { print $5 "," $4 "," $1 }' "$temp/$1.csv"
}

# has_all NAME EXPECTED FOUND: each line of EXPECTED is in FOUND.
has_all() {
	local missing
	missing=$(comm -23 <(sort -u <<<"$2") <(sort -u <<<"$3") | tr '\n' ' ')
	[ -z "$missing" ] || fail "$1: not measured: ${missing:0:600}"
}

# matrix NAME RANKS SAMPLE OPTION...: one job goes through all cases, or one of SAMPLE.
matrix() {
	local name=$1 ranks=$2 sample=$3 out=$temp/$1.out begin=$SECONDS
	[ "${FRL_MATRIX:-}" != all ] || sample=1
	passes "$name" "$bench" -n "$ranks" "${what[@]}" --quiet --seed "$seed" --sample "$sample" \
		--csv "$temp/$name.csv" "${@:4}"
	echo "$name: $((SECONDS - begin)) s: $(grep -E '^# (OK|FAILED)' "$out")"
	grep -q 'OK: every result was right' "$out" || fail "$name: nothing was checked"
	! grep 'Ferrule does not do them' "$out" || fail "$name: cases were refused"
}

# each RANKS: a case of every algorithm, wire type and operation, without random choice.
each() {
	local name=n$1-each
	matrix "$name" "$1" 1 --algo all "${one[@]}" --wire all
	has_all "$name" "$(able "$1")" "$(ran "$name")"
}

[ "${FRL_MATRIX:-}" != all ] || program_limit=$((program_limit * 10))
for ranks in 1 2 3 4 5 8; do
	each "$ranks"
done
sample=(0 1 1 3 8 12 0 0 36)
for ranks in 1 2 3 4 5 8; do
	matrix "n$ranks" "$ranks" "${sample[$ranks]}" --count "$counts" --iters 0 --algo all \
		--offset 3
	# The drawn cases: with 8 ranks there are too few to check.
	[ "$ranks" -eq 8 ] || has_all "n$ranks" "$(able "$ranks" | grep ,same, | cut -d, -f 1)" \
		"$(ran "n$ranks" | cut -d, -f 1)"
done
for ranks in 2 3 5; do
	matrix "n$ranks-random" "$ranks" $((ranks * 3)) --count 1,1000,65537 --iters 0 --data random
	matrix "n$ranks-again" "$ranks" $((ranks * 4)) --count 5,2500 --iters 4 --warmup 0 \
		--inflight 3 --data random
done
sample=(0 2 3 6 16 32 0 0 90)
for ranks in 1 2 3 4 5 8; do
	matrix "n$ranks-wires" "$ranks" "${sample[$ranks]}" --algo all "${short[@]}" \
		--count 1,127,129,1000,4099 --iters 0 --offset 1
done
# Many ranks: the algorithm for them, and some of all cases.
matrix n40-each 40 1 "${one[@]}" --op allreduce,alltoall,barrier --wire same,int8 --algo bruck
has_all n40-each "$(pairs bruck same alltoall barrier && pairs bruck int8 allreduce alltoall)" \
	"$(ran n40-each)"
matrix n40 40 400 --count 1,1000 --iters 0
finish
