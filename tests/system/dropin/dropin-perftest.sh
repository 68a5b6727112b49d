#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# perftest over the drop-in libibverbs: all of its operations and connection types.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/system/dropin/dropin_lib.sh
. "$(dirname "$0")/dropin_lib.sh"

needs ib_write_bw ib_write_lat ib_send_bw ib_send_lat ib_read_bw ib_read_lat ib_atomic_bw \
	ib_atomic_lat
server_run=("$run")
client_run=("$run")

count=0
# perf PROGRAM OPTION...: a pair; -F: speeds of processors that change are fine.
perf() {
	count=$((count + 1))
	pair "perf$count" 18515 "$@" -d frl0 -x 1 -F
}

for type in RC UC; do
	perf ib_write_bw -c "$type" -n 500
	perf ib_write_lat -c "$type" -n 100
done
for type in RC UC UD; do
	perf ib_send_bw -c "$type" -n 500
	perf ib_send_lat -c "$type" -n 200
	perf ib_send_bw -c "$type" -n 500 -e
	perf ib_send_lat -c "$type" -n 200 -e
done
# 239.4.x.y; perftest has a notation of its own, and its default group is one of IPv6.
group=0:0:0:0:0:0:0:0:0:0:255:255:239:4:$(($$ / 256 % 256)):$(($$ % 256))
perf ib_send_bw -c UD -g -M "$group" -n 500
perf ib_send_bw -c UD -g -M "$group" -n 500 -e
perf ib_send_lat -c UD -g -M "$group" -n 200
perf ib_read_bw -n 500
perf ib_read_lat -n 200
for operation in CMP_AND_SWAP FETCH_AND_ADD; do
	perf ib_atomic_bw -n 500 -A "$operation"
	perf ib_atomic_lat -n 200 -A "$operation"
done

# All sizes from 2 bytes to 8 MiB, both directions, several queue pairs, lists, shared receive
# queues, few receives (which makes the receiver not ready), path MTUs, outstanding reads.
perf ib_write_bw -a -n 20
perf ib_send_lat -a -n 20
perf ib_read_bw -a -n 20
perf ib_write_bw -b -n 300
perf ib_send_bw -b -n 300
perf ib_read_bw -b -n 300
perf ib_write_bw -q 8 -n 200
perf ib_send_bw -q 8 -n 200
perf ib_write_bw -q 4 -l 16 -n 320
perf ib_send_bw --use-srq -q 4 -n 200
perf ib_send_bw -r 1 -n 200
for mtu in 256 1024 4096; do
	perf ib_write_bw -m "$mtu" -n 200 -s 10000
done
perf ib_read_bw -o 1 -n 200
perf ib_read_bw -o 16 -n 200
perf ib_send_lat -I 0 -n 200
perf ib_write_lat -I 220 -s 200 -n 100

# This part number makes perftest post by ibv_wr_*().
export FRL_VERBS_PART_ID=4119
perf ib_write_bw -n 500
perf ib_write_lat -n 100
perf ib_send_bw -n 500 -q 4
perf ib_send_lat -n 200
perf ib_send_lat -c UD -n 200
perf ib_read_lat -n 200
perf ib_atomic_lat -n 200
finish
