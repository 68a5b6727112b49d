#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# SIGHUP: what can change does, what cannot is refused, and sessions go on.
# shellcheck source=tests/system/daemon_lib.sh
. "$(dirname "$0")/daemon_lib.sh"

first=$(free_port 1)
second=$(free_port 2)
metrics=$(free_port 3)
config=$temp/reload.conf

write() {
	{
		echo "hello_ms = 60000;"
		printf '%s\n' "$@"
	} >"$config"
}

listens() {
	ss -Hltn "sport = :$1" | grep -q .
}
silent() {
	! listens "$1"
}

# reload PATTERN: the log says so in a new line.
reload() {
	: >"$temp/reload.log"
	kill -HUP "$daemon"
	says reload "$1"
}

write "listen_address = \"127.0.0.1\";" "listen_port = $first;"
run_daemon reload --config "$config"
listens "$first" || fail "it does not listen on $first"
# A client that is there all the time.
"$client" stay "$temp/reload.sock" >"$temp/asker" 2>&1 &
asker=$!
started+=("$asker")
wait_until grep -q there "$temp/asker" || fail "the client is not there"

write "listen_address = \"127.0.0.1\";" "listen_port = $second;" "metrics_port = $metrics;"
reload 'read again'
wait_until listens "$second" || fail "it does not listen on $second"
wait_until listens "$metrics" || fail "no metrics on $metrics"
silent "$first" || fail "it still listens on $first"

# Nothing changes when one thing cannot.
write "listen_address = \"127.0.0.1\";" "listen_port = $first;" "hello_ms = 1;"
reload "stay as they were: $config:"
write "listen_address = \"0.0.0.0\";" "listen_port = $first;"
reload 'stay as they were: .*there is no TLS'
write "listen_address = \"127.0.0.1\";" "listen_port = $first;" \
	"tls_certificate = \"$temp/none\";" "tls_key = \"$temp/none\";" "tls_ca = \"$temp/none\";"
reload 'stay as they were: '
write "listen_address = \"127.0.0.1\";" "listen_port = $metrics;"
reload 'stay as they were: cannot listen on 127.0.0.1'
listens "$second" || fail "it has stopped listening on $second"
silent "$first" || fail "it listens on $first"
listens "$metrics" || fail "the metrics are gone"
write "user = \"nobody\";" "listen_address = \"127.0.0.1\";" "listen_port = $second;"
reload 'stay as they were: .*user.*cannot change'

# All addresses instead of one, on the same port; and back, where that fails.
all_addresses() {
	ss -Hltn "sport = :$1" | grep -q '0\.0\.0\.0:'
}
write "insecure = true;" "listen_address = \"0.0.0.0\";" "listen_port = $second;" \
	"metrics_address = \"0.0.0.0\";" "metrics_port = $metrics;"
reload 'read again'
for port in "$second" "$metrics"; do
	all_addresses "$port" || fail "$port: it is still the old address"
done
write "insecure = true;" "listen_address = \"127.0.0.1\";" "listen_port = $second;" \
	"metrics_address = \"127.0.0.1\";" "metrics_port = $second;"
reload 'stay as they were: metrics: cannot listen'
for port in "$second" "$metrics"; do
	all_addresses "$port" || fail "$port: it has not come back"
done

# No TCP at all.
write
reload 'read again'
wait_until silent "$second" || fail "it still listens on $second"
silent "$metrics" || fail "there are still metrics on $metrics"

alive "$asker" || fail "the client that was there all the time has ended: $(cat "$temp/asker")"
kill "$asker"
wait "$asker" 2>/dev/null || true
passes asked "$client" ask "$temp/reload.sock" 10
stop_daemon "$daemon"
finish
