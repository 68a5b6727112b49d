#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The pictures of the folders show the table of layers, and no folders include each other.
draw=$(cd "$(dirname "$0")/../.." && pwd)/scripts/draw-layers.py
# shellcheck source=tests/style/lib.sh
. "$(dirname "$0")/lib.sh"

[ -f tests/style/layers.txt ] || exit 0
exec "$draw" --check .
