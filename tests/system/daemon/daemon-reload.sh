#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# SIGHUP: settings that can change do, others are refused, and sessions go on.
# shellcheck source=tests/system/daemon_lib.sh
. "$(dirname "$0")/../daemon_lib.sh"

first=$(free_port 1)
metrics=$(free_port 3)
config=$temp/reload.conf

write() {
	{
		echo "hello_ms = 60000;"
		[ "${safe:-}" ] || echo "insecure = true;"
		printf '%s\n' "$@"
	} >"$config"
}

listens() {
	ss -Hltn "sport = :$1" | grep -q .
}

# reload PATTERN: reloads; a new line of the log matches.
reload() {
	: >"$temp/reload.log"
	kill -HUP "$daemon"
	says reload "$1"
}

place=("listen_address = \"127.0.0.1\";" "listen_port = $first;" "metrics_port = $metrics;")
write "${place[@]}"
run_daemon reload --config "$config"
# A client that is connected all the time.
"$client" stay "$temp/reload.sock" >"$temp/asker" 2>&1 &
asker=$!
started+=("$asker")
wait_until grep -q there "$temp/asker" || fail "the client is not there"

write "${place[@]}" "hold_ms = 1;"
reload 'read again'

# Nothing changes if one setting cannot.
write "${place[@]}" "hello_ms = 1;"
reload "stay as they were: $config:"
safe=1 write "${place[@]}"
reload 'stay as they were: .*there is no TLS'
write "${place[@]}" \
	"tls_certificate = \"$temp/none\";" "tls_key = \"$temp/none\";" "tls_ca = \"$temp/none\";"
reload 'stay as they were: TLS'
write "${place[@]}" "user = \"nobody\";"
reload 'stay as they were: .*user.*cannot change'
write "${place[@]:0:2}"
reload 'stay as they were: .*metrics_port.*cannot change'
write "${place[@]:2}"
reload 'stay as they were: .*listen_address.*cannot change'
listens "$first" || fail "it has stopped listening on $first"
listens "$metrics" || fail "the metrics are gone"

alive "$asker" || fail "the client that was there all the time has ended: $(cat "$temp/asker")"
kill "$asker"
wait "$asker" 2>/dev/null || true
passes asked "$client" ask "$temp/reload.sock" 10
stop_daemon "$daemon"
finish
