# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Functions that the style checks share. Each check takes the tree to look at as its argument
# (default: this repository), prints "file:line: reason" for every finding, and exits 1 when there
# was one.
set -eu
export LC_ALL=C

style_root=$(cd "${1:-"$(dirname "${BASH_SOURCE[0]}")/../.."}" && pwd)
cd "$style_root"

# source_files NAME-PATTERN... -- FOLDER...: files of the tree, one a line, folders that are there.
source_files() {
	local patterns=() folders=()
	while [ "$1" != -- ]; do
		patterns+=(-o -name "$1")
		shift
	done
	shift
	for folder in "$@"; do
		[ -d "$folder" ] && folders+=("$folder")
	done
	[ ${#folders[@]} -gt 0 ] || return 0
	find "${folders[@]}" \( -path './.git' -o -path './build*' \) -prune -o \
		-type f \( "${patterns[@]:1}" \) -print | sed 's|^\./||' | sort
}

# An awk function: the line without comments and with the contents of strings and characters gone.
# Keeps track of comments over several lines; call it for every line, in order.
# shellcheck disable=SC2034
awk_code='
function code(line,    out, c, two, quote) {
	if (FNR == 1)
		in_comment = 0
	out = ""
	while (line != "") {
		if (in_comment) {
			c = index(line, "*/")
			if (!c)
				return out
			line = substr(line, c + 2)
			in_comment = 0
			out = out " "
			continue
		}
		c = substr(line, 1, 1)
		two = substr(line, 1, 2)
		if (two == "//")
			return out
		if (two == "/*") {
			in_comment = 1
			line = substr(line, 3)
			continue
		}
		line = substr(line, 2)
		out = out c
		if (c != "\"" && c != "\047")
			continue
		quote = c
		while (line != "") {
			c = substr(line, 1, 1)
			line = substr(line, c == "\\" ? 3 : 2)
			if (c == quote)
				break
		}
		out = out quote
	}
	return out
}
function finding(reason) {
	printf "%s:%d: %s\n", FILENAME, FNR, reason
	findings++
}
END { exit findings > 0 }
'
