# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2034
#
# Sourced: clean Debian 12 systems, for package.sh and wheel.sh. Packages come from where this
# machine's apt has them. The caller sets $root (the repository), $out (for logs) and $cache, and
# has a function usage. It calls read_options, prepare_roots, make_root for each system, and
# enter_namespaces. That starts it again with FRL_PACKAGE_WORK set. It then unpacks systems in
# $work.

suite=bookworm
build_only=

# read_options OPTION...: sets $out, $cache and $build_only.
read_options() {
	while [ $# -gt 0 ]; do
		case $1 in
		--out | --cache)
			[ $# -ge 2 ] || { usage >&2 && exit 2; }
			mkdir -p "$2"
			printf -v "${1#--}" %s "$(cd "$2" && pwd)"
			shift
			;;
		--build-only) build_only=1 ;;
		-h | --help) usage && exit 0 ;;
		*) usage >&2 && exit 2 ;;
		esac
		shift
	done
}

skip() {
	echo "SKIP: $*"
	exit 77
}

# apt_sources: Debian's own archive, as this machine has it.
apt_sources() {
	local format
	# shellcheck disable=SC2016 # apt's variables
	format='$(ORIGIN) $(CODENAME) deb $(REPO_URI) $(RELEASE) $(COMPONENT)'
	apt-get indextargets --format "$format" 'Created-By: Packages' 2>/dev/null |
		sed -nE "s/^Debian ${suite}[a-z-]* (deb .*)/\1/p" | sort -u
}

# prepare_roots PROGRAM...: sets $sources and $work. These programs are needed as well.
prepare_roots() {
	local program
	for program in mmdebstrap apt-get unshare setpriv "$@"; do
		command -v "$program" >/dev/null || skip "there is no $program:" \
			"scripts/install-deps.sh package installs what is needed"
	done
	sources=$(apt_sources)
	[ -n "$sources" ] || skip "apt knows no archive of Debian 12: another system," \
		"or apt-get update was not run"
	# The daemon's own temporary folder may be small, or forbid devices.
	# shellcheck disable=SC2154 # the caller's
	mkdir -p "$out" "$cache/objects" "$cache/archives"
	work=$(mktemp -d "$cache/work.XXXXXX")
	trap clear_work EXIT
	trap 'exit 1' INT TERM HUP
	apt-config dump | grep -E '^Acquire::(https?|Check-|Retries|ForceIPv)' \
		>"$work/apt.conf" || true
}

# clear_work: files in it may be of users whom only the namespace knows.
clear_work() {
	if [ "$(id -u)" -eq 0 ]; then
		rm -rf "$work"
	else
		unshare --user --map-root-user --map-auto rm -rf "$work"
	fi
}

# make_root NAME MMDEBSTRAP-OPTION...: $cache/NAME.tar, unless there is one of this week, with these
# options, sources and build dependencies.
make_root() {
	local name=$1 key
	shift
	# apt in the root gets the packages by https as well.
	[[ $sources != *https:* ]] || set -- --include=ca-certificates "$@"
	key=$({
		echo "${*//$root/} $sources"
		sed -n '/^Build-Depends:/,/^$/p' "$root/debian/control"
	} | sha256sum)
	if [ -f "$cache/$name.tar" ] && [ "$(cat "$cache/$name.key")" = "$key" ] &&
		[ -n "$(find "$cache/$name.tar" -mtime -7)" ]; then
		return
	fi
	echo "== making the root \"$name\""
	rm -f "$cache/$name.key"
	mmdebstrap --quiet --variant=minbase --format=tar --aptopt="$work/apt.conf" "$@" \
		"$suite" "$work/$name.tar" - <<<"$sources" >"$out/$name.log" 2>&1 || {
		tail -n 20 "$out/$name.log"
		return 1
	}
	mv "$work/$name.tar" "$cache/"
	echo "$key" >"$cache/$name.key"
}

# enter_namespaces OPTION...: this script again with these options, as the root of mounts and
# processes of its own.
enter_namespaces() {
	local namespaces=(unshare --mount --pid --fork --kill-child --ipc --uts --mount-proc)
	[ "$(id -u)" -eq 0 ] || namespaces+=(--user --map-root-user --map-auto)
	"${namespaces[@]}" true 2>"$work/unshare" ||
		skip "no namespaces for this user: $(tr '\n' ' ' <"$work/unshare")"
	FRL_PACKAGE_WORK=$work setpriv --pdeathsig KILL "${namespaces[@]}" "$0" "$@"
}

# ---- in the namespaces

# unpack NAME FOLDER: a root there, with the kernel's file systems and this machine's names.
unpack() {
	local device
	mkdir "$2"
	tar -C "$2" --exclude='./dev/*' --numeric-owner -xf "$cache/$1.tar"
	mount -t tmpfs -o mode=0755 tmpfs "$2/dev"
	mkdir "$2/dev/shm" "$2/dev/pts"
	mount -t tmpfs -o mode=1777 tmpfs "$2/dev/shm"
	for device in null zero full random urandom tty; do
		: >"$2/dev/$device"
		mount --bind "/dev/$device" "$2/dev/$device"
	done
	mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$2/dev/pts"
	ln -s pts/ptmx "$2/dev/ptmx"
	ln -s /proc/self/fd "$2/dev/fd"
	mount --rbind /proc "$2/proc"
	mount --rbind /sys "$2/sys"
	cp --remove-destination /etc/resolv.conf "$2/etc/resolv.conf"
	cp /etc/hosts "$2/etc/hosts"
	# Downloaded once.
	mkdir -p "$2/var/cache/apt/archives"
	mount --bind "$cache/archives" "$2/var/cache/apt/archives"
	echo 'Binary::apt-get::APT::Keep-Downloaded-Packages "true"; APT::Sandbox::User "root";' \
		>"$2/etc/apt/apt.conf.d/90ferrule"
	rm -f "$2/etc/apt/apt.conf.d/docker-clean"
}

# inside FOLDER COMMAND...: with nothing of this environment but proxies.
inside() {
	local folder=$1 name proxies=()
	shift
	for name in http_proxy https_proxy no_proxy; do
		[ -z "${!name:-}" ] || proxies+=("$name=${!name}")
	done
	env -i "${proxies[@]}" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
		HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
		chroot "$folder" "$@" </dev/null
}
