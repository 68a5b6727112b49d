#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# groff finds nothing wrong with the man pages, where it is installed.
# shellcheck source=tests/style/lib.sh
. "$(dirname "$0")/lib.sh"

if ! command -v groff >/dev/null; then
	echo "SKIP: groff is not installed"
	exit 77
fi
mapfile -t files < <(source_files '*.[1-8]' -- docs)
status=0
for file in "${files[@]}"; do
	# "troff:docs/man/x.1:12: warning: ..." becomes a finding.
	findings=$(groff -man -Tascii -ww "$file" 2>&1 >/dev/null | sed 's/^[a-z]*: *//')
	[ -z "$findings" ] || { echo "$findings" && status=1; }
done
exit "$status"
