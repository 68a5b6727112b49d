#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# tests/coverage.sh [SUITE...]: lines and branches of lib, collectives and daemon that these suites
# run (default: all but interop and style). docs/design/testing.md has the result. Builds in
# build-cov/ under FRL_BUILD_DIR (default: the repository); the report is build-cov/coverage.info,
# for genhtml. A process that a test kills writes no counts, so system tests add less than they run.
set -eu

cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- unit sim nccl system
build=${FRL_BUILD_DIR:-.}/build-cov
root=$PWD

scripts/install-deps.sh build test soak
[ -f "$build/build.ninja" ] ||
	meson setup "$build" -Dtests=enabled -Db_coverage=true -Doptimization=1
ninja -C "$build" --quiet
find "$build" -name '*.gcda' -delete
status=0
# shellcheck disable=SC2046 # words
meson test -C "$build" --no-rebuild --print-errorlogs --num-processes $(($(nproc) + 1)) \
	$(printf -- '--suite %s ' "$@") || status=$?
lcov=(lcov --quiet --rc lcov_branch_coverage=1)
"${lcov[@]}" --capture --directory "$build" --output-file "$build/coverage.info" 2>/dev/null
for folder in lib collectives daemon; do
	"${lcov[@]}" --extract "$build/coverage.info" "$root/$folder/*" \
		--output-file "$build/coverage-$folder.info"
	echo "$folder"
	lcov --rc lcov_branch_coverage=1 --summary "$build/coverage-$folder.info" 2>&1 |
		grep -E 'lines|branches'
done
[ "$status" -eq 0 ] || echo "some tests failed: the figures may be too low"
exit "$status"
