#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Data-parallel training gives the result of a single process, except for rounding. Its ranks have
# the same parameters, bit by bit, and so have runs with and without overlap. Bad options, bad
# images and ranks that were started differently are reported; a rank that is killed ends the
# others.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"

train=$bin/ferrule-train
[ -x "$train" ] || skip "$train is not built"
# The cost model may choose another algorithm, and so another order of summing, in each run.
export FRL_ALGO=ring

# value NAME KEY: from the object that the run printed.
value() {
	sed -n "s/^ \"$2\": \"\{0,1\}\([^\",]*\).*/\1/p" "$temp/$1.out"
}

# first_loss NAME: after one epoch.
first_loss() {
	sed -n 's/^   "loss": \([^,]*\).*/\1/p' "$temp/$1.out" | head -1
}

# learns NAME OPTION...: the ranks end with the same parameters.
learns() {
	local name=$1
	shift
	passes "$name" "$train" --data "$data/digits.csv" --json "$@"
	echo "$name: loss $(value "$name" loss), accuracy $(value "$name" accuracy)," \
		"parameters $(value "$name" digest)"
	[ "$(value "$name" same_on_ranks)" = true ] || fail "$name: the ranks differ"
}

# close NAME A B SHARE: the numbers differ by no more than this share of the first.
close() {
	awk -v a="$2" -v b="$3" -v share="$4" 'BEGIN {
		d = a - b
		exit !(a != "" && b != "" && (d < 0 ? -d : d) <= share * a) }' ||
		fail "$1: $3 instead of $2"
}

# agree ONE OTHER: two runs with the same seed. In the first epoch they differ by rounding only;
# later steps add a little. One of 360 test images may get the other class.
agree() {
	close "$2, loss of the first epoch" "$(first_loss "$1")" "$(first_loss "$2")" 0.00001
	close "$2, final loss" "$(value "$1" loss)" "$(value "$2" loss)" 0.001
	close "$2, accuracy" "$(value "$1" accuracy)" "$(value "$2" accuracy)" 0.003
}

identical() {
	[ "$(value "$1" digest)" = "$(value "$2" digest)" ] ||
		fail "$1 and $2 have different parameters"
}

# Fewer steps than by default, so that it is short on busy processors, too.
quick=(--epochs 10 --batch 240 --lr 0.15)
learns one -n 1 "${quick[@]}"
awk -v a="$(value one accuracy)" 'BEGIN { exit !(a > 0.95) }' || fail "one: it has not learnt"
for n in 2 4; do
	learns "$n-on" -n "$n" "${quick[@]}"
	learns "$n-off" -n "$n" "${quick[@]}" --overlap off
	agree one "$n-on"
	identical "$n-on" "$n-off"
done
! grep '"hidden"' "$temp/4-off.out" | grep -qv ' 0\.0,' || fail "4-off: overlap, though it is off"
grep '"hidden"' "$temp/4-on.out" | grep -qv ' 0\.0,' || fail "4-on: no overlap"

# Unequal or empty shares of batches; other layers; buckets across their borders.
odd=(--epochs 2 --batch 100 --hidden "33,17,9" --seed 7)
learns odd-one -n 1 "${odd[@]}"
learns odd-on -n 3 --bucket 1000 "${odd[@]}"
learns odd-off -n 3 --bucket 1000 --overlap off "${odd[@]}"
agree odd-one odd-on
identical odd-on odd-off
head -n 100 "$data/digits.csv" >"$temp/few.csv"
tiny=(--data "$temp/few.csv" --epochs 1 --batch 2 --lr 0.005)
learns tiny-one -n 1 "${tiny[@]}"
learns tiny -n 3 --progress thread "${tiny[@]}"
agree tiny-one tiny

# Ranks that another launcher has started.
export FRL_JOB=train FRL_RANKS=2
FRL_RANK=1 "$train" --data "$data/digits.csv" "${quick[@]}" >"$temp/launched-1.out" 2>&1 &
pid=$!
started+=("$pid")
FRL_RANK=0 learns launched "${quick[@]}"
wait "$pid" || fail "launched: rank 1 failed: $(cat "$temp/launched-1.out")"
unset FRL_JOB FRL_RANKS
identical 2-on launched

