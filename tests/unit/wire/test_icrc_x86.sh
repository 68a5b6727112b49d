#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The kernel of the ICRC that is selected on older x86 processors, under QEMU: every length against
# a bitwise CRC. Skipped on other processors and without QEMU: `scripts/install-deps.sh test`.
set -euo pipefail
if [ "$(uname -m)" != x86_64 ] || ! command -v qemu-x86_64 >/dev/null; then
	echo "SKIP: no x86, or no qemu-x86_64 on the path: scripts/install-deps.sh test installs it"
	exit 77
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$FRL_SOURCE_ROOT"

cat >"$dir/main.c" <<-'END'
	#include <stdio.h>
	#include <string.h>

	#include "tests/unit/wire/icrc_check.h"

	int main(int argc, char **argv)
	{
		const struct icrc_kernel *const *kernel = icrc_all_kernels;

		while (!(*kernel)->supported())
			kernel++;
		if (strcmp((*kernel)->name, argv[1])) {
			printf("FAIL: the kernel is %s, not %s\n", (*kernel)->name, argv[1]);
			return 1;
		}
		return !icrc_check(*kernel);
	}
END
gcc -std=gnu17 -D_GNU_SOURCE -march=x86-64-v2 -O2 -Wall -Wextra -Wno-unused-parameter -Werror -I. \
	-Ilib/include -static "$dir/main.c" tests/unit/wire/icrc_check.c lib/base/random.c \
	lib/wire/icrc.c lib/wire/icrc_{avx2,avx512,pclmul}.c -o "$dir/check"
# With PCLMULQDQ and without AVX; without both.
qemu-x86_64 -cpu Westmere "$dir/check" pclmul
qemu-x86_64 -cpu Nehalem "$dir/check" plain
