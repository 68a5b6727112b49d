#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The system's daemon does not run: jobs of this host use a private one. Requests that need the
# system's daemon are refused at once, with the command that starts it.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"

unset FRL_CONTROL
export XDG_RUNTIME_DIR=$temp/runtime
private=$temp/runtime/ferrule/ferruled.sock
mkdir -m 700 "$XDG_RUNTIME_DIR"
for place in /etc/ferrule /run/ferrule; do
	[ ! -e "$place" ] || skip "this machine has $place"
done

# needs_system NAME ADVICE: the refusal of a private daemon gives this advice.
needs_system() {
	local name=$1 advice=$2 pid
	# No daemon is started for that.
	FRL_FABRIC=roce refuses "$name-lease" "$advice" -- "$pingpong" --listen none
	[ ! -e "$private" ] || fail "$name: a private daemon was started for a lease"
	refuses "$name-host" 'private daemon reaches no other host' "$advice" -- \
		"$bench" -n 2 --rank 0 --job far@192.0.2.1
	# Another program's request has started one.
	"$pingpong" --listen here >"$temp/$name-here.out" 2>&1 &
	pid=$!
	started+=("$pid")
	wait_until test -S "$private" || fail "$name: no private daemon was started"
	FRL_FABRIC=roce refuses "$name-fabric" 'private daemon has no fabric "roce"' "$advice" -- \
		"$pingpong" --listen none
	kill "$pid"
	wait "$pid" 2>/dev/null || true
	# For this host alone.
	passes "$name-job" "$bench" -n 2 --max 1K --iters 3
	wait_until test ! -e "$private" || fail "$name: the private daemon does not end"
}

needs_system none '(start ferruled|set up the system.s ferruled)'
if [ "${FRL_TEST_MACHINE:-}" = own ] && mkdir /run/ferrule 2>/dev/null; then
	needs_system stopped 'ferruled does not run.*systemctl start ferruled'
else
	echo "not tried: a machine that is set up for a daemon of the system"
fi
finish
