#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# ferrule-info lists the local fabric, RDMA devices and GPUs, or the reasons why there are none, to
# people and to programs. A device that is missing is named in the error.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"
info=$bin/ferrule-info

passes local "$info" local
grep -qE '^local +usable +active +169\.254\.' "$temp/local.out" || {
	fail "local: it is not usable"
	show "$temp/local.out"
}
passes one "$info" local
[ "$(wc -l <"$temp/one.out")" -eq 2 ] || fail "one: more than the local fabric"
"$info" verbs >"$temp/hardware.out" || true # its status: whether one is usable
grep -q '^verbs' "$temp/hardware.out" || fail "hardware: it is not listed"
refuses unknown 'no device verbs:none' -- "$info" verbs:none
# A machine without libibverbs, and one whose libibverbs cannot be used.
mkdir "$temp/none"
: >"$temp/none/libibverbs.so.1"
LD_LIBRARY_PATH=$temp/none passes without "$info" local verbs
grep -q 'install rdma-core (ibverbs-providers)' "$temp/without.out" || {
	fail "without: the reason is not that there is no libibverbs"
	show "$temp/without.out"
}
# One that lacks a function.
if command -v cc >/dev/null; then
	mkdir "$temp/old"
	echo 'void ibv_ack_async_event(void *event) {}' |
		cc -shared -fPIC -o "$temp/old/libibverbs.so.1" -x c -
	LD_LIBRARY_PATH=$temp/old passes old "$info" local verbs
	grep -q 'too old for Ferrule (it has no ibv_ack_cq_events())' "$temp/old.out" || {
		fail "old: the reason does not name the function"
		show "$temp/old.out"
	}
else
	echo "not tried: an old libibverbs (there is no cc)"
fi
refuses no-rdma 'verbs|RDMA' -- "$bench" -n 2 --port verbs:none --max 64

# devices FIELD: that field of all devices of $temp/json.out, except the local fabric.
devices() {
	python3 - "$temp/json.out" "$1" <<-'SCRIPT'
	import json, sys
	devices = json.load(open(sys.argv[1]))
	assert [d["usable"] for d in devices if d["name"] == "local"] == [True], devices
	others = [d for d in devices if d["name"] != "local"]
	assert others, "neither a device nor the reason that there is none"
	for device in others:
	    assert device["usable"] or len(device["reason"]) > 20, device
	    print(device[sys.argv[2]])
	SCRIPT
}

if command -v python3 >/dev/null; then
	passes json "$info" --json
	devices name >"$temp/names" || fail "json: not as it should be: $(cat "$temp/json.out")"
	while read -r name; do
		grep -qF "$name" <("$info") || fail "json: $name is not among the lines"
	done <"$temp/names"
else
	echo "not tried: --json (there is no python3)"
fi

# GPUs of the double of CUDA's driver, and its failures.
double=${FRL_FAKE_LIBCUDA:-$bin/../tests/fakes/cuda}
without=${LD_LIBRARY_PATH:-}
# with_gpus N COMMAND...: runs a command with that many GPUs.
with_gpus() {
	FAKE_CUDA_DEVICES=$1 LD_LIBRARY_PATH=$double${without:+:$without} "${@:2}"
}
if [ -r "$double/libcuda.so.1" ]; then
	with_gpus 2 passes gpus "$info" gpu
	[ "$(grep -cE '^gpu:[01] +usable .*dma-buf' "$temp/gpus.out")" -eq 2 ] || {
		fail "gpus: two are not listed"
		show "$temp/gpus.out"
	}
	grep -q '^local' "$temp/gpus.out" && fail "gpus: nobody has asked for the local fabric"
	with_gpus 2 passes second "$info" gpu:1
	grep -q '^gpu:0' "$temp/second.out" && fail "second: nobody has asked for the first"
	with_gpus 2 refuses third 'no device gpu:2' -- "$info" gpu:2
	with_gpus 0 refuses no-gpu 'CUDA_ERROR_NO_DEVICE' 'CUDA_VISIBLE_DEVICES' -- "$info" gpu
	FAKE_CUDA_VERSION=11020 with_gpus 1 refuses old-driver 'CUDA 11\.2' 'CUDA 11\.3' -- \
		"$info" gpu
	FRL_GPU_TIER=off with_gpus 1 refuses gpus-off 'FRL_GPU_TIER is off' -- "$info" gpu
	with_gpus 1 passes all "$info"
	for pattern in '^local  *usable' '^gpu:0  *usable'; do
		grep -q "$pattern" "$temp/all.out" || fail "all: no line '$pattern'"
	done
	with_gpus 1 passes json-gpus "$info" --json gpu
	grep -q '"kind": "gpu"' "$temp/json-gpus.out" || fail "json-gpus: none is listed"
	grep -q '"pci": "0000:c0:00.0"' "$temp/json-gpus.out" || fail "json-gpus: no PCI address"
else
	echo "not tried: GPUs (there is no $double/libcuda.so.1)"
fi

# A device of the kernel that has no file in /dev/infiniband: libibverbs omits it.
cat >"$temp/no-files" <<'SCRIPT'
set -e
mount -t tmpfs none /sys/class
if [ -d /dev/infiniband ]; then mount -t tmpfs none /dev/infiniband; fi
mkdir -p /sys/class/infiniband/mlx5_9 /sys/class/infiniband_verbs/uverbs0
echo 6 >/sys/class/infiniband_verbs/abi_version
echo mlx5_9 >/sys/class/infiniband_verbs/uverbs0/ibdev
echo 1 >/sys/class/infiniband_verbs/uverbs0/abi_version
"$1" verbs || true
"$2" -n 2 --port verbs:mlx5_9 --max 64 || true
SCRIPT
if unshare --mount mount -t tmpfs none /sys/class 2>/dev/null; then
	passes no-files unshare --mount bash "$temp/no-files" "$info" "$bench"
	for who in '' 'cannot open verbs:mlx5_9: '; do
		grep -q "${who}there is no /dev/infiniband/uverbs0 for mlx5_9: a container" \
			"$temp/no-files.out" || fail "no-files: '$who' does not say it"
	done
	grep -qE '^verbs:mlx5_9 +unusable' "$temp/no-files.out" || fail "no-files: it is not listed"
else
	echo "not tried: a device without files (cannot mount)"
fi
finish
