#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# exports.sh PLUGIN [tuner]: it exports NCCL's tables, versions 6 to 12 and of the tuner 3 to 5, and
# nothing else that could get in the way of others in the process.
set -eu

command -v nm >/dev/null || {
	echo "SKIP: there is no nm (package binutils)"
	exit 77
}
wanted=$({
	printf 'ncclNetPlugin_v%s\n' 6 7 8 9 10 11 12
	[ "${2-}" != tuner ] || printf 'ncclTunerPlugin_v%s\n' 3 4 5
} | sort)
# What sanitizers, coverage and gold (the ends of segments) add is theirs.
exported=$(nm -D --defined-only "$1" | awk '{ print $3 }' |
	grep -vE '^(__)?(odr_)?(asan|tsan|ubsan|gcov)' |
	grep -vxE '__bss_start|_edata|_end|mangle_path' | sort)
[ "$exported" = "$wanted" ] || {
	echo "FAILED: $1 exports other names than the tables (<: missing, >: too many):"
	diff <(echo "$wanted") <(echo "$exported") || true
	exit 1
}
