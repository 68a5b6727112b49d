# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Runs the rows of gpu.sh and nccl.sh one after the other, within a total time. Prints one verdict
# line for each row, then "N passed, N failed, N skipped", then the end of the logs of failed rows.
# Sourced after tests/system/lib.sh, whose folder $temp has the logs.
#
# A row is a shell function that gets the row's name and sets
#   $outcome  pass, fail, skip or hang (it was ended at its limit, $row_limit seconds)
#   $said     one line: what was seen, or why
# Its logs are $temp/NAME.* and $temp/NAME-*. Where it leaves $temp/NAME.why, these lines are shown
# for a failed row instead of the end of its first log.

n_passed=0
n_failed=0
n_skipped=0
n_reported=0
not_run=()
failed_rows=()
rows_begun=

# The last second in which a row may run, the least time that a row is started with, and the most
# lines of logs: for one row, and in all.
: "${rows_total:=440}"
rows_least=5
lines_of_row=12
lines_of_all=90

# elapsed: seconds since the script began. The self-test has a clock of its own.
elapsed() {
	echo "$SECONDS"
}

# limit_of SECONDS: no limit in a rehearsal, whose result must not depend on time.
limit_of() {
	[ -z "${rehearsal:-}" ] && echo "$1" || echo 0
}

# limited SECONDS COMMAND...: status 124 or 137 where the command had to be ended.
limited() {
	local most
	most=$(limit_of "$1")
	shift
	timeout -k 5 "$most" "$@"
}

# is_selected NAME: by --only, an extended regular expression for the whole name.
is_selected() {
	[ -z "${only:-}" ] || [[ $1 =~ ^(${only})$ ]]
}

# verdict WORD NAME SECONDS TEXT: the line.
verdict() {
	local text
	text=$(tr '\n\t' '  ' <<<"$4" | tr -cd '[:print:]' | sed 's/ *$//')
	printf '%-4s  %-20s %4s s  %s\n' "$1" "$2" "$3" "${text:0:180}"
}

# keep_logs NAME: copies the row's logs to the folder of --keep.
keep_logs() {
	local file
	[ -n "${keep:-}" ] || return 0
	mkdir -p "$keep"
	for file in "${temp:?}/$1".* "$temp/$1"-*; do
		case $file in
		*.id | *.id.*) ;;
		*) [ ! -f "$file" ] || cp "$file" "$keep/" ;;
		esac
	done
}

# run_row IS-MUST NAME LIMIT WHAT FUNCTION [ARGUMENT]...
run_row() {
	local must=$1 name=$2 limit=$3 what=$4 function=$5 begin left is_cut=
	shift 5
	is_selected "$name" || return 0
	begin=$(elapsed)
	left=$((rows_total - begin))
	if [ "$left" -lt "$rows_least" ]; then
		not_run+=("$name")
		return 0
	fi
	row_limit=$limit
	if [ "$left" -lt "$limit" ]; then
		row_limit=$left
		is_cut=1
	fi
	outcome=fail
	said="the row's function failed"
	rows_begun=1
	"$function" "$name" "$@" || true
	keep_logs "$name"
	if [ "$outcome" = hang ] && [ -n "$is_cut" ]; then
		not_run+=("$name")
		verdict CUT "$name" $(($(elapsed) - begin)) "$what: ended with the total time"
		return 0
	elif [ "$outcome" = hang ]; then
		outcome=fail
		said="no end within $row_limit s${said:+; $said}"
	fi
	case $outcome in
	pass) said="$what${said:+: $said}" ;;
	*) said="$what: ${said:-no reason}" ;;
	esac
	finish_row "$must" "$name" $(($(elapsed) - begin))
}

# finish_row IS-MUST NAME SECONDS: counts $outcome.
finish_row() {
	if [ "$1" = no ] && [ "$outcome" != skip ]; then
		n_reported=$((n_reported + 1))
		[ "$outcome" = pass ] || said="$said (failed, which is no failure of this run)"
		verdict NOTE "$2" "$3" "$said"
		[ "$outcome" = pass ] || failed_rows+=("$2")
		return 0
	fi
	case $outcome in
	pass)
		n_passed=$((n_passed + 1))
		verdict PASS "$2" "$3" "$said"
		;;
	skip)
		n_skipped=$((n_skipped + 1))
		verdict SKIP "$2" "$3" "$said"
		;;
	*)
		n_failed=$((n_failed + 1))
		failed_rows+=("$2")
		verdict FAIL "$2" "$3" "$said"
		;;
	esac
}

# row NAME LIMIT WHAT FUNCTION [ARGUMENT]...: a row that must pass. Calls FUNCTION with the name in
# front of its arguments. Does nothing if the name is not selected or the time is over.
row() {
	run_row yes "$@"
}

# report NAME LIMIT WHAT FUNCTION [ARGUMENT]...: a row that reports its finding and never fails.
report() {
	run_row no "$@"
}

# skip_row NAME WHAT REASON: counts the row as skipped.
skip_row() {
	is_selected "$1" || return 0
	outcome=skip
	said="$2: $3"
	finish_row yes "$1" 0
}

# print_totals: the line with the counts.
print_totals() {
	local text="$n_passed passed, $n_failed failed, $n_skipped skipped"
	[ "$n_reported" -eq 0 ] || text+="; $n_reported reported"
	echo "$text"
	[ ${#not_run[@]} -eq 0 ] ||
		echo "not run, for $rows_total s were over: ${not_run[*]}"
}

# print_failed_logs: the end of the logs of failed rows, not more than $lines_of_all lines.
print_failed_logs() {
	local name file n=0
	for name in "${failed_rows[@]}"; do
		for file in "$temp/$name.why" "$temp/$name.out" "$temp/$name"-*.out; do
			[ -s "$file" ] || continue
			if [ "$n" -ge "$lines_of_all" ]; then
				echo "[logs of other failed rows: --keep]"
				return 0
			fi
			echo "--- $name (${file##*/})"
			tail -n "$lines_of_row" "$file" | tr -cd '[:print:]\n\t' | cut -c 1-180
			n=$((n + lines_of_row))
			break
		done
	done
}

# rows_are_good: no row failed, some row ran, and none was left for lack of time.
rows_are_good() {
	[ -n "$rows_begun" ] && [ "$n_failed" -eq 0 ] && [ ${#not_run[@]} -eq 0 ]
}
