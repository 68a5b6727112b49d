#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Removes what `meson install` has installed from a build folder: `scripts/uninstall.sh
# [BUILD-FOLDER]`, by the user who installed it. Stops the daemon's units first, if systemd has them
# from there. More than `ninja uninstall` it removes Ferrule's folders when several installations
# went there. /etc/ferrule and the system user "ferrule" stay.
set -eu

build=${1:-$(dirname "$0")/../build}
log=$build/meson-logs/install-log.txt
if [ ! -f "$log" ]; then
	echo "uninstall.sh: $log is not there: nothing was installed from $build" >&2
	exit 1
fi

mapfile -t paths < <(grep -v '^#' "$log")

# is_units_path PATH: systemd has the unit of this name from that file. With DESTDIR or another
# prefix it has not: a unit of the name belongs to another installation then.
is_units_path() {
	local used
	used=$(systemctl show --property FragmentPath --value "${1##*/}" 2>/dev/null) &&
		[ -n "$used" ] && [ "$used" -ef "$1" ]
}

units=()
for path in "${paths[@]}"; do
	case $path in
	# Without systemd nothing runs by these units.
	*/systemd/system/ferruled.*)
		[ ! -d /run/systemd/system ] || ! is_units_path "$path" ||
			units+=("${path##*/}")
		;;
	esac
done
# A service that does not stop is removed all the same.
[ ${#units[@]} -eq 0 ] || systemctl disable --now "${units[@]}" ||
	echo "uninstall.sh: not stopped: ${units[*]}" >&2

left=()
folders=()
for path in "${paths[@]}"; do
	if [ -d "$path" ] && [ ! -L "$path" ]; then
		folders+=("$path")
	elif ! rm -f "$path"; then
		left+=("$path")
	fi
	# An installation over another one has not made these.
	for folder in "${path%/*}" "${path%/*/*}"; do
		[[ $folder/ != */ferrule/* ]] || folders+=("$folder")
	done
done
# The innermost first.
while read -r path; do
	[ ! -d "$path" ] || rmdir --ignore-fail-on-non-empty "$path"
done < <(printf '%s\n' "${folders[@]}" | sort -ru)
[ ${#units[@]} -eq 0 ] || systemctl daemon-reload || true

if [ ${#left[@]} -gt 0 ]; then
	echo "uninstall.sh: could not be removed: ${left[*]}" >&2
	exit 1
fi
echo "Ferrule is uninstalled. /etc/ferrule and the user \"ferrule\" stay, where they are."
