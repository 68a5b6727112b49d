#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# docs/reference/settings.md and the table in lib/base/settings.h name the same settings and
# defaults; the table has the names of the settings that the NCCL plugin reads.
set -eu

cd "${1:-$(dirname "$0")/../..}"

# tidy: drops quotes and trailing blanks.
tidy() {
	tr -d "\"\`" | sed "s/ *$//" | sort
}

code=$(sed -n 's/.*X([a-z_]*, "\(FRL_[A-Z_]*\)", \([^,]*\),.*/\1 \2/p' lib/base/settings.h | tidy)
docs=$(tidy <docs/reference/settings.md |
	sed -n 's/^| \(FRL_[A-Z_]*\) | \([^|]*\)|.*/\1 \2/p' | tidy)
if [ -z "$code" ] || [ "$code" != "$docs" ]; then
	echo "docs/reference/settings.md: differs from lib/base/settings.h:"
	diff <(echo "$code") <(echo "$docs") || true
	exit 1
fi

code=$(grep -o '"FERRULE_[A-Z_]*"' lib/base/settings.h | sort -u)
read=$(grep -ho '"FERRULE_[A-Z_]*"' nccl/settings.c | sort -u)
if [ -z "$code" ] || [ "$code" != "$read" ]; then
	echo "lib/base/settings.h: SETTINGS_PLUGIN differs from nccl/settings.c:"
	diff <(echo "$code") <(echo "$read") || true
	exit 1
fi
