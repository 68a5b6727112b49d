#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Every operation with every type, reduction, root and algorithm that can, in and out of place, with
# counts that no number of ranks divides, from buffers that nothing is aligned to: every element is
# compared. Numbers whose result is exact must come out to the last bit; random ones and wire types
# within the bound of each element; all ranks must have the same, and the same again.
#
# With more ranks there are more cases than time: of those one in a few is tried, another one each
# time. FRL_SEED=N repeats a run, FRL_MATRIX=all tries all.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

seed=${FRL_SEED:-$RANDOM}
echo "FRL_SEED=$seed"
counts=0,1,7,129,1000,4099
what=(--op all --dtype all --redop all --root all)

# matrix NAME RANKS SAMPLE OPTION...: one job goes through all cases, or one of SAMPLE.
matrix() {
	local name=$1 ranks=$2 sample=$3 out=$temp/$1.out
	[ "${FRL_MATRIX:-}" != all ] || sample=1
	passes "$name" "$bench" -n "$ranks" "${what[@]}" --quiet --seed "$seed" --sample "$sample" \
		"${@:4}"
	echo "$name: $SECONDS s: $(grep -E '^# (OK|FAILED)' "$out")"
	grep -qE 'OK: every result was right \([0-9]{2,}\)' "$out" ||
		fail "$name: little was checked"
	! grep 'Ferrule does not do them' "$out" || fail "$name: cases were refused"
}

[ "${FRL_MATRIX:-}" != all ] || passes_limit=1200
sample=(0 1 1 1 4 8 0 0 24)
for ranks in 1 2 3 4 5 8; do
	matrix "n$ranks" "$ranks" "${sample[$ranks]}" --count "$counts" --iters 0 --algo all \
		--offset 3
done
for ranks in 2 3 5; do
	matrix "n$ranks-random" "$ranks" $((ranks * 3)) --count 1,1000,65537 --iters 0 --data random
	matrix "n$ranks-again" "$ranks" $((ranks * 4)) --count 5,2500 --iters 4 --warmup 0 \
		--inflight 3 --data random
	matrix "n$ranks-wires" "$ranks" "$ranks" --algo all --dtype float32 \
		--op allreduce,reduce_scatter,reduce,allgather,broadcast \
		--redop sum,avg,premul_sum --wire float16,bfloat16,int8 \
		--count 1,127,129,4099 --iters 0 --offset 1
done
finish
