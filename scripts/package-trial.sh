#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# In a clean root, by package.sh: installs the packages beside this file as an administrator does,
# uses them as others do, upgrades to those in later/, purges, and looks for what stays. No service
# runs here: systemd's part is seen by what is enabled.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
conf=/etc/ferrule/ferruled.conf
failures=0

fail() {
	echo "FAILED: $*"
	failures=$((failures + 1))
}

# quietly COMMAND...: what it prints is shown if it fails, which ends the trial.
quietly() {
	"$@" >/tmp/quietly 2>&1 && return
	cat /tmp/quietly
	echo "FAILED: $*"
	exit 1
}

# passes COMMAND...: by a user without any rights.
passes() {
	setpriv --reuid=1000 --regid=1000 --clear-groups --bounding-set=-all --no-new-privs \
		env -i PATH=/usr/bin:/bin LC_ALL=C.UTF-8 "$@" >/tmp/passes 2>&1 && return
	cat /tmp/passes
	fail "as a user: $*"
}

# everything: files and accounts of this root, but what dpkg, apt and the loader keep.
everything() {
	find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp \
		-o -path "$here" -o -path /var/lib/dpkg -o -path /var/lib/apt \
		-o -path /var/cache -o -path /var/log \) -prune -o -printf '%y %p\n'
	cut -d: -f1 /etc/passwd | sed 's/^/user /'
	cut -d: -f1 /etc/group | sed 's/^/group /'
}

status_of() {
	dpkg-query -W -f '${db:Status-Status}\n' "$1" 2>/dev/null || true
}

mapfile -t packages < <(for deb in "$here"/*.deb; do dpkg-deb -f "$deb" Package; done)

# Other packages that apt installs too come first: files that they leave are not Ferrule's.
quietly apt-get -q update
apt-get -qs install "$here"/*.deb | awk '/^Inst/ { print $2 }' |
	grep -vxF "$(printf '%s\n' "${packages[@]}")" >/tmp/others
mapfile -t others </tmp/others
quietly apt-get -qy --no-install-recommends install "${others[@]}"
everything | sort >/tmp/before

# ---- installing

quietly apt-get -qy install "$here"/*.deb
for package in "${packages[@]}"; do
	[ "$(status_of "$package")" = installed ] || fail "$package is not installed"
done

libraries=$(ldconfig -p)
grep -q 'libferrule\.so\.0 ' <<<"$libraries" || fail "ldconfig does not know libferrule.so.0"
! grep -q nccl-net <<<"$libraries" || fail "every NCCL job would take the plugin: ldconfig has it"
module=$(dpkg -L libferrule0 | grep 'ferrule-dpdk\.so$')
[ -f "${module%/*}/libnccl-net-ferrule.so" ] ||
	fail "the plugin is not in the folder of the DPDK module"
[ "$(getent passwd ferrule | cut -d: -f6-7)" = "/:/usr/sbin/nologin" ] ||
	fail "user ferrule: $(getent passwd ferrule)"
wants=/etc/systemd/system
[ -L $wants/sockets.target.wants/ferruled.socket ] || fail "the socket is not enabled"
[ ! -e $wants/multi-user.target.wants/ferruled.service ] || fail "the service is enabled"
quietly ferruled --check-config --config $conf

# ---- using

for page in ferrule-{allreduce,bench,info,pcap,pingpong} ferrulectl ferruled ferruled.conf; do
	man "$page" 2>/dev/null | grep -q DESCRIPTION || fail "there is no manual page $page"
done
examples=/usr/share/doc/ferrule-doc/examples
links=$(grep -oE '\]\([^):#]+' $examples/README.md | cut -c3-)
[ -n "$links" ] || fail "$examples/README.md names no program"
for link in $links; do
	[ -e "$examples/$link" ] || fail "$examples/README.md: there is no $link"
done
mkdir -m 777 /tmp/results
cd /tmp/results
passes $examples/demo.sh --installed
grep -qz 'OK.*packets  *[1-9].*ways are the same' /tmp/passes || {
	cat /tmp/passes
	fail "the demo has not summed over both ways"
}
passes ferrule-pingpong --local --op all --verify --sizes 8,4K,1M
cat >sum.py <<'END'
import sys
import numpy, ferrule

with ferrule.join("trial", rank=int(sys.argv[1]), size=2, timeout=60) as comm:
    x = numpy.full(1 << 20, comm.rank + 1, "float32")
    comm.all_reduce(x)
    assert (x == 3).all(), x
END
sum_by_python() {
	passes sh -c 'python3 sum.py 1 & python3 sum.py 0 && wait $!'
}
sum_by_python
# python3-ferrule refuses a library of another minor version, and so must apt.
dpkg-query -W -f '${Depends}\n' python3-ferrule | grep -q 'libferrule0 (<< 0\.[0-9]*~)' ||
	fail "python3-ferrule accepts any later library"
# The system's daemon, started by hand, serves another user.
mkdir -p /run/ferrule
ferruled >/tmp/ferruled.log 2>&1 &
daemon=$!
for ((i = 0; i < 600; i++)); do
	[ ! -S /run/ferrule/ferruled.sock ] || break
	sleep 0.1
done
passes ferrulectl qps
passes ferrule-bench -n 2 --max 64K
passes ferrulectl --json stats
grep -q '"pid"' /tmp/passes || grep -q '{' /tmp/passes || fail "ferrulectl says nothing"
kill "$daemon"
wait "$daemon" || {
	cat /tmp/ferruled.log
	fail "the daemon has failed"
}

# ---- upgrading: what the administrator has written stays

echo 'keepalive_ms = 4000; # of the administrator' >>$conf
quietly apt-get -qy -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold \
	install "$here"/later/*.deb
for package in "${packages[@]}"; do
	[[ $(dpkg-query -W -f '${Version}' "$package") == *+later ]] ||
		fail "$package is not upgraded"
done
grep -q 'of the administrator' $conf || fail "the upgrade has overwritten $conf"
grep -q 'of the later version' $conf.dpkg-dist || fail "the later version's file is not beside it"
quietly ferruled --check-config --config $conf
passes ferrule-bench -n 2 --max 64K
sum_by_python

# ---- removing keeps the configuration, purging nothing

quietly apt-get -qy remove "${packages[@]}"
[ -f $conf ] || fail "removing has taken $conf away"
# apt has forgotten the others.
[ "$(status_of ferruled)" = config-files ] || fail "ferruled is $(status_of ferruled)"
quietly apt-get -qy purge ferruled
for package in "${packages[@]}"; do
	case $(status_of "$package") in
	'' | not-installed) ;;
	*) fail "$package: $(status_of "$package")" ;;
	esac
done
cd /
rm -rf /tmp/results
everything | sort >/tmp/after
# An account is never given to somebody else: files of it may still exist.
left=$(comm -13 /tmp/before /tmp/after | grep -vxE '(user|group) ferrule' || true)
[ -z "$left" ] || fail "left behind after purging:"$'\n'"$left"

[ "$failures" -eq 0 ] || exit 1
echo "installed, tried, upgraded and purged"
