#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs each example on the local fabric. The comment at the head of an example says what it prints:
# the test compares the output with these lines ("..." stands for any text).
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"

examples=$bin/../examples
double=${FRL_FAKE_LIBCUDA:-$bin/../tests/fakes/cuda}
checked=0

# promised NAME: the lines that the head of the example promises, in C or Python.
promised() {
	local source=$system_root/examples/$1.c
	if [ -f "$source" ]; then
		sed -n '/^ \*\/$/q; /^ \* Prints: /,$p' "$source" | cut -c 13-
	else
		sed -n '/^"""$/q; /^Prints: /,$p' "${source%.c}.py" | cut -c 9-
	fi
}

# count PATTERN FILE...: how many lines match the shell pattern.
count() {
	local pattern=$1 line n=0
	shift
	while IFS= read -r line; do
		# shellcheck disable=SC2053 # a pattern
		[[ $line != $pattern ]] || n=$((n + 1))
	done < <(cat "$@")
	echo "$n"
}

# prints NAME FILE...: the files together have each promised line once and no other line, except the
# server's first one.
prints() {
	local name=$1 line n=0 found
	shift
	while IFS= read -r line; do
		n=$((n + 1))
		found=$(count "${line//.../*}" "$@")
		[ "$found" -eq 1 ] || fail "$name prints $found times: $line"
	done < <(promised "$name")
	[ "$n" -gt 0 ] || fail "$name.c does not say what it prints"
	found=$(($(count '*' "$@") - $(count 'server: waiting for a client' "$@")))
	[ "$found" -eq "$n" ] || fail "$name prints $found lines, not $n"
	[ "$failures" -eq 0 ] || show "$@"
	checked=$((checked + 1))
}

# process_ends NAME PID STATUS: the process ends with that status.
process_ends() {
	local status=0
	wait "$2" || status=$?
	[ "$status" -eq "$3" ] || fail "$1: exit status $status, not $3"
}

# job NAME RANKS STATUS [COMMAND...]: runs all ranks, by a command if there is one. Output:
# $temp/NAME-RANK.out.
job() {
	local name=$1 ranks=$2 rank
	for ((rank = 0; rank < ranks; rank++)); do
		FRL_JOB=example-$name-$$ FRL_RANKS=$ranks FRL_RANK=$rank \
			timeout -k 5 "$program_limit" "${@:4}" "$examples/$name" \
			>"$temp/$name-$rank.out" 2>&1 &
		started+=("$!")
	done
	for ((rank = 0; rank < ranks; rank++)); do
		process_ends "$name, rank $rank" "${started[$rank]}" "$3"
	done
	started=()
}

# pair NAME WORD...: a server, and then a client with these words. Output: $temp/NAME-server.out and
# $temp/NAME-client.out.
pair() {
	local name=$1 service=example-$1-$$
	shift
	timeout -k 5 "$program_limit" "$examples/$name" "$service" >"$temp/$name-server.out" 2>&1 &
	started=("$!")
	wait_until grep -qs 'waiting for a client' "$temp/$name-server.out" ||
		fail "$name: no server"
	passes "$name-client" "$examples/$name" "$service" localhost "$@"
	process_ends "$name, server" "${started[0]}" 0
	started=()
	prints "$name" "$temp/$name-server.out" "$temp/$name-client.out"
}

[ -x "$examples/write" ] || skip "$examples/write is not built"

pair write
pair events one two
for name in read_atomics datagrams allreduce overlap; do
	job "$name" 2 0
	prints "$name" "$temp/$name"-{0,1}.out
done

# Debian's Python runs it with the package of the tree.
python=${FRL_PYTHON:-/usr/bin/python3}
if "$python" -c 'import numpy' 2>/dev/null; then
	examples=$system_root/examples job sum.py 2 0 env "PYTHONPATH=$system_root/python" \
		"FERRULE_LIBRARY=$bin/../libferrule.so.0" PYTHONDONTWRITEBYTECODE=1 "$python"
	mv "$temp/sum.py-0.out" "$temp/sum-0.out"
	mv "$temp/sum.py-1.out" "$temp/sum-1.out"
	prints sum "$temp"/sum-{0,1}.out
else
	echo "sum.py was not run: $python has no numpy"
fi

# A failure has the library's reason, and a status.
refuses no-service 'service nobody' -- "$examples/write" "nobody-$$" localhost
refuses no-job FRL_RANK -- "$examples/allreduce"
refuses usage usage -- "$examples/write"

# The double of CUDA's driver stands in for a GPU, if the library has kernels. Otherwise, and
# without the double, the example says why it does nothing.
if [ -r "$double/libcuda.so.1" ]; then
	export LD_LIBRARY_PATH=$double${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
	status=0
	FRL_RANKS=1 FRL_RANK=0 FRL_JOB=example-look-$$ "$examples/gpu_buffers" \
		>"$temp/look.out" 2>&1 || status=$?
	if [ "$status" -eq 77 ]; then
		grep -q '^SKIP: .*\.' "$temp/look.out" || fail "gpu_buffers does not say why not"
		show "$temp/look.out"
	else
		FAKE_CUDA_DEVICES=2 job gpu_buffers 2 0
		prints gpu_buffers "$temp"/gpu_buffers-{0,1}.out
	fi
	FAKE_CUDA_DEVICES=0 refuses no-gpu '^SKIP: no GPU can be used: .' -- env FRL_RANKS=1 \
		FRL_RANK=0 "FRL_JOB=example-none-$$" "$examples/gpu_buffers"
fi
echo "$checked examples print what they say"
finish
