#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# rdma-core's own tests of libibverbs, which Debian ships with pyverbs, over the drop-in library.
# They skip what the device does not advertise.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/system/dropin/dropin_lib.sh
. "$(dirname "$0")/dropin_lib.sh"

python=/usr/bin/python3
suite=/usr/share/doc/rdma-core/tests
"$python" -c 'import pyverbs.device' 2>/dev/null || skip "there is no pyverbs (python3-pyverbs)"
[ -e "$suite/run_tests.py" ] || skip "there are no tests in $suite"
cp -r "$suite" "$temp/tests"
find "$temp/tests" -name '*.gz' -exec gunzip {} +

status=0
(cd "$temp" && timeout -k 5 "$program_limit" "$run" "$python" tests/run_tests.py --dev frl0 \
	--gid 1 -v) >"$temp/suite" 2>&1 || status=$?
[ "$status" -eq 0 ] || fail "exit status $status of the tests"
grep -qE '^Ran [0-9]+ tests' "$temp/suite" || fail "the tests do not end"
passed=$(grep -cE '(^|\.\.\. )ok$' "$temp/suite" || true)
[ "$passed" -ge 70 ] || fail "only $passed tests pass"
[ "$failures" -eq 0 ] || show "$temp/suite"
finish
