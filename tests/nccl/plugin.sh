#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# plugin.sh HARNESS PLUGIN [HARNESS-OPTION|ROW]...: rows of the harness on libnccl-net-ferrule.so,
# over the local fabric or FERRULE_DEVICES, with a control daemon of the test's own. A sender or
# receiver that died must be noticed, and the line in the log must have all fields that
# docs/guide/nccl.md names. NO_KERNELS instead of HARNESS: a build without kernels, which the rows
# need.
harness=$1
plugin=$2
shift 2
keep_settings='FERRULE_.*|FRL_.*|FAKE_.*'
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../system/lib.sh"

[ -r "$plugin" ] || skip "$plugin is not built"
[ "$harness" != NO_KERNELS ] ||
	skip "this build has no kernels for GPUs (no nvcc, or -Dcuda=disabled)"
# Limits only end rows that hang.
options=(--dead "$event_limit" --seconds "$program_limit" --slow-ms "$((event_limit * 1000))")
rows=()
while [ $# -gt 0 ]; do
	case $1 in
	--abi | --device | --expect | --fuse | --mem | --seconds | --set | --sides)
		options+=("$1" "$2")
		shift
		;;
	--*) options+=("$1") ;;
	*) rows+=("$1") ;;
	esac
	shift
done

export FERRULE_TIMEOUT_S=5
export FERRULE_DEVICES=${FERRULE_DEVICES-local}
failure='(sending to|receiving from) nccl-harness[^ ]* \(process [0-9]+ on [^,]+, [0-9a-f.:]+\)'
failure+=' over [^,]+, QP 0x[1-9a-f][0-9a-f]* to QP 0x[1-9a-f][0-9a-f]*,'
failure+=' (unacknowledged from|sent up to|expecting) PSN [0-9]+: [a-z].*[a-z]'
expected=("failure=$failure" maxRecvs=8 regIsGlobal=1)
# Expected as documented. Fields that do not apply are absent.
case $FERRULE_DEVICES in
local*) expected+=(speed=100000 latency=0) ;;
esac
status=0
"$harness" "${options[@]}" "${expected[@]/#/--expect=}" "$plugin" "${rows[@]}" || status=$?
[ "$status" -ne 77 ] || skip "no row applies"
[ "$status" -eq 0 ] || fail "rows of the harness"
finish
