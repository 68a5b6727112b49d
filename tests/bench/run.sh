#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Compares Ferrule with other software on this machine, in turns, and with the targets of
# docs/reference/figures.md: builds Ferrule, installs the other software
# (scripts/install-deps.sh bench), measures, prints a table with pass or miss, writes JSON.
# tests/bench/run.sh --help.
#
# FRL_BUILD_DIR: the folder of the folder `build`, which is created if missing (the project's).
set -eu

cd "$(dirname "$0")/../.."
case " $* " in
*" --help "* | *" -h "*) exec python3 tests/bench/speed/main.py --help ;;
esac
# The programs that measure are built with the tests, which takes their packages.
scripts/install-deps.sh build test bench
build=${FRL_BUILD_DIR:-.}/build

# option NAME: its value in the build folder.
option() {
	meson introspect --buildoptions "$build" | python3 -c "
import json, sys
print(*(o['value'] for o in json.load(sys.stdin) if o['name'] == sys.argv[1]))" "$1"
}

if [ ! -f "$build/build.ninja" ]; then
	meson setup "$build" --buildtype release -Dtests=enabled >&2
elif ! meson introspect --tests "$build" | grep -q '"name"'; then
	meson setup --reconfigure "$build" -Dtests=enabled >&2
fi
if [ "$(option buildtype)" != release ] || [ "$(option b_sanitize)" != none ]; then
	echo "run.sh: $build is a build of type $(option buildtype), b_sanitize" \
		"$(option b_sanitize): what it takes says nothing; set FRL_BUILD_DIR to another" \
		"folder, or 'meson configure $build -Dbuildtype=release -Db_sanitize=none'" >&2
	exit 1
fi
ninja -C "$build" --quiet tools/ferrule-bench tools/ferrule-pingpong daemon/ferruled \
	tools/ferrule-run dropin/rdma/libibverbs.so.1 tests/bench/bench_copy \
	tests/bench/bench_line tests/bench/bench_local tests/bench/bench_memif \
	tests/bench/bench_perftest tests/bench/bench_protocol tests/bench/bench_rtr \
	tests/bench/bench_wake tests/daemon-client
exec python3 tests/bench/speed/main.py --build "$build" "$@"
