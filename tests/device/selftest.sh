#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# selftest.sh [BUILD]: tests the scripts for machines with a GPU on a machine without one. Checks
# the output and counts of the runner of rows, with injected rows and a clock of its own. With
# BUILD, a build of Ferrule, it also runs gpu.sh and nccl.sh: against the double of the driver, and
# with a program in place of NCCL's ranks. It shows nothing about a GPU or about NCCL.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
build=${1:-}
own=$(mktemp -d)
trap 'rm -rf "$own"' EXIT
failures=0
n_cases=0

complain() {
	echo "FAILED: $*"
	failures=$((failures + 1))
}

# ---- the runner, with injected rows

# Each case has $temp, a clock that rows advance, and no limits but those of the rows.
new_runner() {
	temp=$own/temp
	rm -rf "$temp" "$own/keep"
	mkdir "$temp"
	keep=
	only=
	rehearsal=
	rows_total=100
	# shellcheck source=tests/device/rows.sh
	. "$here/rows.sh"
	clock=0
	elapsed() {
		echo "$clock"
	}
}

# ends NAME SECONDS OUTCOME SAID: an injected row.
ends() {
	clock=$((clock + $2))
	outcome=$3
	said=$4
	echo "this was $1" >"$temp/$1.out"
}

# breaks NAME: a row whose function has an error.
breaks() {
	false
}

# hangs NAME: a row that uses all its time.
hangs() {
	clock=$((clock + row_limit))
	outcome=hang
	said=
}

# talks NAME LINES: a row that fails after that many lines.
talks() {
	seq "$2" | sed "s/^/$1 line /" >"$temp/$1.out"
	outcome=fail
	said="it says too much"
}

verdicts() {
	new_runner
	row good 10 "works" ends 3 pass "as seen"
	row silent 10 "works" ends 0 pass ""
	row bad 10 "fails" ends 1 fail "for a reason"
	row left-out 10 "cannot" ends 0 skip "there is none"
	row broken 10 "breaks" breaks
	skip_row missing "never built" "no compiler"
	print_totals
	rows_are_good || echo "not good"
}

reported() {
	new_runner
	report right 10 "has no guarantee" ends 1 pass "it went well"
	report wrong 10 "has no guarantee" ends 1 fail "it did not"
	report stuck 10 "has no guarantee" hangs
	report absent 10 "has no guarantee" ends 0 skip "no tool"
	print_totals
	rows_are_good && echo "good"
}

limits() {
	new_runner
	row stuck 30 "hangs" hangs
	row later 60 "goes on" ends 60 pass ""
	row cut 30 "has less time" hangs
	row never 10 "has none" ends 1 pass ""
	report never-either 10 "has none" ends 1 pass ""
	print_totals
	rows_are_good || echo "not good"
}

not_run_is_not_good() {
	new_runner
	row long 200 "takes all but a little" ends 96 pass ""
	row short 10 "has too little" ends 1 pass ""
	print_totals
	rows_are_good || echo "not good"
}

selected() {
	new_runner
	only='a-.*|c'
	row a-1 10 "runs" ends 1 pass ""
	row b 10 "does not" ends 1 fail "never"
	row c 10 "runs" ends 1 pass ""
	row cc 10 "does not" ends 1 fail "never"
	skip_row d "does not" "never"
	print_totals
	only=nothing
	rows_begun=
	row a-1 10 "does not" ends 1 pass ""
	rows_are_good || echo "nothing was run"
}

logs() {
	new_runner
	lines_of_row=3
	lines_of_all=6
	keep=$own/keep
	row one 10 "talks" talks 500
	row two 10 "talks" ends 0 fail "with a digest"
	echo "digest of two" >"$temp/two.why"
	row three 10 "is one too many" talks 500
	row fine 10 "works" ends 0 pass ""
	print_failed_logs
	echo "kept: $(cd "$keep" && echo *)"
}

one_line() {
	new_runner
	row odd 10 "odd text" ends 0 fail $'two\nlines\tand \001 more'
	row long 10 "long text" ends 0 fail "$(seq -s , 300)"
}

