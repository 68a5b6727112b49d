#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# debian/libferrule0.symbols names the functions of the public headers.
set -eu

cd "${1:-$(dirname "$0")/../..}"

list=debian/libferrule0.symbols
headers=$(grep -hv '^#' lib/include/ferrule/*.h | tr '\n' ' ' | grep -oE 'FRL_API [^;]*;' |
	sed -nE 's/^[^(]*\b(frl_[a-z0-9_]+)\(.*/\1/p' | sort -u)
listed=
[ ! -e "$list" ] || listed=$(sed -nE 's/^ (frl_[a-z0-9_]+)@.*/\1/p' "$list" | sort -u)
if [ "$headers" != "$listed" ]; then
	echo "$list:1: differs from lib/include/ferrule (a new function is of the next version):"
	diff <(echo "$headers") <(echo "$listed") || true
	exit 1
fi
