# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Functions that the system tests share. FRL_BIN and FRL_DATA come from meson; by hand the defaults
# apply. A test ends with `finish`. It uses `$temp`, a folder of its own, and ends only processes it
# started. It also has a control daemon of its own, which all programs find by FRL_CONTROL.
#
# The test runs in namespaces of its own where the kernel allows it, so that names, addresses and
# process ids are its own as well; elsewhere names carry the process id. A script that sets
# own_machine=unwanted before it sources this file stays where it is. own_programs=unwanted: the
# test uses installed programs alone, and gets no control daemon.
set -eu

system_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/system/clean_env.sh
. "$system_root/tests/system/clean_env.sh"
bin=${FRL_BIN:-$system_root/build/tools}
# shellcheck disable=SC2034
data=${FRL_DATA:-$system_root/examples/data}
# shellcheck source=tests/system/machine.sh
. "$system_root/tests/system/machine.sh"
allreduce=$bin/ferrule-allreduce
bench=$bin/ferrule-bench
# shellcheck disable=SC2034
pingpong=$bin/ferrule-pingpong
ferruled=$bin/../daemon/ferruled

# The same algorithms every time, and no files in the home folder.
export FRL_TUNER_CACHE=
export FRL_TUNER_COSTS=${FRL_TUNER_COSTS-default}

# Seconds after which an event, or the end of a program, counts as never coming. They only end tests
# that hang.
event_limit=${FRL_TEST_LIMIT:-120}
program_limit=$((event_limit * 3))
# A daemon that was killed is back within this.
export FRL_CONTROL_LOST_S=$event_limit

temp=$(mktemp -d)
failures=0
started=()
daemons=()
at_exit=()

