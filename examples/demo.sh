#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# What to run first: installs what is missing, builds, and sums real gradients over four processes
# that talk RoCEv2 through shared memory. No NIC, and no root but for the installation.
set -eu

cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/install-deps.sh build

# Without Check (the tests install it) the tests are left out.
[ -f build/build.ninja ] || meson setup build -Dtests=auto
ninja -C build

echo
exec build/examples/ferrule-allreduce -n 4 \
	--input 'examples/data/rank%r.safetensors' \
	--output 'out/rank%r.safetensors' \
	--check examples/data/sum.safetensors
