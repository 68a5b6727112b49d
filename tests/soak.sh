#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs tests/run.sh again and again, to find rare failures. docs/design/testing.md has the results.
set -eu

usage() {
	cat <<-'END'
	tests/soak.sh [--load N] [--clone] [--keep FOLDER] RUNS [OPTION OF tests/run.sh...]
	  --load N       the last N runs are beside stress-ng (twice the processors, memory, disk)
	  --clone        each run is beside another one, in a fresh clone of HEAD
	  --keep FOLDER  logs of all runs (default: only those of failed runs are kept, in soak/)
	Exit status 1: a run failed.
	END
}

bad_usage() {
	usage >&2
	exit 2
}

load=0
clone=
keep=
while [ $# -gt 0 ]; do
	case $1 in
	--load | --keep)
		[ $# -ge 2 ] || bad_usage
		if [ "$1" = --load ]; then load=$2; else keep=$2; fi
		shift
		;;
	--clone) clone=1 ;;
	-h | --help) usage && exit 0 ;;
	-*) bad_usage ;;
	*) break ;;
	esac
	shift
done
runs=${1:-}
[[ $runs =~ ^[1-9][0-9]*$ && $load =~ ^[0-9]+$ ]] || bad_usage
shift

[ -z "$keep" ] || keep=$(realpath -m "$keep")
cd "$(dirname "$0")/.."
[ "$load" -eq 0 ] || scripts/install-deps.sh soak
logs=${keep:-soak}
mkdir -p "$logs"
temp=$(mktemp -d)
stress=
other=

# end_group PID: ends a job and all processes that it has started. Jobs are process groups (set -m).
end_group() {
	[ -n "$1" ] || return 0
	kill -- "-$1" 2>/dev/null || true
	wait "$1" 2>/dev/null || true
}
trap 'end_group "$stress"; end_group "$other"; rm -rf "$temp"' EXIT
trap 'exit 1' INT TERM HUP

begin_stress() {
	set -m
	stress-ng --quiet --temp-path "$temp" --cpu "$(nproc)" --vm "$(nproc)" --vm-bytes 512M \
		--io "$(nproc)" >/dev/null 2>&1 </dev/null &
	stress=$!
	set +m
}

[ -z "$clone" ] || git clone -q . "$temp/clone"
failed=0
for ((run = 1; run <= runs; run++)); do
	name=quiet
	if [ "$run" -gt $((runs - load)) ]; then
		name="beside stress-ng"
		begin_stress
	fi
	begin=$SECONDS
	if [ -n "$clone" ]; then
		set -m
		env -u FRL_BUILD_DIR "$temp/clone/tests/run.sh" "$@" \
			>"$logs/run-$run-clone.log" 2>&1 </dev/null &
		other=$!
		set +m
	fi
	result=passed
	tests/run.sh "$@" >"$logs/run-$run.log" 2>&1 </dev/null || result=FAILED
	[ -z "$other" ] || wait "$other" || result="FAILED in the clone"
	other=
	end_group "$stress"
	stress=
	echo "run $run of $runs, $name: $result, $((SECONDS - begin)) s:" \
		"$(tail -qn 1 "$logs/run-$run"*.log | paste -sd ';')"
	if [ "$result" != passed ]; then
		failed=$((failed + 1))
	elif [ -z "$keep" ]; then
		rm -f "$logs/run-$run"*.log
	fi
done
rmdir "$logs" 2>/dev/null || true
echo "$((runs - failed)) passed, $failed failed"
[ "$failed" -eq 0 ]
