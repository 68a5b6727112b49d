#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The local fabric works for any user: no root, no home, no configuration, nothing in the
# environment, and a control daemon that the library starts and that ends when nobody needs it.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"

as_user=(env -i "PATH=$PATH")
user=$(id -u)
if [ "$(id -u)" -eq 0 ]; then
	user=65534
	as_user=(setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all
		--inh-caps=-all "${as_user[@]}")
	# Programs and data may lie where other users have no access.
	cp -P "$allreduce" "$bench" "$pingpong" "$bin"/../libferrule.so* \
		"$data"/*.safetensors "$temp/" 2>/dev/null || true # the library may be linked in
	mkdir "$temp/daemon"
	cp "$ferruled" "$temp/daemon/"
	as_user+=("LD_LIBRARY_PATH=$temp")
	chmod -R a+rX "$temp"
	allreduce=$temp/ferrule-allreduce
	bench=$temp/ferrule-bench
	pingpong=$temp/ferrule-pingpong
	data=$temp
	mkdir "$temp/work"
	chown 65534:65534 "$temp/work"
else
	mkdir "$temp/work"
fi
cd "$temp/work"

passes files "${as_user[@]}" "$allreduce" -n 4 --input "$data/rank%r.safetensors" \
	--output "$temp/work/rank%r.safetensors" --check "$data/sum.safetensors"
passes bench "${as_user[@]}" "$bench" -n 2 --min 8 --max 1M --factor 16 --iters 3
passes pingpong "${as_user[@]}" "$pingpong" --local --op all --verify --sizes 8,5000
private=/tmp/ferrule-$user
private_is_gone() {
	[ ! -S "$private/ferruled.sock" ]
}
wait_until private_is_gone || fail "the private daemon does not end"
mine=$(find /tmp /run /dev/shm -xdev -maxdepth 2 -user 65534 -newer "$temp/work" \
	! -path "$temp*" ! -path "$private*" 2>/dev/null || true)
[ "$(id -u)" -ne 0 ] || [ -z "$mine" ] || fail "left behind: $mine"
finish
