#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# More ranks than a process of the local fabric can have links: collectives go by way of others, and
# communicators that come one after the other give back the links that they had.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

comm_peer=$bin/../tests/comm-peer
[ -x "$comm_peer" ] || skip "$comm_peer is not built"

# Ranks in a new order each time, so with other neighbours.
passes shuffled "$comm_peer" shuffle 40 6
grep -q '40 ranks have agreed in 6 communicators' "$temp/shuffled.out" || {
	fail "not all communicators were used"
	show "$temp/shuffled.out"
}

# SEND and RECV need a connection of their own to each peer: a clear end.
refuses pairs 'rank [0-9]+ cannot connect to rank [0-9]+: this process has 31 local links' \
	'alltoallv can' -- "$comm_peer" pairs 40
finish