# The only row that waits: only the limit ends its command.
real_limit() {
	local status=0
	new_runner
	limited 1 sleep infinity || status=$?
	echo "status $status"
	limited 1000 true
	echo "status $?"
}

# shows CASE: compares the output of a case with standard input, one regular expression a line.
shows() {
	local name=$1 output lines i=0 wanted n
	n_cases=$((n_cases + 1))
	output=$( ("$name") 2>&1) || true
	mapfile -t lines <<<"$output"
	n=${#lines[@]}
	while read -r wanted; do
		if [[ ! ${lines[i]-} =~ ^${wanted}$ ]]; then
			complain "$name: line $((i + 1)) is not '$wanted':"
			echo "$output"
			return 0
		fi
		i=$((i + 1))
	done
	[ "$i" -eq "$n" ] || {
		complain "$name: there are more lines than $i:"
		echo "$output"
	}
}

shows verdicts <<'END'
PASS  good +3 s  works: as seen
PASS  silent +0 s  works
FAIL  bad +1 s  fails: for a reason
SKIP  left-out +0 s  cannot: there is none
FAIL  broken +0 s  breaks: the row's function failed
SKIP  missing +0 s  never built: no compiler
2 passed, 2 failed, 2 skipped
not good
END
shows reported <<'END'
NOTE  right +1 s  has no guarantee: it went well
NOTE  wrong +1 s  has no guarantee: it did not \(failed, which is no failure of this run\)
NOTE  stuck +10 s  has no guarantee: no end within 10 s \(failed, which is no failure of this run\)
SKIP  absent +0 s  has no guarantee: no tool
0 passed, 0 failed, 1 skipped; 3 reported
good
END
shows limits <<'END'
FAIL  stuck +30 s  hangs: no end within 30 s
PASS  later +60 s  goes on
CUT   cut +10 s  has less time: ended with the total time
1 passed, 1 failed, 0 skipped
not run, for 100 s were over: cut never never-either
not good
END
shows not_run_is_not_good <<'END'
PASS  long +96 s  takes all but a little
1 passed, 0 failed, 0 skipped
not run, for 100 s were over: short
not good
END
shows selected <<'END'
PASS  a-1 +1 s  runs
PASS  c +1 s  runs
2 passed, 0 failed, 0 skipped
nothing was run
END
shows logs <<'END'
FAIL  one +0 s  talks: it says too much
FAIL  two +0 s  talks: with a digest
FAIL  three +0 s  is one too many: it says too much
PASS  fine +0 s  works
--- one \(one.out\)
one line 498
one line 499
one line 500
--- two \(two.why\)
digest of two
\[logs of other failed rows: --keep\]
kept: fine.out one.out three.out two.out
END
shows one_line <<'END'
FAIL  odd +0 s  odd text: two lines and  more
FAIL  long +0 s  long text: [0-9,]{169}
END
shows real_limit <<'END'
status 124
status 0
END

# ---- the scripts, without a GPU

fakes=$own/fakes
mkdir -p "$fakes/nccl/lib" "$own/none"
: >"$fakes/nccl/lib/libnccl.so.2"

cat >"$own/none/nvidia-smi" <<'END'
#!/bin/sh
echo "No devices were found"
exit 6
END
cat >"$fakes/nvidia-smi" <<'END'
#!/bin/sh
case "$*" in
*name,driver_version*) echo "No GPU, 0.0" ;;
*compute_mode*) echo Default ;;
*pcie*) echo "0, 0" ;;
esac
END
# Its options come before the program.
cat >"$fakes/compute-sanitizer" <<'END'
#!/bin/sh
echo "========= COMPUTE-SANITIZER"
while [ "${1#--}" != "$1" ]; do
	shift 2
