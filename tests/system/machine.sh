# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Sourced by lib.sh: runs the test again, once, on a machine of its own: a network without outside
# links, process ids, IPC, host name, and empty /tmp, /run and /dev/shm. All its processes, mounts
# and interfaces end with the script, however that ends. Root gets the namespaces from the kernel,
# other users by a user namespace that keeps their ids. Where neither is allowed nothing happens.
# FRL_TEST_MACHINE is "own" for a test that runs there.

# From the kernel: the script may have shifted its arguments.
mapfile -d '' -t own_command <"/proc/$$/cmdline"

# needed_there: paths that the test uses and that may lie in a folder that is replaced by an empty
# one.
needed_there() {
	local folders
	printf '%s\n' "${system_root:?}" "${bin:?}" "${data:?}" "${own_command[@]}"
	IFS=: read -r -a folders <<<"$PATH:${LD_LIBRARY_PATH:-}"
	printf '%s\n' "${folders[@]}"
}

# empty_folder FOLDER MODE: mounts an empty one there, with only the needed entries of the old one.
empty_folder() {
	local folder=$1 name fd
	local -A kept=()
	while read -r name; do
		[[ $name == "$folder"/* ]] || continue
		name=${name#"$folder"/}
		name=${name%%/*}
		[ -d "$folder/$name" ] || continue
		[ -z "${kept[$name]-}" ] || continue
		exec {fd}<"$folder/$name"
		kept[$name]=$fd
	done < <(needed_there)
	mount -t tmpfs -o "mode=$2" tmpfs "$folder"
	for name in "${!kept[@]}"; do
		fd=${kept[$name]}
		mkdir "$folder/$name"
		mount --no-canonicalize --rbind "/proc/self/fd/$fd" "$folder/$name"
		exec {fd}<&-
	done
}

# set_up_machine: called in the new namespaces.
set_up_machine() {
	ip link set lo up
	# Some launchers resolve no name when loopback alone has an address.
	if ip link add own0 type veth peer name own1; then
		ip link set own1 up
		ip addr add 198.51.100.1/24 dev own0
		ip link set own0 up
	fi
	empty_folder /tmp 1777
	empty_folder /run 0755
	empty_folder /dev/shm 1777
	[ -L /var/run ] || [ ! -d /var/run ] || empty_folder /var/run 0755
	# The host's name may lead to an address that does not exist here.
	printf '%s\n' "127.0.0.1 localhost $(hostname)" '::1 localhost' >/run/hosts
	mount --bind /run/hosts /etc/hosts
	# No name is looked up anywhere else.
	[ -f /etc/nsswitch.conf ] || return 0
	sed 's/^hosts:.*/hosts: files/' /etc/nsswitch.conf >/run/nsswitch.conf
	mount --bind /run/nsswitch.conf /etc/nsswitch.conf
}

# enter_machine: does not return where namespaces are allowed.
enter_machine() {
	local namespaces=(unshare --mount --net --ipc --uts --pid --fork --kill-child --mount-proc)
	local user process status=0
	user="$(id -u):$(id -g)"
	[ "${user%:*}" = 0 ] || namespaces+=(--user --map-root-user)
	"${namespaces[@]}" bash -c 'ip link set lo up && mount -t tmpfs tmpfs /run &&
		mount --bind /proc/version /etc/hosts' >/dev/null 2>&1 || return 0
	# unshare blocks signals, and dies with this shell; its child is the namespace's init and
	# dies with it. A process in the background would ignore SIGINT.
	FRL_TEST_MACHINE=new FRL_TEST_USER=$user env --default-signal=INT,QUIT \
		setpriv --pdeathsig KILL "${namespaces[@]}" "${own_command[@]}" <&0 &
	process=$!
	# shellcheck disable=SC2064
	trap "kill -9 $process 2>/dev/null || true; exit 1" INT TERM HUP
	wait "$process" || status=$?
	exit "$status"
}

# settle_machine: its user is the user who started the test.
settle_machine() {
	set_up_machine
	unset TMPDIR XDG_RUNTIME_DIR
	export FRL_TEST_MACHINE=own
	[ "${FRL_TEST_USER%:*}" != 0 ] || return 0
	exec unshare --user --map-user="${FRL_TEST_USER%:*}" --map-group="${FRL_TEST_USER#*:}" \
		"${own_command[@]}"
}

if [ "${own_machine:-}" = unwanted ] || [ "${FRL_TEST_MACHINE:-}" = own ]; then
	:
elif [ "${FRL_TEST_MACHINE:-}" = new ]; then
	settle_machine
else
	enter_machine
fi
