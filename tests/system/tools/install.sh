#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# `meson install` puts everything in its place; a moved prefix works and has its own daemon;
# uninstalling leaves nothing, also after two installations.
#
# Meson logs an installation in the build folder. The test uses another one, with the same content,
# so that the log of the user's own installation stays.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"

# Installed programs must find their own library, not that of the build, which meson names here.
unset LD_LIBRARY_PATH

build=$(cd "$bin/.." && pwd)
[ -f "$build/meson-private/install.dat" ] || skip "$build is no build folder of meson"
command -v meson >/dev/null || skip "there is no meson"
copy=$temp/build
mkdir -p "$copy/meson-private" "$copy/meson-logs"
ln -s "$build/meson-private"/* "$copy/meson-private/"
for entry in "$build"/*; do
	case ${entry##*/} in
	meson-private | meson-logs) ;;
	# Links would be installed as links.
	*.so*) [ -d "$entry" ] || cp -P "$entry" "$copy/" ;;
	*) ln -s "$entry" "$copy/" ;;
	esac
done
stage=$temp/stage
# option NAME: its value in this build.
option() {
	meson introspect --buildoptions "$build" | python3 -c 'import json, sys
print({row["name"]: row["value"] for row in json.load(sys.stdin)}[sys.argv[1]])' "$1"
}
prefix=$stage$(option prefix)

install_it() {
	passes "install-$1" meson install -C "$copy" --no-rebuild --destdir "$stage"
	[ "$failures" -eq 0 ] || finish
}

# uninstall_it NAME COMMAND...: nothing is left of the installation.
uninstall_it() {
	local left=""
	passes "$@"
	[ ! -e "$stage" ] ||
		left=$(find "$stage" ! -type d -o -path '*/ferrule*' -o -name 'frl_*')
	[ -z "$left" ] || fail "$1: left behind: $left"
}

install_it once
moved=$temp/moved
mv "$prefix" "$moved"
libraries=$(dirname "$(find "$moved" -name libferrule.so)")
plugin=$libraries/ferrule/libnccl-net-ferrule.so

# ---- what is there

for file in bin/ferrule-{allreduce,bench,info,pcap,pingpong,run} bin/ferruled bin/ferrulectl \
	include/ferrule/ferrule.h share/doc/ferrule/examples/ferruled.conf; do
	[ -f "$moved/$file" ] || fail "$file is not installed"
done
if [ "$(option systemd)" = disabled ]; then
	found=$(find "$moved" -path '*/systemd/*' -o -path '*/sysusers.d/*')
	[ -z "$found" ] || fail "a daemon that knows no systemd has units: $found"
else
	for file in lib/systemd/system/ferruled.{service,socket} lib/sysusers.d/ferruled.conf; do
		[ -f "$moved/$file" ] || fail "$file is not installed"
	done
	# The daemon opens packet sockets (packet:) within the unit's limits.
	for line in '^RestrictAddressFamilies=.*\<AF_PACKET\>' \
		'^AmbientCapabilities=.*\<CAP_NET_RAW\>' \
		'^CapabilityBoundingSet=.*\<CAP_NET_RAW\>'; do
		grep -q "$line" "$moved/lib/systemd/system/ferruled.service" ||
			fail "the unit allows no packet sockets: no $line"
	done
fi
# NCCL loads a libnccl-net.so that the loader finds, in every job of the host.
found=$(find "$moved" -name 'libnccl-net*' ! -path '*/ferrule/*')
[ -z "$found" ] || fail "the plugin is where the loader looks: $found"
[ -f "$plugin" ] || fail "$plugin is not installed"
# Only programs that name the folder get the drop-in instead of the system's library.
found=$(cd "$moved" && find . -name 'libibverbs*' ! -path '*/ferrule/rdma/*')
[ -z "$found" ] || fail "the drop-in libibverbs is where the loader looks: $found"
[ "$libraries/ferrule/rdma/libibverbs.so" -ef "$libraries/ferrule/rdma/libibverbs.so.1" ] ||
	fail "the drop-in libibverbs.so is not installed, or is no link to libibverbs.so.1"
exports=$(readelf --dyn-syms --wide "$libraries/libferrule.so" |
	awk '$5 == "GLOBAL" && $7 != "UND" && $8 !~ /^(frl_[a-z0-9_]*@@)?FERRULE_0$/')
[ -z "$exports" ] || fail "names that are exported without the version: $exports"

# ferrule-run finds the library of its own installation.
passes run "$moved/bin/ferrule-run" --share-malloc printenv LD_PRELOAD
[ "$(cat "$temp/run.out")" -ef "$libraries/ferrule/libferrule-malloc.so" ] ||
	fail "ferrule-run preloads $(cat "$temp/run.out")"

# Each public function has a manual page that man finds, or one that refers to it.
while read -r name; do
	[ -f "$moved/share/man/man3/$name.3" ] || fail "$name() has no manual page"
done < <(readelf --dyn-syms --wide "$libraries/libferrule.so" | grep -o '\<frl_[a-z0-9_]*')
if command -v man >/dev/null; then
	passes man-page env "MANPATH=$moved/share/man" man -P cat 3 frl_post_recv
	grep -q 'frl_post_send' "$temp/man-page.out" ||
		fail "man frl_post_recv does not show the page of frl_post_send"
