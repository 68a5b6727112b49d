/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernel tells in two steps: it takes the memory away, lets others map something there, and
 * only then queues the message. In between it counts the change (`mmap_changing` in Linux'
 * fs/userfaultfd.c), until the message was read; meanwhile UFFDIO_WRITEPROTECT is refused with
 * EAGAIN. With madvise() it is the other way round: first the message, and once that was read the
 * pages go.
 */
#include "lib/base/unmap_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <linux/userfaultfd.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/mapping.h"
#include "lib/base/share.h"

/* Of Linux 5.11 and 6.1; Debian's headers have them, older ones do not. */
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif

enum {
	/* How long to wait for a thread that is just unmapping; it only needs a processor. Where
	 * the kernel forgets to count down when mremap() fails it never ends. */
	PATIENCE_NS = 1000000,
	/* How long it may take from the message of madvise() until the pages are gone. */
	ZAP_NS = 100000000,
	ZAPS = 16,
};

/* Given back by madvise(). */
struct zap {
	uintptr_t start, end;
	uint64_t until_ns; /* maybe not gone before */
};

static struct {
	pthread_mutex_t life; /* protects starting and ending; taken before `mutex` */
	sigset_t life_signals;
	pthread_mutex_t mutex;
	/* What was before the mutex was taken. */
	sigset_t signals;
	int cancel_state;

	struct list listeners;
	int fd; /* -1: it does not run. Changed with both held */
	bool is_behind;
	uintptr_t gone_start, gone_end; /* not mapped as it was; while gone() is called */
	struct zap zaps[ZAPS];

	int stop_fd;
	struct pollfd polled[2];
	pthread_t reader;
	/* The reader must not free anything: it would wait for itself. */
	pthread_t cleaner;
	pthread_cond_t dirty, idle;
	struct unmap_listener *cleaned; /* its after() is being called */
	bool is_ending;
} watch = {
	.life = PTHREAD_MUTEX_INITIALIZER,
	.mutex = PTHREAD_MUTEX_INITIALIZER,
	.listeners = { &watch.listeners, &watch.listeners },
	.fd = -1,
	.stop_fd = -1,
	.dirty = PTHREAD_COND_INITIALIZER,
	.idle = PTHREAD_COND_INITIALIZER,
};

static struct unmap_listener *listener_at(struct list *node)
{
	return container_of(node, struct unmap_listener, node);
}

/* ---- locks */

void unmap_watch_lock(void)
{
	sigset_t all, before;
	int state;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	pthread_mutex_lock(&watch.mutex);
	watch.signals = before;
	watch.cancel_state = state;
}

