#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# tests/interop/build-guest.sh DIR KIND PROGRAM... [-- FILE...]: makes a Linux guest from this
# machine's Debian packages. The result is DIR/kernel and DIR/initrd.gz: busybox, rxe and its
# modules, the ibv_*_pingpong tools, tc, the programs with their libraries, and the files (in
# /data). KIND is rxe or pmd. With pmd the guest also has DPDK's drivers for the NICs that QEMU
# emulates, and the modules that pass these to user space. Does nothing when no input has changed.
# Prints "SKIP: why" and exits with status 77 where something is missing.
set -eu

modules=(crc32_generic rdma_rxe ib_uverbs virtio_net virtio_pci 8021q)
tools=(rdma tc ibv_devinfo ibv_rc_pingpong ibv_uc_pingpong ibv_ud_pingpong ibv_srq_pingpong)
applets=(sh mount cat echo ip sleep dmesg modprobe ping kill poweroff ls head tail grep stty timeout
	rm ps free nc su chmod mv mkdir touch sha256sum)
libraries=() # that nothing is linked with
pmds=()

skip() {
	echo "SKIP: $*; \`scripts/install-deps.sh interop\` installs it"
	exit 77
}

[ $# -ge 3 ] || {
	echo "usage: build-guest.sh DIR KIND PROGRAM... [-- FILE...]" >&2
	exit 2
}
dir=$1
kind=$2
shift 2
programs=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
	programs+=("$1")
	shift
done
[ $# -eq 0 ] || shift
data=("$@")
here=$(cd "$(dirname "$0")" && pwd)
libs=/usr/lib/$(uname -m)-linux-gnu
case $kind in
rxe)
	init=$here/guest-init.sh
	modules+=(sch_netem sch_ingress cls_matchall act_mirred ifb)
	;;
pmd)
	init=$here/pmd-init.sh
	modules+=(vfio-pci vfio_iommu_type1 uio_pci_generic e1000 e1000e vmxnet3 af_packet)
	applets+=(basename readlink sysctl mkfifo killall seq)
	# EAL loads all of this folder, and 150 drivers take long in a guest. glibc needs libgcc_s
	# when a thread is cancelled.
	folder=$(find "$libs/dpdk" -maxdepth 1 -name 'pmds-*' 2>/dev/null | sort -V | tail -n 1)
	for name in bus_pci bus_vdev mempool_ring net_e1000 net_vmxnet3 net_virtio; do
		pmds+=("$folder/librte_$name.so") # a link to the name with the version
	done
	libraries=("$libs/libgcc_s.so.1")
	;;
*)
	echo "build-guest.sh: there is no kind $kind" >&2
	exit 2
	;;
esac

# The newest kernel that is installed with its modules, whatever kernel this machine runs.
version=
while read -r candidate; do
	if [ -e "/boot/vmlinuz-$candidate" ] &&
		[ -n "$(find "/lib/modules/$candidate" -name 'rdma_rxe.ko*' 2>/dev/null)" ]; then
		version=$candidate
	fi
done < <(find /lib/modules -mindepth 1 -maxdepth 1 -printf '%f\n' 2>/dev/null | sort -V)
[ -n "$version" ] || skip "no kernel with rxe in /boot and /lib/modules (package linux-image-amd64)"
[ -r "/boot/vmlinuz-$version" ] || {
	echo "SKIP: /boot/vmlinuz-$version is not readable for this user"
	exit 77
}
export PATH=$PATH:/sbin:/usr/sbin
command -v qemu-system-x86_64 >/dev/null || skip "no qemu-system-x86_64 (package qemu-system-x86)"
command -v cpio >/dev/null || skip "no cpio (package cpio)"
command -v depmod >/dev/null || skip "no depmod (package kmod)"
for tool in "${tools[@]}"; do
	command -v "$tool" >/dev/null || skip "no $tool (package ibverbs-utils or iproute2)"
done
busybox=$(command -v busybox) || skip "no busybox (package busybox-static)"
driver=$(find /usr/lib -path '*/libibverbs/librxe-*.so' 2>/dev/null | head -n 1)
[ -n "$driver" ] || skip "no rxe driver of libibverbs (package ibverbs-providers)"
for file in "${pmds[@]}"; do
	[ -e "$file" ] || skip "no ${file##*/} of DPDK (package libdpdk-dev)"
done
for program in "${programs[@]}"; do
	[ -x "$program" ] || {
		echo "SKIP: $program is not built"
		exit 77
	}
done

# The contents: SOURCE TARGET lines.
for tool in "${tools[@]}"; do
	programs+=("$(command -v "$tool")")
done
list() {
	local program module file
	echo "$init /init"
	echo "$busybox /bin/busybox"
	for program in "${programs[@]}"; do
		case $program in
		# Where the loader finds it.
		*/ferrule-dpdk.so) echo "$program /usr/lib/${program##*/}" ;;
		*) echo "$program /usr/bin/${program##*/}" ;;
		esac
	done
	for file in "${data[@]}"; do
		echo "$file /data/${file##*/}"
	done
	for file in "$driver" "${libraries[@]}"; do
		echo "$file $file"
	done
	for file in "${pmds[@]}"; do
		echo "$file ${libs#/usr}/$(readlink "$file")"
	done
	echo "/etc/libibverbs.d/rxe.driver /etc/libibverbs.d/rxe.driver"
	ldd "${programs[@]}" "$driver" "${pmds[@]}" |
		awk '/=> \/(usr\/)?lib/ { print $3, $3; next } /^\t\/lib/ { print $1, $1 }
			/=> \// { print $3, "/usr/lib/" $1 }'
	for module in "${modules[@]}"; do
		modprobe -S "$version" --show-depends "$module" 2>/dev/null |
			awk '$1 == "insmod" { print $2, $2 }'
	done
}
mapfile -t files < <(list | sort -u)

mkdir -p "$dir"
stamp=$({
	echo "$version ${applets[*]}"
	cat "$here/build-guest.sh"
	printf '%s\n' "${files[@]}"
	printf '%s\n' "${files[@]%% *}" | xargs sha256sum
} | sha256sum)
if [ -e "$dir/initrd.gz" ] && [ "$(cat "$dir/stamp" 2>/dev/null)" = "$stamp" ]; then
	exit 0
fi

root=$dir/root
rm -rf "$root" "$dir/stamp"
mkdir -p "$root"/{bin,proc,sys,dev,tmp,dev/shm} "$root/lib/modules/$version"
for file in "${files[@]}"; do
	target=$root${file##* }
	mkdir -p "${target%/*}"
	cp -L "${file%% *}" "$target"
done
for applet in "${applets[@]}"; do
	ln -s busybox "$root/bin/$applet"
done
for index in modules.order modules.builtin modules.builtin.modinfo; do
	cp "/lib/modules/$version/$index" "$root/lib/modules/$version/"
done
# Links to the files that drivers are linked with: a library that is loaded twice ends the program.
for file in "${pmds[@]}"; do
	mkdir -p "$root${file%/*}"
	ln -s "${libs#/usr}/$(readlink "$file")" "$root$file"
done
depmod -b "$root" "$version"
chmod 755 "$root/init"
(cd "$root" && find . -print0 | cpio -0 -o -H newc --quiet) | gzip -1 >"$dir/initrd.gz"
rm -rf "$root"
ln -sfn "/boot/vmlinuz-$version" "$dir/kernel"
echo "$stamp" >"$dir/stamp"
