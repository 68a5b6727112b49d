# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# The tables of docs/guide/operations.md hold the expected messages of the cluster tests. Each row
# is an event. Each of its sentences, behind the word for the program that prints it, must end a
# line of that program's output. PID, QPN, ADDRESS and SECONDS stand for numbers.
# shellcheck disable=SC2154 # of lib.sh
operations=$system_root/docs/guide/operations.md
shown=()

# table SECTION: its rows, as "EVENT|WHO|SENTENCE".
table() {
	python3 - "$operations" "$1" <<-'END'
		import re, sys

		section = None
		for line in open(sys.argv[1]):
		    if line.startswith("#"):
		        section = line.strip("# \n")
		    cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
		    if section != sys.argv[2] or not line.startswith("|") or len(cells) < 3:
		        continue
		    for who, sentence in re.findall(r"([^`]*): `([^`]*)`", cells[2]):
		        print(cells[0], who.replace("<br>", "").strip(), sentence, sep="|")
	END
}

# pattern SENTENCE: the regular expression that its line must match.
pattern() {
	# shellcheck disable=SC2016 # a pattern
	sed -E 's/[][\.*^$()+?{}|/]/\\&/g; s/SECONDS/[0-9]+(\\.[0-9])?/g; s/(PID|QPN)/[0-9]+/g;
		s/ADDRESS/10\\.1\\.0\\.[0-9]+/g; s/$/$/' <<<"$1"
}

# read_table SECTION: the rows that this test must show.
read_table() {
	mapfile -t rows < <(table "$1")
	[ ${#rows[@]} -gt 0 ] || fail "$operations has no table '$1'"
}

# expect EVENT WHO FILE...: each of the files has all sentences of the table for that event and
# program.
expect() {
	local row found='' file sentence
	for row in "${rows[@]}"; do
		[[ $row == "$1|$2|"* ]] || continue
		found=1
		sentence=${row#"$1|$2|"}
		for file in "${@:3}"; do
			wait_until grep -qE -- "$(pattern "$sentence")" "$file" && continue
			fail "$1: $2 should say: $sentence"
			show_words "$file"
		done
	done
	[ "$found" ] || {
		fail "the table has no row '$1' with what $2 says"
		show_words "${@:3}"
	}
	shown+=("$1|$2")
}

# show_words FILE...: the output of programs without their tables.
show_words() {
	local file
	for file in "$@"; do
		grep -E '^ferrule' "$file" | tail -n 20 | sed "s|^|    $(basename "$file"): |"
	done
}

# all_shown: no row of the table was left out.
all_shown() {
	local row shown_rows
	shown_rows=$(printf '%s\n' "${shown[@]}")
	for row in "${rows[@]}"; do
		grep -qxF "${row%|*}" <<<"$shown_rows" || fail "not shown: $row"
	done
}
