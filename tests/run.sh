#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Installs what is missing, builds and runs all tests, then the unit and simulation tests again
# under the address and undefined-behaviour sanitizers and those with threads under the thread
# sanitizer. The last line is "N passed, N failed, N skipped"; exit status 1 when something failed.
set -eu

usage() {
	cat <<-'END'
	tests/run.sh [--fast] [--suite NAME]...
	  --fast        no sanitizer runs
	  --suite NAME  only this suite: unit, sim, interop, system, style (also in the sanitizer
	                runs, which are of unit and sim)
	Builds in build/, build-asan/ and build-tsan/ under FRL_BUILD_DIR (default: the repository).
	END
}

fast=
suites=()
while [ $# -gt 0 ]; do
	case $1 in
	--fast) fast=1 ;;
	--suite)
		[ $# -ge 2 ] || {
			usage >&2
			exit 2
		}
		suites+=("$2")
		shift
		;;
	-h | --help)
		usage
		exit 0
		;;
	*)
		usage >&2
		exit 2
		;;
	esac
	shift
done

cd "$(dirname "$0")/.."
base=${FRL_BUILD_DIR:-.}
passed=0
failed=0
skipped=0
summary=()
failures=()

# fail WHAT: something that is no test of its own failed.
fail() {
	echo "FAILED: $1"
	summary+=("$(printf '%-28s %s' "$1" FAILED)")
	failed=$((failed + 1))
}

