#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Verbs programs of two hosts over Ethernet: two namespaces, one packet socket each.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/system/dropin/dropin_lib.sh
. "$(dirname "$0")/dropin_lib.sh"

needs ibv_rc_pingpong ib_write_lat ib_send_bw
two_hosts e0
ip -n "$a" addr add 10.9.1.1/24 dev e0
ip -n "$b" addr add 10.9.1.2/24 dev e0

# A server in $a, a client in $b.
on_server=(ip netns exec "$a")
server_run=("${on_server[@]}" env FRL_VERBS_DEVICES=packet:e0=10.8.1.1/24 "$run")
client_run=(ip netns exec "$b" env FRL_VERBS_DEVICES=packet:e0=10.8.1.2/24 "$run")
server_name=10.9.1.1

for type in rc uc ud srq; do
	pair "pingpong-$type" 18515 "ibv_${type}_pingpong" -d frl0 -g 1 -c -n 200
done
pair pingpong-events 18515 ibv_rc_pingpong -d frl0 -g 1 -c -n 200 -e
pair write-lat 18515 ib_write_lat -d frl0 -x 1 -F -n 100
pair send-bw 18515 ib_send_bw -d frl0 -x 1 -F -n 200 -q 4
pair link-local 18515 ibv_rc_pingpong -d frl0 -g 0 -c -n 100
finish
