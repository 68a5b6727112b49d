#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# copy_in_order() on a weakly ordered processor: checks its instructions for arm64, because QEMU on
# x86 runs them in the order of x86, then runs the litmus tests under QEMU. Skipped without the
# cross compiler or QEMU: `scripts/install-deps.sh test`.
set -euo pipefail
for tool in aarch64-linux-gnu-gcc aarch64-linux-gnu-objdump qemu-aarch64; do
	if ! command -v "$tool" >/dev/null; then
		echo "SKIP: no $tool on the path: scripts/install-deps.sh test installs it"
		exit 77
	fi
done
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$FRL_SOURCE_ROOT"

compile() {
	aarch64-linux-gnu-gcc -std=gnu17 -D_GNU_SOURCE -Wall -Wextra -Werror -I. "$@"
}

# stores LEVEL: the store instructions of copy_in_order() and what it consists of, without those to
# the stack; `str x` and so on
stores() {
	compile "-$1" -c lib/base/memory/copy.c -o "$dir/copy-$1.o"
	aarch64-linux-gnu-objdump -d --no-show-raw-insn "$dir/copy-$1.o" | awk '
		/^[0-9a-f]+ <.*>:$/ { ours = $2 !~ /nontemporal/ }
		ours && $2 ~ /^(st|dmb)/ && !/\[sp/ { print $2, substr($3, 1, 1) }' | sort -u
}

# Whole words of 8 bytes are all that plain stores write. The last word of a copy, and any shorter
# one, is one store with release order: nothing of it is visible before what lies in front of it.
wanted='stlr w
stlr x
stlrb w
stlrh w
str x'
for level in O1 O2 O3 Os; do
	found=$(stores "$level")
	if [ "$found" != "$wanted" ]; then
		echo "FAIL: with -$level copy_in_order() has the stores"
		echo "$found"
		echo "where these should be:"
		echo "$wanted"
		exit 1
	fi
done

cat >"$dir/main.c" <<-'END'
	#include <stdio.h>

	#include "tests/unit/base/memory/copy_litmus.h"

	int main(void)
	{
		unsigned words = litmus_words(2000), message = litmus_message(50);
		unsigned lines = litmus_lines(50);

		printf("words %u, messages %u, lines %u\n", words, message, lines);
		return words || message || lines;
	}
END
compile -O2 -static -pthread "$dir/main.c" tests/unit/base/memory/copy_litmus.c \
	lib/base/memory/copy.c -o "$dir/litmus"
echo "seen under QEMU that must not be:"
qemu-aarch64 "$dir/litmus"
