#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The C sources are as clang-format 14 writes them (other versions differ in details).
# `clang-format -i FILE` repairs one.
# shellcheck source=tests/style/lib.sh
. "$(dirname "$0")/lib.sh"

formatter=
for name in clang-format-14 clang-format; do
	if command -v "$name" >/dev/null && "$name" --version | grep -q 'version 14\.'; then
		formatter=$name
		break
	fi
done
if [ -z "$formatter" ]; then
	echo "SKIP: clang-format 14 is not installed"
	exit 77
fi

mapfile -t files < <(source_files '*.c' '*.h' -- lib drivers gpudirect collectives nccl daemon \
	dropin tools examples tests)
[ ${#files[@]} -gt 0 ] || exit 0
findings=$("$formatter" --style=file --dry-run -Werror "${files[@]}" 2>&1 |
	grep ': error: ' || true)
[ -n "$findings" ] || exit 0
# One finding a line of source is enough.
awk -F: '!seen[$1, $2]++ { printf "%s:%s: not as clang-format 14 writes it\n", $1, $2 }' \
	<<<"$findings"
exit 1
