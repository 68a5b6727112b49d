# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154,SC2034
#
# For tests of PyTorch, after lib.sh: the Python that has it is $python. Skips without torch.

export PYTHONPATH=$system_root/python FERRULE_LIBRARY=$bin/../libferrule.so.0
export OMP_NUM_THREADS=1 # or torchrun says that it sets it
export PYTHONDONTWRITEBYTECODE=1

digits=$system_root/examples/torch/digits.py

# result FILE: "accuracy A, parameters HASH" in the output of digits.py.
result() {
	sed -n 's/.*\(accuracy [0-9.]*, parameters [0-9a-f]*\)$/\1/p' "$1"
}

# lost FILE ERROR: rank_killed.py has written that its rank got this error, and after which time.
# The time depends on the machine's load: it is printed, and a limit only catches timeouts.
lost() {
	local error ms
	if [ ! -f "$1" ]; then
		fail "${1##*/}: this rank did not see that another one was killed"
		return 1
	fi
	read -r error ms <"$1"
	echo "    ${1##*/}: $error after $ms ms"
	[ "$error" = "$2" ] && [ "$ms" -lt $((event_limit * 250)) ] && return
	fail "${1##*/}: $error after $ms ms, not $2 at once"
	return 1
}

python=${FRL_PYTHON:-/usr/bin/python3} # as tests/python/run.sh
"$python" -c 'import torch.distributed; print("torch", torch.__version__)' 2>/dev/null ||
	skip "$python has no torch (Debian: python3-torch)"
