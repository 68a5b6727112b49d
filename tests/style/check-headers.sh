#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Every header compiles alone and included twice; public ones also as plain C17 and as C++.
# shellcheck source=tests/style/lib.sh
. "$(dirname "$0")/lib.sh"

cc=${CC:-gcc}
cxx=${CXX:-g++}
if ! command -v "$cc" >/dev/null; then
	echo "SKIP: no C compiler ($cc)"
	exit 77
fi

status=0
pedantic=(-Wall -Wextra -Wpedantic -Werror)
read -r -a dpdk_flags <<<"$(pkg-config --cflags libdpdk 2>/dev/null || true)"

# compiles WHAT COMPILER FLAG... HEADER
compiles() {
	local what=$1 header=${*: -1} text
	local command=("${@:2:$#-2}")
	if ! text=$(printf '#include "%s"\n#include "%s"\n' "$header" "$header" |
		"${command[@]}" -I. -Ilib/include -fsyntax-only - 2>&1); then
		echo "$header:1: does not compile $what"
		sed -nE 's/^([^:]*:[0-9]+):([0-9]+:)? (fatal )?error: /\1: /p' <<<"$text"
		status=1
	fi
}

needs_generated() {
	"$cc" -MM -MG -I. -Ilib/include "$1" 2>/dev/null | grep -qE '\.pb-c\.h|ibverbs_private\.h'
}

mapfile -t headers < <(source_files '*.h' -- lib drivers gpudirect collectives nccl daemon dropin)
for header in "${headers[@]}"; do
	extra=()
	# Generated headers are in the build's folder, if there is one.
	if needs_generated "$header"; then
		[ -n "${FRL_BUILD_ROOT:-}" ] || continue
		extra=(-I "$FRL_BUILD_ROOT")
	fi
	case $header in
	drivers/dpdk/*) extra=("${dpdk_flags[@]}") ;;
	esac
	compiles alone "$cc" -x c -std=gnu17 -D_GNU_SOURCE -Wall -Wextra -Wno-unused-parameter \
		-Werror "${extra[@]}" "$header"
	case $header in
	lib/include/*)
		compiles "as plain C17" "$cc" -x c -std=c17 "${pedantic[@]}" "$header"
		if command -v "$cxx" >/dev/null; then
			compiles "as C++" "$cxx" -x c++ -std=c++17 "${pedantic[@]}" "$header"
		fi
		;;
	esac
done
exit "$status"