cleanup() {
	local pid action
	for pid in "${started[@]}" "${daemons[@]}"; do
		kill -9 "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	done
	for action in "${at_exit[@]}"; do
		$action
	done
	rm -rf "$temp"
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

# skip REASON: does not return. Earlier failures still count.
skip() {
	[ "$failures" -eq 0 ] || finish
	echo "SKIP: $*"
	exit 77
}

# needs_dpdk: skips the test where Ferrule was built without DPDK's ports.
needs_dpdk() {
	has_dpdk || skip "Ferrule was built without DPDK's ports (-Ddpdk)"
}

has_dpdk() {
	[ -e "$bin/../ferrule-dpdk.so" ]
}

fail() {
	echo "FAILED: $*"
	failures=$((failures + 1))
}

finish() {
	if [ "$failures" -gt 0 ]; then
		echo "$failures failures"
		exit 1
	fi
	exit 0
}

if [ "${own_programs:-}" != unwanted ]; then
	for program in "$allreduce" "$bench" "$pingpong" "$ferruled"; do
		[ -x "$program" ] || skip "$program is not built"
	done
fi

# show FILE...: the output of a program, for the test's log.
show() {
	local file
	for file in "$@"; do
		sed "s|^|    $(basename "$file"): |" "$file"
	done
}

# ends NAME STATUS COMMAND...: the command ends with this status. Output: $temp/NAME.out.
ends() {
	local name=$1 wanted=$2 status=0
	shift 2
	timeout -k 5 "$program_limit" "$@" >"$temp/$name.out" 2>&1 || status=$?
	[ "$status" -ne "$wanted" ] || return 0
	fail "$name: exit status $status, not $wanted: $*"
	show "$temp/$name.out"
}

# passes NAME COMMAND...: the command ends with status 0. Output: $temp/NAME.out.
passes() {
	local name=$1
	shift
	ends "$name" 0 "$@"
}

# says NAME PATTERN...: for each pattern (grep -E), the output $temp/NAME.out has a line that
# matches.
says() {
	local name=$1 pattern
	shift
	for pattern in "$@"; do
		grep -qE -- "$pattern" "$temp/$name.out" && continue
		fail "$name: the output does not match '$pattern'"
		show "$temp/$name.out"
	done
}

# refuses NAME PATTERN... -- COMMAND...: the command ends by itself, with a status that is neither 0
# nor a signal's, and its output matches each of the patterns (grep -E, -i).
refuses() {
	local name=$1 out=$temp/$1.out status=0 patterns=() pattern
	shift
	while [ "$1" != -- ]; do
		patterns+=("$1")
		shift
	done
	shift
	timeout -k 5 "$program_limit" "$@" >"$out" 2>&1 || status=$?
	if [ "$status" -eq 0 ] || [ "$status" -ge 124 ]; then
		fail "$name: exit status $status: $*"
		show "$out"
		return 0
	fi
	for pattern in "${patterns[@]}"; do
		if ! grep -qiE -- "$pattern" "$out"; then
			fail "$name: the message does not match '$pattern'"
			show "$out"
		fi
	done
}

# safetensors_header JSON: the bytes of a safetensors file before its data.
safetensors_header() {
	local header=$1 length i octets='' LC_ALL=C # ${#header} counts bytes
	while [ $((${#header} % 8)) -ne 0 ]; do
		header+=' '
	done
	length=${#header}
	for i in 0 1 2 3 4 5 6 7; do
		octets+=$(printf '\\x%02x' $(((length >> (8 * i)) & 255)))
	done
	printf '%b%s' "$octets" "$header"
}

# children PID: the processes whose parent it is.
children() {
	local stat fields
	for stat in /proc/[0-9]*/stat; do
		# The name may contain blanks and parentheses: continue behind the last parenthesis.
		fields=$(cat "$stat" 2>/dev/null) || continue
		fields=${fields##*) }
		read -r _ parent _ <<<"$fields"
		[ "$parent" != "$1" ] || basename "$(dirname "$stat")"
	done
}

# alive PID: it exists and is no zombie.
alive() {
	local fields
	fields=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
	fields=${fields##*) }
	[ "${fields%% *}" != Z ]
}

# ended PID: it is not alive.
ended() {
	! alive "$1"
}

# wait_until COMMAND...: polls until it succeeds; returns false when it never does.
wait_until() {
	local end=$((SECONDS + event_limit))
	until "$@"; do
		[ "$SECONDS" -le "$end" ] || return 1
		sleep 0.02
	done
}

# all_end PID...: all of them end by themselves.
all_end() {
	local pid
	for pid in "$@"; do
		wait_until ended "$pid" || fail "process $pid hangs"
	done
}

# listens PID SOCKET: whether this process listens; the file may be left from an earlier process.
listens() {
	awk -v path="$2" '$4 == "00010000" && $8 == path { found = 1 } END { exit !found }' \
		"/proc/$1/net/unix" 2>/dev/null
}

# start_daemon SOCKET COMMAND...: runs the command, a ferruled with its options, until the test
# ends; its process is in $daemon.
start_daemon() {
	local socket=$1
	shift
	"$@" --socket "$socket" >>"$socket.log" 2>&1 &
	daemon=$!
	daemons+=("$daemon")
	wait_until listens "$daemon" "$socket" && return
	show "$socket.log"
	fail "the daemon does not listen at $socket"
	finish
}

remove_hosts() {
	ip netns del "$a" 2>/dev/null || true
	ip netns del "$b" 2>/dev/null || true
}

# two_hosts LINK...: makes two network namespaces until the test ends, $a and $b. Each LINK is a
# veth pair between them, of this name and up at both ends.
two_hosts() {
	local name link
	[ "$(id -u)" -eq 0 ] || skip "network namespaces need root"
	command -v ip >/dev/null || skip "there is no ip command (package iproute2)"
	a=frla$$
	b=frlb$$
	at_exit+=(remove_hosts)
	{ ip netns add "$a" && ip netns add "$b"; } 2>"$temp/netns" ||
		skip "cannot make network namespaces: $(tr '\n' ' ' <"$temp/netns")"
	ip netns exec "$a" true 2>"$temp/netns" ||
		skip "cannot run in a network namespace: $(tr '\n' ' ' <"$temp/netns")"
	for link in "$@"; do
		ip link add "$link" netns "$a" type veth peer name "$link" netns "$b" \
			2>"$temp/netns" ||
			skip "cannot make a veth pair: $(tr '\n' ' ' <"$temp/netns")"
	done
	for name in "$a" "$b"; do
		for link in lo "$@"; do
			ip -n "$name" link set "$link" up
		done
	done
}

# start_hosts LINK [CONFIG]: each of the two has a daemon, at 10.9.1.1 and 10.9.1.2 on this link,
# and its socket is $temp/NAME.sock. CONFIG: more lines of its configuration, where HOST is 1 or 2.
start_hosts() {
	local i=0 name config=${2:-}
	for name in "$a" "$b"; do
		i=$((i + 1))
		ip -n "$name" addr add "10.9.1.$i/24" dev "$1"
		cat >"$temp/$name.conf" <<-CONF
			host = "$name";
			listen_address = "10.9.1.$i";
			insecure = true;
			keepalive_ms = 60000;
			hello_ms = 60000;
			${config//HOST/$i}
		CONF
		start_daemon "$temp/$name.sock" ip netns exec "$name" "$ferruled" \
			--config "$temp/$name.conf"
	done
}

# on_hosts NAME -- COMMAND-IN-A... -- COMMAND-IN-B...: both run at once, each at its host's daemon,
# and must both end well within 60 s. Output: $temp/NAME-a.out and $temp/NAME-b.out.
on_hosts() {
	local name=$1 in_a=() status=0 other
	shift 2
	while [ "$1" != -- ]; do
		in_a+=("$1")
		shift
	done
	shift
	timeout -k 5 "$program_limit" env "FRL_CONTROL=$temp/$a.sock" \
		ip netns exec "$a" "${in_a[@]}" >"$temp/$name-a.out" 2>&1 &
	other=$!
	started+=("$other")
	timeout -k 5 "$program_limit" env "FRL_CONTROL=$temp/$b.sock" ip netns exec "$b" "$@" \
		>"$temp/$name-b.out" 2>&1 || status=$?
	if [ "$status" -ne 0 ]; then
		fail "$name: exit status $status of $*"
		kill "$other" 2>/dev/null || true
	fi
	status=0
	wait "$other" || status=$?
	unset 'started[-1]'
	[ "$status" -eq 0 ] || fail "$name: exit status $status of ${in_a[*]}"
	[ "$failures" -eq 0 ] || show "$temp/$name-a.out" "$temp/$name-b.out"
}

# payload_in_buffers PORT PORT: payload that stays in packet buffers: the rows of a unit test,
# between two ports of one process in $a, at the ends e1 and e2 of another veth pair.
payload_in_buffers() {
	local rows=$bin/../tests/unit/test_api link
	[ -x "$rows" ] || return 0
	ip link add e1 netns "$a" type veth peer name e2 netns "$a"
	for link in e1 e2; do
		ip -n "$a" link set "$link" mtu 9000 up
	done
	FRL_TEST_ENDS="$1 $2" FRL_CONTROL=off timeout -k 5 "$program_limit" \
		ip netns exec "$a" "$rows" api_fragments >"$temp/fragments.out" 2>&1 && return
	fail "payload in packet buffers"
	show "$temp/fragments.out"
}

# leavings: files and sockets that a job could leave behind on this machine. Folders of mktemp
# belong to other tests.
leavings() {
	{
		find /dev/shm /tmp /run /var/run -xdev -maxdepth 2 \
			\( -iname '*ferrule*' -o -iname 'frl*' -o -iname '*memif*' -o \
			-iname '*dpdk*' -o -iname '*rtemap*' \) 2>/dev/null
		awk 'NF >= 8 && tolower($8) ~ /ferrule|frl|memif|dpdk/ { print $8 }' /proc/net/unix
	} | grep -v '/tmp\.[A-Za-z0-9]*/' | sort -u
}

# left_behind BEFORE PID...: entries that exist now and were not in BEFORE, an earlier output of
# leavings. Names that carry a process id count when it is one of these: other jobs may run beside
# the test.
left_behind() {
	local before=$1 pids name
	shift
	pids=$(printf '|%s' "$@")
	comm -13 <(echo "$before") <(leavings) | while read -r name; do
		if [[ ! $name =~ [0-9]{3,} ]] ||
			grep -qE "(^|[^0-9])(${pids:1})([^0-9]|$)" <<<"$name"; then
			echo "$name"
		fi
	done
}

if [ "${own_programs:-}" != unwanted ]; then
	printf 'idle_exit_ms = 0;\nhello_ms = 60000;\n' >"$temp/ferruled.conf"
	export FRL_CONTROL=$temp/ferruled.sock
	start_daemon "$FRL_CONTROL" "$ferruled" --private --config "$temp/ferruled.conf"
fi
