#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# All shell scripts pass shellcheck, where that is installed.
# (Not SC2317: it takes functions that are called indirectly for unreachable.)
# shellcheck source=tests/style/lib.sh
. "$(dirname "$0")/lib.sh"

if ! command -v shellcheck >/dev/null; then
	echo "SKIP: shellcheck is not installed"
	exit 77
fi
mapfile -t files < <(source_files '*.sh' run -- .)
[ ${#files[@]} -eq 0 ] || shellcheck -x -f gcc -e SC2317 "${files[@]}"
