#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# ethernet_cut.sh HARNESS PLUGIN: the sender's link goes down in the middle of a message, between
# two network namespaces. If it is back within FERRULE_TIMEOUT_S the message arrives; otherwise
# both sides get an error in time, and the log says why.
harness=$1
plugin=$2
keep_settings='FERRULE_.*|FRL_.*|FAKE_.*'
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../system/lib.sh"
# shellcheck source=tests/nccl/ethernet_lib.sh
. "$(dirname "$0")/ethernet_lib.sh"
# shellcheck disable=SC2154 # a is ethernet_lib.sh's

[ -r "$plugin" ] || skip "$plugin is not built"

# has_sent BYTES: whether the sender has sent them since $before.
has_sent() {
	[ $(($(bytes_sent) - before)) -ge "$1" ]
}
bytes_sent() {
	# shellcheck disable=SC2016 # awk's
	ip netns exec "$a" awk '$1 == "e0:" { print $10 }' /proc/net/dev
}

# start TIMEOUT: a message of 1 GiB begins. Its process is in $process.
start() {
	before=$(bytes_sent)
	"$harness" --verbose --sides processes --seconds "$program_limit" "${options[@]}" \
		--set "0:FERRULE_DEVICES=$(ferrule_devices 0)" \
		--set "1:FERRULE_DEVICES=$(ferrule_devices 1)" --set "0:FERRULE_TIMEOUT_S=$1" \
		--set "1:FERRULE_TIMEOUT_S=$1" "$plugin" gib-sparse >"$temp/row" 2>&1 &
	process=$!
	started+=("$process")
}

# cut TIMEOUT: starts a message and takes the link of its sender down in the middle of it. Sometimes
# the kernel takes longer for that than the message, as others change its network as well.
cut() {
	local try
	for try in 1 2 3 4 5; do
		start "$1"
		wait_until has_sent $((32 << 20)) || fail "nothing is sent"
		ip -n "$a" link set e0 down
		has_sent $((1 << 30)) || return 0
		echo "too late, try $try"
		ip -n "$a" link set e0 up
		wait "$process" || true
	done
	fail "the message was always sent before the link was down"
}

# end STATUS: the message ends with that status.
end() {
	local status=0
	wait_until ended "$process" || fail "it goes on when the link is down"
	kill -9 "$process" 2>/dev/null || true
	wait "$process" || status=$?
	[ "$status" -eq "$1" ] || fail "exit status $status, not $1"
}

says() {
	grep -qE "$1" "$temp/row" || fail "nothing in the log is like '$1'"
}

make_hosts 0
read -r -d '' -a options <<<"$(host_options)" || true

echo "the link comes back"
cut 60
sleep 1 # packets are sent again meanwhile
ip -n "$a" link set e0 up
end 0
show "$temp/row"

echo "the link stays down"
cut 10
end 1
ip -n "$a" link set e0 up
connection='\([^)]*\) over e0, QP 0x[0-9a-f]+ to QP 0x[0-9a-f]+'
says "sending to [^ ]* $connection, unacknowledged from PSN [0-9]+: .*has no link"
says "receiving from [^ ]* $connection, expecting PSN [0-9]+: ."
show "$temp/row"
finish
