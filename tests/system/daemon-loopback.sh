#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Over loopback and without TLS a daemon believes only root's daemons and its own user's: neither
# who connects to it as somebody else, nor whom it is told to dial.
# shellcheck source=tests/system/daemon_lib.sh
. "$(dirname "$0")/daemon_lib.sh"

[ "$(id -u)" -eq 0 ] || skip "other users need root"
command -v setpriv >/dev/null || skip "there is no setpriv (package util-linux)"
[ -x /usr/bin/python3 ] || skip "there is no /usr/bin/python3"

nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups)
port=$(free_port 1)

# talk.py ADDRESS PORT: "closed" when the daemon ends the connection within a second, else "open".
cat >"$temp/talk.py" <<'PY'
import socket, sys
peer = socket.create_connection((sys.argv[1], int(sys.argv[2])))
peer.settimeout(1)
try:
    print("open" if peer.recv(1) else "closed")
except TimeoutError:
    print("open")
except OSError:
    print("closed")
PY
# A listener that takes nothing: connections to it have no owner yet.
cat >"$temp/fake.py" <<'PY'
import socket, sys, time
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("ready", flush=True)
time.sleep(60)
PY
chmod 0711 "$temp"

# expects WHAT ADDRESS COMMAND...
expects() {
	local what=$1 address=$2 got
	shift 2
	got=$("$@" /usr/bin/python3 "$temp/talk.py" "$address" "$port")
	[ "$got" = "$what" ] || fail "a connection of '$*' to $address stays $got, not $what"
}

for address in 127.0.0.1 ::1; do
	listen=$address
	[ "$address" != ::1 ] || listen='[::1]'
	[ "$address" != ::1 ] || grep -qs . /proc/net/if_inet6 || continue
	run_daemon "d$listen" --listen "$listen:$port"
	expects open "$address" env
	expects closed "$address" "${nobody[@]}"
	says "d$listen" 'user 65534 speaks as a daemon over loopback: refused'
	stop_daemon "$daemon"
done

# knock.py PORT COUNT: connects so often.
cat >"$temp/knock.py" <<'PY'
import socket, sys
for i in range(int(sys.argv[2])):
    socket.create_connection(("127.0.0.1", int(sys.argv[1]))).close()
PY
processor_ms() {
	awk -v hz="$(getconf CLK_TCK)" '{ print ($14 + $15) * 1000 / hz }' "/proc/$1/stat"
}

# Whose a connection is must be known soon: anybody may make many.
run_daemon knocked --listen "127.0.0.1:$port"
before=$(processor_ms "$daemon")
"${nobody[@]}" /usr/bin/python3 "$temp/knock.py" "$port" 500
says knocked 'lines like these were left out|refused'
passes after "$client" ask "$temp/knocked.sock" 1
took=$(($(processor_ms "$daemon") - before))
echo "500 connections of another user cost $took ms"
[ "$took" -lt 150 ] || fail "500 connections of another user cost $took ms of processor time"
stop_daemon "$daemon"

"${nobody[@]}" /usr/bin/python3 "$temp/fake.py" "$port" >"$temp/fake.out" &
started+=("$!")
wait_until 10 grep -q ready "$temp/fake.out" || fail "the listener does not start"
run_daemon dialling
FRL_CONTROL=$temp/dialling.sock "$pingpong" --connect "localhost:$port:demo" \
	>"$temp/pingpong.out" 2>&1 && fail "somebody else's daemon is believed"
says dialling 'user 65534 speaks as a daemon over loopback: refused'
stop_daemon "$daemon"
finish
