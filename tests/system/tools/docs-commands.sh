#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs each block of commands that the documents fence as "sh", as it stands there, in a copy of the
# repository's root, with the programs of the build in PATH, as a user without privileges.
# CONTRIBUTING.md has the rule: a block ends by itself with status 0, and writes below out/ only.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"

build=$(cd "$bin/.." && pwd)
root=$temp/root
mkdir "$root" "$temp/home" "$temp/blocks"
for entry in "$system_root"/*; do
	[ "${entry##*/}" = out ] || ln -s "$entry" "$root/"
done
rm -f "$root/build"
ln -s "$build" "$root/build"
# The user's own control daemon, as without this test.
unset FRL_CONTROL FRL_CONTROL_LOST_S FRL_TUNER_CACHE FRL_TUNER_COSTS

# extract FILE NAME: its blocks, as blocks/NAME:LINE.
extract() {
	awk -v prefix="$temp/blocks/$2:" '
		/^```/ && out { close(out); out = ""; next }
		/^```sh$/ { out = prefix FNR; next }
		out { print >out }
	' "$1"
}

# run_block FILE: without capabilities. Jobs that it leaves in the background end with its process
# group.
run_block() {
	local out=$temp/output status=0 block process written
	block=$(basename "$1" | tr '|' /)
	setsid setpriv --bounding-set=-all --inh-caps=-all --no-new-privs timeout \
		--foreground -k 5 "$program_limit" env "HOME=$temp/home" \
		"PATH=$bin:$build/examples:$build/daemon:$build/daemon/ctl:$PATH" \
		bash -eu "$1" <&- >"$out" 2>&1 &
	process=$!
	wait "$process" || status=$?
	kill -KILL -- "-$process" 2>/dev/null || true
	[ "$status" -eq 0 ] || {
		fail "$block: exit status $status"
		show "$out"
	}
	mapfile -t written < <(find "$root" -mindepth 1 ! -type l ! -path "$root/out*" \
		-print -delete)
	[ ${#written[@]} -eq 0 ] || fail "$block: writes outside of out/: ${written[*]}"
}

cd "$root"
while read -r file; do
	extract "$file" "${file//\//|}"
done < <(find README.md CONTRIBUTING.md docs/ tools/ examples/ -follow -name '*.md' \
	! -path 'docs/decisions/*' | sort)
for block in "$temp"/blocks/*; do
	[ -f "$block" ] || fail "no document has commands"
	run_block "$block"
	echo "ran $(basename "$block" | tr '|' /)"
done
finish
