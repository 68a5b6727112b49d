#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Processes with plain verbs over the drop-in libibverbs: many at once, killed ones, ones of another
# user, ones that do not exist, and ones without descriptors. Nothing is left behind.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/system/dropin/dropin_lib.sh
. "$(dirname "$0")/dropin_lib.sh"

peer=$bin/../tests/verbs-peer
[ -x "$peer" ] || skip "$peer is not built"

before=$(leavings)
passes all "$run" "$peer" all 8
passes many "$run" "$peer" all 40
passes killed "$run" "$peer" killed
passes idle "$run" "$peer" idle
passes multicast "$run" "$peer" multicast 4
passes multicast-many "$run" "$peer" multicast 20
passes missing "$run" "$peer" missing
passes files "$run" "$peer" files
if [ "$(id -u)" -eq 0 ]; then
	passes users "$run" "$peer" users
else
	echo "not root: no process of another user"
fi
left=$(left_behind "$before" "$$")
[ -z "$left" ] || fail "left behind: $left"
finish
