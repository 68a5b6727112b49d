#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# real.sh REAL-NCCL PLUGIN NAME: NCCL loads the plugin, according to its own log. Skipped if NCCL
# gets no further than its bootstrap, as without a GPU.
set -eu

log=$(mktemp)
trap 'rm -f "$log"' EXIT
[ -x "$1" ] || {
	echo "SKIP: there was no NCCL (nccl.h, libnccl) when this was built"
	exit 77
}
status=0
NCCL_DEBUG=INFO NCCL_SOCKET_IFNAME=lo NCCL_NET=$3 timeout 360 "$1" "$(realpath "$2")" \
	>"$log" 2>&1 ||
	status=$?
cat "$log"
[ "$status" -eq 0 ] || exit "$status"
grep -qE "NET/Plugin: (Loaded|Using).*$3|Using network $3" "$log" || {
	echo "FAILED: NCCL's log does not say that it uses $3"
	exit 1
}
