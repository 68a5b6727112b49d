#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# UCX over the drop-in libibverbs: transports of its own (UCT), and messages with tags (UCP).
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/system/dropin/dropin_lib.sh
. "$(dirname "$0")/dropin_lib.sh"

needs ucx_info ucx_perftest
"$run" --uverbs true 2>"$temp/uverbs" || skip "$(cat "$temp/uverbs")"
server_run=("$run" --uverbs)
client_run=("$run" --uverbs)
export UCX_NET_DEVICES=frl0:1 UCX_WARN_UNUSED_ENV_VARS=n

passes info "$run" --uverbs ucx_info -d
for transport in rc_verbs ud_verbs; do
	grep -q "Transport: $transport" "$temp/info.out" && continue
	fail "ucx_info does not list $transport"
	show "$temp/info.out"
done

count=0
# perf OPTION...: a pair of ucx_perftest.
perf() {
	count=$((count + 1))
	pair "ucx$count" 13337 ucx_perftest -p 13337 "$@"
}

uct() {
	perf -d frl0:1 "$@"
}

uct -x rc_verbs -t put_lat -n 500
uct -x rc_verbs -t put_bw -n 500 -s 4096 -D bcopy
uct -x rc_verbs -t put_bw -n 200 -s 65536 -D zcopy
uct -x rc_verbs -t get -n 500 -s 4096 -D bcopy
uct -x rc_verbs -t get -n 200 -s 65536 -D zcopy
uct -x rc_verbs -t am_lat -n 500
uct -x rc_verbs -t am_bw -n 500 -s 4096 -D zcopy
uct -x rc_verbs -t add_lat -n 200
uct -x rc_verbs -t fadd -n 200
uct -x rc_verbs -t cswap -n 200
uct -x ud_verbs -t am_lat -n 500
uct -x ud_verbs -t am_bw -n 500 -s 1024 -D bcopy
export UCX_TLS=rc_v,self
perf -t tag_lat -n 500
perf -t tag_bw -n 100 -s 1048576
perf -t ucp_put_lat -n 200
perf -t ucp_get -n 200 -s 65536
export UCX_TLS=ud_v,self
perf -t tag_lat -n 500
finish
