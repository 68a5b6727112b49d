#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# 200 clients that flood, stall in mid-message, send garbage, descriptors or nothing: they are
# disconnected, one that behaves goes on being served, and nothing is left of them.
# shellcheck source=tests/system/daemon_lib.sh
. "$(dirname "$0")/daemon_lib.sh"

cat >"$temp/flood.conf" <<END
hello_ms = 1000;
max_sessions_per_user = 1000;
END
# One that nobody floods: what it takes shows what the machine and its other work take.
run_daemon calm
calm=$daemon
run_daemon flood --config "$temp/flood.conf"
socket=$temp/flood.sock
passes before "$client" ask "$socket" 500
files=$(open_files "$daemon")
memory=$(resident_kb "$daemon")

"$client" flood "$socket" 200 3000 >"$temp/counts" &
flood=$!
started+=("$flood")
more_files() {
	[ "$(open_files "$daemon")" -gt $((files + 100)) ]
}
wait_until 10 more_files || fail "the flood has not come"
while :; do
	"$client" ask "$temp/calm.sock" 50
done >"$temp/baseline" 2>&1 &
asker=$!
started+=("$asker")
passes meanwhile timeout 50 "$client" ask "$socket" 150
kill "$asker"
wait "$asker" 2>/dev/null || true
alive "$flood" || fail "the flood was over before the measurement was"
kill -TERM "$flood"
wait "$flood" || fail "the flood was turned away"
cat "$temp/counts"

# median and longest, in microseconds. A round is some milliseconds of work and may come to many
# times that where others have the processors as well; without turns, requests wait for seconds.
read -r median longest <"$temp/meanwhile.out"
read -r calm_median calm_longest < <(awk 'NF == 2 && $1 > median { median = $1 }
	NF == 2 && $2 > longest { longest = $2 }
	END { print median + 0, longest + 0 }' "$temp/baseline")
echo "round trips meanwhile: median $median us, longest $longest us"
echo "at a daemon without a flood: median up to $calm_median us, longest $calm_longest us"
[ "$median" -lt $((100000 + 20 * calm_median)) ] || fail "the median of round trips was $median us"
[ "$longest" -lt $((1500000 + 20 * calm_longest)) ] ||
	fail "the longest round trip was $longest us"

# Each kind but those that only ask too much has been disconnected.
for kind in stall garbage long rights silent large; do
	count=$(awk -v kind=$kind '$1 == kind { print $2 }' "$temp/counts")
	[ "$count" -gt 0 ] || fail "no client of the kind '$kind' was disconnected"
done

# The log tells of it without being filled.
says flood 'lines like these were left out'
[ "$(wc -l <"$temp/flood.log")" -lt 2000 ] || fail "the log has $(wc -l <"$temp/flood.log") lines"

fewer_files() {
	[ "$(open_files "$daemon")" -le "$files" ]
}
wait_until 10 fewer_files || fail "descriptors: $files before, $(open_files "$daemon") after"
less_memory() {
	[ "$(resident_kb "$daemon")" -lt $((memory * 2 + 30000)) ]
}
# An address sanitizer keeps what was freed.
if ! grep -q __asan_init "$ferruled"; then
	wait_until 10 less_memory || fail "$(resident_kb "$daemon") kB are still resident"
fi
passes after "$client" ask "$socket" 500

stop_daemon "$daemon"
stop_daemon "$calm"
finish
