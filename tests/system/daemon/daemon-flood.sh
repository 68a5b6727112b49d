#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# 200 clients that flood, stall in mid-message, send garbage, descriptors or nothing: they are
# disconnected, a well-behaved client is served all the time, and nothing is left of them.
# shellcheck source=tests/system/daemon_lib.sh
. "$(dirname "$0")/../daemon_lib.sh"

cat >"$temp/flood.conf" <<END
hello_ms = 5000;
max_sessions_per_user = 1000;
END
run_daemon flood --config "$temp/flood.conf"
socket=$temp/flood.sock
passes before "$client" ask "$socket" 500
files=$(open_files "$daemon")
memory=$(resident_kb "$daemon")

"$client" flood "$socket" 200 >"$temp/counts" &
flood=$!
started+=("$flood")
more_files() {
	[ "$(open_files "$daemon")" -gt $((files + 100)) ]
}
wait_until more_files || fail "the flood has not come"
passes meanwhile "$client" ask "$socket" 150
alive "$flood" || fail "the flood was over before the requests were"
kill -TERM "$flood"
wait "$flood" || fail "the flood was turned away"
cat "$temp/counts"

read -r median longest <"$temp/meanwhile.out"
echo "round trips meanwhile: median $median us, longest $longest us"

# Each kind has been disconnected, except the ones that only ask too much.
for kind in stall garbage long rights silent large; do
	count=$(awk -v kind=$kind '$1 == kind { print $2 }' "$temp/counts")
	[ "$count" -gt 0 ] || fail "no client of the kind '$kind' was disconnected"
done

# The log reports it without growing large.
says flood 'lines like these were omitted'
[ "$(wc -l <"$temp/flood.log")" -lt 2000 ] || fail "the log has $(wc -l <"$temp/flood.log") lines"

fewer_files() {
	[ "$(open_files "$daemon")" -le "$files" ]
}
wait_until fewer_files || fail "descriptors: $files before, $(open_files "$daemon") after"
less_memory() {
	[ "$(resident_kb "$daemon")" -lt $((memory * 2 + 30000)) ]
}
# An address sanitizer keeps freed memory.
if ! grep -q __asan_init "$ferruled"; then
	wait_until less_memory || fail "$(resident_kb "$daemon") kB are still resident"
fi
passes after "$client" ask "$socket" 500

stop_daemon "$daemon"
finish
