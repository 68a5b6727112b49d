#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# A user sends the daemon descriptors of a TCP connection that takes a day to close, in each
# possible way: the daemon ends that session, names its user, and serves others meanwhile.
# shellcheck source=tests/system/daemon_lib.sh
. "$(dirname "$0")/../daemon_lib.sh"

as_user=()
user=$(id -u)
if [ "$user" -eq 0 ]; then
	user=65534
	as_user=(setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all
		--inh-caps=-all)
	# Programs may lie where other users have no access.
	cp "$client" "$temp/"
	client=$temp/daemon-client
	chmod a+rx "$temp"
fi

run_daemon rights
socket=$temp/rights.sock
files=$(open_files "$daemon")

# send_slow WAY: returns when the daemon has ended that session.
send_slow() {
	kill -STOP "$daemon"
	"${as_user[@]}" "$client" slow "$socket" "$1" >"$temp/$1.out" 2>&1 &
	started+=("$!")
	wait_until grep -qs sent "$temp/$1.out" || fail "$1: nothing was sent"
	kill -CONT "$daemon"
	# The close takes a day, and a client waits for an answer for a minute.
	passes "beside_$1" "$client" ask "$socket" 3
	wait_until grep -qs ended "$temp/$1.out" || fail "$1: the session has not been ended"
}

for way in request page many oob queued; do
	send_slow "$way"
done
# No socket stays open, however long closing it takes.
fewer_files() {
	[ "$(open_files "$daemon")" -le "$files" ]
}
wait_until fewer_files || fail "descriptors: $files before, $(open_files "$daemon") after"

# The daemon has one descriptor for the session, and none for the sent ones.
last=$(find "/proc/$daemon/fd" -mindepth 1 -printf '%f\n' | sort -n | tail -1)
limits=$(prlimit --pid "$daemon" --nofile --output SOFT,HARD --noheadings |
	awk '{ print $1 ":" $2 }')
first=$(comm -13 <(find "/proc/$daemon/fd" -mindepth 1 -printf '%f\n' | sort) \
	<(seq 0 "$((last + 1))" | sort) | sort -n | head -1)
prlimit --pid "$daemon" --nofile="$((first + 1)):${limits#*:}"
mv "$temp/request.out" "$temp/first.out"
send_slow request
prlimit --pid "$daemon" --nofile="$limits"

for reason in "several descriptors" "is not a memfd"; do
	says rights "process [0-9]+ .* of user $user: it sent .*$reason"
done
passes after "$client" ask "$socket" 100

# It also ends in good order while such descriptors are queued, in a session and before it accepts.
kill -STOP "$daemon"
for n in 1 2; do
	"${as_user[@]}" "$client" slow "$socket" queued >"$temp/end$n.out" 2>&1 &
	started+=("$!")
	wait_until grep -qs sent "$temp/end$n.out" || fail "nothing was sent at the end"
done
kill -TERM "$daemon"
kill -CONT "$daemon"
stop_daemon "$daemon"
finish
