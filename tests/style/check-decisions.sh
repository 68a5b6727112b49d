#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Each decision record starts with its number, its title and a date. docs/decisions/README.md lists
# it with that title. A record that is superseded is marked there, too.
# shellcheck source=tests/style/lib.sh
. "$(dirname "$0")/lib.sh"

readme=docs/decisions/README.md
status=0
complain() {
	echo "$1"
	status=1
}

mapfile -t records < <(source_files '[0-9]*.md' -- docs/decisions)
for record in ${records[@]+"${records[@]}"}; do
	name=${record##*/}
	number=$((10#${name%%-*}))
	title=$(sed -n "1s/^# $number\. //p" "$record")
	[ -n "$title" ] || complain "$record:1: must be \"# $number. TITLE\""
	sed -n 3p "$record" | grep -qE '^20[0-9]{2}-[0-9]{2}-[0-9]{2}' ||
		complain "$record:3: must begin with a date"
	by=$(sed -n '3,/^$/p' "$record" | tr '\n' ' ' |
		sed -nE 's/.*Superseded by \[decision ([0-9]+)\].*/; superseded by \1/p')
	grep -qxF "| $number | [$title]($name)$by |" "$readme" ||
		complain "$readme:1: must list \"| $number | [$title]($name)$by |\""
done
exit "$status"
