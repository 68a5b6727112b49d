#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Dependencies point one way: every folder includes only what the table layers.txt allows. And the
# protocol core does no I/O: no allocation, clock, log, thread, environment or driver call. Its code
# and comments do not mention GPUs or offloads.
table=$(cd "$(dirname "$0")" && pwd)/layers.txt
# shellcheck source=tests/style/lib.sh
. "$(dirname "$0")/lib.sh"

mapfile -t files < <(source_files '*.c' '*.h' '*.cu' -- lib drivers gpudirect collectives nccl \
	dropin tools examples daemon)
[ ${#files[@]} -gt 0 ] || exit 0

awk "$awk_code"'
# Longest matching folder wins. Quoted includes are written from the repository root.
function folder_of(file,    best, f) {
	best = ""
	for (f in allowed)
		if (index(file, f) == 1 && length(f) > length(best))
			best = f
	return best
}
# A folder in a list stands for its files, and for subfolders without a row.
function is_allowed(path, list,    n, i, words, row) {
	n = split(list, words, " ")
	row = folder_of(path)
	for (i = 1; i <= n; i++)
		if (path == words[i] || row == words[i] || (words[i] ~ /\/$/ && \
				index(path, words[i]) == 1 && index(row, words[i]) != 1))
			return 1
	return 0
}
function check_include(text,    path, list) {
	path = text
	sub(/^[ \t]*#[ \t]*include[ \t]*["<]/, "", path)
	sub(/[">].*/, "", path)
	list = allowed[folder]
	if (text ~ /include[ \t]*"/) {
		if (path ~ /\.\./ || path !~ /\//) {
			finding("include \"" path "\" is not written from the repository root")
		} else if (!is_allowed(path, list)) {
			finding(folder " must not include " path)
		}
		return
	}
	if (path ~ /^ferrule\// && folder == "collectives/plan/" && path != "ferrule/collective.h")
		finding("plans see ferrule/collective.h of the public headers, not " path)
	# Ports know nothing of devices; what makes a device has its public meaning.
	if (path ~ /^ferrule\// && path != "ferrule/error.h" && \
			(folder ~ /^drivers\/(dpdk|local|packet|raw)\/$/ || \
				FILENAME ~ /drivers\/port\.h$/))
		finding("ports see ferrule/error.h of the public headers, not " path)
	if (path ~ /^rte_/ && folder != "drivers/dpdk/")
		finding("only drivers/dpdk includes " path)
	if (path ~ /^infiniband\// && folder != "drivers/verbs/" && folder != "drivers/raw/" && \
			folder != "dropin/")
		finding("only drivers/verbs, drivers/raw and dropin include " path)
	if (path ~ /^(pthread|threads|semaphore|sys\/socket|sys\/epoll|time)\.h$/ && pure)
		finding(folder " does no I/O and knows no clock or thread, but includes " path)
}
function forbid(text, pattern, reason) {
	if (text ~ ("(^|[^A-Za-z0-9_.>])" pattern))
		finding(folder " is sans-I/O: " reason)
}
function check_pure(text) {
	forbid(text, "(malloc|calloc|realloc|reallocarray|aligned_alloc|posix_memalign)[ \t]*\\(",
		"no allocation")
	forbid(text, "(free|strdup|strndup)[ \t]*\\(", "no allocation")
	forbid(text, "(clock_gettime|gettimeofday|time|nanosleep|usleep|sleep)[ \t]*\\(",
		"no clock; time is passed in as now_ns")
	forbid(text, "(printf|fprintf|dprintf|vprintf|vfprintf|puts|fputs|perror|syslog)[ \t]*\\(",
		"no output")
	forbid(text, "(frl_log|frl_fail)[ \t]*\\(", "no log and no error text; return a code")
	forbid(text, "(getenv|secure_getenv)[ \t]*\\(", "no environment")
	forbid(text, "(random|rand|srand|getrandom)[ \t]*\\(", "randomness is passed in")
	forbid(text, "(socket|connect|bind|listen|accept|epoll_[a-z]+)[ \t]*\\(", "no sockets")
	forbid(text, "(sendto|sendmsg|recvfrom|recvmsg)[ \t]*\\(", "no sockets")
	forbid(text, "pthread_", "no threads")
	forbid(text, "(rte|ibv)_", "no driver calls")
	forbid(text, "cu[A-Z][A-Za-z0-9]*[ \t]*\\(", "no driver calls")
}
# The table: "folder: what it may include", continued on lines that begin with a tab.
FNR == NR {
	if (/^#/ || !NF)
		next
	if (/^[^ \t]+:/) {
		row = substr($1, 1, length($1) - 1)
		sub(/^[^ \t]+:/, "")
		allowed[row] = ""
	}
	allowed[row] = allowed[row] " " $0
	next
}
FNR == 1 {
	folder = folder_of(FILENAME)
	pure = folder == "lib/wire/" || folder == "lib/protocol/"
	if (folder == "")
		finding("this folder is not in the table of layers (tests/style/layers.txt)")
}
{
	if (pure && match(tolower($0), /gpu|cuda|offload/))
		finding(folder " does not know the word " substr($0, RSTART, RLENGTH))
	text = code($0)
	if (text ~ /^[ \t]*#[ \t]*include/)
		check_include($0)
	else if (pure)
		check_pure(text)
}
' "$table" "${files[@]}"
