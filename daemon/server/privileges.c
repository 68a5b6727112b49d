/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/server/privileges.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cap-ng.h>

size_t privileges_raise_files(size_t wanted)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return 0;
	if (limit.rlim_cur >= wanted)
		return limit.rlim_cur;
	limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		getrlimit(RLIMIT_NOFILE, &limit);
	return limit.rlim_cur;
}

/* `keeps`: capabilities stay permitted. */
static bool become(const char *user, bool keeps, char *error, size_t size)
{
	const struct passwd *entry;

	errno = 0;
	entry = getpwnam(user);
	if (!entry) {
		snprintf(error, size, "there is no user %s (setting `user`)%s%s", user,
			errno ? ": " : "", errno ? strerror(errno) : "");
		return false;
	}
	if (entry->pw_uid == geteuid())
		return true;
	if (geteuid() != 0) {
		snprintf(error, size, "only root can become user %s (setting `user`)", user);
		return false;
	}
	if (initgroups(user, entry->pw_gid) < 0 || setgid(entry->pw_gid) < 0 ||
		(keeps && prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0) || setuid(entry->pw_uid) < 0) {
		snprintf(error, size, "cannot become user %s: %s", user, strerror(errno));
		return false;
	}
	return true;
}

/* Returns true if capabilities are left. `may`: CAP_NET_RAW may be. */
static bool has_others(bool may)
{
	static const capng_type_t sets[] = { CAPNG_EFFECTIVE, CAPNG_PERMITTED, CAPNG_INHERITABLE };

	for (unsigned capability = 0; capability <= CAP_LAST_CAP; capability++)
		for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++)
			if (capng_have_capability(sets[i], capability) &&
				!(may && capability == CAP_NET_RAW))
				return true;
	return false;
}

bool privileges_drop(const char *user, bool wants_raw, char *error, size_t size)
{
	bool known, keeps;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) {
		snprintf(error, size, "cannot set no_new_privs: %s", strerror(errno));
		return false;
	}
	known = capng_get_caps_process() == 0;
	keeps = known && wants_raw && capng_have_capability(CAPNG_EFFECTIVE, CAP_NET_RAW);
	/* Drops the bounding set if that is permitted. Otherwise it does no harm: no program can be
	 * started that would gain privileges by it. */
	if (known && capng_have_capability(CAPNG_EFFECTIVE, CAP_SETPCAP)) {
		capng_clear(CAPNG_SELECT_BOUNDS);
		capng_apply(CAPNG_SELECT_BOUNDS);
	}
	if (user && !become(user, keeps, error, size))
		return false;
	capng_clear(CAPNG_SELECT_CAPS);
	if (keeps)
		capng_update(CAPNG_ADD, CAPNG_EFFECTIVE | CAPNG_PERMITTED, CAP_NET_RAW);
	if (capng_apply(CAPNG_SELECT_CAPS) != 0 || capng_get_caps_process() != 0 ||
		has_others(keeps)) {
		snprintf(error, size, "cannot drop capabilities: %s", strerror(errno));
		return false;
	}
	return true;
}

bool privileges_have_raw(void)
{
	return capng_get_caps_process() == 0 && capng_have_capability(CAPNG_EFFECTIVE, CAP_NET_RAW);
}
