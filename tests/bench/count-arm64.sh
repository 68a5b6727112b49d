#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Counts the instructions of a WRITE of 4 KiB on arm64, at both ends, as `bench_protocol --counts`
# does on the processor it runs on: QEMU executes bench_protocol one instruction at a time and logs
# the function of each. Counts functions of lib/ and of the program's loops, without the copies of
# the payload (memcpy()) and without the stage "icrc"; the loops make it some 2 % too much.
#
#	tests/bench/count-arm64.sh      prints a line for each function, and last the sum
#
# Needs `scripts/install-deps.sh test`. Takes half a minute.
set -euo pipefail
for tool in aarch64-linux-gnu-gcc aarch64-linux-gnu-nm qemu-aarch64; do
	if ! command -v "$tool" >/dev/null; then
		echo "count-arm64.sh: no $tool on the path: scripts/install-deps.sh test" >&2
		exit 1
	fi
done
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$(dirname "$0")/../.."
packets=1280 # of 20 batches, which --quick runs

for source in lib/base/*.c lib/wire/*.c lib/protocol/*.c lib/reduce/names.c \
	tests/bench/bench_protocol.c; do
	case $source in
	*/icrc_avx* | */icrc_pclmul.c) ;;
	*)
		aarch64-linux-gnu-gcc -std=gnu17 -D_GNU_SOURCE -O3 -ffunction-sections -I. \
			-Ilib/include -c "$source" \
			-o "$dir/${source//\//_}.o"
		;;
	esac
done
aarch64-linux-gnu-gcc -static -Wl,--gc-sections "$dir"/*.o -o "$dir/bench"
aarch64-linux-gnu-nm "$dir"/*.o | awk '$2 == "t" || $2 == "T" { print $3 }' |
	grep -vxE 'main|init_side|update|icrc_update' >"$dir/functions"
qemu-aarch64 -singlestep -d nochain,exec "$dir/bench" --quick --counts 2>&1 >/dev/null |
	awk -v packets="$packets" '
		FILENAME != "-" { ours[$1]; next }
		/^Trace/ && $NF in ours { n[$NF]++; all++ }
		END {
			sort = "sort -k2 -rn"
			for (name in n)
				if (n[name] >= packets)
					printf "%-24s %7.1f\n", name, n[name] / packets | sort
			close(sort)
			printf "%-24s %7.0f\n", "WRITE 4 KiB", all / packets
		}' "$dir/functions" -
