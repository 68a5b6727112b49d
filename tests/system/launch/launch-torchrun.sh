#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Ranks that torchrun itself starts: programs as they are, and a Python script that becomes one. A
# rank that fails ends the job. With --max_restarts the ranks of the second try meet each other and
# not those of the first.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"

command -v torchrun >/dev/null || skip "there is no torchrun in PATH (pip install torch)"
launch_peer=$bin/../tests/launch-peer
[ -x "$launch_peer" ] || skip "$launch_peer is not built"
version=$(python3 - "$(command -v torchrun)" <<-'SCRIPT'
	import re, subprocess, sys
	python = open(sys.argv[1]).readline()[2:].strip()
	print(subprocess.run([python, "-c", "import torch; print(torch.__version__)"],
	    capture_output=True, text=True).stdout.strip())
	SCRIPT
)
echo "torchrun of torch ${version:-unknown}"

export OMP_NUM_THREADS=1 # or torchrun says that it sets it
export TMPDIR=$temp        # it leaves a folder for logs
# Without a choice of what goes to files, torch 1.13 fails on Python 3.11.
torchrun=(torchrun --redirects 1 --tee 1)
alone=("${torchrun[@]}" --standalone --nproc_per_node)

# torchrun takes options that look like its own even behind the program's name, unless -- ends them.
test_programs() {
	passes files "${alone[@]}" 4 --no_python "$allreduce" \
		--input "$data/rank%r.safetensors" --check "$data/sum.safetensors"
	grep -q 'launched by torchrun' "$temp/files.out" || fail "another launcher was found"
	passes bench "${alone[@]}" 2 --no_python -- "$bench" --max 64K --factor 32
	grep -q 'every result was right' "$temp/bench.out" || fail "ferrule-bench has no verdict"
}

test_script() {
	cat >"$temp/become.py" <<-'SCRIPT'
		import os, sys
		os.execv(sys.argv[1], sys.argv[1:])
	SCRIPT
	passes script "${torchrun[@]}" --nproc_per_node 3 --rdzv_backend c10d \
		--rdzv_endpoint localhost:0 --rdzv_id "a b" -- \
		"$temp/become.py" "$launch_peer" environment 2
	[ "$(grep -c 'of 3 has met the others' "$temp/script.out")" -eq 6 ] ||
		fail "the ranks of a script have not met"
}

# One rank fails at the first try.
test_restart() {
	cat >"$temp/once.sh" <<-SCRIPT
		#!/bin/sh
		[ "\$RANK" != 1 ] || [ "\$TORCHELASTIC_RESTART_COUNT" != 0 ] || exit 3
		exec '$launch_peer' environment
	SCRIPT
	chmod +x "$temp/once.sh"
	passes restart "${torchrun[@]}" --standalone --max_restarts 1 --monitor_interval 0.2 \
		--nproc_per_node 2 --no_python "$temp/once.sh"
	[ "$(grep -c 'of 2 has met the others' "$temp/restart.out")" -eq 2 ] ||
		fail "the ranks of the second try have not met"
	refuses fails -- "${alone[@]}" 2 --no_python sh -c "[ \$RANK = 0 ] || exit 3
		exec '$launch_peer' environment"
}

for name in programs script restart; do
	before=$failures
	"test_$name"
	[ "$failures" -eq "$before" ] || echo "in test_$name"
done
finish
