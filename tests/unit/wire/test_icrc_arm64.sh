#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The ICRC by arm64's instructions under QEMU: every length of headers and payload against a bitwise
# CRC, as the unit test compares the kernels of this processor. Skipped without the cross compiler
# or QEMU: `scripts/install-deps.sh test`.
set -euo pipefail
for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
	if ! command -v "$tool" >/dev/null; then
		echo "SKIP: no $tool on the path: scripts/install-deps.sh test installs it"
		exit 77
	fi
done
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$FRL_SOURCE_ROOT"

cat >"$dir/main.c" <<-'END'
	#include <stdio.h>

	#include "tests/unit/wire/icrc_check.h"

	int main(void)
	{
		const struct icrc_kernel *kernel = icrc_all_kernels[0];

		if (kernel != &icrc_arm64 || !kernel->supported()) {
			puts("FAIL: the kernel for arm64 is not the first one that is supported");
			return 1;
		}
		return !icrc_check(kernel);
	}
END
aarch64-linux-gnu-gcc -std=gnu17 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -I. -Ilib/include \
	-static "$dir/main.c" tests/unit/wire/icrc_check.c \
	lib/base/random.c lib/wire/icrc.c lib/wire/icrc_arm64.c -o "$dir/check"
qemu-aarch64 "$dir/check"
