#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Many ranks on one machine: communicators one after the other in new orders, and a SEND from each
# rank to each other one.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"

comm_peer=$bin/../tests/comm-peer
[ -x "$comm_peer" ] || skip "$comm_peer is not built"

# Ranks in a new order each time, so with other neighbours.
passes shuffled "$comm_peer" shuffle 40 6
grep -q '40 ranks have agreed in 6 communicators' "$temp/shuffled.out" || {
	fail "not all communicators were used"
	show "$temp/shuffled.out"
}

passes pairs "$comm_peer" pairs 40
finish
