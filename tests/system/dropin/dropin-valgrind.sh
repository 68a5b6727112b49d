#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Programs over the drop-in libibverbs under valgrind, at both ends: it finds no error and no leak
# in the library. Memory that the peer writes counts as initialised: it is shared memory.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/system/dropin/dropin_lib.sh
. "$(dirname "$0")/dropin_lib.sh"

needs valgrind ibv_rc_pingpong ibv_uc_pingpong ibv_ud_pingpong ibv_srq_pingpong
peer=$bin/../tests/verbs-peer
[ -x "$peer" ] || skip "$peer is not built"

# Threads take turns: the library's own thread must not wait for a program that polls.
check=(valgrind -q --vgdb=no --error-exitcode=99 --trace-children=yes --fair-sched=yes
	--leak-check=full '--errors-for-leak-kinds=definite,indirect')
server_run=("$run" "${check[@]}")
client_run=("$run" "${check[@]}")

# pingpong NAME TYPE OPTION...: a short pair that checks its data.
pingpong() {
	local name=$1 type=$2
	shift 2
	pair "$name" 18515 "ibv_${type}_pingpong" -d frl0 -g 1 -c -n 50 -s 2000 "$@"
}

pingpong rc rc
pingpong rc-events rc -e
pingpong rc-new-send rc -N
pingpong uc uc
pingpong ud ud
pingpong srq srq
passes all "$run" "${check[@]}" "$peer" all 3
passes killed "$run" "${check[@]}" "$peer" killed
passes missing "$run" "${check[@]}" "$peer" missing
finish
