#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# bench-connect.sh [RUNS]: connections a second through a control daemon of its own, beside bare TCP
# over loopback, several times (docs/reference/performance-parts.md). FRL_BUILD: the build folder.
set -eu

runs=${1:-3}
build=${FRL_BUILD:-$(cd "$(dirname "$0")/../.." && pwd)/build}
folder=$(mktemp -d)
daemon=

cleanup() {
	[ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
	rm -rf "$folder"
}
trap cleanup EXIT

export FRL_CONTROL=$folder/ferruled.sock
echo 'max_connections_per_user = 100000;' >"$folder/conf"
"$build/daemon/ferruled" --private --config "$folder/conf" --socket "$FRL_CONTROL" \
	>"$folder/log" 2>&1 &
daemon=$!
for _ in $(seq 100); do
	[ ! -S "$FRL_CONTROL" ] || break
	sleep 0.1
done
for run in $(seq "$runs"); do
	echo "run $run"
	"$build/tests/bench/bench_connect" --daemon-pid "$daemon"
done
