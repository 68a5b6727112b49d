#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The costs of messages: constants on the local fabric, as set, or measured over a network and kept,
# if the machine was calm. ferrule-bench --explain names the source of the costs.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"

# says TEXT: the line of --explain about the costs.
says() {
	grep -qF -- "$1" "$temp/out" || fail "no '$1' in: $(cat "$temp/out")"
}

explains() {
	"$bench" -n 3 --explain --min 1K --max 1K --iters 1 >"$temp/out" 2>&1 ||
		fail "ferrule-bench: $(cat "$temp/out")"
	says "$1"
}

# Rank NUMBER of two over a memif, as over a network.
rank() {
	"$bench" -n 2 --rank "$1" --job "tuner-$jobs" --ip "10.77.0.$(($1 + 1))/24" \
		--port "net_memif0,role=$2,socket=$temp/memif-$jobs,socket-abstract=no" \
		--explain --min 1K --max 1K --iters 1
}

explains_network() {
	jobs=$((jobs + 1))
	rank 0 server >"$temp/out" 2>&1 &
	local server=$!
	started+=("$server")
	wait_until test -S "$temp/memif-$jobs"
	rank 1 client >"$temp/client.out" 2>&1 || fail "rank 1: $(cat "$temp/client.out")"
	wait "$server" || fail "rank 0: $(cat "$temp/out")"
	says "$1"
}

is_kept() {
	explains_network '(' && grep -qF -- '(from a file, measured on 20' "$temp/out"
}

unset FRL_TUNER_COSTS
# Costs are those of packets.
export FRL_SHM=0 FRL_TUNER_CACHE=$temp/home/cache
mkdir "$temp/home"
explains '(constants of the local fabric)'
costs=$(sed -n 's/.*costs in ns: \([^ ]*\) .*/\1/p' "$temp/out" | head -n 1)
[ ! -e "$temp/home/cache" ] || fail 'costs of the local fabric were kept'

# As printed, and nothing else.
FRL_TUNER_COSTS=$costs explains "$costs (FRL_TUNER_COSTS)"
FRL_TUNER_COSTS=latency=1e6 explains '(FRL_TUNER_COSTS)'
FRL_TUNER_COSTS=default explains '(FRL_TUNER_COSTS)'
if FRL_TUNER_COSTS=speed=3 "$bench" -n 2 --iters 1 --max 8 >"$temp/out" 2>&1; then
	fail 'took a cost that is none'
fi
grep -qF "'speed=3' is not a cost" "$temp/out" || fail "$(cat "$temp/out")"
has_dpdk || finish

# While others use the processors all the time nothing is kept.
jobs=0
explains_network '(measured when'
if [ "$failures" -eq 0 ] && ! wait_until is_kept; then
	skip 'the machine is too busy to measure what messages cost'
fi

# Later the costs are checked, and they are wrong. The remains of a process that was killed are
# removed with them.
touch -d '2 hours ago' "$temp/home/cache/.costs-0-0"
sed -i -e "s/^made .*/made $(($(date +%s) - 8000))/" \
	-e "s/^checked .*/checked $(($(date +%s) - 8000))/" \
	-e 's/^costs .*/costs latency=1e8,byte=1e4/' "$temp"/home/cache/costs-*
explains_network '(measured when'
explains_network '(from a file, measured on 20'
grep -q 'latency=1e+08' "$temp/out" && fail "what is wrong was kept: $(cat "$temp/out")"
[ ! -e "$temp/home/cache/.costs-0-0" ] || fail 'what was left has not been removed'

# Implausible costs are measured again.
for file in "$temp"/home/cache/costs-*; do
	echo 'ferrule costs 2' >"$file"
done
explains_network '(measured when'
chmod 777 "$temp/home/cache"
explains_network '(measured when'
finish