passes table "$train" -n 2 --data "$data/digits.csv" --batch 240 --epochs 2
[ "$(grep -c '^epoch ' "$temp/table.out")" -eq 2 ] || fail "table: not a line for each epoch"
grep -q '^OK$' "$temp/table.out" || fail "table: no OK"
passes quiet "$train" -n 2 --data "$data/digits.csv" --batch 240 --epochs 2 --quiet
! grep -q '^epoch ' "$temp/quiet.out" || fail "quiet: lines for epochs"
show "$temp/table.out"

# bad NAME PATTERN OPTION...: usage, so status 2.
bad() {
	local name=$1 pattern=$2 status=0
	shift 2
	"$train" --data "$data/digits.csv" "$@" >"$temp/$name.out" 2>&1 || status=$?
	[ "$status" -eq 2 ] || fail "$name: exit status $status"
	grep -qE -- "$pattern" "$temp/$name.out" || fail "$name: it says: $(cat "$temp/$name.out")"
}
bad ranks "-n '0': not a whole number" -n 0
bad lr "--lr 'nan': not a number" --lr nan
bad hidden "--hidden '8,x': 'x' is not" --hidden 8,x
bad layers "more than 8 layers" --hidden 1,1,1,1,1,1,1,1,1
bad bucket "multiple of 4" --bucket 6
bad overlap "there is on and off" --overlap yes
bad argument "no arguments" file.csv

sed '7s/,[0-9]*$//' "$data/digits.csv" >"$temp/short.csv"
sed '1797s/^0,/17,/' "$data/digits.csv" >"$temp/bright.csv"
refuses short 'short\.csv: line 7: there are 64 columns' -- "$train" -n 2 --data "$temp/short.csv"
refuses bright "bright\.csv: line 1797: column 1: '17' is not a pixel" -- \
	"$train" -n 2 --data "$temp/bright.csv"
[ "$(wc -l <"$temp/bright.out")" -eq 1 ] || fail "bright: not said once"
refuses nowhere 'nowhere\.csv: No such file' -- "$train" --data "$temp/nowhere.csv"
refuses astray 'epoch 1: the loss is not finite .*--lr' -- \
	"$train" -n 2 --data "$data/digits.csv" --lr 100 --hidden "64,64,64,64,64,64"

# A rank with another seed, or with other images.
differs() {
	local name=$1 pattern=$2 job=differs-$1 pid
	shift 2
	"$train" -n 2 --rank 0 --job "$job" --data "$data/digits.csv" >"$temp/$name-0.out" 2>&1 &
	pid=$!
	started+=("$pid")
	refuses "$name" "$pattern" -- "$train" -n 2 --rank 1 --job "$job" "$@"
	! wait "$pid" || fail "$name: rank 0 has not noticed"
}
differs seed 'rank 1 and rank 0 differ in --seed' --data "$data/digits.csv" --seed 2
head -n 1000 "$data/digits.csv" >"$temp/part.csv"
differs images 'rank 1 and rank 0 differ in --data' --data "$temp/part.csv"

# A rank is killed in the middle of it.
trained_an_epoch() {
	grep -q '^epoch' "$temp/killed.out"
}
"$train" -n 3 --data "$data/digits.csv" --epochs 1000000 >"$temp/killed.out" 2>&1 &
launcher=$!
started+=("$launcher")
wait_until trained_an_epoch || fail "killed: no epoch"
mapfile -t ranks < <(children "$launcher" | sort -n)
started+=("${ranks[@]}")
kill -9 "${ranks[1]}"
for pid in "${ranks[@]}" "$launcher"; do
	wait_until ended "$pid" || fail "killed: process $pid hangs"
done
! wait "$launcher" || fail "killed: the launcher's exit status is 0"
grep -v '^epoch' "$temp/killed.out" >"$temp/killed-said.out"
grep -q 'rank [02]: allreduce failed in epoch .*rank 1 ' "$temp/killed-said.out" ||
	fail "killed: nobody names rank 1"
show "$temp/killed-said.out"
finish
