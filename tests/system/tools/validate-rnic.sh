#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# tests/device/validate-rnic.sh with programs that only print their command lines: the port and its
# address are found, no command runs for ever, and failures are counted. Needs no NIC.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"
script=$system_root/tests/device/validate-rnic.sh
fake=$temp/fake
sys=$temp/sys/class/infiniband/mlx5_1/ports/1
mkdir -p "$fake" "$temp/tests" "$sys/gids" "$sys/gid_attrs/types" "$sys/gid_attrs/ndevs"

# gid INDEX TYPE GID: one of the port's.
gid() {
	echo "$3" >"$sys/gids/$1"
	echo "$2" >"$sys/gid_attrs/types/$1"
	echo eth7 >"$sys/gid_attrs/ndevs/$1"
}
gid 0 'IB/RoCE v1' 0000:0000:0000:0000:0000:ffff:0a01:0002
gid 3 'RoCE v2' 0000:0000:0000:0000:0000:ffff:0a01:0002
gid 5 'RoCE v2' fd00:0000:0000:0000:0000:0000:0000:0005

# fake NAME: a program that prints its arguments; standard input has its other commands.
fake() {
	{
		echo '#!/usr/bin/env bash'
		# shellcheck disable=SC2016
		echo 'echo "$(basename "$0") $*" >>"'"$temp/calls"'"'
		cat
	} >"$fake/$1"
	chmod +x "$fake/$1"
}

for name in ferrule-pingpong ferrule-bench ib_send_lat ib_write_lat ib_read_lat ib_send_bw \
	ib_write_bw ib_read_bw ibv_devinfo ip ethtool dcb mlnx_qos hostname sleep; do
	fake "$name" </dev/null
done
# As ferrule-info prints them; the name of the first one begins like the other's.
fake ferrule-info <<'END'
[ "$1" = --json ] || exit 0
cat <<JSON
[
 {
  "name": "verbs:mlx5_10",
  "usable": false,
  "reason": "verbs:mlx5_10 is not active",
  "address": null,
  "path_mtu": 1024,
  "speed_mbps": 100000,
  "interface": "eth1",
  "pci": null
 },
 {
  "name": "verbs:mlx5_1",
  "usable": true,
  "reason": null,
  "address": "10.1.0.2",
  "path_mtu": 1024,
  "speed_mbps": 100000,
  "interface": "eth7",
  "pci": "0000:3b:00.0"
 }
]
JSON
END
cat >"$temp/tests/test_api" <<'END'
#!/bin/sh
[ "$1" != -l ] || exec echo api
echo "on $FRL_TEST_PORT"
END
chmod +x "$temp/tests/test_api"

# Seconds that a command may take; fewer where one hangs on purpose.
limit=$event_limit

# run NAME OPTIONS...: the script as client of an IPv6 host.
run() {
	local name=$1

	shift
	: >"$temp/calls"
	env PATH="$fake:$PATH" SYSFS="$temp/sys" timeout "$program_limit" "$script" \
		--client '[fd00::9]:5000' --bin "$fake" --tests "$temp/tests" \
		--limit "$limit" "$@" >"$temp/$name.out" 2>&1
}

# called PATTERN: some program was called like that.
called() {
	grep -qE -- "$1" "$temp/calls" || {
		fail "nobody called: $1"
		show "$temp/calls"
	}
}

run all || fail "all: it failed"
called '^ib_send_lat -d mlx5_1 -i 1 -x 3 -p 18515 -a -F fd00::9$'
called '^ferrule-pingpong --connect \[fd00::9\]:5000:validate-rnic --port verbs:mlx5_1 '
called '^ferrule-bench -n 2 --rank 0 --job validate-rnic-all@\[fd00::9\]:5000 --port verbs:mlx5_1 '
called '^ethtool eth7$'
grep -q 'on verbs:mlx5_1' "$temp/all.out" || fail "all: the API was not tested"
! grep -q '^ip link set' "$temp/calls" || fail "all: a link was set down"
run v6 --ip fd00::5 || fail "v6: it failed"
called '^ib_write_bw -d mlx5_1 -i 1 -x 5 '

# Nothing hangs, and all other steps are done.
fake ib_write_lat <<<'exec /bin/sleep 1000'
fake ib_send_bw <<<'exit 3'
limit=20
! run stuck || fail "stuck: it succeeded"
grep -q 'Not done after 20 s' "$temp/stuck.out" || fail "stuck: the limit is not named"
grep -q 'Failed with status 3' "$temp/stuck.out" || fail "stuck: the failure is not named"
grep -q '^2 of the commands' "$temp/stuck.out" || fail "stuck: there are not two failures"
limit=$event_limit
fake ib_write_lat </dev/null
fake ib_send_bw </dev/null

# An error is a valid result of a link that went down; a wrong result or a rank that hangs is not.
run flap --flap || fail "flap: it failed"
called '^ip link set eth7 down$'
called '^ip link set eth7 up$'
fake ferrule-bench <<<'case $* in *flap*) exit 1 ;; esac'
run error --flap || fail "error: it failed"
grep -q 'as it may with one rail' "$temp/error.out" || fail "error: it is not explained"
fake ferrule-bench <<<'case $* in *flap*) echo "4 elements, in place: 1 is not 2"; exit 1 ;; esac'
! run wrong --flap || fail "wrong: it succeeded"
fake ferrule-bench <<<'case $* in *flap*) exec /bin/sleep 1000 ;; esac'
limit=20
! run hang --flap || fail "hang: it succeeded"
limit=$event_limit
fake ferrule-bench </dev/null
fake ip <<<'case $* in *down) exit 2 ;; esac'
! run refused --flap || fail "refused: it succeeded"
grep -q 'could not be set down' "$temp/refused.out" || fail "refused: it is not explained"

# No NIC: reported at once.
fake ferrule-info <<<'echo "verbs unusable"; exit 1'
! run none || fail "none: it succeeded"
grep -q 'no RDMA NIC' "$temp/none.out" || fail "none: it does not say so"
finish
