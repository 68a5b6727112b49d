#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# ferrule-run --verbs, --uverbs and --sysfs: what a program sees, that it stays the same process of
# the same user, and that the machine does not change.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"

# Programs of the test print nothing of a sanitizer, and find libc alone.
unset LD_LIBRARY_PATH FRL_VERBS_DEVICES
[ -x "$bin/ferrule-run" ] || skip "ferrule-run is not built"
# As in a build. The programs below do not use the library, so any file will do.
mkdir -p "$temp/tools" "$temp/dropin/rdma"
cp "$bin/ferrule-run" "$temp/tools/"
touch "$temp/dropin/rdma/libibverbs.so.1"
chmod 755 "$temp"
run=$temp/tools/ferrule-run
rdma=$(realpath "$temp/dropin/rdma")

# Words before a command: it is run by a user without capabilities.
as_user=()
if [ "$(id -u)" -eq 0 ]; then
	as_user=(setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all)
fi

# prints NAME TEXT COMMAND...: the command ends with status 0, and its output is the text.
prints() {
	local name=$1 text=$2
	shift 2
	ends "$name" 0 "$@"
	[ "$(cat "$temp/$name.out")" = "$text" ] && return
	fail "$name: the output is not '$text'"
	show "$temp/$name.out"
}

# ---- --verbs

prints default "$rdma" "$run" printenv LD_LIBRARY_PATH
prints verbs "$rdma" "$run" --verbs printenv LD_LIBRARY_PATH
# paths NAME GIVEN WANTED: LD_LIBRARY_PATH in the program.
paths() {
	prints "path-$1" "$3" env LD_LIBRARY_PATH="$2" "$run" printenv LD_LIBRARY_PATH
}
paths empty "" "$rdma"
paths other /a "$rdma:/a"
paths first "$rdma:/a" "$rdma:/a"
paths later "/a:$rdma:/b" "$rdma:/a:/b"
paths last "/a:$rdma" "$rdma:/a"
paths often "$rdma:/a:$rdma;/b:$rdma" "$rdma:/a:/b"
paths alone "$rdma" "$rdma"
paths similar "${rdma}2:/a$rdma" "$rdma:${rdma}2:/a$rdma"
paths current "/a::/b" "$rdma:/a::/b"
prints nested "$rdma" "$run" "$run" printenv LD_LIBRARY_PATH
prints link "$rdma" sh -c "ln -s '$temp' '$temp/link'; '$temp/link/tools/ferrule-run' \
	printenv LD_LIBRARY_PATH"
ends status 3 "$run" sh -c 'exit 3'
ends missing 127 "$run" "$temp/no such program"
ends none 2 "$run" --uverbs
says none 'no program given'
mkdir -p "$temp/alone" "$temp/a:b/tools"
cp "$run" "$temp/alone/"
if ! "$temp/alone/ferrule-run" true >/dev/null 2>&1; then
	ends alone 2 "$temp/alone/ferrule-run" true
	says alone 'there is no rdma/libibverbs.so.1 in .*: install Ferrule completely'
fi
cp "$run" "$temp/a:b/tools/"
cp -r "$temp/dropin" "$temp/a:b/"
ends colon 2 "$temp/a:b/tools/ferrule-run" true
says colon 'LD_LIBRARY_PATH cannot name .*a:b/dropin/rdma: move Ferrule'

# ---- the kernel refuses

# The limits of a user namespace are its own.
if unshare --user --map-root-user true 2>/dev/null; then
	ends refused 2 unshare --user --map-root-user sh -c \
		"echo 0 >/proc/sys/user/max_mnt_namespaces && exec '$run' --uverbs true"
	says refused 'making a mount namespace: No space left on device: raise .*max_mnt_namespaces'
fi
"${as_user[@]}" unshare --user --mount true 2>"$temp/unshare" ||
	skip "no user namespaces: $(tr '\n' ' ' <"$temp/unshare")"

# ---- --uverbs and --sysfs

[ ! -e /dev/infiniband/uverbs_frl0 ] || skip "this machine has /dev/infiniband/uverbs_frl0 already"
# Mounts of a namespace that is not kept apart would appear here.
if [ "$(id -u)" -eq 0 ] && [ "${FRL_TEST_MACHINE:-}" = own ]; then
	mount --make-rshared /
fi
machine() {
	cat /proc/self/mountinfo
	find /dev /sys/class -maxdepth 1 | sort
}
machine >"$temp/machine.before"

