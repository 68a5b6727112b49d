#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# How ferruled starts and ends: sockets from systemd, READY and WATCHDOG for it, one daemon a path,
# the path of a dead one, the remains of a crash, the private one that ends by itself.
# shellcheck source=tests/system/daemon_lib.sh
. "$(dirname "$0")/../daemon_lib.sh"

# ---- a socket that is there already

"$client" listen "$temp/given.sock" -- "$ferruled" --log-level debug >"$temp/given.log" 2>&1 &
given=$!
started+=("$given")
says given "ready on $temp/given.sock"
passes given-asked "$client" ask "$temp/given.sock" 3
stop_daemon "$given"
# The path keeps its owner.
[ -S "$temp/given.sock" ] || fail "the socket of systemd was removed"
refuses given-two 'exactly one socket' -- "$client" listen "$temp/a.sock" "$temp/b.sock" -- \
	"$ferruled"
refuses given-tcp 'exactly one socket' -- "$client" listen "127.0.0.1:$(free_port 1)" -- "$ferruled"

# ---- what systemd is told

cat >"$temp/listen.py" <<'END'
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
print("bound", flush=True)
while True:
    print(s.recv(4096).decode().replace("\n", " "), flush=True)
END
if command -v python3 >/dev/null; then
	python3 "$temp/listen.py" "$temp/notify" >"$temp/notify.log" 2>&1 &
	started+=("$!")
	says notify bound
	NOTIFY_SOCKET=$temp/notify WATCHDOG_USEC=400000 run_daemon told
	says notify '^READY=1'
	says notify '^WATCHDOG=1'
	kill -HUP "$daemon"
	says notify '^RELOADING=1 MONOTONIC_USEC=[0-9]+'
	says told 'settings have been read again'
	stop_daemon "$daemon"
	says notify '^STOPPING=1'
fi

# ---- one daemon a path

run_daemon one
one=$daemon
[ "$(stat -c %a "$temp/one.sock")" = 666 ] || fail "one.sock: $(stat -c %A "$temp/one.sock")"
refuses second 'serves .* already' -- "$ferruled" --socket "$temp/one.sock"
passes one-asked "$client" ask "$temp/one.sock" 3
stop_daemon "$one"
if ls "$temp"/one.sock* >/dev/null 2>&1; then
	fail "left behind: $(ls "$temp"/one.sock*)"
fi

# A file that is no socket is not removed.
echo precious >"$temp/file"
refuses not-a-socket 'is not a socket' -- "$ferruled" --socket "$temp/file"
[ "$(cat "$temp/file")" = precious ] || fail "the daemon has removed a file"

# A FIFO in place of the record of sockets does not block the start.
mkfifo "$temp/fifo.sock.sockets"
run_daemon fifo
stop_daemon "$daemon"

# A dead daemon leaves its path, which the next one takes over.
echo "listen_address = \"127.0.0.1\"; listen_port = $(free_port 1); insecure = true;" \
	>"$temp/taken.conf"
run_daemon taken --config "$temp/taken.conf" --metrics none
taken=$daemon
run_daemon dead
kill -KILL "$daemon"
wait "$daemon" || true
for trace in dead.sock dead.sock.lock; do
	[ -e "$temp/$trace" ] || fail "killed: it has left no $trace"
done
: >"$temp/dead.log"
run_daemon dead
passes dead-asked "$client" ask "$temp/dead.sock" 3
says dead 'did not shut down cleanly'

# Its record stays until processes have had their time to come back, also if a start fails.
kill -KILL "$daemon"
wait "$daemon" || true
rm "$temp/dead.sock"
mkdir "$temp/dead.sock"
refuses in-the-way 'is not a socket' -- "$ferruled" --socket "$temp/dead.sock"
rmdir "$temp/dead.sock"
refuses taken-port 'cannot listen' -- "$ferruled" --socket "$temp/dead.sock" \
	--config "$temp/taken.conf" --metrics none
stop_daemon "$taken"
for again in once twice; do
	: >"$temp/dead.log"
	run_daemon dead
	says dead 'did not shut down cleanly'
	stop_daemon "$daemon"
	[ -e "$temp/dead.sock.lock" ] || fail "ended early, $again: it has left no trace"
done

# ---- the private one

mkdir -m 755 "$temp/shared"
refuses shared-folder 'mode 0700' -- "$ferruled" --private --socket "$temp/shared/p.sock"
mkdir -m 700 "$temp/runtime"
echo 'idle_exit_ms = 0;' >"$temp/private.conf"
XDG_RUNTIME_DIR=$temp/runtime "$ferruled" --private --config "$temp/private.conf" \
	>"$temp/private.log" 2>&1 &
