#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Sources have the licence line. They have no calls that a library never makes, no unfinished work,
# no spaces as indentation, no long lines, long files or long functions.
# Public headers cite no path below docs/.
# shellcheck source=tests/style/lib.sh
. "$(dirname "$0")/lib.sh"

status=0

mapfile -t files < <(source_files '*.c' '*.h' -- lib drivers gpudirect collectives nccl \
	dropin)
[ ${#files[@]} -eq 0 ] || awk "$awk_code"'
function forbid(text, pattern, reason) {
	if (text ~ ("(^|[^A-Za-z0-9_.>])(" pattern ")"))
		finding(reason)
}
{
	if ($0 ~ /(^|[^A-Za-z0-9_])(TODO|FIXME|XXX)([^A-Za-z0-9_]|$)/)
		finding("unfinished work is an issue, not a comment")
	text = code($0)
	forbid(text, "(printf|vprintf|puts|putchar|perror)[ \t]*\\(", "a library never prints")
	# It keeps EAL from printing.
	if (FILENAME != "drivers/dpdk/capture.c")
		forbid(text, "(stdout|stderr)([^A-Za-z0-9_]|$)", "a library never prints")
	forbid(text, "(exit|_exit|_Exit|quick_exit|abort|rte_exit|rte_panic)[ \t]*\\(",
		"a library never ends its host")
	forbid(text, "(strcpy|strcat|sprintf|vsprintf|gets)[ \t]*\\(", "no call without a bound")
	if (FILENAME != "lib/base/settings.c" && FILENAME != "nccl/settings.c")
		forbid(text, "(getenv|secure_getenv)[ \t]*\\(",
			"only settings.c of lib/base and of nccl reads the environment")
}
' "${files[@]}" || status=1

mapfile -t files < <(source_files '*.c' '*.h' -- lib drivers gpudirect collectives nccl daemon \
	dropin tools examples)
[ ${#files[@]} -eq 0 ] || awk "$awk_code"'
FNR == 601 { finding("the file has more than 600 lines: it may have gained a second noun") }
FNR == 1 { start = 0 }
/^[A-Za-z_].*\(/ { name = $0; sub(/[ \t]*\(.*/, "", name); sub(/.*[ \t*]/, "", name) }
/^\{/ { start = FNR }
/^\}/ {
	if (start && FNR - start + 1 > 70)
		finding(sprintf("%s() has %d lines; 70 are the most", name, FNR - start + 1))
	start = 0
}
' "${files[@]}" || status=1

# Indentation is a matter of C and shell; text inside block comments and here-documents is free.
mapfile -t files < <(source_files '*.c' '*.h' '*.sh' run -- .)
[ ${#files[@]} -eq 0 ] || awk "$awk_code"'
function width(line,    n, i, parts) {
	gsub(/[\200-\277]/, "", line)
	n = split(line, parts, "\t")
	total = 0
	for (i = 1; i < n; i++)
		total += length(parts[i]) + 8 - length(parts[i]) % 8
	return total + length(parts[n])
}
FNR == 1 { here = ""; is_c = FILENAME ~ /\.[ch]$/; in_comment = 0 }
width($0) > 100 { finding("more than 100 columns") }
is_c {
	if (!in_comment && $0 ~ /^ /)
		finding("spaces as indentation; use tabs")
	code($0)
	next
}
here != "" {
	line = $0
	sub(/^\t+/, "", line)
	if (line == here)
		here = ""
	next
}
/^ / { finding("spaces as indentation; use tabs") }
match($0, /<<-?["\047\\]?[A-Za-z_]+/) && substr($0, RSTART, 3) != "<<<" {
	here = substr($0, RSTART, RLENGTH)
	gsub(/[<\-"\047\\]/, "", here)
}
' "${files[@]}" || status=1

mapfile -t files < <(source_files '*.h' -- lib/include)
[ ${#files[@]} -eq 0 ] || awk "$awk_code"'
/docs\// { finding("an installed header has no docs/ beside it; state the fact or the page title") }
' "${files[@]}" || status=1

mapfile -t files < <(source_files '*.c' '*.h' '*.sh' '*.py' meson.build run -- .)
[ ${#files[@]} -eq 0 ] || awk '
function finding(line, reason) {
	printf "%s:%d: %s\n", name, line, reason
	findings++
}
function check_licence() {
	if (name != "" && !licence)
		finding(1, "no SPDX-License-Identifier: BSD-3-Clause in the first three lines")
}
FNR == 1 { check_licence(); name = FILENAME; licence = 0 }
FNR <= 3 && /SPDX-License-Identifier: BSD-3-Clause/ { licence = 1 }
/[ \t]$/ { finding(FNR, "white space at the end of the line") }
/\r/ { finding(FNR, "carriage return") }
END { check_licence(); exit findings > 0 }
' "${files[@]}" || status=1

exit "$status"