# The program below: devices, terminals, shared memory, and what the process is.
cat >"$temp/look.sh" <<'SCRIPT'
set -eu
[ "$(stat -c '%F %t:%T' /dev/infiniband/uverbs_frl0)" = 'character special file 1:3' ]
[ -r /dev/infiniband/uverbs_frl0 ]
echo >/dev/infiniband/uverbs_frl0
[ ! -e /dev/infiniband/uverbs_frl1 ]
echo >/dev/null
[ "$(head -c 3 /dev/zero | wc -c)" -eq 3 ]
for name in $(cat "$1/names"); do
	[ -e "/dev/$name" ] || [ -L "/dev/$name" ] || echo "/dev/$name is missing"
done
# A new terminal, which becomes the controlling one of its program.
SHELL=/bin/sh script -qec 'tty && echo made >/dev/tty' /dev/null </dev/null
echo "$2" >"/dev/shm/$2"
# The folders are read-only, and /tmp is itself again.
! grep '^ferrule-run [^ ]* tmpfs rw' /proc/self/mounts || echo "a folder is writable"
[ -x "$1/tools/ferrule-run" ]
SCRIPT
# Prints the properties that a process keeps in execve(). $1: its process ID.
cat >"$temp/process.sh" <<'SCRIPT'
set -eu
[ $$ -eq "$1" ]
umask
ls /proc/self/fd
grep -E '^(Cap|Sig[BIC]|NoNew|Seccomp|[UG]id)' /proc/self/status
setpriv --dump | grep -v groups
SCRIPT
cat >"$temp/mounts.sh" <<'SCRIPT'
stat -L -c %i /proc/self/ns/mnt /proc/self/ns/user
cat /proc/self/mounts
SCRIPT
ls -A /dev >"$temp/names"
chmod a+r "$temp/names" "$temp"/*.sh

# in_namespaces NAME COMMAND...: the words run commands as one user.
in_namespaces() {
	local name=$1 as_process
	shift
	ends "$name-look" 0 "$@" "$run" --uverbs sh "$temp/look.sh" "$temp" "run-$name-$$"
	says "$name-look" '^/dev/(.ferrule/)?pts/[0-9]+.?$'
	says "$name-look" '^made.?$'
	! grep -E 'missing|writable' "$temp/$name-look.out" || fail "$name: /dev differs"
	[ "$(cat "/dev/shm/run-$name-$$")" = "run-$name-$$" ] || fail "$name: other /dev/shm"
	rm -f "/dev/shm/run-$name-$$"

	# Without and with ferrule-run the process is the same.
	# shellcheck disable=SC2016
	as_process=("$@" setpriv --pdeathsig HUP sh -c 'umask 0127 && exec "$@" $$' sh)
	ends "$name-process" 0 "${as_process[@]}" sh "$temp/process.sh"
	ends "$name-process-run" 0 "${as_process[@]}" "$run" --uverbs --sysfs sh "$temp/process.sh"
	cmp "$temp/$name-process.out" "$temp/$name-process-run.out" || {
		fail "$name: the process differs"
		diff "$temp/$name-process.out" "$temp/$name-process-run.out" || true
	}
	ends "$name-status" 3 "$@" "$run" --uverbs sh -c 'exit 3'
	ends "$name-signal" 137 "$@" "$run" --sysfs sh -c 'kill -9 $$'
	ends "$name-missing" 127 "$@" "$run" --uverbs "$temp/no such program"

	# Below another one it mounts nothing, and moves to no namespace.
	# shellcheck disable=SC2016
	ends "$name-again" 0 "$@" "$run" --uverbs --sysfs sh -c \
		'[ "$(sh "$0")" = "$("$1" --sysfs "$1" --uverbs sh "$0")" ]' \
		"$temp/mounts.sh" "$run"
	# With more devices it adds them.
	prints "$name-more" "uverbs_frl0 uverbs_frl1 uverbs_frl2 frl0 frl1 frl2 " \
		"$@" "$run" --uverbs --sysfs env 'FRL_VERBS_DEVICES=local;;local;fabric:x;' \
		"$run" --uverbs --sysfs sh -c \
		'ls /dev/infiniband /sys/class/infiniband | grep frl | tr "\n" " "'

	attributes "$name" "$@"
}

# attributes NAME COMMAND...: those of devices of each kind.
attributes() {
	local name=$1 folder=/sys/class/infiniband interface devices
	shift
	devices='local;packet:own0=198.51.100.9/24;fabric:x;packet:own1,gso=off=1/2;packet:own/2=3'
	interface=$(find /sys/class/net/*/device -maxdepth 0 2>/dev/null | cut -d / -f 5 |
		head -n 1)
	cat >"$temp/attributes.sh" <<-'SCRIPT'
		cd /sys/class/infiniband
		for device in frl*; do
			echo "$device $(cat $device/node_type)" \
				"$(cat $device/ports/1/gid_attrs/types/15)" \
				"$(cat $device/ports/1/gid_attrs/ndevs/15 2>/dev/null || echo none)"
		done
		for name in $(cat "$1/classes"); do
			[ -e "/sys/class/$name" ] || echo "/sys/class/$name is missing"
		done
		cat /sys/class/net/lo/ifindex
	SCRIPT
	ls -A /sys/class >"$temp/classes"
	chmod a+r "$temp/attributes.sh" "$temp/classes"
	prints "$name-attributes" "frl0 1: CA RoCE v2 lo
