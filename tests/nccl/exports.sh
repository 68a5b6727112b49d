#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# exports.sh PLUGIN [tuner]: the plugin exports NCCL's tables, versions 6 to 12 and of the tuner 3
# to 5, and no other symbol that could collide with others in the process.
set -eu

command -v nm >/dev/null || {
	echo "SKIP: there is no nm (package binutils)"
	exit 77
}
wanted=$({
	printf 'ncclNetPlugin_v%s\n' 6 7 8 9 10 11 12
	[ "${2-}" != tuner ] || printf 'ncclTunerPlugin_v%s\n' 3 4 5
} | sort)
# Symbols that sanitizers, coverage and gold (the ends of segments) add are allowed.
exported=$(nm -D -g --defined-only "$1" | awk '{ print $3 }' |
	grep -vE '^(__)?(odr_)?(asan|tsan|ubsan|gcov)' |
	grep -vxE '__bss_start|_edata|_end|mangle_path' | sort)
[ "$exported" = "$wanted" ] || {
	echo "FAILED: $1 exports other names than the tables (<: missing, >: too many):"
	diff <(echo "$wanted") <(echo "$exported") || true
	exit 1
}
