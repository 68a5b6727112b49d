/* SPDX-License-Identifier: BSD-3-Clause */
/* Explains an errno of libibverbs and names the remedy. */
#include "drivers/verbs/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "lib/base/error.h"

char verbs_load_reason[256];

int verbs_errno(int rc)
{
	if (rc > 0)
		return rc;
	if (rc < -1)
		return -rc;
	return errno ? errno : EIO;
}

int verbs_null_errno(void)
{
	return errno ? errno : EINVAL;
}

/* Returns true if the limit of locked memory does not apply to this thread. */
static bool may_lock_all(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = { 0 };

	if (syscall(SYS_capget, &header, data))
		return false;
	return data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective & CAP_TO_MASK(CAP_IPC_LOCK);
}

/* Returns the KiB of this process that devices have pinned. */
static unsigned long long read_pinned(void)
{
	FILE *status = fopen("/proc/self/status", "re");
	unsigned long long kib = 0;
	char line[128];

	while (status && fgets(line, sizeof(line), status) &&
		sscanf(line, "VmPin: %llu", &kib) != 1)
		;
	if (status)
		fclose(status);
	return kib;
}

/* Queues and regions are locked memory, which is limited per user. */
static void explain_memory(char *text, size_t size)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) || limit.rlim_cur == RLIM_INFINITY || may_lock_all())
		snprintf(text, size,
			"the device or this machine has no memory or resources left: use fewer or "
			"smaller regions and queues, in other processes as well");
	else
		snprintf(text, size,
			"%llu KiB may be locked (ulimit -l), %llu are; set memlock in "
			"/etc/security/limits.d, LimitMEMLOCK=infinity (service) or --ulimit "
			"memlock=-1 (container); if few are locked, the device is full",
			(unsigned long long)limit.rlim_cur / 1024, read_pinned());
}

void verbs_explain(int err, char *text, size_t size)
{
	switch (err) {
	case ENOMEM: explain_memory(text, size); return;
	case EPERM:
	case EACCES:
		snprintf(text, size,
			"not permitted: it needs the right to use /dev/infiniband/uverbs* (a "
			"group like rdma, or a udev rule)");
		return;
	case EFAULT:
		snprintf(text, size,
			"the memory is not mapped, or is read-only: a region with LOCAL_WRITE "
			"needs writable memory");
		return;
	case EOPNOTSUPP:
	case ENOSYS: snprintf(text, size, "the device or this kernel cannot do it"); return;
	case EIO:
	case ENODEV:
		snprintf(text, size,
			"the device has failed or is gone: see dmesg, then close it and open it "
			"again");
		return;
	default: snprintf(text, size, "%s", frl_strerror(err)); return;
	}
}

int verbs_fail(int err, const char *format, ...)
{
	char what[REASON_SIZE], why[REASON_SIZE];
	va_list args;

	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	verbs_explain(err, why, sizeof(why));
	return frl_fail(err == ENOSYS ? -ENOTSUP : -err, "%s: %s", what, why);
}

void verbs_warn(int err, const char *what)
{
	char why[REASON_SIZE];

	verbs_explain(err, why, sizeof(why));
	frl_log(FRL_LOG_WARNING, "%s: %s", what, why);
}

void verbs_destroyed(struct verbs_device *device, struct verbs_pd *pd, int rc, const char *what)
{
	if (!rc)
		return;
	if (pd)
		atomic_store(&pd->has_left, true);
	if (!atomic_load(&device->is_fatal))
		verbs_warn(verbs_errno(rc), what);
}