private=$!
started+=("$private")
says private "ready on $temp/runtime/ferrule/ferruled.sock"
[ "$(stat -c %a "$temp/runtime/ferrule")" = 700 ] || fail "the private folder is open to others"
# Another daemon that starts at the same time exits with success.
passes rival env XDG_RUNTIME_DIR="$temp/runtime" "$ferruled" --private
# A connected client keeps it, while another daemon without clients ends.
"$client" stay "$temp/runtime/ferrule/ferruled.sock" >"$temp/stayer.log" &
stayer=$!
started+=("$stayer")
says stayer there
echo 'idle_exit_ms = 300;' >"$temp/private.conf"
kill -HUP "$private"
says private 'settings have been read again'
mkdir -m 700 "$temp/unused"
passes unused env XDG_RUNTIME_DIR="$temp/unused" "$ferruled" --private \
	--config "$temp/private.conf"
alive "$stayer" || fail "the private daemon has left while somebody was there"
kill "$stayer"
wait "$stayer" 2>/dev/null || true
wait_until ended "$private" || fail "the private daemon stays though nobody is there"
wait "$private" || fail "the private daemon ended with status $?"
says private 'no clients for 300 ms'
[ -z "$(ls "$temp/runtime/ferrule")" ] || fail "left behind: $(ls "$temp/runtime/ferrule")"

# ---- options

passes version "$ferruled" --version
passes help "$ferruled" --help
passes check "$ferruled" --config "$temp/private.conf" --check-config
refuses unknown 'help' -- "$ferruled" --colour
refuses argument 'help' -- "$ferruled" start
refuses level 'log-level' -- "$ferruled" --log-level loud
refuses listen 'ADDR:PORT' -- "$ferruled" --listen 127.0.0.1:70000
refuses no-file 'none.conf' -- "$ferruled" --config "$temp/none.conf" --check-config
refuses long-path 'longer than' -- "$ferruled" --socket "$temp/$(printf 'x%.0s' {1..120})"

# ---- no privilege is left

run_daemon plain
for set in CapPrm CapEff CapInh CapAmb; do
	value=$(awk -v set=$set: '$1 == set { print $2 }' "/proc/$daemon/status")
	[ "$value" = 0000000000000000 ] || fail "$set is $value"
done
[ "$(awk '$1 == "NoNewPrivs:" { print $2 }' "/proc/$daemon/status")" = 1 ] ||
	fail "new privileges can be had"
stop_daemon "$daemon"
if [ "$(id -u)" -eq 0 ] && getent passwd nobody >/dev/null; then
	mkdir "$temp/run"
	chmod 755 "$temp"
	chown nobody "$temp/run"
	echo 'user = "nobody";' >"$temp/user.conf"
	"$ferruled" --config "$temp/user.conf" --socket "$temp/run/user.sock" \
		>"$temp/user.log" 2>&1 &
	daemon=$!
	started+=("$daemon")
	says user 'ready on'
	wait_until [ -S "$temp/run/user.sock" ]
	is_nobody() {
		[ "$(stat -c %U "/proc/$daemon/environ" 2>/dev/null)" != '' ] &&
			[ "$(awk '$1 == "Uid:" { print $2 $5 }' "/proc/$daemon/status")" = \
				"$(id -u nobody)$(id -u nobody)" ]
	}
	is_nobody || fail "user: $(grep ^Uid: "/proc/$daemon/status")"
	passes user-asked "$client" ask "$temp/run/user.sock" 3
	stop_daemon "$daemon"
	[ -z "$(ls "$temp/run")" ] || fail "left behind: $(ls "$temp/run")"

	# A folder that it makes belongs to the user: nothing stays in it.
	mkdir "$temp/roots"
	"$ferruled" --config "$temp/user.conf" --socket "$temp/roots/made/user.sock" \
		>"$temp/made.log" 2>&1 &
	daemon=$!
	started+=("$daemon")
	says made 'ready on'
	[ "$(stat -c %U:%a "$temp/roots/made")" = nobody:755 ] ||
		fail "the folder is $(stat -c %U:%a "$temp/roots/made")"
	stop_daemon "$daemon"
	[ -z "$(ls "$temp/roots/made")" ] || fail "left behind: $(ls "$temp/roots/made")"
	! grep -q 'able to remove its socket' "$temp/made.log" || fail "it says that it cannot"
	# In a folder of root the files stay, and it says so at start.
	"$ferruled" --config "$temp/user.conf" --socket "$temp/roots/user.sock" \
		>"$temp/roots.log" 2>&1 &
	daemon=$!
	started+=("$daemon")
	says roots "ferruled will not be able to remove its socket: .* may not write to $temp/roots"
	stop_daemon "$daemon"
fi
finish
