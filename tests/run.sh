#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Installs missing packages, builds everything that the wanted tests need, and then runs the tests:
# never both at once. The last line is "N passed, N failed, N skipped". Exit status 1: something
# failed.
set -eu

usage() {
	cat <<-'END'
	tests/run.sh [--all | --suite NAME...] [--with STAGE]...
	  (no option)   style, unit tests, simulation, Python, one system test of each kind; then
	                protocol, engine, collectives and daemon core with ASan and UBSan:
	                ten minutes
	  --all         every test, and all that a sanitizer can run: 40 minutes
	  --suite NAME  only this suite, without sanitizers: unit, sim, nccl, interop,
	                python, system, style
	  --with STAGE  also `threads` (ThreadSanitizer) or `interop` (Linux in a guest)
	Builds in build/, build-asan/ and build-tsan/ under FRL_BUILD_DIR (default: the repository).
	END
}

# need_value OPTION VALUE...: ends with the usage where the value is missing.
need_value() {
	[ $# -ge 2 ] || {
		usage >&2
		exit 2
	}
}

all=
suites=()
stages=(address)
while [ $# -gt 0 ]; do
	case $1 in
	--all) all=1 ;;
	--suite)
		need_value "$@"
		case $2 in
		unit | sim | nccl | interop | python | system | style) suites+=("$2") ;;
		*) usage >&2 && exit 2 ;;
		esac
		shift
		;;
	--with)
		need_value "$@"
		case $2 in
		threads | interop) stages+=("$2") ;;
		*) usage >&2 && exit 2 ;;
		esac
		shift
		;;
	-h | --help) usage && exit 0 ;;
	*) usage >&2 && exit 2 ;;
	esac
	shift
done
if [ "$all" ]; then
	suites=(style unit sim nccl python system interop)
	sanitized=(unit sim)
	stages=(address threads)
elif [ ${#suites[@]} -gt 0 ]; then
	stages=("${stages[@]:1}")
	sanitized=()
else
	suites=(style quick python)
	sanitized=(quick)
fi
[[ " ${stages[*]} " != *" interop "* ]] || suites+=(interop)

cd "$(dirname "$0")/.."
base=${FRL_BUILD_DIR:-.}
passed=0
failed=0
skipped=0
summary=()
failures=()

# fail WHAT: a step that is not a test has failed.
fail() {
	echo "FAILED: $1"
	summary+=("$(printf '%-28s %s' "$1" FAILED)")
	failed=$((failed + 1))
}

# finish: repeats the failures and their reasons at the end of the output.
finish() {
	echo
	[ ${#failures[@]} -eq 0 ] || printf '%s\n' "${failures[@]}"
	[ ${#summary[@]} -eq 0 ] || printf '%s\n' "${summary[@]}"
	echo "$passed passed, $failed failed, $skipped skipped"
	[ "$failed" -eq 0 ] || exit 1
	exit 0
}

# has_tests DIR: whether DIR is set up with tests.
has_tests() {
	meson introspect --tests "$1" 2>/dev/null | grep -q '"name"'
}

# set_up DIR MESON-OPTION...: a build folder with tests, also if it was set up without them because
# Check was missing then (examples/demo.sh on a fresh machine). A folder whose set-up was
# interrupted is set up again: meson takes it for complete although files are missing.
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

# targets DIR SUITE...: the targets that ninja must build in DIR for the tests of these suites.
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

# build DIR SUITES MESON-OPTION...: sets DIR up if needed, and builds the targets of the tests of
# these suites, or everything.
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
		# Updates meson's information about targets.
		ninja -C "$dir" --quiet build.ninja || return 1
		names=$(targets "$dir" $only) || return 1
		[ -n "$names" ] || return 0
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

# describe_failures NAME LOG: for each test that failed its name, and the end of its output.
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
	# Many tests wait more than they work: run one more than there are processors.
	meson test -C "$dir" --no-rebuild --print-errorlogs \
		--num-processes $(($(nproc) + 1)) "$@" || status=$?
	if [ ! -f "$log" ]; then
		fail "$name: no tests ran"
		return
	fi
	ok=$(count "$log" OK EXPECTEDFAIL)
	bad=$(count "$log" FAIL TIMEOUT ERROR INTERRUPT UNEXPECTEDPASS)
	skip=$(count "$log" SKIP)
	# The reasons of skipped tests, in their own words.
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

# suite_options NAME...: as options of `meson test`.
suite_options() {
	printf -- '--suite %s ' "$@"
}

# build_sanitized FLAGS DIR SUITE...: the targets of these suites, without kernels, which the
# ordinary build has. Reports need lines, not variables. Gold, if installed, links in a third of the
# time.
build_sanitized() {
	local flags=$1 dir=$2 linker=${CC_LD:-}
	shift 2
	if [ -z "$linker" ] && sanitizer_works "$flags" -fuse-ld=gold; then
		linker=gold
	fi
	CC_LD=$linker build "$dir" "$*" "-Db_sanitize=$flags" -Db_lundef=false \
		-Dbuildtype=debugoptimized -Doptimization=1 -Dc_args=-g1 -Dcuda=disabled
}

# skip_stage NAME FLAGS: returns true and prints the reason if such programs do not run on this
# machine. With CI=true that is a failure.
skip_stage() {
	! sanitizer_works "$2" || return 1
	if [ "${CI:-}" = true ]; then
		fail "$1: programs built with -fsanitize=$2 do not run here"
		return
	fi
	echo "SKIP: $1: programs built with -fsanitize=$2 do not run here"
	summary+=("$(printf '%-28s skipped: sanitizer does not work here' "$1")")
	skipped=$((skipped + 1))
}

if ! scripts/install-deps.sh build test ${all:+package docs}; then
	fail "scripts/install-deps.sh"
	finish
fi

# ---- builds

begin=$SECONDS
if ! build "$base/build" "$([ "$all" ] || echo "${suites[*]}")"; then
	fail "build"
	finish
fi
runs=()
for stage in "${stages[@]}"; do
	case $stage in
	address)
		! skip_stage "ASan and UBSan" address,undefined || continue
		build_sanitized address,undefined "$base/build-asan" "${sanitized[@]}" || {
			fail "ASan and UBSan: build"
			continue
		}
		;;
	threads)
		! skip_stage "ThreadSanitizer" thread || continue
		build_sanitized thread "$base/build-tsan" threads || {
			fail "ThreadSanitizer: build"
			continue
		}
		;;
	interop) continue ;;
	esac
	runs+=("$stage")
done
echo "== built in $((SECONDS - begin)) s"

# ---- tests

# Removes settings of the caller for its own programs.
. tests/system/clean_env.sh
# These are for a person who runs one simulation by hand.
unset FRL_SEED FRL_SEED_FROM FRL_SEEDS
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}
tsan_options=halt_on_error=1:second_deadlock_stack=1:suppressions=$PWD/tests/tsan.supp
export TSAN_OPTIONS=${TSAN_OPTIONS:-$tsan_options}
begin=$SECONDS
# shellcheck disable=SC2046 # words
run_tests tests "$base/build" $(suite_options "${suites[@]}")
for stage in "${runs[@]}"; do
	# shellcheck disable=SC2046
	case $stage in
	address) run_tests "ASan and UBSan" "$base/build-asan" $(suite_options "${sanitized[@]}") ;;
	threads) run_tests "ThreadSanitizer" "$base/build-tsan" --suite threads ;;
	esac
done
echo "== tested in $((SECONDS - begin)) s"
finish
