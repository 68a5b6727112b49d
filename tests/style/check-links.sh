#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Links of the documents lead to a file that exists, and to a heading that it has. Sources, scripts
# and packaging name only documents that exist.
# shellcheck source=tests/style/lib.sh
. "$(dirname "$0")/lib.sh"

# headings FILE: the anchors of its headings, as GitHub makes them, one a line.
headings() {
	awk '/^ *```/ { fenced = !fenced }
	!fenced && /^#+ / {
		sub(/^#+ +/, "")
		text = tolower($0)
		gsub(/[^a-z0-9 _-]/, "", text)
		gsub(/ /, "-", text)
		print text (seen[text]++ ? "-" seen[text] - 1 : "")
	}' "$1"
}

# links FILE: "LINE TARGET" of each link, without those in blocks of code.
links() {
	awk '/^ *```/ { fenced = !fenced }
	!fenced {
		rest = $0
		while (match(rest, /\]\([^ )]*\)/)) {
			print FNR " " substr(rest, RSTART + 2, RLENGTH - 3)
			rest = substr(rest, RSTART + RLENGTH)
		}
	}' "$1"
}

complain() {
	echo "$1"
	status=1
}

status=0
mapfile -t pages < <(source_files '*.md' -- .)
for page in ${pages[@]+"${pages[@]}"}; do
	while read -r line target; do
		case $target in
		*:*) continue ;;
		esac
		file=${target%%#*}
		file=${file:+$(dirname "$page")/$file}
		file=${file:-$page}
		if [ ! -e "$file" ]; then
			complain "$page:$line: there is no $target"
		elif [[ $target == *'#'* ]] && ! headings "$file" | grep -qxF "${target#*#}"; then
			complain "$page:$line: $file has no heading #${target#*#}"
		fi
	done < <(links "$page")
done

mapfile -t files < <(source_files '*.[chm]' '*.md' '*.sh' '*.py' '*.build' '*.[158]' '*.conf' \
	'*.yaml' '*.yml' '*.service' '*.docs' '*.examples' rules Dockerfile -- .)
while IFS=: read -r file line name; do
	[ -e "$name" ] || complain "$file:$line: there is no $name"
done < <(grep -HnoE '\bdocs/[a-z][a-z0-9/-]*\.md\b' ${files[@]+"${files[@]}"} /dev/null |
	grep -v '^tests/style/selftest\.sh:' || true)
exit "$status"
