# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Functions that the tests with a guest share: requirements, and namespaces that end with the test.
set -eu

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
namespaces=(unshare --net --pid --fork --kill-child --mount-proc)
# Precedence over other work of the machine if nice allows it: unreliable connections must lose
# nothing while a side gets no processor.
# shellcheck disable=SC2034 # used by the scripts that source this file
if [ -n "$(nice -n -10 true 2>&1)" ]; then
	precedence=()
else
	precedence=(nice -n -10)
fi

skip() {
	echo "$1"
	if [ "${CI:-}" = true ]; then
		echo "FAILED: with CI=true this test must not be skipped"
		exit 1
	fi
	exit 77
}

need_namespaces() {
	local reason
	[ "$(id -u)" -eq 0 ] || skip "SKIP: interop needs root for network namespaces and taps"
	command -v python3 >/dev/null || skip "SKIP: there is no python3"
	command -v ip >/dev/null || skip "SKIP: there is no ip command (package iproute2)"
	[ -c /dev/net/tun ] || skip "SKIP: there is no /dev/net/tun"
	reason=$("${namespaces[@]}" ip tuntap add dev probe mode tap 2>&1) ||
		skip "SKIP: cannot make namespaces with a tap: $reason"
}

# build_guest FOLDER KIND PROGRAM...: kernel and initrd.gz with these programs.
build_guest() {
	local status=0 said
	said=$("$here/build-guest.sh" "$@") || status=$?
	[ "$status" -ne 77 ] || skip "$said"
	[ "$status" -eq 0 ] || {
		echo "FAILED: build-guest.sh: $said"
		exit 1
	}
}

# in_namespaces COMMAND...: a signal for the script ends everything inside; unshare itself ignores
# it. Returns the command's status.
in_namespaces() {
	"${namespaces[@]}" "$@" &
	pid=$!
	trap 'kill -9 "$pid" 2>/dev/null || true' EXIT
	trap 'exit 1' INT TERM HUP
	wait "$pid"
}
