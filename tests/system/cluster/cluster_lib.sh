# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# A cluster for lib.sh: three hosts, node-1 to node-3, on which Ferrule is installed as an operator
# would do it. Each has a full set of namespaces and a root of its own. Programs, library, daemon
# and its settings are those of `meson install`, or of the packages in the root that is the script's
# argument. Daemons run as user ferrule and authenticate by certificates; users have no privileges.
#	[ node-1 ] eth0 10.9.0.1 --- node-1-0 [ bridge mgmt ] node-2-0 --- eth0 10.9.0.2 [ node-2 ]
#	[ node-1 ] eth1 ------------ node-1-1 [ bridge data ] node-2-1 ------------ eth1 [ node-2 ]
#
# On the data network (fabric roce) node N leases 10.1.0.N1 to 10.1.0.N9.
cluster_root=${1:-}
# shellcheck disable=SC2034
[ -z "$cluster_root" ] || own_programs=unwanted
# shellcheck source=tests/system/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=tests/system/cluster/cluster_table.sh
. "$(dirname "${BASH_SOURCE[0]}")/cluster_table.sh"

[ "$(id -u)" -eq 0 ] || skip "three hosts with users need root"
[ "${FRL_TEST_MACHINE:-}" = own ] || skip "three hosts need namespaces"
for program in ip nsenter setpriv openssl python3 ${cluster_root:-meson}; do
	command -v "$program" >/dev/null || [ -d "$program" ] || skip "there is no $program"
done

nodes=(node-1 node-2 node-3)
path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
build=$(readlink -m "$bin/..")
declare -A init_of daemon_of

# ---- what is installed

# in_layer COMMAND...: runs it as root in the root that all hosts share.
in_layer() {
	chroot "$temp/common" env -i "PATH=$path" "$@" >>"$temp/install.log" 2>&1 && return
	fail "cannot install: $*"
	show "$temp/install.log"
	finish
}

# A user for jobs, and the installation that docs/guide/daemons.md describes.
install_ferrule() {
	local sysusers
	mkdir "$temp/layer" "$temp/layer.work" "$temp/common"
	mount -t overlay overlay -o \
		"lowerdir=${cluster_root:-/},upperdir=$temp/layer,workdir=$temp/layer.work" \
		"$temp/common" 2>"$temp/install.log" ||
		skip "cannot mount an overlay: $(tr '\n' ' ' <"$temp/install.log")"
	if [ -z "$cluster_root" ]; then
		DESTDIR=$temp/common meson install -C "$build" --no-rebuild \
			>>"$temp/install.log" 2>&1 || fail "meson install: exit status $?"
		sysusers=$(cd "$temp/common" && find usr -path '*/sysusers.d/ferruled.conf')
		in_layer ldconfig
		in_layer systemd-sysusers "/$sysusers"
	fi
	in_layer useradd --create-home --shell /bin/bash alice
	install -m 755 "$system_root/tests/system/cluster/cluster_rsh.py" \
		"$temp/common/usr/local/bin/rsh"
	cp "$(find "$temp/common/usr" -name ferruled.service | head -n 1)" "$temp/ferruled.service"
	{
		echo '127.0.0.1 localhost'
		printf '10.9.0.%s\n' '1 node-1' '2 node-2' '3 node-3'
	} >"$temp/hosts"
	rm -f "$temp/common/etc/hosts" "$temp/common/etc/nsswitch.conf"
	cp "$temp/hosts" "$temp/common/etc/hosts"
	printf 'passwd: files\ngroup: files\nhosts: files\n' >"$temp/common/etc/nsswitch.conf"
	umount "$temp/common"
}

# unit_value KEY: of ferruled.service, as systemd would read it.
unit_value() {
	sed -n "s/^$1=//p" "$temp/ferruled.service" | tail -n 1
}

# ---- hosts

# be_host NODE LOWER: the first process of a host. The build folder is hidden there.
be_host() {
	local dir=$temp/$1
	mount --make-rprivate /
	hostname "$1"
	mount -t overlay overlay -o \
		"lowerdir=$2,upperdir=$dir/changes,workdir=$dir/work" "$dir/root"
	cd "$dir/root"
	mount --rbind /dev dev
	mount -t tmpfs -o mode=1777 tmpfs dev/shm
	mount -t tmpfs -o mode=1777 tmpfs tmp
	mount -t tmpfs -o mode=0755 tmpfs run
	mount -t proc proc proc
	mount -t sysfs sysfs sys
	if [ -d "./$build" ]; then
		mount -t tmpfs tmpfs "./$build"
	fi
	exec chroot . /bin/bash -c 'touch /run/booted; while sleep 3600; do :; done'
}

