#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Programs such as Python open the libraries while they run. glibc then has a few hundred bytes for
# the thread-local variables of all libraries with DF_STATIC_TLS, and Ferrule's need few of them.
# shellcheck disable=SC2034
own_machine=unwanted
# shellcheck disable=SC2034
own_programs=unwanted
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"
limit=64

command -v readelf >/dev/null || skip "there is no readelf (package binutils)"
build=$(cd "$bin/.." && pwd)
for library in libferrule.so.0 libnccl-net-ferrule.so dropin/rdma/libibverbs.so.1; do
	size=$(readelf -lW "$build/$library" | awk '$1 == "TLS" { print $6 }')
	[ -n "$size" ] || fail "$library: no segment of thread-local variables"
	[ $((size)) -le "$limit" ] ||
		fail "$library has $((size)) bytes of thread-local variables, more than $limit"
done
finish
