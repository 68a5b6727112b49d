#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# ethernet.sh HARNESS PLUGIN PER-MILLE [HARNESS-OPTION|ROW]...: rows of the harness on
# libnccl-net-ferrule.so over Ethernet, between two network namespaces. So many frames of a thousand
# get lost, as many come twice and as many late; or with `acks` acknowledgements get lost alone, and
# all packets have to be of a traffic class that is given by --traffic-class. FRL_NCCL_WIRE is where
# nccl-lossy-wire is.
harness=$1
plugin=$2
bad=$3
shift 3
keep_settings='FERRULE_.*|FRL_.*|FAKE_.*'
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../system/lib.sh"
# shellcheck source=tests/nccl/ethernet_lib.sh
. "$(dirname "$0")/ethernet_lib.sh"

[ -r "$plugin" ] || skip "$plugin is not built"
make_hosts "$bad"
# Limits only end rows that hang.
limits=(--dead "$event_limit" --seconds "$program_limit" --slow-ms "$((event_limit * 1000))")
read -r -d '' -a options <<<"$(host_options)" || true
status=0
"$harness" --sides processes "${limits[@]}" "${options[@]}" \
	--set "0:FERRULE_DEVICES=$(ferrule_devices 0)" \
	--set "1:FERRULE_DEVICES=$(ferrule_devices 1)" "$plugin" "$@" || status=$?
if [ "$bad" != 0 ]; then
	end_wire
	# shellcheck disable=SC2154 # end_wire sets it
	echo "the wire: $wire_did"
	grep -q ' [1-9][0-9]* lost' <<<"$wire_did" || fail "the wire has lost nothing"
	if [[ " $* " =~ \ --traffic-class\ ([0-9]+)\  ]]; then
		grep -Eq "class: ${BASH_REMATCH[1]}: [0-9]+\$" <<<"$wire_did" ||
			fail "packets are not all of traffic class ${BASH_REMATCH[1]}"
	fi
fi
[ "$status" -eq 0 ] || fail "rows of the harness"
finish
