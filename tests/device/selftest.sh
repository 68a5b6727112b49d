#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Shows what the runner of rows of the scripts for machines with a GPU prints and counts, with
# injected rows and a clock of its own. No GPU is needed.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
own=$(mktemp -d)
trap 'rm -rf "$own"' EXIT
failures=0
n_cases=0

complain() {
	echo "FAILED: $*"
	failures=$((failures + 1))
}

# ---- the runner, with injected rows

# In each case: $temp, a clock that rows move, and no limits but what rows say themselves.
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

# breaks NAME: the row's function has a mistake.
breaks() {
	false
}

# hangs NAME: it uses all the time it may.
hangs() {
	clock=$((clock + row_limit))
	outcome=hang
	said=
}

# talks NAME LINES: a row that fails after so many lines.
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

# The only one that waits: its command ends by its limit alone.
real_limit() {
	local status=0
	new_runner
	limited 1 sleep infinity || status=$?
	echo "status $status"
	limited 1000 true
	echo "status $?"
}

# shows CASE: compares what a case prints with standard input, one regular expression a line.
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

[ "$failures" -eq 0 ] || exit 1
echo "$n_cases cases, all right"
