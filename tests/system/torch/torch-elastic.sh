#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# torch-elastic.sh [BACKEND]: trains digits (examples/torch/digits.py) under torchrun, over Ferrule
# or another backend of torch.distributed. The last of three ranks is killed three times. The others
# report it by themselves, torchrun starts all again, and they resume after the last checkpoint. The
# parameters equal, bit for bit, those of runs that stop and resume at the same epochs without a
# kill. No process and no file remains.
backend=${1:-ferrule}
# shellcheck disable=SC2034 # for lib.sh
[ "$backend" = ferrule ] || own_programs=unwanted
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/system/torch/torch_lib.sh
. "$(dirname "$0")/torch_lib.sh"

export GLOO_SOCKET_IFNAME=lo
# torch 2.4 and newer keep the keys of the last try in the store: gloo would connect to ranks that
# have ended (pytorch/pytorch 135712, 167288). Ferrule must find the ranks of its own try.
[ "$backend" = ferrule ] || export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1

# trains NAME PROGRAM OPTION...: three ranks under torchrun, with a checkpoint of this name. The
# Python of Debian 12 cannot run torchrun 1.13 without the options for the output.
trains() {
	local name=$1
	shift
	passes "$name" "$python" -m torch.distributed.run --standalone --nproc_per_node 3 \
		--max_restarts 3 --monitor_interval 0.2 --redirects 1 --tee 1 -- \
		"$@" --backend "$backend" --checkpoint "$temp/$name.pt"
	grep -E '(accuracy|resumed after)' "$temp/$name.out" | sed 's/^/    /' || true
}

# After a start DDP has other buckets in its first step, so each run must begin where one resumes.
test_undisturbed() {
	local epochs
	for epochs in 1 2 3 25; do
		trains undisturbed "$digits" --epochs "$epochs"
	done
	awk -v a="$(result "$temp/undisturbed.out" | tr -d ,)" \
		'BEGIN { split(a, word, " "); exit !(word[2] > 0.96) }' ||
		fail "undisturbed: it has not learnt"
}

test_killed() {
	local wanted=RuntimeError try rank
	[ "$backend" != ferrule ] || wanted=PeerLostError
	mkdir "$temp/kills"
	trains killed "$system_root/tests/system/torch/rank_killed.py" "$temp/kills"
	[ "$(result "$temp/killed.out")" = "$(result "$temp/undisturbed.out")" ] ||
		fail "killed: the result is not that of the undisturbed run"
	for try in 0 1 2; do
		grep -q "resumed after epoch $((try + 1))\$" "$temp/killed.out" ||
			fail "killed: it did not resume after epoch $((try + 1))"
		for rank in 0 1; do
			lost "$temp/kills/$try.$rank.lost" "$wanted"
		done
	done
}

# The test's programs are in process namespaces of its own, where that is allowed.
test_nothing_remains() {
	local left
	left=$(pgrep -af "$temp/(undisturbed|killed)\\.pt" || true)
	[ ! "$left" ] || fail "processes remain: $left"
	left=$(comm -13 <(echo "$before_all") <(leavings))
	[ ! "$left" ] || fail "files or sockets remain: $left"
	left=$(find "$temp" -name '*.new')
	[ ! "$left" ] || fail "files of a checkpoint remain: $left"
}

before_all=$(leavings)
for name in undisturbed killed nothing_remains; do
	before=$failures
	"test_$name"
	[ "$failures" -eq "$before" ] || echo "in test_$name"
done
finish
