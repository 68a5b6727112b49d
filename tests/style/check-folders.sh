#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# A folder has at most 30 files, so that one look finds a file. Folders of records and of test data
# grow with the project, and have no limit.
# shellcheck source=tests/style/lib.sh
. "$(dirname "$0")/lib.sh"

most=30
source_files '*' -- \
	lib drivers gpudirect collectives daemon nccl dropin tools examples tests docs scripts |
	grep -vE '^(docs/decisions|tests/vectors|tests/fuzz/corpus/[a-z]+)/[^/]*$' |
	sed 's|/[^/]*$||' | sort | uniq -c | awk -v most="$most" '
		$1 > most {
			print $2 ": " $1 " files; sort them into folders of at most " most
			found = 1
		}
		END { exit found }'
