#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Each function that the pages docs/design/life-of-*.md name is defined in the file that they name
# with it: `function()` (`file`). A function may be named again without its file.
# shellcheck source=tests/style/lib.sh
. "$(dirname "$0")/lib.sh"

# defines FILE FUNCTION: the file has a definition of the function, not only a declaration.
defines() {
	awk -v name="$2" '
	/^[a-z_]/ && $0 ~ "[ *]" name "\\(" { open = 1 }
	/;/ { open = 0 }
	open && /\{/ { found = 1 }
	END { exit !found }' "$1"
}

status=0
mapfile -t pages < <(source_files 'life-of-*.md' -- docs)
for page in ${pages[@]+"${pages[@]}"}; do
	# "LINE FUNCTION FILE" for each mention, the file being empty without one. A line may end
	# between a function and its file.
	named=$(awk '
	{ text = text (NR > 1 ? " " : "") $0; at[NR] = length(text) }
	END {
		line = 1
		offset = 0
		rest = text
		while (match(rest, /`[a-z0-9_]+\(\)`( *\(`[^`]+`\))?/)) {
			start = offset + RSTART
			while (at[line] < start)
				line++
			found = substr(rest, RSTART, RLENGTH)
			offset += RSTART + RLENGTH - 1
			rest = substr(rest, RSTART + RLENGTH)
			split(found, part, "`")
			sub(/\(\)/, "", part[2])
			print line, part[2], part[4]
		}
	}' "$page")
	while read -r line function file; do
		if [ ! "$file" ]; then
			# A function of a library or the kernel, or one that was named before.
			grep -q "^[0-9]* $function [^ ]" <<<"$named" || case $function in
			frl_* | ibv_* | sendmmsg) ;;
			*)
				echo "$page:$line: $function() is named without its file"
				status=1
				;;
			esac
		elif [ ! -f "$file" ]; then
			echo "$page:$line: there is no file $file"
			status=1
		elif ! defines "$file" "$function"; then
			echo "$page:$line: $file does not define $function()"
			status=1
		fi
	done <<<"$named"
done
exit "$status"