# boot NODE: starts the host with its two interfaces, which end with the host.
boot() {
	local node=$1 n=${1#node-} unshared
	mkdir -p "$temp/$node"/{changes,work,root}
	unshare --mount --net --uts --ipc --pid --fork --kill-child bash -euc \
		"$(declare -p temp build; declare -f be_host)
		be_host $node $temp/layer:${cluster_root:-/}" >>"$temp/$node/console" 2>&1 &
	unshared=$!
	started+=("$unshared")
	wait_until has_child "$unshared" || fail "$node does not start"
	init_of[$node]=$(children "$unshared")
	wait_until is_up "$node" || {
		show "$temp/$node/console"
		fail "$node does not start"
		finish
	}
	connect "$node" 0 mgmt
	connect "$node" 1 data
	in_network "$node" ip link set lo up
	in_network "$node" ip addr add "10.9.0.$n/24" dev eth0
	in_network "$node" ip link set eth0 up
	in_network "$node" ip link set eth1 up
	on "$node" root install -d -o "$(unit_value User)" -g "$(unit_value Group)" \
		"/run/$(unit_value RuntimeDirectory)"
}

# connect NODE N BRIDGE: connects its interface ethN.
connect() {
	ip link add "$1-$2" type veth peer name "eth$2" address "02:00:00:00:0$2:0${1#node-}" \
		netns "${init_of[$1]}"
	ip link set "$1-$2" master "$3" up
}

has_child() {
	[ -n "$(children "$1")" ]
}

is_up() {
	[ -e "/proc/${init_of[$1]}/root/run/booted" ]
}

# on NODE USER [NAME=VALUE]... COMMAND...: runs there, without privileges unless the user is root.
on() {
	local node=$1 user=$2 become=()
	shift 2
	[ "$user" = root ] || become=(setpriv "--reuid=$user" "--regid=$user" --init-groups
		--bounding-set=-all --inh-caps=-all)
	nsenter --target "${init_of[$node]}" --mount --net --uts --ipc --pid --root --wd \
		"${become[@]}" env -i "PATH=$path" "HOME=/tmp" "USER=$user" \
		"FRL_TUNER_CACHE=$FRL_TUNER_CACHE" "FRL_TUNER_COSTS=$FRL_TUNER_COSTS" "$@"
}

# in_network NODE COMMAND...: runs here, with the host's interfaces: a root of packages may lack
# `ip`.
in_network() {
	nsenter --target "${init_of[$1]}" --net "${@:2}"
}

# signal NODE SIGNAL NAME: to all processes of this name there.
signal() {
	# shellcheck disable=SC2016 # there
	on "$1" root bash -c '
		for process in /proc/[0-9]*; do
			[ "$(cat "$process/comm")" != "$2" ] || kill -"$1" "${process#/proc/}"
		done' bash "$2" "$3" 2>/dev/null
}

# ---- control daemons

# make_certificates: a CA, and a certificate for each host, as in docs/guide/daemons.md.
make_certificates() {
	local node
	openssl req -x509 -newkey ed25519 -nodes -days 3650 -subj /CN=ferrule-ca \
		-keyout "$temp/ca.key" -out "$temp/ca.crt" 2>/dev/null
	for node in "${nodes[@]}"; do
		make_certificate "$node" -days 365
	done
}

# make_certificate NODE OPTION...: in /etc/ferrule there.
make_certificate() {
	local node=$1 n=${1#node-} at=$temp/$1
	openssl req -newkey ed25519 -nodes -subj "/CN=$node" -keyout "$at.key" -out "$at.csr" \
		2>/dev/null
	openssl x509 -req -in "$at.csr" -CA "$temp/ca.crt" -CAkey "$temp/ca.key" "${@:2}" \
		-out "$at.crt" -extfile <(echo "subjectAltName=DNS:$node,IP:10.9.0.$n") 2>/dev/null
	put "$node" ferrule 400 "$at.key" /etc/ferrule/host.key
	put "$node" root 644 "$at.crt" /etc/ferrule/host.crt
	put "$node" root 644 "$temp/ca.crt" /etc/ferrule/ca.crt
}

# put NODE OWNER MODE FILE PLACE
put() {
	on "$1" root install -D -o "$2" -m "$3" /dev/stdin "$5" <"$4"
}

# Settings of the daemons; others have their defaults. A busy machine must not count as a host that
# is gone.
daemon_settings=('keepalive_ms = 60000;' 'hello_ms = 60000;')

# configure NODE: writes its ferruled.conf.
configure() {
	local node=$1 n=${1#node-}
	{
		cat <<-CONF
			host = "$node";
			listen_address = "10.9.0.$n";
			tls_certificate = "/etc/ferrule/host.crt";
			tls_key = "/etc/ferrule/host.key";
			tls_ca = "/etc/ferrule/ca.crt";
			fabrics = ( {
				name = "roce";
				ports = [ "packet:eth1" ];
				addresses = [ "10.1.0.${n}1-10.1.0.${n}9/24" ];
				users = [ "alice" ];
			} );
		CONF
		printf '%s\n' "${daemon_settings[@]}"
	} >"$temp/$node/ferruled.conf"
	put "$node" root 644 "$temp/$node/ferruled.conf" /etc/ferrule/ferruled.conf
}

# start_ferruled NODE: as its unit does.
start_ferruled() {
	local node=$1 caps user group command log=$temp/$1/ferruled.log
	caps=-all$(unit_value AmbientCapabilities | tr '[:upper:]' '[:lower:]' |
		sed 's/ *cap_/,+/g')
	user=$(unit_value User)
	group=$(unit_value Group)
	read -r -a command <<<"$(unit_value ExecStart)"
	touch "$log"
	mark=$(wc -l <"$log")
	on "$node" root setpriv "--reuid=$user" "--regid=$group" --init-groups \
		"--bounding-set=$caps" "--inh-caps=$caps" "--ambient-caps=$caps" \
		"${command[@]}" >>"$log" 2>&1 &
	daemon_of[$node]=$!
	started+=("$!")
	wait_until says_since "$log" ' ready on ' && return
	fail "ferruled of $node is not ready"
	show "$log"
	finish
}

# says_since FILE PATTERN: a line behind line $mark matches.
says_since() {
	tail -n "+$((mark + 1))" "$1" | grep -qE -- "$2"
}

# end_ferruled NODE SIGNAL STATUS
end_ferruled() {
	local status=0
	signal "$1" "$2" ferruled
	wait "${daemon_of[$1]}" || status=$?
	[ "$status" -eq "$3" ] || fail "$1: ferruled ends with status $status"
}

# control NODE COMMAND...: the output of ferrulectl for root there.
control() {
	on "$1" root ferrulectl "${@:2}"
}

# field JSON-EXPRESSION: of the JSON on standard input.
field() {
	python3 -c "import json, sys; report = json.load(sys.stdin); print($1)"
}

# ---- what stays behind

# remains NODE: things that a job or a daemon could leave there: processes, files, names, addresses,
# and settings of interfaces.
remains() {
	# shellcheck disable=SC2016 # there
	on "$1" root bash -c '
		for process in /proc/[0-9]*; do
			read -r name <"$process/comm" && grep -q "^State:.[^Z]" "$process/status" &&
				echo "process $name"
		done 2>/dev/null | grep -vxE "process (bash|sleep|grep)"
		find /tmp /run /dev/shm -mindepth 1 -printf "file %p\n"
		awk "NR > 1 { print \"name\", \$8 }" /proc/net/unix
	' | sort
	in_network "$1" ip -o addr show |
		sed 's/^[0-9]*: /address /; s/ tentative//; s/ *valid_lft.*//'
	in_network "$1" ip -o -d link show |
		grep -oE '^[0-9]+: [^:@]*|promiscuity [0-9]+|allmulti [0-9]+'
	(cd "$temp/$1/changes" && find . -type f -printf 'file on disk %p\n' | sort)
}

# set_up_cluster: hosts with a daemon each.
set_up_cluster() {
	local node bridge
	install_ferrule
	for bridge in mgmt data; do
		ip link add "$bridge" type bridge mcast_snooping 0
		ip link set "$bridge" up
	done
	for node in "${nodes[@]}"; do
		boot "$node"
		configure "$node"
	done
	make_certificates
	for node in "${nodes[@]}"; do
		remains "$node" >"$temp/$node/before"
		start_ferruled "$node"
	done
}

# shut_down: ends the daemons in good order; then the hosts must be as they were before.
shut_down() {
	local node
	for node in "${nodes[@]}"; do
		wait_until has_no_ports "$node" ||
			fail "$node: leased still: $(control "$node" ports)"
		wait_until has_learned "$node" || fail "$node: processes come back for ever"
		end_ferruled "$node" TERM 0
		remains "$node" >"$temp/$node/after"
		diff "$temp/$node/before" "$temp/$node/after" >"$temp/$node/diff" && continue
		fail "$node: something stays behind"
		show "$temp/$node/diff"
	done
	[ "$failures" -eq 0 ] || show "$temp"/node-?/ferruled.log
}

# has_learned NODE: its daemon no longer waits for processes that it had before it was killed.
has_learned() {
	on "$1" root bash -c 'exec 3<>/dev/tcp/127.0.0.1/9476
		printf "GET /metrics HTTP/1.0\r\n\r\n" >&3 && cat <&3' |
		grep -q '^ferrule_relearning 0'
}

has_no_ports() {
	[ "$(control "$1" --json ports | field 'len(report["ports"])')" = 0 ]
}