frl1 1: CA RoCE v2 own0
frl2 1: CA RoCE v2 none
frl3 1: CA RoCE v2 own1
frl4 1: CA RoCE v2 none
1" "$@" env "FRL_VERBS_DEVICES=$devices" "$run" --sysfs sh "$temp/attributes.sh" "$temp"
	prints "$name-fabric" none "$@" env FRL_FABRIC=x "$run" --sysfs sh -c \
		"cat $folder/frl0/ports/1/gid_attrs/ndevs/0 2>/dev/null || echo none"
	prints "$name-gid-0" lo "$@" "$run" --sysfs cat "$folder/frl0/ports/1/gid_attrs/ndevs/0"
	[ -z "$interface" ] || prints "$name-pci" "$(realpath "/sys/class/net/$interface/device")" \
		"$@" env "FRL_VERBS_DEVICES=packet:$interface=198.51.100.9/24" \
		"$run" --sysfs realpath "$folder/frl0/device"
}

in_namespaces user "${as_user[@]}"
if [ "$(id -u)" -eq 0 ]; then
	in_namespaces root
	# Setuid programs stay the user's, and groups still give access.
	cp /usr/bin/id "$temp/setuid-id"
	chmod 4755 "$temp/setuid-id"
	if [ "$("${as_user[@]}" "$temp/setuid-id" -u)" = 0 ]; then
		prints setuid 65534 "${as_user[@]}" "$run" --uverbs "$temp/setuid-id" -u
	fi
	echo ours >"$temp/group"
	chgrp 12345 "$temp/group"
	chmod 040 "$temp/group"
	prints group ours setpriv --reuid=65534 --regid=65534 --groups=12345 --inh-caps=-all \
		"$run" --uverbs cat "$temp/group"
	# Root of a container: it gets no capability back. Mapping root takes CAP_SETFCAP.
	prints bounded 'CapBnd:	0000000080000001' setpriv --bounding-set=-all,+chown,+setfcap \
		--inh-caps=-all "$run" --uverbs grep CapBnd /proc/self/status
	# Devices of the kernel stay.
	cat >"$temp/kernel.sh" <<-'SCRIPT'
		set -e
		mount -t tmpfs tmpfs /dev/infiniband
		cd /dev/infiniband
		mknod uverbs0 c 1 5
		mknod uverbs_frl0 c 1 5
		mkdir by-path
		ln -s ../uverbs0 by-path/0
		ln -s by-path/0 first
		exec "$0" --uverbs stat -c '%n %t:%T %N' /dev/infiniband/by-path/0 \
			/dev/infiniband/first /dev/infiniband/uverbs0 /dev/infiniband/uverbs_frl0
	SCRIPT
	prints kernel "/dev/infiniband/by-path/0 0:0 '/dev/infiniband/by-path/0' -> '../uverbs0'
/dev/infiniband/first 0:0 '/dev/infiniband/first' -> 'by-path/0'
/dev/infiniband/uverbs0 1:5 '/dev/infiniband/uverbs0'
/dev/infiniband/uverbs_frl0 1:3 '/dev/infiniband/uverbs_frl0'" \
		"$run" --uverbs sh -c "$(cat "$temp/kernel.sh")" "$run"
fi

machine >"$temp/machine.after"
cmp "$temp/machine.before" "$temp/machine.after" || fail "the machine has changed"
finish
