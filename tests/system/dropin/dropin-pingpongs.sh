#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The examples of rdma-core over the drop-in libibverbs: listing, attributes, and the ping-pongs,
# which check the data that they receive.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/system/dropin/dropin_lib.sh
. "$(dirname "$0")/dropin_lib.sh"

needs ibv_devices ibv_devinfo ibv_rc_pingpong ibv_uc_pingpong ibv_ud_pingpong ibv_srq_pingpong \
	ibv_xsrq_pingpong
server_run=("$run")
client_run=("$run")

passes devices "$run" ibv_devices
says devices '^ *frl0[[:space:]]+[0-9a-f]{16}$'
passes devinfo "$run" ibv_devinfo -v
says devinfo 'hca_id:[[:space:]]+frl0$'
says devinfo 'state:[[:space:]]+PORT_ACTIVE'
says devinfo 'GID\[  1\]:[[:space:]]+::ffff:169\.254\..*, RoCE v2'
passes several env 'FRL_VERBS_DEVICES=local;local;packet:lo=10.1.1.1/24' "$run" ibv_devices
says several '^ *frl2[[:space:]]'
# Programs like ibv_devinfo end with status 255, which is a signal's to refuses().
refuses bad-devices 'is no device: local, fabric:NAME and packet:INTERFACE=ADDRESS' -- \
	env FRL_VERBS_DEVICES=eth0 "$run" sh -c 'ibv_devinfo || exit 1'
refuses bad-packet 'names no interface and address' -- \
	env FRL_VERBS_DEVICES=packet:eth0 "$run" sh -c 'ibv_devinfo || exit 1'

# pingpong NAME TYPE OPTION...: a pair that checks its data.
pingpong() {
	local name=$1 type=$2
	shift 2
	pair "$name" 18515 "ibv_${type}_pingpong" -d frl0 -g 1 "$@"
	if grep -qiE 'invalid|error|fail' "$temp/$name-server" "$temp/$name-client"; then
		fail "$name: an end reports an error"
		show "$temp/$name-server" "$temp/$name-client"
	fi
}

pingpong rc rc -c
pingpong uc uc -c
pingpong ud ud -c
pingpong srq srq -c
for size in 1 4096 1048576; do
	pingpong "rc-$size" rc -c -n 200 -s "$size"
done
pingpong rc-mtu rc -c -m 256
pingpong rc-events rc -c -e
pingpong uc-events uc -c -e
pingpong ud-events ud -c -e
pingpong srq-events srq -c -e
pingpong rc-new-send rc -c -N
pingpong rc-new-send-events rc -c -N -e
pingpong link-local rc -c -g 0

# Not supported, and not advertised.
refuses xsrq 'Open the XRC Domain' -- "$run" ibv_xsrq_pingpong -d frl0 -g 1
finish
