#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The drop-in libibverbs.so.1 exports the symbols of its list and no others, needs no libibverbs
# itself, and satisfies the installed programs and libraries that were linked with libibverbs: all
# packages of this machine that depend on it.
# shellcheck disable=SC2034
own_machine=unwanted
# shellcheck disable=SC2034
own_programs=unwanted
# shellcheck disable=SC2034
keep_settings=FRL_SANITIZED
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"

folder=$(cd "$bin/../dropin/rdma" && pwd)
library=$folder/libibverbs.so.1
list=$system_root/dropin/symbols/ibverbs.txt
[ -e "$library" ] || skip "$library is not built"
for tool in objdump nm; do
	command -v "$tool" >/dev/null || skip "there is no $tool (package binutils)"
done

# listed_symbols: "node name" of the list. The linker takes only public symbols without a version,
# which objdump shows without parentheses.
listed_symbols() {
	awk '
		{ sub(/#.*/, "") }
		$1 == "private" {
			n = split($0, nodes)
			next
		}
		NF == 3 && $2 == "private" {
			for (i = 2; i <= n; i++)
				print "(" nodes[i] ")", $1
			next
		}
		NF == 3 { print $2, $1 }' "$list" | sort
}

# exported_symbols FILE: "node name", without the symbols that stand for the nodes themselves.
exported_symbols() {
	objdump -T "$1" | awk '
		/^[0-9a-f]/ && !/\*UND\*/ && $NF != $(NF - 1) { print $(NF - 1), $NF }' | sort
}

# imported_symbols FILE: "node name" of libibverbs.
imported_symbols() {
	objdump -T "$1" | awk '
		/\*UND\*/ && $(NF - 1) ~ /^\(?IBVERBS_/ {
			gsub(/[()]/, "", $(NF - 1))
			print $(NF - 1), $NF
		}' | sort -u
}

# dynamic_tags FILE TAG: their values.
dynamic_tags() {
	objdump -p "$1" | awk -v tag="$2" '$1 == tag { print $2 }'
}

# ---- the library

listed_symbols >"$temp/listed"
exported_symbols "$library" >"$temp/exported"
if ! cmp -s "$temp/listed" "$temp/exported"; then
	fail "$library exports other symbols than $list (<: missing, >: too many)"
	diff "$temp/listed" "$temp/exported" | grep '^[<>]' || true
fi
tr -d '()' <"$temp/exported" | sort >"$temp/offered"

[ "$(dynamic_tags "$library" SONAME)" = libibverbs.so.1 ] ||
	fail "$library has the SONAME '$(dynamic_tags "$library" SONAME)'"
needed=$(dynamic_tags "$library" NEEDED)
! grep -E '^lib(ibverbs|rdmacm|mlx|efa|ferrule|rte_)' <<<"$needed" ||
	fail "$library needs the libraries above; it contains all that it needs of them"
# Symbols of its own that the loader would look up, and might find in libferrule.so or another
# libibverbs of the process.
! objdump -R "$library" | grep -E '[ @](frl|ibv|verbs|_ibv)_' ||
	fail "$library does not bind the symbols above to itself (-Bsymbolic)"
# For dlopen() and for the linker.
[ "$folder/libibverbs.so" -ef "$library" ] || fail "$folder/libibverbs.so is not $library"

# The archive's members for collectives are not linked.
collectives=$(grep -v '^#' "$system_root/lib/include/ferrule/collective.h" | tr '\n' ' ' |
	grep -oE 'FRL_API [^;]*;' | sed -nE 's/^[^(]*\b(frl_[a-z0-9_]+)\(.*/\1/p' | sort -u)
nm "$library" 2>/dev/null | awk '$2 ~ /[tT]/ { print $3 }' | sort >"$temp/functions"
grep -qx frl_poll_cq "$temp/functions" || fail "$library does not contain Ferrule, or is stripped"
! comm -12 <(echo "$collectives") "$temp/functions" | grep . ||
	fail "$library contains the functions of collectives above"

# ---- the packages

command -v dpkg-query >/dev/null || skip "the rest needs dpkg-query: packages are found by it"

# package_files PACKAGE: its programs and libraries that need libibverbs.
package_files() {
	local file
	while read -r file; do
		[ -f "$file" ] || continue
		[ ! -L "$file" ] || continue
		[ -x "$file" ] || [[ $file =~ \.so(\.|$) ]] || continue
		! dynamic_tags "$file" NEEDED 2>/dev/null | grep -qx libibverbs.so.1 || echo "$file"
	done < <(dpkg-query -L "$1")
}

# not_found FOLDER FILE: what the loader does not find if FOLDER has the libraries. It loads the
# file and all libraries that it needs, binds all symbols, and does not run them.
not_found() {
	LD_LIBRARY_PATH=$1 ldd -r "$2" 2>&1 |
		grep -E 'undefined symbol|not found|lookup error' | sort -u
}

# opens FOLDER FILE: dlopen(), which runs what the library does when it is loaded.
opens() {
	LD_LIBRARY_PATH=$1 LD_BIND_NOW=1 timeout -k 5 "$program_limit" python3 -c '
import ctypes, os, sys
ctypes.CDLL(sys.argv[1], os.RTLD_NOW | os.RTLD_GLOBAL)
maps = open("/proc/self/maps").read()
sys.exit(sys.argv[2] and (sys.argv[2] + "/libibverbs.so.1") not in maps)' "$2" "$1" 2>&1
}

# A program must be linked with the sanitizer before it opens such a library.
can_open=
[ -n "${FRL_SANITIZED:-}" ] || ! command -v python3 >/dev/null || can_open=yes

files=0
while read -r package; do
	while read -r file; do
		files=$((files + 1))
		missing=$(imported_symbols "$file" | comm -23 - "$temp/offered")
		[ -z "$missing" ] || fail "$file ($package) imports: $missing"
		# Plugins also have symbols of their host.
		missing=$(comm -13 <(not_found "" "$file") <(not_found "$folder" "$file"))
		[ -z "$missing" ] || fail "$file ($package) cannot be loaded: $missing"
		[[ $can_open && $file =~ \.so(\.|$) ]] || continue
		opens "" "$file" >/dev/null || continue
		why=$(opens "$folder" "$file") || fail "$file ($package) cannot be opened: $why"
	done < <(package_files "$package")
done < <(dpkg-query -W -f '${db:Status-Status} ${Package}:${Architecture} ${Depends}\n' |
	awk '$1 == "installed" && / libibverbs1[ :,]/ { print $2 }')
echo "$files programs and libraries of this machine use libibverbs"
[ "$files" -gt 0 ] || skip "no package of this machine needs libibverbs (ibverbs-utils)"

finish
