#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Builds the Debian packages in a clean Debian 12, and tries them in another one: installs, runs the
# demonstration, upgrades, purges, looks for what stays. Then runs the steps of the containers'
# recipes in others, and the cluster test on three hosts that have one more in common. Needs
# root, or a user who may have user namespaces (package uidmap). Packages come from where this
# machine's apt has them. Exit status 77: this machine cannot do it; the reason is printed.
set -eu

usage() {
	cat <<-'END'
	scripts/package.sh [--out DIR] [--cache DIR] [--build-only]
	  --out DIR     the packages (default: build-package/packages); symbols in DIR/debug
	  --cache DIR   clean roots for a week, packages, objects (default: build-package/cache)
	  --build-only  tries nothing
	END
}

root=$(cd "$(dirname "$0")/.." && pwd)
out=$root/build-package/packages
cache=$root/build-package/cache
# shellcheck source=scripts/clean-root.sh
. "$root/scripts/clean-root.sh"
read_options "$@"

# ---- before the namespaces: the roots, as archives

make_roots() {
	make_root clean --include=man-db ||
		skip "Debian's archive gives no packages; what mmdebstrap says is above"
	make_root cluster --include=openmpi-bin,python3
	# shellcheck disable=SC2016 # mmdebstrap's variable
	make_root build \
		--include=dpkg-dev,fakeroot,ccache,lintian,autopkgtest,apt-utils \
		--customize-hook='mkdir -p "$1/tmp/source"' \
		--customize-hook="copy-in $root/debian /tmp/source" \
		--customize-hook='chroot "$1" apt-get -yq build-dep /tmp/source' \
		--customize-hook='rm -rf "$1/tmp/source"'
}

# ---- in the namespaces

# source_tree FOLDER: what git has, or would take.
source_tree() {
	mkdir -p "$1"
	git -c safe.directory='*' -C "$root" ls-files -z --cached --others --exclude-standard |
		tar -C "$root" --null --ignore-failed-read -T - -cf - | tar -C "$1" -xf -
}

build_packages() {
	local folder=$work/build version
	echo "== building"
	unpack build "$folder"
	version=$(sed -nE '1s/.*\((.*)-[^-]*\).*/\1/p' "$root/debian/changelog")
	source=/work/ferrule-$version
	mkdir "$folder/objects"
	mount --bind "$cache/objects" "$folder/objects"
	source_tree "$folder$source"
	tar -C "$folder/work" --exclude=./"ferrule-$version"/debian \
		-czf "$folder/work/ferrule_$version.orig.tar.gz" ./"ferrule-$version"
	inside "$folder" env PATH="/usr/lib/ccache:/usr/sbin:/usr/bin:/sbin:/bin" \
		CCACHE_DIR=/objects DEB_BUILD_OPTIONS="nocheck parallel=$(nproc)" \
		sh -c "cd '$source' && dpkg-buildpackage -us -uc" >"$out/build.log" 2>&1 || {
		tail -n 40 "$out/build.log"
		echo "the build has failed: $out/build.log"
		return 1
	}
	rm -rf "$out"/*.deb "$out/debug"
	mkdir "$out/debug"
	cp "$folder"/work/*.deb "$out/"
	mv "$out"/*-dbgsym_*.deb "$out/debug/"
	ls -l "$out"/*.deb
	echo "== lintian"
	# The packages are not uploaded to Debian, where the first ones close a request for them.
	inside "$folder" sh -c 'lintian --allow-root --tag-display-limit 0 --display-info \
		--suppress-tags initial-upload-closes-no-bugs \
		--fail-on error,warning /work/*.changes'
}

# newer FOLDER: the same packages as of a later version, with another configuration file.
newer() {
	local deb tree=$work/newer
	mkdir "$1"
	for deb in "$out"/*.deb; do
		rm -rf "$tree"
		dpkg-deb -R "$deb" "$tree"
		sed -i -E 's/^(Version: .*)/\1+later/; s/(\(= [^)]*)\)/\1+later)/g' \
			"$tree/DEBIAN/control"
		[ ! -f "$tree/etc/ferrule/ferruled.conf" ] ||
			echo '# of the later version' >>"$tree/etc/ferrule/ferruled.conf"
		dpkg-deb --root-owner-group -b "$tree" "$1" >/dev/null
	done
}

try_packages() {
	local folder=$work/clean
	echo "== installing, trying, upgrading, purging"
	unpack clean "$folder"
	mkdir "$folder/packages"
	cp "$out"/*.deb "$folder/packages/"
	newer "$folder/packages/later"
	cp "$root/scripts/package-trial.sh" "$folder/packages/"
	inside "$folder" /packages/package-trial.sh
}

# The tests of debian/tests, where compilers are.
try_autopkgtest() {
	local folder=$work/build status=0
	echo "== autopkgtest"
	mkdir "$folder/packages"
	cp "$out"/*.deb "$folder/packages/"
	inside "$folder" sh -ec "apt-get -q update
		autopkgtest --no-built-binaries /packages/*.deb '$source' -- null" \
		>"$out/autopkgtest.log" 2>&1 || status=$?
	if [ "$status" -eq 0 ]; then
		sed -n '/@@ summary/,$p' "$out/autopkgtest.log" | grep ' PASS'
	else
		tail -n 60 "$out/autopkgtest.log"
	fi
	return "$status"
}

# follow_recipe NAME FOLDER: the instructions of packaging/container/NAME, in a root. FROM is the
# clean one.
follow_recipe() {
	local recipe=packaging/container/$1 folder=$2 instruction rest target
	unpack clean "$folder"
	# Its archive is the machine's own; it has no cache for layers.
	while read -r instruction rest; do
		case $instruction in
		FROM | '' | '#'*) ;;
		COPY)
			target=$folder${rest##* }
			mkdir -p "$target"
			# shellcheck disable=SC2086 # patterns
			(cd "$out" && cp ${rest% *} "$target")
			;;
		RUN) inside "$folder" sh -ec "$rest" >"$work/container.log" 2>&1 || {
			tail -n 30 "$work/container.log"
			echo "$recipe fails: RUN $rest"
			return 1
		} ;;
		CMD) ;;
		*)
			echo "$recipe: package.sh does not know $instruction"
			return 1
			;;
		esac
	done < <(sed -e '/^#/d' -e ':a' -e '/\\$/{N;s/\\\n[[:space:]]*//;ta' -e '}' "$root/$recipe")
}