fi
# The example of ferrule(7) is a program.
sed -n '/^#include <ferrule/,/^\.EE/p' "$moved/share/man/man7/ferrule.7" |
	sed '/^\.EE/d; s/\\e/\\/g' >"$temp/example.c"
passes example-build "${CC:-cc}" -I"$moved/include" "$temp/example.c" -L"$libraries" \
	"-Wl,-rpath,$libraries" -lferrule -o "$temp/example"

# Each program has a manual page with all its options.
for program in "$moved"/bin/*; do
	name=${program##*/}
	page=$(find "$moved/share/man" -name "$name.[18]*")
	[ -n "$page" ] || {
		fail "$name has no manual page"
		continue
	}
	passes "help-$name" "$program" --help
	while read -r option; do
		sed 's/\\-/-/g' "$page" | grep -qE -- "$option([^a-z-]|\$)" ||
			fail "${page##*/} does not mention $option"
	done < <(grep -oE -- '--[a-z][a-z-]+' "$temp/help-$name.out" | sort -u)
done

# Programs compile against it as the heads of the examples say.
if command -v cc >/dev/null && command -v pkg-config >/dev/null; then
	read -r -a flags <<<"$(PKG_CONFIG_PATH=$libraries/pkgconfig pkg-config \
		"--define-variable=prefix=$moved" --cflags ferrule)"
	for source in "$system_root"/examples/*.c; do
		passes "compile-$(basename "$source")" cc -Wall -Wextra -Werror -c \
			-o "$temp/example.o" "$source" "${flags[@]}"
	done
fi

# ---- in another place: its own library, daemon and plugin

# daemons_of_prefix: the processes that run the daemon there.
daemons_of_prefix() {
	local exe
	for exe in /proc/[0-9]*/exe; do
		[ "$(readlink "$exe" 2>/dev/null)" != "$moved/bin/ferruled" ] ||
			basename "$(dirname "$exe")"
	done
}

# own_daemon NAME COMMAND...: the command passes, and has started the daemon of its prefix.
own_daemon() {
	local pids
	mkdir -m 700 "$temp/run-$1"
	passes "$1" env FRL_CONTROL=auto "XDG_RUNTIME_DIR=$temp/run-$1" "${@:2}"
	pids=$(daemons_of_prefix)
	[ -n "$pids" ] || {
		fail "$1: it has not started the daemon of its own prefix"
		show "$temp/$1.out"
	}
	for pid in $pids; do
		kill "$pid"
		wait_until ended "$pid" || fail "$1: its daemon does not end"
	done
}

if [ -e /run/ferrule/ferruled.sock ]; then
	echo "not tried in another place: this host has a system daemon"
else
	own_daemon tool "$moved/bin/ferrule-bench" -n 2 --max 1K --iters 2
	own_daemon example env FRL_JOB=example FRL_RANK=0 FRL_RANKS=1 "$temp/example"
	own_daemon plugin env FERRULE_DEVICES=local \
		"$build/tests/nccl/nccl-harness" --sides threads --seconds "$program_limit" \
		--dead "$event_limit" "$plugin" zero
fi

# ---- uninstalling

mv "$moved" "$prefix"
cd "$copy"
uninstall_it ninja-uninstall meson --internal uninstall
[ ! -e "$stage" ] || fail "ninja uninstall: folders are left: $(find "$stage")"

# Uses the script, with a systemctl of the test's own. It reports that systemd has its units from
# the folder in `units`, and may fail. Where the machine is not the test's own, systemd may not run.
mkdir -p "$temp/fake"
cat >"$temp/fake/systemctl" <<END
#!/bin/sh
echo "\$*" >>"$temp/systemctl"
case \$1 in
show) for name; do :; done; echo "\$(cat "$temp/units")/\$name" ;;
*) exit "\$(cat "$temp/status")" ;;
esac
END
chmod +x "$temp/fake/systemctl"
PATH=$temp/fake:$PATH
[ "${FRL_TEST_MACHINE:-}" != own ] || mkdir -p /run/systemd/system

# uninstall_units NAME FOLDER STATUS: after two installations, with systemd's units in that folder.
uninstall_units() {
	install_it "$1-first"
	install_it "$1-again"
	echo "$2" >"$temp/units"
	echo "$3" >"$temp/status"
	: >"$temp/systemctl"
	uninstall_it "$1" "$system_root/scripts/uninstall.sh" "$copy"
}

units=$prefix/lib/systemd/system
uninstall_units script "$units" 0
if [ -d /run/systemd/system ] && [ "$(option systemd)" != disabled ]; then
	grep -q '^disable --now .*ferruled.socket' "$temp/systemctl" ||
		fail "script: the units are not stopped"
	grep -q '^daemon-reload' "$temp/systemctl" || fail "script: systemd is not told"
fi
uninstall_units script-unit-fails "$units" 1
# The host's own daemon, or a package's, keeps running.
mkdir "$temp/hosts"
touch "$temp"/hosts/ferruled.{service,socket}
uninstall_units script-elsewhere "$temp/hosts" 0
! grep -v '^show ' "$temp/systemctl" || fail "script-elsewhere: another one's units are stopped"
refuses nothing 'nothing was installed' -- "$system_root/scripts/uninstall.sh" "$temp"
finish
