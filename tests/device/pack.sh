#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Packs the files of a build that tests/device/nccl.sh and gpu.sh need, with the libraries beneath
# them, for a machine that has neither DPDK nor the internet: --build FOLDER there. A library of the
# folder is used only where that machine has none of its own. So the machine may run another
# distribution, if its C library is not older.
set -eu

usage() {
	echo 'tests/device/pack.sh BUILD FOLDER     FOLDER: is made, or emptied of an earlier pack'
}

if [ $# -ne 2 ] || [ ! -d "$1" ]; then
	usage >&2
	exit 2
fi
build=$(cd "$1" && pwd)
folder=$2
source_root=$(cd "$(dirname "$0")/../.." && pwd)
programs=(tools/ferrule-allreduce tools/ferrule-bench tools/ferrule-pingpong
	daemon/ferruled)

for file in libnccl-net-ferrule.so "${programs[@]}"; do
	if [ ! -r "$build/$file" ]; then
		echo "$build/$file is not built" >&2
		exit 1
	fi
done
if [ -e "$folder" ] && [ ! -e "$folder/commit" ]; then
	echo "$folder is there and is no pack" >&2
	exit 1
fi
rm -rf "$folder"
mkdir -p "$folder/libs"

take() {
	mkdir -p "$folder/$(dirname "$1")"
	cp -L "$build/$1" "$folder/$1"
	strip --strip-unneeded "$folder/$1"
}
for file in libnccl-net-ferrule.so libferrule.so.0 "${programs[@]}"; do
	take "$file"
done
# The rank as a binary, for a machine without a compiler. It needs the NCCL of its build.
[ ! -x "$build/tests/nccl/nccl-check" ] || take tests/nccl/nccl-check
# For gpu.sh, as far as it is built. Never tests/fakes/cuda: the machine has a driver.
for file in tools/ferrule-info tools/gpu_allreduce daemon/ctl/ferrulectl \
	tests/bench/bench_gpu tests/nccl/nccl-harness \
	tests/unit/test_gpu tests/unit/test_api_gpu tests/unit/test_comm \
	tests/unit/test_nccl; do
	[ -x "$build/$file" ] || continue
	take "$file"
	programs+=("$file")
done

# needs FILE...: the libraries that they need, without those of the C library.
needs() {
	ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
		grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv|ld-linux[^/]*)\.so' || true
}

while read -r library; do
	case $(basename "$library") in
	libferrule.so* | libnccl.so* | libcudart.so* | libcuda.so*) continue ;;
	esac
	cp -L "$library" "$folder/libs/"
done < <(cd "$build" && needs libnccl-net-ferrule.so "${programs[@]}")

commit=$(git -C "$source_root" rev-parse --short HEAD 2>/dev/null || echo unknown)
git -C "$source_root" diff --quiet HEAD 2>/dev/null || commit="$commit, changed"
echo "$commit" >"$folder/commit"
echo "$folder: $(du -sh "$folder" | cut -f 1); with it and the sources:"
echo "    tests/device/nccl.sh --build $folder"
echo "    tests/device/gpu.sh --build $folder"