# as_user FOLDER COMMAND...: as a user without rights, as jobs in containers are.
as_user() {
	local folder=$1
	shift
	inside "$folder" setpriv --reuid=1000 --regid=1000 --clear-groups --bounding-set=-all \
		--no-new-privs "$@" >"$work/container.log" 2>&1 || {
		tail -n 30 "$work/container.log"
		echo "in the container, this fails: $*"
		return 1
	}
}

try_container() {
	local folder=$work/container
	echo "== the container's recipe"
	follow_recipe Dockerfile "$folder"
	# A job, and the daemon's own command.
	as_user "$folder" ferrule-bench -n 2 --max 64K
	inside "$folder" ferruled --check-config --config /etc/ferrule/ferruled.conf
	! inside "$folder" dpkg -l 'librte-eal*' python3 | grep '^ii' || {
		echo "the container has packages that the daemon and jobs do not need"
		return 1
	}
}

# try_verbs_container: two processes of each program in one container. A client that comes before
# its server listens tries again.
try_verbs_container() {
	local folder=$work/verbs program
	echo "== the container's recipe for programs of verbs"
	follow_recipe verbs.Dockerfile "$folder"
	as_user "$folder" ferrule-run ibv_devinfo
	for program in "ibv_rc_pingpong -d frl0 -g 1 -c" "ib_write_bw -d frl0 -x 1 -F"; do
		as_user "$folder" sh -c "ferrule-run $program & server=\$!
			until ferrule-run $program localhost; do
				kill -0 \$server || exit 1
				sleep 0.1
			done
			wait \$server"
	done
	# In a container the root folder is a mount point, and any user may do this; here only root.
	mount --rbind "$folder" "$folder"
	inside "$folder" ferrule-run --uverbs test -c /dev/infiniband/uverbs_frl0
}

# try_cluster: an operator's day on three hosts with these packages, and an MPI to start jobs.
try_cluster() {
	local folder=$work/cluster status=0
	echo "== three hosts"
	unpack cluster "$folder"
	mkdir "$folder/packages"
	cp "$out"/*.deb "$folder/packages/"
	inside "$folder" sh -ec 'apt-get -q update
		apt-get -qy --no-install-recommends install /packages/*.deb' \
		>"$work/cluster.log" 2>&1 || {
		tail -n 30 "$work/cluster.log"
		return 1
	}
	"$root/tests/system/cluster/cluster.sh" "$folder" || status=$?
	[ "$status" -ne 77 ] || return 0
	[ "$status" -ne 0 ] || echo "three hosts: as docs/guide/operations.md says"
	return "$status"
}

if [ -n "${FRL_PACKAGE_WORK:-}" ]; then
	work=$FRL_PACKAGE_WORK
	unset FRL_PACKAGE_WORK
	build_packages
	[ "$build_only" ] && exit 0
	try_packages
	try_container
	try_verbs_container
	try_autopkgtest
	try_cluster
	echo "the packages are in $out"
	exit 0
fi

prepare_roots git
git -c safe.directory='*' -C "$root" rev-parse >/dev/null 2>&1 ||
	skip "$root is no work tree of git"
make_roots
enter_namespaces --out "$out" --cache "$cache" ${build_only:+--build-only}
