#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Daemons with TLS, with certificates of a CA made here. Right ones connect. A wrong CA, an expired
# certificate, a wrong name, no certificate, an older TLS and no TLS at all are refused; the log
# names the reason.
# shellcheck source=tests/system/daemon_lib.sh
. "$(dirname "$0")/../daemon_lib.sh"
command -v openssl >/dev/null || skip "openssl is not installed"

cd "$temp"

# make_ca NAME: NAME.crt and NAME.key.
make_ca() {
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 \
		-subj "/CN=$1" -keyout "$1.key" -out "$1.crt" 2>/dev/null
	mkdir -p "$1.issued"
	: >"$1.db"
	cat >"$1.cnf" <<-END
		[ca]
		default_ca = here
		[here]
		database = $1.db
		new_certs_dir = $1.issued
		certificate = $1.crt
		private_key = $1.key
		default_md = sha256
		rand_serial = yes
		unique_subject = no
		copy_extensions = copy
		policy = any
		[any]
		commonName = supplied
	END
}

# make_certificate NAME CA SUBJECT-ALT-NAMES [END [EXTENSION]]: NAME.crt and NAME.key.
make_certificate() {
	local end=${4:-$(date -u -d '+30 days' +%Y%m%d%H%M%SZ)}
	local extension=${5:-keyUsage=digitalSignature}
	openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" \
		-addext "subjectAltName=$3" -addext "$extension" \
		-keyout "$1.key" -out "$1.csr" 2>/dev/null
	openssl ca -batch -config "$2.cnf" -in "$1.csr" -out "$1.crt" -notext \
		-startdate 20200101000000Z -enddate "$end" 2>/dev/null
}

# make_config NAME PORT HOST CERTIFICATE CA: NAME.conf.
make_config() {
	cat >"$1.conf" <<-END
		host = "$3";
		listen_address = "127.0.0.1";
		listen_port = $2;
		tls_certificate = "$temp/$4.crt";
		tls_key = "$temp/$4.key";
		tls_ca = "$temp/$5.crt";
		hello_ms = 60000;
	END
}

make_ca ours
make_ca theirs
make_certificate alpha ours "DNS:alpha,DNS:localhost,IP:127.0.0.1"
make_certificate alpha2 ours "DNS:alpha,DNS:localhost,IP:127.0.0.1"
make_certificate beta ours "DNS:beta,DNS:localhost,IP:127.0.0.1,IP:::1"
make_certificate only-cn ours "IP:127.0.0.1"
make_certificate only-server ours "DNS:beta,IP:127.0.0.1" "" extendedKeyUsage=serverAuth
make_certificate expired ours "DNS:beta,DNS:localhost,IP:127.0.0.1" 20210101000000Z
make_certificate stranger theirs "DNS:beta,DNS:localhost,IP:127.0.0.1"
make_certificate elsewhere ours "DNS:elsewhere,IP:192.0.2.1"

alpha_port=$(free_port 1)
beta_port=$(free_port 2)
make_config alpha "$alpha_port" alpha alpha ours
run_daemon alpha --config alpha.conf
alpha=$daemon

# try NAME CERTIFICATE CA HOST RESULT ALPHA-SAYS BETA-SAYS: alpha dials beta with that certificate
# and name, and beta dials alpha.
try() {
	local name=$1 dialled dials
	make_config "$name" "$beta_port" "$4" "$2" "$3"
	run_daemon "$name" --config "$name.conf"
	dialled=$("$client" join alpha.sock "127.0.0.1:$beta_port") || true
	dials=$("$client" join "$name.sock" "127.0.0.1:$alpha_port") || true
	if [ "$5" = joined ]; then
		[ "$dialled" = joined ] || fail "$name: alpha cannot join there: $dialled"
		[ "$dials" = joined ] || fail "$name: it cannot join at alpha: $dials"
	else
		grep -qE -- "$6" <<<"$dialled" || fail "$name: alpha says of it: $dialled"
		grep -qE -- "$7" <<<"$dials" || fail "$name: it says of alpha: $dials"
	fi
	stop_daemon "$daemon"
}

