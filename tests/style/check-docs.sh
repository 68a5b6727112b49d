#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Every function frl_*() that the docs name is in a public header. Decisions name what is gone.
# Commands are fenced as "sh" or "console", and those that no test runs say what they need: see
# "Documents" of CONTRIBUTING.md. Files of the repository that are commands are executable.
# shellcheck source=tests/style/lib.sh
. "$(dirname "$0")/lib.sh"

mapfile -t files < <(source_files '*.md' '*.[1-8]' -- docs tools examples packaging |
	grep -v '^docs/decisions/')
[ ! -f README.md ] || files+=(README.md)
[ ${#files[@]} -gt 0 ] || exit 0
functions=$(find lib/include -name '*.h' -exec grep -ho 'frl_[a-z0-9_]*(' {} + | sort -u)
status=0
while IFS=: read -r file line name; do
	if ! grep -qxF "$name" <<<"$functions"; then
		echo "$file:$line: no public header has a function $name)"
		status=1
	fi
done < <(grep -Hno '\bfrl_[a-z0-9_]*(' "${files[@]}")
[ ! -f CONTRIBUTING.md ] || files+=(CONTRIBUTING.md)
while IFS= read -r finding; do
	echo "$finding"
	status=1
done < <(awk '
	FNR == 1 { in_fence = 0 }
	after { if (!/^ *# (Needs|Takes) /) print FILENAME ":" FNR ": say what the commands need" }
	{ after = /^ *```console$/ }
	/^ *```(bash|shell)$/ { print FILENAME ":" FNR ": commands are sh or console" }
	/^ *```/ { in_fence = !in_fence; untagged = /^ *```$/; next }
	in_fence && untagged && /^ *([A-Za-z0-9_.@-]*[$] |sudo )/ {
		print FILENAME ":" FNR ": commands are sh or console"
	}
	' "${files[@]}")
while read -r place file; do
	if [ -f "$file" ] && [ ! -x "$file" ]; then
		echo "$place: $file is not executable"
		status=1
	fi
done < <(awk '
	FNR == 1 { in_commands = 0 }
	/^ *```/ { in_commands = /^ *```(sh|console)$/; goes_on = 0; next }
	in_commands && !goes_on && $1 ~ "/" { print FILENAME ":" FNR, $1 }
	{ goes_on = /\\$/ }
	' "${files[@]}")
exit "$status"
