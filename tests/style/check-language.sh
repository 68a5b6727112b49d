#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Sentences of comments, documents and error texts name their subject first (language.py).
checks=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/style/lib.sh
. "$(dirname "$0")/lib.sh"

mapfile -t files < <(source_files '*.[1-8]' '*.c' '*.conf' '*.cu' '*.h' '*.in' '*.inc' '*.md' \
	'*.proto' '*.py' '*.service' '*.sh' '*.socket' '*.yaml' '*.yml' Dockerfile layers.txt \
	meson.build -- collectives daemon debian docs drivers dropin examples gpudirect lib nccl \
	packaging python scripts tests tools)
for file in CHANGELOG.md CONTRIBUTING.md README.md meson.build; do
	[ ! -f "$file" ] || files+=("$file")
done
[ ${#files[@]} -gt 0 ] || exit 0
"$checks/language.py" "${files[@]}"
