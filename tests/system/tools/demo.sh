#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# examples/demo.sh in a project without a build, and again with one: it installs, sets up and
# builds, in this order, and sums the gradients. Programs that print their command lines replace the
# installation and the build; the tested build is used.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"

project=$temp/project
mkdir -p "$project/examples" "$project/scripts" "$temp/fake"
cp "$system_root/examples/demo.sh" "$project/examples/"
ln -s "$data" "$project/examples/data"

# fake FILE: a program that prints its name and arguments; standard input has its other commands.
fake() {
	{
		echo '#!/usr/bin/env bash'
		# shellcheck disable=SC2016
		echo 'echo "$(basename "$0") $*" >>"'"$temp/calls"'"'
		cat
	} >"$1"
	chmod +x "$1"
}
fake "$project/scripts/install-deps.sh" </dev/null
module=:
! has_dpdk || module="ln -sfn '$bin/../ferrule-dpdk.so' \"\$2/\""
# shellcheck disable=SC2016
fake "$temp/fake/meson" <<<'mkdir -p "$2" && : >"$2/build.ninja"'
fake "$temp/fake/ninja" <<<"ln -sfn '$bin' \"\$2/tools\"; $module"

# runs NAME CALL...: the demonstration makes these calls, and all ranks have the right sums.
runs() {
	local name=$1 rank
	shift
	: >"$temp/calls"
	rm -rf "$project/out"
	passes "$name" env "PATH=$temp/fake:$PATH" "$project/examples/demo.sh"
	printf '%s\n' "$@" | cmp -s - "$temp/calls" || {
		fail "$name: other steps"
		show "$temp/calls"
	}
	grep -q 'OK' "$temp/$name.out" || {
		fail "$name: no OK"
		show "$temp/$name.out"
	}
	! has_dpdk || grep -qz 'packets  *[1-9].*ways are the same' "$temp/$name.out" || {
		fail "$name: no sum over DPDK ports"
		show "$temp/$name.out"
	}
	for rank in 0 1 2 3; do
		cmp -s "$project/out/rank0.safetensors" "$project/out/rank$rank.safetensors" ||
			fail "$name: the result of rank $rank differs from that of rank 0"
	done
}

runs first 'install-deps.sh build' 'meson setup build -Dtests=auto' 'ninja -C build'
runs again 'install-deps.sh build' 'ninja -C build'
finish