# finish: who sees no more than the end of the output sees there what failed, and how.
finish() {
	echo
	[ ${#failures[@]} -eq 0 ] || printf '%s\n' "${failures[@]}"
	[ ${#summary[@]} -eq 0 ] || printf '%s\n' "${summary[@]}"
	echo "$passed passed, $failed failed, $skipped skipped"
	[ "$failed" -eq 0 ] || exit 1
	exit 0
}

# has_tests DIR: what is set up there includes tests.
has_tests() {
	meson introspect --tests "$1" 2>/dev/null | grep -q '"name"'
}

# set_up DIR MESON-OPTION...: a build folder with tests, also where it was set up without them
# because Check was not there yet (examples/demo.sh on a fresh machine). One whose setting up was
# interrupted is none: meson takes it for complete, with some of its files missing.
set_up() {
	local dir=$1
	shift
	[ ! -e "$dir/setting-up" ] || rm -rf "$dir"
	if [ ! -f "$dir/build.ninja" ]; then
		mkdir -p "$dir" && : >"$dir/setting-up" &&
			meson setup "$dir" -Dtests=enabled "$@" && rm -f "$dir/setting-up"
		return
	fi
	has_tests "$dir" && return
	meson setup --reconfigure "$dir" -Dtests=enabled && has_tests "$dir" && return
	meson setup --wipe "$dir" -Dtests=enabled
}

# targets DIR SUITE...: what ninja has to build in DIR for the tests of these suites.
targets() {
	python3 - "$@" <<-'END'
		import json, os, sys

		build, suites = os.path.realpath(sys.argv[1]), set(sys.argv[2:])
		info = lambda what: json.load(open(f"{build}/meson-info/intro-{what}.json"))
		needed = {
		    target
		    for test in info("tests")
		    if suites & {suite.split(":")[-1] for suite in test["suite"]}
		    for target in test["depends"]
		}
		for target in info("targets"):
		    if target["id"] in needed:
		        print(*(os.path.relpath(name, build) for name in target["filename"]))
	END
}

# build DIR SUITES MESON-OPTION...: sets DIR up when it is not, and builds it, or no more of it than
# the tests of these suites need.
build() {
	local dir=$1 only=$2 names=
	shift 2
	echo "== building $dir"
	if [ -e "$dir" ] && [ ! -w "$dir" ]; then
		echo "$dir is another user's: set FRL_BUILD_DIR to a folder of your own"
		return 1
	fi
	set_up "$dir" "$@" || return 1
	# shellcheck disable=SC2086 # both are lists of words
	if [ -n "$only" ]; then
		names=$(targets "$dir" $only) || return 1
	fi
	# shellcheck disable=SC2086
	ninja -C "$dir" --quiet $names
}

# count LOG RESULT...: tests with one of these results in a testlog.json of meson.
count() {
	local log=$1 results
	shift
	results=$(printf '|%s' "$@")
	grep -cE "\"result\": \"(${results:1})\"" "$log" || true
}

# describe_failures NAME LOG: of each test that failed its name, and the end of what it printed.
describe_failures() {
	python3 - "$@" <<-'END'
		import json, sys

		LINES = 30
		for row in map(json.loads, open(sys.argv[2])):
		    if row["result"] in ("OK", "EXPECTEDFAIL", "SKIP"):
		        continue
		    text = row.get("stdout", "") + row.get("stderr", "")
		    took = f"{row['duration']:.1f} s"
		    print(f"--- {sys.argv[1]}: {row['name']}: {row['result']}, {took}")
		    print("\n".join(text.splitlines()[-LINES:]))
	END
}

# run_tests NAME DIR MESON-TEST-ARGUMENT...: runs them and adds up their results.
run_tests() {
	local name=$1 dir=$2 log=$2/meson-logs/testlog.json status=0 ok bad skip
	shift 2
	echo "== $name"
	rm -f "$log"
	# Limits are for machines that do nothing else. Many tests wait more than they work: one
	# more than there are processors.
	meson test -C "$dir" --no-rebuild --print-errorlogs --timeout-multiplier 3 \
		--num-processes $(($(nproc) + 1)) "$@" || status=$?
	if [ ! -f "$log" ]; then
		fail "$name: no tests ran"
		return
	fi
	ok=$(count "$log" OK EXPECTEDFAIL)
	bad=$(count "$log" FAIL TIMEOUT ERROR INTERRUPT UNEXPECTEDPASS)
	skip=$(count "$log" SKIP)
	# Why tests were skipped: their own words.
	grep '"result": "SKIP"' "$log" |
		sed -nE 's/.*"name": "([^"]*)".*"SKIP: ([^"\\]*).*/skipped \1: \2/p'
	if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then
		bad=1
	fi
	[ "$bad" -eq 0 ] || failures+=("$(describe_failures "$name" "$log")")
	if [ $((ok + bad + skip)) -eq 0 ]; then
		fail "$name: no tests ran"
		return
	fi
	passed=$((passed + ok))
	failed=$((failed + bad))
	skipped=$((skipped + skip))
	summary+=("$(printf '%-28s %d passed, %d failed, %d skipped' "$name" "$ok" "$bad" "$skip")")
}

# sanitizer_works FLAG...: a program of this compiler and sanitizer runs on this machine.
sanitizer_works() {
	local dir status=0
	dir=$(mktemp -d)
	echo 'int main(void) { return 0; }' >"$dir/probe.c"
	"${CC:-cc}" "-fsanitize=$1" "${@:2}" -o "$dir/probe" "$dir/probe.c" >/dev/null 2>&1 &&
		"$dir/probe" >/dev/null 2>&1 || status=1
	rm -rf "$dir"
	return "$status"
}

# wanted SUITE: true when this suite is to run.
wanted() {
	[ ${#suites[@]} -eq 0 ] || [[ " ${suites[*]} " == *" $1 "* ]]
}

# each_sanitizer CALL: CALL NAME FLAGS DIR SUITE... for each run with a sanitizer that is wanted.
each_sanitizer() {
	local suite both=()
	[ -z "$fast" ] || return 0
	for suite in unit sim; do
		! wanted "$suite" || both+=("$suite")
	done
	[ ${#both[@]} -eq 0 ] ||
		"$1" "address and undefined" address,undefined "$base/build-asan" "${both[@]}"
	! wanted unit || "$1" threads thread "$base/build-tsan" threads
}

# build_sanitized NAME FLAGS DIR SUITE...: what these suites need. The kernels would be those of the
# other build. Building takes longer than running: no more is optimized than pays, reports want
# lines, not variables, and gold, where it is, links in a third of the time.
build_sanitized() {
	local flags=$2 dir=$3 linker=${CC_LD:-}
	shift 3
	if [ -z "$linker" ] && sanitizer_works "$flags" -fuse-ld=gold; then
		linker=gold
	fi
	CC_LD=$linker build "$dir" "$*" "-Db_sanitize=$flags" -Db_lundef=false \
		-Dbuildtype=debugoptimized -Doptimization=1 -Dc_args=-g1 -Dcuda=disabled
}

# build_ahead: all of that in the background, while tests that wait leave processors idle: any other
# process goes before it, and at once. What goes wrong, or is not done by the end of the tests, is
# left to sanitized().
build_ahead() {
	set -m # in a process group of its own, which ends as one
	(
		trap 'exit 1' TERM # when what it runs has ended: ninja removes what is half written
		chrt --idle --pid 0 "$BASHPID" || renice -n 19 "$BASHPID" || true
		each_sanitizer build_sanitized
	) </dev/null >/dev/null 2>&1 &
	ahead=$!
	set +m
}

# hurry PID...: these, and what they have started, are no longer idle.
hurry() {
	local pid
	for pid in "$@"; do
		chrt --other --pid 0 "$pid" 2>/dev/null || true
		# shellcheck disable=SC2046 # numbers
		hurry $(pgrep -P "$pid")
	done
}

# end_ahead: ends that, and nothing else that may have its number by now. Even to end takes time of
# a processor, of which what is idle has next to none beside others.
end_ahead() {
	local job=$ahead
	ahead=
	[ -n "$job" ] || return 0
	if jobs -pr | grep -qx "$job"; then
		hurry "$job"
		kill -- "-$job" 2>/dev/null || true
	fi
	wait "$job" 2>/dev/null || true
}

# sanitized NAME FLAGS DIR SUITE...: builds with the sanitizer and runs these suites.
sanitized() {
	local name=$1 flags=$2 dir=$3 suite arguments=()
	if ! sanitizer_works "$flags"; then
		echo "SKIP: $name: programs built with -fsanitize=$flags do not run here"
		summary+=("$(printf '%-28s skipped: sanitizer does not work here' "$name")")
		skipped=$((skipped + 1))
		return
	fi
	if ! build_sanitized "$@"; then
		fail "$name: build"
		return
	fi
	for suite in "${@:4}"; do
		arguments+=(--suite "$suite")
	done
	run_tests "$name" "$dir" "${arguments[@]}"
}

if ! scripts/install-deps.sh build test; then
	fail "scripts/install-deps.sh"
	finish
fi

arguments=()
for suite in "${suites[@]}"; do
	arguments+=(--suite "$suite")
done
if ! build "$base/build" ""; then
	fail "build"
	finish
fi
ahead=
trap end_ahead EXIT
build_ahead
run_tests tests "$base/build" "${arguments[@]}"

export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}
tsan_options=halt_on_error=1:second_deadlock_stack=1:suppressions=$PWD/tests/tsan.supp
export TSAN_OPTIONS=${TSAN_OPTIONS:-$tsan_options}
# What is left of it goes like any other process: beside others what is idle may take for ever.
end_ahead
each_sanitizer sanitized
finish