done
"$@" || exit
echo "========= ERROR SUMMARY: 0 errors"
END
# Replaces pip's NCCL, PyTorch, and a rank of DDP.
cat >"$fakes/python3" <<'END'
#!/bin/sh
folder=$(dirname "$0")
case $1 in
-) echo "$folder/nccl" ;;
-c) ;;
*) exec "$folder/nccl_check" --rank "$RANK" --ddp ;;
esac
END
# A rank: prints and logs the lines of NCCL. The file `scenario` names the mistake that it makes.
cat >"$fakes/nccl_check" <<'END'
#!/bin/bash
folder=$(dirname "$0")
scenario=$(cat "$folder/scenario")
loaded=$(readlink -f "$folder/nccl/lib/libnccl.so.2")
[ "$scenario" != other-nccl ] || loaded=/elsewhere/libnccl.so.2
[ "$scenario" = no-rdma ] && rdma=0 || rdma=1
printf '%s\n' "NCCL 2.99.0" "loaded: $loaded"
case " $* " in
*" --about "*)
	printf '%s\n' "CUDA 13.0, the driver's 13.0" "GPU 0: none" "GPUDirect RDMA: $rdma"
	exit 0
	;;
*" --ddp "*) echo "DDP: 7 parameters" ;;
*" --bench "*) echo "allreduce 4096 bytes 10.0 us busbw 1.0 GB/s" ;;
esac
net=${NCCL_NET:-Ferrule}
way=$net/0
if [ "${FERRULE_GPU:-}${FERRULE_UNPACK:-}" ] && [ "${NCCL_NET_GDR_LEVEL:-}" = SYS ] &&
	[ "$rdma" = 1 ]; then
	way+=/GDRDMA
fi
[ "${NCCL_NET_SHARED_COMMS:-1}" = 0 ] || way+=/Shared
say() {
	echo "host:1:1 [0] NCCL INFO $*" >>"$NCCL_DEBUG_FILE"
}
say "Using network $net"
say "Channel 00/0 : 0[0] -> 1[0] [send] via NET/$way"
proto=${NCCL_PROTO:-LL}
# The protocol that the tuner leaves, except in one scenario.
if [ "${FERRULE_UNPACK:-}" ] && [ "$proto" = LL ] && [ "$scenario" != no-tuner ]; then
	proto=SIMPLE
fi
say "AllReduce: 4096 Bytes -> Algo RING proto $proto channel{Lo..Hi}={0..0}"
[ "${FERRULE_UNPACK:-0}${NCCL_NET_GDR_LEVEL:-}" != 1SYS ] ||
	say "NET/Ferrule : a connection to x: NCCL's kernels unpack receives, up to 9 packets"
case " $* " in
*" --lives 2 "*)
	if [ "$scenario" = forgotten ]; then
		say "Using network Socket"
		say "Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0"
	else
		say "Using network Ferrule"
	fi
	;;
*" --die "*)
	[ "$RANK" = 0 ] || exit 0
	[ "$scenario" != deaf ] || exit 1
	say "NET/Ferrule : sending to x over y, QP 0x1 to QP 0x2, unacknowledged from PSN 7: gone"
	echo "noticed after allreduce 5, 0.7 s later"
	exit 4
	;;
esac
[ "$scenario" != wrong-ll128 ] || [ "${NCCL_PROTO:-}" != LL128 ] || exit 1
# The exit status of timeout.
[ "$scenario" != stuck ] || [ "${NCCL_PROTO:-}" != Simple ] || exit 124
exit 0
END
chmod +x "$fakes"/{nvidia-smi,compute-sanitizer,python3,nccl_check} "$own/none/nvidia-smi"

# says NAME STATUS PATTERN... -- COMMAND...: checks the command's status and output.
says() {
	local name=$1 wanted=$2 patterns=() pattern status=0 output
	shift 2
	while [ "$1" != -- ]; do
		patterns+=("$1")
		shift
	done
	shift
	n_cases=$((n_cases + 1))
	output=$("$@" 2>&1) || status=$?
	[ "$status" -eq "$wanted" ] || {
		complain "$name: status $status, not $wanted"
		echo "$output"
		return 0
	}
	for pattern in "${patterns[@]}"; do
		grep -qE -- "$pattern" <<<"$output" && continue
		complain "$name: nothing matches '$pattern'"
		echo "$output"
		return 0
	done
}

