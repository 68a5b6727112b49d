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

# talk.py ADDRESS PORT: a connection; waits until the daemon ends it.
cat >"$temp/talk.py" <<'PY'
import socket, sys
peer = socket.create_connection((sys.argv[1], int(sys.argv[2])))
try:
    while peer.recv(4096):
        pass
except ConnectionResetError:
    pass
PY
# A listener that takes nothing: connections to it have no owner yet.
cat >"$temp/fake.py" <<'PY'
import signal, socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("ready", flush=True)
signal.pause()
PY
chmod 0711 "$temp"

# The daemon's own user may say nothing for long.
echo 'hello_ms = 60000;' >"$temp/patient.conf"
for address in 127.0.0.1 ::1; do
	listen=$address
	[ "$address" != ::1 ] || listen='[::1]'
	[ "$address" != ::1 ] || grep -qs . /proc/net/if_inet6 || continue
	run_daemon "d$listen" --listen "$listen:$port" --config "$temp/patient.conf"
	/usr/bin/python3 "$temp/talk.py" "$address" "$port" &
	own=$!
	started+=("$own")
	passes "other-$address" "${nobody[@]}" /usr/bin/python3 "$temp/talk.py" "$address" "$port"
	alive "$own" || fail "a connection of the daemon's user to $address is closed"
	says "d$listen" 'user 65534 speaks as a daemon over loopback: refused'
	stop_daemon "$daemon"
done

# knock.py PORT COUNT: connects so often.
cat >"$temp/knock.py" <<'PY'
import socket, sys
for i in range(int(sys.argv[2])):
    socket.create_connection(("127.0.0.1", int(sys.argv[1]))).close()
PY

# The daemon asks whose each connection is, and goes on to answer: anybody may make many.
run_daemon knocked --listen "127.0.0.1:$port"
"${nobody[@]}" /usr/bin/python3 "$temp/knock.py" "$port" 500
says knocked 'lines like these were left out|refused'
passes after "$client" ask "$temp/knocked.sock" 1
stop_daemon "$daemon"

"${nobody[@]}" /usr/bin/python3 "$temp/fake.py" "$port" >"$temp/fake.out" &
started+=("$!")
wait_until grep -q ready "$temp/fake.out" || fail "the listener does not start"
run_daemon dialling
FRL_CONTROL=$temp/dialling.sock "$pingpong" --connect "localhost:$port:demo" \
	>"$temp/pingpong.out" 2>&1 && fail "somebody else's daemon is believed"
says dialling 'user 65534 speaks as a daemon over loopback: refused'
stop_daemon "$daemon"
finish
