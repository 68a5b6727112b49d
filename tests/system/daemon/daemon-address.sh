#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The daemon starts before its host has the address that it listens on, as during boot: it is ready,
# says what is missing, and takes connections as soon as an interface has the address.
# shellcheck source=tests/system/daemon_lib.sh
. "$(dirname "$0")/../daemon_lib.sh"

port=$(free_port 1)
metrics=$(free_port 2)
config=$temp/address.conf

# write ADDRESS: writes the settings; no interface has the address (RFC 5737, RFC 3849).
write() {
	printf '%s\n' "listen_address = \"$1\";" "listen_port = $port;" \
		"metrics_address = \"$1\";" "metrics_port = $metrics;" "insecure = true;" >"$config"
}

listens_on() {
	ss -Hltn "sport = :$1" | grep -q .
}

connects() {
	timeout 5 bash -c ": </dev/tcp/$1/$2" 2>/dev/null
}

for address in 192.0.2.1 2001:db8::1; do
	write "$address"
	rm -f "$temp/address.log"
	run_daemon address --config "$config"
	says address "no interface has the address $address yet"
	listens_on "$port" || fail "it does not listen on $address"
	listens_on "$metrics" || fail "its metrics do not listen on $address"
	: >"$temp/address.log"
	kill -HUP "$daemon"
	says address 'read again'
	listens_on "$port" || fail "after a reload it does not listen on $address"
	# A user who may not change addresses here has nothing more to test.
	if [ "${FRL_TEST_MACHINE:-}" = own ] &&
		ip addr add "$address" dev lo nodad 2>/dev/null; then
		for there in "$port" "$metrics"; do
			connects "$address" "$there" ||
				fail "port $there of $address cannot be reached"
		done
	fi
	stop_daemon "$daemon"
done
finish