for script in gpu nccl; do
	says "$script.sh without a GPU" 77 '^SKIP: no GPU: No devices were found' -- \
		env PATH="$own/none:$PATH" "$here/$script.sh" --build "${build:-$own}"
	says "$script.sh --help" 0 '--seconds N' '--only REGEX' -- "$here/$script.sh" --help
	says "$script.sh, an option too many" 2 'report.md' -- "$here/$script.sh" --no-such 1
	says "$script.sh, no number" 2 'number of seconds' -- "$here/$script.sh" --seconds soon
done

finish() {
	[ "$failures" -eq 0 ] || exit 1
	echo "$n_cases cases, all right"
	exit 0
}
[ -n "$build" ] || finish

# rehearse SCENARIO STATUS PATTERN... -- OPTION...: nccl.sh with the programs above.
rehearse() {
	local scenario=$1 wanted=$2 patterns=()
	shift 2
	while [ "$1" != -- ]; do
		patterns+=("$1")
		shift
	done
	shift
	echo "$scenario" >"$fakes/scenario"
	says "nccl.sh, $scenario" "$wanted" "${patterns[@]}" -- "$here/nccl.sh" --build "$build" \
		--rehearse "$fakes" --nccl pip --seconds 86400 "$@"
}

rehearse good 0 '^\*\*REHEARSAL' "NCCL 2.99.0 from $fakes/nccl/lib/libnccl.so.2" \
	'^PASS  host-2 .*memory of the host: NET/Ferrule/0/Shared LL$' \
	'^PASS  gpu-simple-2 .*NET/Ferrule/0/GDRDMA' '^PASS  unpack-simple-2 ' \
	'^PASS  again-2 ' \
	'^PASS  unpack-tuner-2 .*GDRDMA/Shared SIMPLE' '^PASS  unpack-alone-2 .*nothing unpacked' \
	'^PASS  die .*noticed after' '^PASS  ddp-gpu .*7 parameters' '^PASS  unshared-2 ' \
	'^PASS  gpu-simple-3 ' '^NOTE  host-ll128-2 ' '^NOTE  lazy-2 .*not refused' \
	'^[0-9]+ passed, 0 failed, 0 skipped; 5 reported$' \
	'^\| 4096 \| 10.0 \| 10.0 \| 10.0 \| 10.0 \| 1.00 \| 1.00 \| 1.00 \|$' -- --rounds 1 \
	--keep "$own/logs"
[ -f "$own/logs/gpu-simple-2-1.log" ] || complain "--keep keeps no log of rank 1"
rehearse other-nccl 1 '^FAIL  start .*elsewhere.*, not from ' '^0 passed, 1 failed' -- \
	--only start
rehearse no-rdma 0 '^SKIP  gpu-simple-2 .*no GPUDirect RDMA' '^2 passed, 0 failed, 1 skipped' -- \
	--only 'host-2|gpu-simple-2'
rehearse forgotten 1 '^FAIL  again-2 .*connections beside NET/Ferrule: via NET/Socket' \
	'rank 0 ended with 0:' -- --only again-2
rehearse no-tuner 1 '^FAIL  unpack-tuner-2 .*NCCL used LL' '^PASS  unpack-simple-2 ' -- \
	--only 'unpack-(tuner|simple)-2'
rehearse deaf 1 '^FAIL  die .*ranks ended with 1 0, not with 4 0; it did not notice' -- --only die
rehearse wrong-ll128 0 '^NOTE  host-ll128-2 .*ranks ended with 1 1.*no failure of this run' \
	'^1 passed, 0 failed, 0 skipped; 1 reported' -- --only host-ll128-2
rehearse stuck 1 '^FAIL  gpu-simple-2 .*no end within 60 s; ranks ended with 124 124' \
	'^PASS  host-2 ' -- --only 'host-2|gpu-simple-2'

double=$build/tests/fakes/cuda/libcuda.so.1
if [ -r "$double" ] && [ -x "$build/tests/unit/test_gpu" ]; then
	ln -s "$(readlink -f "$double")" "$fakes/libcuda.so.1"
	says "gpu.sh, on the double" 0 '^\*\*REHEARSAL' '^PASS  cuda_rules ' \
		'^1 passed, 0 failed, 0 skipped$' -- "$here/gpu.sh" --build "$build" \
		--rehearse "$fakes" --seconds 86400 --only cuda_rules
fi
finish
