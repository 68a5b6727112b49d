#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Ferrule against what its users would otherwise run on this machine, in turns, and against the
# targets of docs/performance.md: builds Ferrule, installs the peers (scripts/install-deps.sh
# bench), measures, prints a table with pass or miss, writes JSON. tests/bench/run.sh --help.
#
# FRL_BUILD_DIR: where the folder `build` is, or is to be (the project's).
set -eu

cd "$(dirname "$0")/../.."
case " $* " in
*" --help "* | *" -h "*) exec python3 tests/bench/speed/main.py --help ;;
esac
scripts/install-deps.sh build bench
build=${FRL_BUILD_DIR:-.}/build
[ -f "$build/build.ninja" ] || meson setup "$build" --buildtype release >/dev/null
ninja -C "$build" --quiet examples/ferrule-bench examples/ferrule-pingpong daemon/ferruled \
	tests/bench/bench_memif tests/bench/bench_protocol
exec python3 tests/bench/speed/main.py --build "$build" "$@"