try right beta ours beta joined
try wrong-ca stranger theirs beta refused 'not signed by this cluster' 'not signed by this cluster'
try only-theirs stranger ours beta refused 'not signed by this cluster' 'refused this.*unknown ca'
try late expired ours beta refused 'certificate has expired' 'refused this.*certificate expired'
try other-address elsewhere ours elsewhere refused 'not for the name that was dialled' '.'
try other-name beta ours gamma refused 'certificate is for another host' '.'
# A subject is not a name.
try only-cn only-cn ours only-cn refused 'certificate is for another host' '.'

says late 'expired.crt has expired on 2021-01-01 00:00 UTC'

# --check-config and the doctor look at the files.
ctl=$bin/../daemon/ctl/ferrulectl
# checks NAME CERTIFICATE CA PATTERN...: they are refused with these texts; without patterns they
# are right.
checks() {
	local name=check-$1 pattern
	make_config "$name" "$beta_port" beta "$2" "$3"
	shift 3
	"$ctl" doctor --config "$name.conf" >"$name.doctor" 2>&1 || true
	if [ $# -eq 0 ]; then
		passes "$name" "$ferruled" --check-config --config "$name.conf"
		grep -q "^$name.conf: fine\$" "$name.out" || fail "$name: it is not fine"
		grep -qE '^OK .*tls .*valid until 20' "$name.doctor" || fail "$name: the doctor"
		return
	fi
	refuses "$name" "$@" -- "$ferruled" --check-config --config "$name.conf"
	! grep -q ': fine' "$name.out" || fail "$name: it is fine"
	for pattern in "$@"; do
		grep -qE "^FAIL .*tls .*$pattern" "$name.doctor" || {
			fail "$name: the doctor does not say '$pattern'"
			show "$name.doctor"
		}
	done
}
make_certificate soon ours "DNS:beta" "$(date -u -d '+5 days -1 hour' +%Y%m%d%H%M%SZ)"
cp alpha.crt mixed.crt
cp beta.key mixed.key
cp alpha.key no-certificate.key
cp alpha.crt no-key.crt
cp alpha.crt bad-key.crt
cp bad-key.crt bad-key.key
checks right beta ours
checks expired expired ours 'expired.crt has expired on 2021-01-01 00:00 UTC'
checks foreign stranger ours 'no CA in .*ours.crt has signed .*stranger.crt'
checks purpose only-server ours 'only-server.crt .*purpose'
checks mixed mixed ours 'mixed.key is not the key of the certificate in .*mixed.crt'
checks no-certificate no-certificate ours 'cannot read .*no-certificate.crt: No such file'
checks no-key no-key ours 'cannot read .*no-key.key: No such file'
checks no-ca beta nobody 'cannot read .*nobody.crt: No such file'
checks bad-key bad-key ours 'cannot read the key in .*bad-key.key'
make_config soon "$beta_port" beta soon ours
passes soon "$ferruled" --check-config --config soon.conf
grep -qE '^warning: .*soon.crt expires in 4 days' soon.out || fail "nothing is said of the end"
"$ctl" doctor --config soon.conf >soon.doctor 2>&1 || true
grep -qE '^WARN .*tls .*soon.crt expires in 4 days' soon.doctor || fail "the doctor does not warn"
make_config renamed "$beta_port" gamma beta ours
passes renamed "$ferruled" --check-config --config renamed.conf
grep -q '^warning: .*beta.crt is not for the name gamma' renamed.out || fail "another name is fine"
if [ "$(id -u)" -eq 0 ]; then
	make_config other "$beta_port" beta beta ours
	echo 'user = "nobody";' >>other.conf
	refuses other 'user nobody cannot read .*beta.key' -- \
		"$ferruled" --check-config --config other.conf
fi

# A name with several addresses, the first of which may be of another family; and IPv6.
make_config named "$beta_port" beta beta ours
run_daemon named --config named.conf
dialled=$("$client" join alpha.sock "localhost:$beta_port") || fail "by name: $dialled"
stop_daemon "$daemon"
if grep -qs '^0*1 ' /proc/net/if_inet6; then
	sed 's/"127.0.0.1"/"::1"/' named.conf >six.conf
	run_daemon six --config six.conf
	says six "ready on .*, \\[::1\\]:$beta_port"
	dialled=$("$client" join alpha.sock "[::1]:$beta_port") || fail "over IPv6: $dialled"
	stop_daemon "$daemon"
fi

# Other programs, without a daemon of their own.
stranger() {
	timeout "$program_limit" openssl s_client -connect "127.0.0.1:$alpha_port" "$@" </dev/null \
		>s_client.out 2>&1 || true
}
stranger -CAfile ours.crt
says alpha 'it sent no certificate'
stranger -CAfile ours.crt -tls1_2 -cert beta.crt -key beta.key
says alpha 'it does not speak TLS 1.3'
stranger -CAfile ours.crt -cert expired.crt -key expired.key
says alpha 'of /CN=expired.* certificate has expired'
stranger -CAfile ours.crt -cert stranger.crt -key stranger.key
says alpha 'of /CN=stranger.* not signed by this cluster'
stranger -CAfile ours.crt -cert only-server.crt -key only-server.key
says alpha 'of /CN=only-server.* purpose'
# A Hello in plain TCP, and nothing at all.
exec 5<>"/dev/tcp/127.0.0.1/$alpha_port"
printf '\0\0\0\4\10\1\122\0' >&5
says alpha 'it does not speak TLS \('
exec 5>&-
sed 's/hello_ms = 60000/hello_ms = 1000/' alpha.conf >hasty.conf
sed -i "s/listen_port = .*;/listen_port = $beta_port;/" hasty.conf
run_daemon hasty --config hasty.conf
exec 5<>"/dev/tcp/127.0.0.1/$beta_port"
says hasty 'its TLS handshake took longer than 1000 ms'
exec 5>&-
stop_daemon "$daemon"

# TLS to a daemon without TLS, and that daemon's own dialling.
"$ferruled" --version >/dev/null
echo 'insecure = true;' >open.conf
run_daemon plain --config open.conf --listen "127.0.0.1:$beta_port"
timeout "$program_limit" openssl s_client -connect "127.0.0.1:$beta_port" </dev/null \
	>s_client.out 2>&1 || true
says plain 'it speaks TLS, which is not configured here'
plain=$daemon

# Without TLS and without insecure = true a daemon neither listens nor connects, not even on
# loopback.
run_daemon no_tls
for place in "localhost:$beta_port" 192.0.2.7; do
	"$client" join no_tls.sock "$place" >join.out && fail "a daemon without TLS has connected"
	grep -q 'TLS is not configured' join.out || fail "no_tls says: $(cat join.out)"
done
stop_daemon "$daemon"
stop_daemon "$plain"
for place in 0.0.0.0 127.0.0.1; do
	refuses "open-$place" 'needs TLS' -- "$ferruled" --socket "$temp/open.sock" \
		--listen "$place:$beta_port"
done
run_daemon open --config open.conf --listen "0.0.0.0:$beta_port"
stop_daemon "$daemon"
# A key of another certificate.
sed "s|alpha.key|beta.key|; s|= $alpha_port|= $beta_port|" alpha.conf >bad.conf
refuses wrong-key 'TLS: .*beta.key' -- "$ferruled" --config bad.conf --socket "$temp/bad.sock"

# A key with a passphrase: nobody is asked for it.
openssl ec -in beta.key -aes256 -passout pass:secret -out locked.key 2>/dev/null
sed "s|alpha.crt|beta.crt|; s|alpha.key|locked.key|; s|= $alpha_port|= $beta_port|" alpha.conf \
	>locked.conf
refuses locked 'TLS: cannot read the key in .*locked.key' -- "$ferruled" \
	--config locked.conf --socket "$temp/bad.sock"

# New connections use the renewed files after SIGHUP; broken files change nothing.
cp alpha2.crt alpha.crt
kill -HUP "$alpha"
says alpha 'settings stay as they were: TLS: .*alpha.key'
stranger -CAfile ours.crt
grep -q 'subject=.*alpha$' s_client.out || fail "the half of a renewal has changed the certificate"
cp alpha2.key alpha.key
kill -HUP "$alpha"
says alpha 'settings have been read again'
stranger -CAfile ours.crt
grep -q 'subject=.*alpha2$' s_client.out || fail "after SIGHUP it still shows the old certificate"

# No log contains keys.
if grep -l 'PRIVATE KEY' ./*.log; then
	fail "a key is in a log"
fi
stop_daemon "$alpha"
finish