void unmap_watch_unlock(void)
{
	const sigset_t before = watch.signals;
	const int state = watch.cancel_state;

	pthread_mutex_unlock(&watch.mutex);
	pthread_setcancelstate(state, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Others have the lock meanwhile. */
static void wait_for(pthread_cond_t *cond)
{
	const sigset_t before = watch.signals;
	const int state = watch.cancel_state;

	pthread_cond_wait(cond, &watch.mutex);
	watch.signals = before;
	watch.cancel_state = state;
}

/* A signal handler may fork, which takes it. */
static void enter_life(void)
{
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_mutex_lock(&watch.life);
	watch.life_signals = before;
}

static void leave_life(void)
{
	const sigset_t before = watch.life_signals;

	pthread_mutex_unlock(&watch.life);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* ---- messages; all with the lock held */

static void tell(uintptr_t start, uintptr_t end)
{
	bool is_dirty = false;

	for (struct list *node = watch.listeners.next; node != &watch.listeners;
		node = node->next) {
		struct unmap_listener *listener = listener_at(node);

		listener->is_dirty |= listener->gone(listener, start, end);
		is_dirty |= listener->is_dirty;
	}
	if (is_dirty)
		pthread_cond_signal(&watch.dirty);
}

/* What is there now is not watched. */
static void tell_unmapped(uintptr_t start, uintptr_t end)
{
	watch.gone_start = start;
	watch.gone_end = end;
	tell(start, end);
	watch.gone_start = watch.gone_end = 0;
}

/* It is still watched, at the new place. */
static void tell_moved(uintptr_t from, uintptr_t to, uintptr_t length)
{
	tell_unmapped(from, from + length);
	tell(to, to + length);
	unmap_watch_release(to, to + length, (size_t)sysconf(_SC_PAGESIZE));
}

static void tell_given_back(uintptr_t start, uintptr_t end)
{
	uint64_t now = clock_now_ns();
	struct zap *zap = &watch.zaps[0];

	for (unsigned i = 1; i < ZAPS; i++) {
		if (watch.zaps[i].until_ns < zap->until_ns)
			zap = &watch.zaps[i];
	}
	/* If there are that many, what is between them counts as well. */
	if (zap->until_ns <= now || start < zap->start)
		zap->start = start;
	if (zap->until_ns <= now || end > zap->end)
		zap->end = end;
	zap->until_ns = now + ZAP_NS;
	tell(start, end);
}

static bool is_zapped(uintptr_t start, uintptr_t end)
{
	uint64_t now = clock_now_ns();

	for (unsigned i = 0; i < ZAPS; i++) {
		const struct zap *zap = &watch.zaps[i];

		if (zap->until_ns > now && zap->start < end && start < zap->end)
			return true;
	}
	return false;
}

/* Reads and tells all that there is. */
static void take_messages(void)
{
	struct uffd_msg message;

	while (watch.fd >= 0 && read(watch.fd, &message, sizeof(message)) == sizeof(message)) {
		switch (message.event) {
		case UFFD_EVENT_UNMAP:
			tell_unmapped((uintptr_t)message.arg.remove.start,
				(uintptr_t)message.arg.remove.end);
			break;
		case UFFD_EVENT_REMOVE:
			tell_given_back((uintptr_t)message.arg.remove.start,
				(uintptr_t)message.arg.remove.end);
			break;
		case UFFD_EVENT_REMAP:
			tell_moved((uintptr_t)message.arg.remap.from,
				(uintptr_t)message.arg.remap.to, (uintptr_t)message.arg.remap.len);
			break;
		default: break;
		}
	}
}

/* Is a change under way whose message was not read, or only just? */
static bool is_changing(void)
{
	return watch.fd >= 0 && ioctl(watch.fd, UFFDIO_WRITEPROTECT, NULL) < 0 && errno == EAGAIN;
}

bool unmap_watch_catch_up(void)
{
	/* Who has waited in vain does not do so again. */
	uint64_t patience = watch.is_behind ? 0 : PATIENCE_NS, began = 0;

	take_messages();
	while ((watch.is_behind = is_changing())) {
		uint64_t now = clock_now_ns();

		if (!began)
			began = now;
		if (now - began >= patience)
			return false;
		sched_yield();
		take_messages();
	}
	return true;
}

/* ---- threads */

static void *reader_main(void *arg)
{
	(void)arg;
	for (;;) {
		if (poll(watch.polled, 2, -1) < 0)
			continue;
		if (watch.polled[0].revents)
			return NULL;
		unmap_watch_lock();
		take_messages();
		unmap_watch_unlock();
	}
}

static struct unmap_listener *first_dirty(void)
{
	for (struct list *node = watch.listeners.next; node != &watch.listeners;
		node = node->next) {
		if (listener_at(node)->is_dirty)
			return listener_at(node);
	}
	return NULL;
}

static void *cleaner_main(void *arg)
{
	(void)arg;
	unmap_watch_lock();
	while (!watch.is_ending) {
		watch.cleaned = first_dirty();
		if (!watch.cleaned) {
			wait_for(&watch.dirty);
			continue;
		}
		watch.cleaned->is_dirty = false;
		unmap_watch_unlock();
		watch.cleaned->after(watch.cleaned);
		unmap_watch_lock();
		watch.cleaned = NULL;
		pthread_cond_broadcast(&watch.idle);
	}
	unmap_watch_unlock();
	return NULL;
}

/* ---- starting and ending; all with `life` held */

/* The descriptor, or -errno. */
static int open_descriptor(void)
{
	const int flags = O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY;
	int fd = (int)syscall(SYS_userfaultfd, flags), err = errno, device;

	if (fd >= 0 || (err != EPERM && err != ENOSYS))
		return fd >= 0 ? fd : -err;
	/* Where a container's system calls are filtered its devices need not be. */
	device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	if (device < 0)
		return -err;
	fd = ioctl(device, USERFAULTFD_IOC_NEW, flags);
	close(device);
	return fd >= 0 ? fd : -err;
}

static int refuse(int err)
{
	switch (err) {
	case EPERM:
		return frl_fail(-ENOTSUP,
			"userfaultfd(2) is forbidden here: allow it in the container's seccomp "
			"profile, or give it the device /dev/userfaultfd");
	case ENOSYS: return frl_fail(-ENOTSUP, "the kernel is built without userfaultfd(2)");
	case EINVAL:
		return frl_fail(-ENOTSUP,
			"the kernel's userfaultfd(2) is too old: Linux 5.11 is "
			"the first that will do");
	case EMFILE:
	case ENFILE:
	case ENOMEM: return frl_fail(-err, "cannot open a userfaultfd: %s", frl_strerror(err));
	default: return frl_fail(-ENOTSUP, "no userfaultfd(2) here: %s", frl_strerror(err));
	}
}

static int open_userfaultfd(void)
{
	struct uffdio_api api = {
		.api = UFFD_API,
		.features = UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMOVE |
			UFFD_FEATURE_EVENT_REMAP,
	};
	int fd = open_descriptor();
	int err;

	if (fd < 0)
		return refuse(-fd);
	err = ioctl(fd, UFFDIO_API, &api) ? errno : 0;
	if (!err && (api.features & UFFD_FEATURE_PAGEFAULT_FLAG_WP))
		return fd;
	close(fd);
	return frl_fail(-ENOTSUP,
		"the kernel's userfaultfd(2) does not tell of unmapped memory%s%s",
		err ? ": " : " on this kind of processor", err ? frl_strerror(err) : "");
}

static void end_cleaner(void)
{
	unmap_watch_lock();
	watch.is_ending = true;
	pthread_cond_signal(&watch.dirty);
	unmap_watch_unlock();
	pthread_join(watch.cleaner, NULL);
}

/* Signals are for the application's threads: these have them blocked as whoever holds `life`. */
static int start_threads(void)
{
	int err = pthread_create(&watch.cleaner, NULL, cleaner_main, NULL);

	if (err)
		return err;
	err = pthread_create(&watch.reader, NULL, reader_main, NULL);
	if (err)
		end_cleaner();
	return err;
}

static void set_fd(int fd)
{
	unmap_watch_lock();
	watch.fd = fd;
	watch.is_ending = watch.is_behind = false;
	for (unsigned i = 0; i < ZAPS; i++)
		watch.zaps[i].until_ns = 0;
	unmap_watch_unlock();
}

/* Nothing is opened or closed while a process is made: a child that had the descriptor without
 * knowing would keep it open. `mutex` is no business of this: who unmaps may hold malloc's locks,
 * which fork() takes next, while the reader waits for `mutex`. */
static void before_fork(void)
{
	enter_life();
}

static void after_fork_in_parent(void)
{
	leave_life();
}

/* A child has neither the threads nor a use for the descriptors, which are its parent's, nor for
 * the listeners. Of its own it may have them anew. */
static void after_fork_in_child(void)
{
	struct list *next;

	if (watch.fd >= 0) {
		close(watch.fd);
		close(watch.stop_fd);
	}
	watch.fd = watch.stop_fd = -1;
	for (struct list *node = watch.listeners.next; node != &watch.listeners; node = next) {
		next = node->next;
		list_init(node);
	}
	list_init(&watch.listeners);
	watch.cleaned = NULL;
	watch.gone_start = watch.gone_end = 0;
	pthread_mutex_init(&watch.mutex, NULL);
	pthread_cond_init(&watch.dirty, NULL);
	pthread_cond_init(&watch.idle, NULL);
	pthread_mutex_init(&watch.life, NULL);
	pthread_sigmask(SIG_SETMASK, &watch.life_signals, NULL);
}

static int start(void)
{
	int fd = open_userfaultfd(), err;

	if (fd < 0)
		return fd;
	watch.stop_fd = eventfd(0, EFD_CLOEXEC);
	err = watch.stop_fd < 0 ? errno : 0;
	set_fd(fd);
	watch.polled[0] = (struct pollfd){ .fd = watch.stop_fd, .events = POLLIN };
	watch.polled[1] = (struct pollfd){ .fd = fd, .events = POLLIN };
	if (!err)
		err = start_threads();
	if (!err)
		return 0;
	set_fd(-1);
	if (watch.stop_fd >= 0)
		close(watch.stop_fd);
	close(fd);
	watch.stop_fd = -1;
	return frl_fail(-err, "cannot watch for memory that is unmapped: %s", frl_strerror(err));
}

/* Nothing is kept any more, so nothing is watched, except for what has grown since (mremap(2)). */
static void stop(void)
{
	uint64_t one = 1;
	int fd = watch.fd;
	/* It cannot fail: the count is 0. */
	bool is_woken;

	/* What the cleaner unmaps the reader reads. */
	end_cleaner();
	set_fd(-1);
	is_woken = write(watch.stop_fd, &one, sizeof(one)) == sizeof(one);
	/* Whoever waits for its message to be read goes on; pthread_join() might be next, since it
	 * may unmap the stacks of other threads. */
	close(fd);
	if (is_woken)
		pthread_join(watch.reader, NULL);
	close(watch.stop_fd);
	watch.stop_fd = -1;
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/* ---- the other functions of the header */

int unmap_watch_add(struct unmap_listener *listener)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int rc = 0;

	pthread_once(&once, watch_forks);
	enter_life();
	if (watch.fd < 0)
		rc = start();
	if (!rc) {
		unmap_watch_lock();
		listener->is_dirty = false;
		list_add_tail(&watch.listeners, &listener->node);
		unmap_watch_unlock();
	}
	leave_life();
	return rc;
}

void unmap_watch_remove(struct unmap_listener *listener)
{
	bool last;

	enter_life();
	unmap_watch_lock();
	list_remove(&listener->node);
	while (watch.cleaned == listener)
		wait_for(&watch.idle);
	last = list_empty(&watch.listeners) && watch.fd >= 0;
	unmap_watch_unlock();
	if (last)
		stop();
	leave_life();
}

size_t unmap_watch_page(uintptr_t start, uintptr_t end)
{
	struct share *share = share_find((const void *)start, end - start);

	if (!share)
		return mapping_private_page(start, end);
	share_put(share);
	return (size_t)sysconf(_SC_PAGESIZE);
}

int unmap_watch_range(uintptr_t start, uintptr_t end, size_t page)
{
	/* Write protection that is never switched on: no page ever faults because of it. */
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_WP };

	if (is_zapped(start, end))
		return -EAGAIN;
	start &= ~(page - 1);
	end = (end + page - 1) & ~(page - 1);
	range.range.start = start;
	range.range.len = end - start;
	return ioctl(watch.fd, UFFDIO_REGISTER, &range) == 0 ? 0 : -ENOTSUP;
}

/* Or is it not watched any more? `*until` as for needs(). */
static bool is_needed(uintptr_t at, uintptr_t *until)
{
	if (watch.gone_start <= at && at < watch.gone_end) {
		if (watch.gone_end < *until)
			*until = watch.gone_end;
		return true;
	}
	if (at < watch.gone_start && watch.gone_start < *until)
		*until = watch.gone_start;
	for (struct list *node = watch.listeners.next; node != &watch.listeners;
		node = node->next) {
		if (listener_at(node)->needs(listener_at(node), at, until))
			return true;
	}
	return false;
}

/* Those pages that are wholly within. It fails where there is other memory by now, which is not
 * watched then. */
static void unregister(uintptr_t start, uintptr_t end, size_t page)
{
	struct uffdio_range range;

	range.start = (start + page - 1) & ~(page - 1);
	range.len = (end & ~(page - 1)) - range.start;
	if (range.start < (end & ~(page - 1)))
		(void)ioctl(watch.fd, UFFDIO_UNREGISTER, &range);
}

void unmap_watch_release(uintptr_t start, uintptr_t end, size_t page)
{
	uintptr_t until;

	start &= ~(page - 1);
	end = (end + page - 1) & ~(page - 1);
	for (uintptr_t at = start; at < end; at = until) {
		until = end;
		if (!is_needed(at, &until))
			unregister(at, until, page);
	}
}
