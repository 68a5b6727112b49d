#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The HTML site is built without warnings: all links and references lead somewhere.
set -eu

temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
status=0
"$(dirname "$0")/../../scripts/docs/site.py" 0.0.0 "$temp" >"$temp/log" 2>&1 || status=$?
if [ "$status" -eq 3 ]; then
	echo "SKIP: $(cat "$temp/log")"
	exit 77
fi
sed "s|^$temp/source/||" "$temp/log"
exit "$status"
