#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Every exported function has a manual page, made from the headers' comments. groff and mandoc find
# nothing wrong with the pages, where they are installed.
api=$(cd "$(dirname "$0")/../.." && pwd)/scripts/docs/api.py
# shellcheck source=tests/style/lib.sh
. "$(dirname "$0")/lib.sh"

symbols=debian/libferrule0.symbols
[ -f "$symbols" ] || exit 0
pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT
mapfile -t headers < <(source_files '*.h' -- lib/include/ferrule)
"$api" 0.0.0 "$pages/man3" "${headers[@]}" || exit 1

status=0
while IFS=: read -r line name; do
	[ -f "$pages/man3/$name.3" ] || {
		echo "$symbols:$line: no manual page for $name"
		status=1
	}
done < <(grep -no '\<frl_[a-z0-9_]*' "$symbols")

cd "$pages"
mapfile -t texts < <(grep -L '^\.so ' man3/*.3)
if command -v groff >/dev/null; then
	findings=$(groff -man -Tascii -ww "${texts[@]}" 2>&1 >/dev/null | sed 's/^[a-z]*: *//')
	[ -z "$findings" ] || { echo "$findings" && status=1; }
fi
if command -v mandoc >/dev/null; then
	findings=$(mandoc -T lint -W warning "${texts[@]}" | sed 's/^mandoc: *//')
	[ -z "$findings" ] || { echo "$findings" && status=1; }
fi
exit "$status"
