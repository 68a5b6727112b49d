#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# torch-elastic.sh [BACKEND]: trains digits (examples/torch/digits.py) under torchrun, over Ferrule
# or another backend of torch.distributed. Rank 1 is killed three times. The other rank reports it
# by itself, torchrun starts both again, and they resume after the last checkpoint. The result is
# that of an undisturbed run, to the bit. No process and no file remains.
backend=${1:-ferrule}
# shellcheck disable=SC2034 # for lib.sh
[ "$backend" = ferrule ] || own_programs=unwanted
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

export PYTHONPATH=$system_root/python FERRULE_LIBRARY=$bin/../libferrule.so.0
export OMP_NUM_THREADS=1 # or torchrun says that it sets it
export GLOO_SOCKET_IFNAME=lo
export PYTHONDONTWRITEBYTECODE=1
# torch 2.4 and newer keep the keys of the last try in the store: gloo would connect to ranks that
# have ended (pytorch/pytorch 135712, 167288). Ferrule must find the ranks of its own try.
[ "$backend" = ferrule ] || export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1

# find_python: the first Python that has torch.
find_python() {
	local program
	for program in python3 /usr/bin/python3; do
		if "$program" -c 'import torch.distributed' >/dev/null 2>&1; then
			python=$program
			return
		fi
	done
	skip "there is no torch (Debian: python3-torch)"
}

# trains NAME COMMAND...: two ranks under torchrun, with a checkpoint of this name. The Python of
# Debian 12 cannot run torchrun 1.13 without the options for the output.
trains() {
	local name=$1
	shift
	passes "$name" "$python" -m torch.distributed.run --standalone --nproc_per_node 2 \
		--max_restarts 3 --monitor_interval 0.2 --redirects 1 --tee 1 -- \
		"$@" --backend "$backend" --checkpoint "$temp/$name.pt"
	grep -E '(accuracy|resumed after)' "$temp/$name.out" | sed 's/^/    /' || true
}

# result NAME: "accuracy A, parameters HASH".
result() {
	sed -n 's/.*\(accuracy [0-9.]*, parameters [0-9a-f]*\)$/\1/p' "$temp/$1.out"
}

test_undisturbed() {
	trains undisturbed "$system_root/examples/torch/digits.py"
	awk -v a="$(result undisturbed | tr -d ,)" \
		'BEGIN { split(a, word, " "); exit !(word[2] > 0.96) }' ||
		fail "undisturbed: it has not learnt"
}

test_killed() {
	local wanted=RuntimeError n error ms
	[ "$backend" != ferrule ] || wanted=PeerLostError
	mkdir "$temp/kills"
	trains killed "$system_root/tests/system/torch_killed.py" "$temp/kills"
	[ "$(result killed)" = "$(result undisturbed)" ] ||
		fail "killed: the result is not that of the undisturbed run"
	for n in 0 1 2; do
		grep -q "resumed after epoch $((n + 1))\$" "$temp/killed.out" ||
			fail "killed: it did not resume after epoch $((n + 1))"
		if [ ! -f "$temp/kills/$n.lost" ]; then
			fail "killed: rank 0 did not see that rank 1 was killed in try $n"
			continue
		fi
		read -r error ms <"$temp/kills/$n.lost"
		echo "try $n: $error after $ms ms"
		[ "$error" = "$wanted" ] || fail "killed: $error in try $n, not $wanted"
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

find_python
if [ "$backend" = ferrule ]; then
	[ -d "$system_root/python/ferrule/torch" ] || skip "there is no python/ferrule/torch"
fi
"$python" -c 'import torch; print("torch", torch.__version__)'
before_all=$(leavings)
for name in undisturbed killed nothing_remains; do
	before=$failures
	"test_$name"
	[ "$failures" -eq "$before" ] || echo "in test_$name"
done
finish
