#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# selftest.sh HARNESS SOCKET-PLUGIN: shows that the harness can fail. The socket plugin makes one
# mistake at a time, and a row must find it and name it. Every row and every mistake must be in the
# table.
set -eu

harness=$1
plugin=$2
here=$(dirname "$0")
export SOCKET_NET_RECVS=8

# Row (with @VERSION of the table), mistake, message of the row.
table() {
	cat <<-'END'
	load               not-again           plugin_init.*system error
	init-twice         overrun             was written
	properties         rail-zero           maxP2pBytes 0
	properties         duplicate-names     are both
	properties@8       swapped             speed 0|by the newest table
	bad-device         any-device          properties of device -1
	self               needs-listener      remote error
	accept-first       accept-blocks       not at its end
	interleaved        overrun             was written
	cancelled          close-blocks        not at its end
	bad-handle         trusts-handles      a handle that nobody gave
	reload             not-again           plugin_init.*system error
	registration       any-pointer         registered memory of a GPU
	attributes         overrun             was written
	sizes              wrong-size          but it says
	mixed              overtakes           wrong|but it says
	small              lost-message        receive 19, part 0
	pipeline           late-write          after completion: byte
	channels           corrupt             is wrong
	shorter            wrong-size          but it says
	zero               zero-never          but it says|not at its end
	zero               huge-handle         beyond the handle's 128 bytes
	early              overrun             was written
	window             window-16           irecv takes 16 requests
	full               full-error          internal error
	optional           optional-never      not at its end
	idle               corrupt             is wrong
	events             unbalanced-events   40 profiler events were started, 0 stopped
	events             no-events           0 profiler events of 40 messages
	events             wrong-event         of no network
	events             short-event         profiler events are of
	flush              corrupt             wrong bytes after a flush
	group              group-mismatch      but it says|is wrong
	group              lost-tag            remote error
	group@6            first-tag           remote error
	gib-sparse@6       cut-size            but it says 0
	group-mixed        group-mismatch      but it says|is wrong
	group-tags         overrun             was written
	group-early        lost-tag            remote error
	group-window       window-16           takes 16 requests
	ll                 tear-word           has its flag, but not its data
	ll128              tear-line           has its flag, but not all
	race               wrong-mr            invalid argument
	two-comms          corrupt             is wrong
	truncated          truncates           took a message of 100000
	abort              writes-after-close  signal 11
	abort-send         deaf                there is no error yet
	abort-recv         deaf                there is no error yet
	killed-send        deaf                there is no error yet
	killed-recv        deaf                there is no error yet
	killed-recv        silent              the log says nothing
	leaks              leaks-files         behind the last finalize|were open behind
	deregister         uses-gone           ended well
	silent             close-blocks        not at its end
	brief              overrun             was written
	END
}

failures=0
fail() {
	echo "FAILED: $*"
	failures=$((failures + 1))
}

# Exceptions: slow rows repeat others with more data, and some rows are for Ferrule alone. The
# socket plugin has no devices to fuse, connects before anything can be given up, is unloaded, and
# has no tuner.
rows=$("$harness" --list | grep -Ev '\((slow|by name)\)$' | cut -d ' ' -f 1 |
	grep -vxE 'virtual|given-up|forgotten|tuner')
for row in $rows; do
	table | grep -q "^$row " || fail "no mistake is known that row $row sees"
done
mistakes=$(sed -n 's/.*X([A-Z_0-9]*, "\([a-z0-9-]*\)").*/\1/p' "$here/socket/socket_defects.h")
for mistake in $mistakes; do
	[ "$mistake" = none ] || table | grep -q " $mistake " ||
		fail "mistake $mistake is in no row of the table"
done

while read -r row mistake says; do
	was_here=
	[ "$row" != load ] || was_here=1
	abi=()
	[[ $row != *@* ]] || abi=(--abi "${row#*@}")
	row=${row%@*}
	# Short limits where the mistake is that something never comes.
	seconds=20 dead=20
	[[ $says != *"not at its end"* ]] || seconds=1
	[[ $says != *"there is no error yet"* ]] || dead=1
	status=0
	output=$(env SOCKET_NET_DEFECT="$mistake" ${was_here:+SOCKET_NET_WAS_HERE=1} "$harness" \
		--sides processes --seconds $seconds --dead $dead "${abi[@]}" "$plugin" "$row" \
		2>&1) || status=$?
	if [ "$status" -ne 1 ]; then
		fail "row $row does not see $mistake (status $status)"
	elif ! grep -Eq "^FAILED .*($says)" <<<"$output"; then
		fail "row $row sees $mistake, but does not say \"$says\":"
		echo "$output"
	fi
done < <(table)
[ "$failures" -eq 0 ] || exit 1
echo "$(table | wc -l) mistakes, all seen"
