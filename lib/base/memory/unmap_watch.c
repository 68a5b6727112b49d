/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernel reports unmapping in two steps. First it removes the memory, after which others can
 * map something at that address. Then it queues the message. Between the first step and the reading
 * of the message it counts the change (`mmap_changing` in Linux' fs/userfaultfd.c), and refuses
 * UFFDIO_WRITEPROTECT with EAGAIN. With madvise() the order is reversed: the message comes first,
 * and the pages go after it was read.
 */
#include "lib/base/memory/unmap_watch.h"

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
#include "lib/base/memory/mapping.h"
#include "lib/base/memory/share.h"

/* From Linux 5.11 and 6.1. Debian's headers have them; older ones do not. */
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif

enum {
	/* Time to wait for a thread that is unmapping and needs only a processor. The wait would
	 * never end on kernels that forget to decrement the counter when mremap() fails. */
	PATIENCE_NS = 1000000,
	/* Time that the pages may stay after the message of madvise(). */
	ZAP_NS = 100000000,
	ZAPS = 16,
};

/* Memory released by madvise(). */
struct zap {
	uintptr_t start, end;
	uint64_t until_ns; /* the pages may stay until then */
};

static struct {
	pthread_mutex_t start_lock; /* serializes start and stop; taken before `mutex` */
	sigset_t start_lock_signals;
	pthread_mutex_t mutex;
	/* State of the thread before it took the mutex. */
	sigset_t signals;
	int cancel_state;

	struct list listeners;
	int fd; /* -1: not running. Changed with both mutexes held */
	bool is_behind;
	/* No longer mapped as before; valid during gone(). */
	uintptr_t unmapped_start, unmapped_end;
	struct zap zaps[ZAPS];

	int stop_fd;
	struct pollfd polled[2];
	pthread_t reader;
	/* The reader must not free memory: it would wait for itself. */
	pthread_t cleaner;
	pthread_cond_t dirty, idle;
	struct unmap_listener *cleaned; /* the listener whose after() is running */
	bool is_ending;
} watch = {
	.start_lock = PTHREAD_MUTEX_INITIALIZER,
	.mutex = PTHREAD_MUTEX_INITIALIZER,
	.listeners = { &watch.listeners, &watch.listeners },
	.fd = -1,
	.stop_fd = -1,
	.dirty = PTHREAD_COND_INITIALIZER,
	.idle = PTHREAD_COND_INITIALIZER,
};

atomic_bool unmap_watch_is_reading;

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

/* Releases the lock during the wait. */
static void wait_for(pthread_cond_t *cond)
{
	const sigset_t before = watch.signals;
	const int state = watch.cancel_state;

	pthread_cond_wait(cond, &watch.mutex);
	watch.signals = before;
	watch.cancel_state = state;
}

/* A signal handler may fork, which takes this mutex. */
static void lock_start(void)
{
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_mutex_lock(&watch.start_lock);
	watch.start_lock_signals = before;
}

static void unlock_start(void)
{
	const sigset_t before = watch.start_lock_signals;

	pthread_mutex_unlock(&watch.start_lock);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* ---- messages; call all with the lock held */

/* `is_mapped`: the range is still mapped, with other pages. */
static void notify(uintptr_t start, uintptr_t end, bool is_mapped)
{
	bool is_dirty = false;

	for (struct list *node = watch.listeners.next; node != &watch.listeners;
		node = node->next) {
		struct unmap_listener *listener = listener_at(node);

		if (is_mapped && listener->ignores_pages)
			continue;
		listener->is_dirty |= listener->gone(listener, start, end);
		is_dirty |= listener->is_dirty;
	}
	if (is_dirty)
		pthread_cond_signal(&watch.dirty);
}

/* The memory that is now mapped there is not watched. */
static void notify_unmapped(uintptr_t start, uintptr_t end)
{
	watch.unmapped_start = start;
	watch.unmapped_end = end;
	notify(start, end, false);
	watch.unmapped_start = watch.unmapped_end = 0;
}

/* The memory is still watched, at its new address. */
static void notify_moved(uintptr_t from, uintptr_t to, uintptr_t length)
{
	notify_unmapped(from, from + length);
	notify(to, to + length, true);
	unmap_watch_release(to, to + length, (size_t)sysconf(_SC_PAGESIZE));
}

static void notify_discarded(uintptr_t start, uintptr_t end)
{
	uint64_t now = clock_now_ns();
	struct zap *zap = &watch.zaps[0];

	for (unsigned i = 1; i < ZAPS; i++) {
		if (watch.zaps[i].until_ns < zap->until_ns)
			zap = &watch.zaps[i];
	}
	/* If the table is full, merge ranges, with the gap between them. */
	if (zap->until_ns <= now || start < zap->start)
		zap->start = start;
	if (zap->until_ns <= now || end > zap->end)
		zap->end = end;
	zap->until_ns = now + ZAP_NS;
	notify(start, end, true);
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

/* Reads and handles all pending messages. The call that unmaps returns as soon as its message is
 * read. */
static void handle_messages(void)
{
	struct uffd_msg message;

	atomic_store(&unmap_watch_is_reading, true);
	while (watch.fd >= 0 && read(watch.fd, &message, sizeof(message)) == sizeof(message)) {
		switch (message.event) {
		case UFFD_EVENT_UNMAP:
			notify_unmapped((uintptr_t)message.arg.remove.start,
				(uintptr_t)message.arg.remove.end);
			break;
		case UFFD_EVENT_REMOVE:
			notify_discarded((uintptr_t)message.arg.remove.start,
				(uintptr_t)message.arg.remove.end);
			break;
		case UFFD_EVENT_REMAP:
			notify_moved((uintptr_t)message.arg.remap.from,
				(uintptr_t)message.arg.remap.to, (uintptr_t)message.arg.remap.len);
			break;
		default: break;
		}
	}
	atomic_store_explicit(&unmap_watch_is_reading, false, memory_order_release);
}

/* Returns true if a change is in progress whose message was not read, or was read just now. The
 * kernel checks this before the range, which is empty. */
static bool is_changing(void)
{
	struct uffdio_writeprotect nothing = { 0 };
	return watch.fd >= 0 && ioctl(watch.fd, UFFDIO_WRITEPROTECT, &nothing) && errno == EAGAIN;
}

bool unmap_watch_catch_up(void)
{
	/* After one wait that timed out, do not wait again. */
	uint64_t patience = watch.is_behind ? 0 : PATIENCE_NS, began = 0;

	handle_messages();
	while ((watch.is_behind = is_changing())) {
		uint64_t now = clock_now_ns();

		if (!began)
			began = now;
		if (now - began >= patience)
			return false;
		sched_yield();
		handle_messages();
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
		handle_messages();
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

/* ---- starting and stopping; call all with `start_lock` held */

/* Returns the descriptor, or -errno. */
static int open_descriptor(void)
{
	const int flags = O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY;
	int fd = (int)syscall(SYS_userfaultfd, flags), err = errno, device;

	if (fd >= 0 || (err != EPERM && err != ENOSYS))
		return fd >= 0 ? fd : -err;
	/* A container that filters system calls may still allow its devices. */
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
			"the kernel's userfaultfd(2) is too old: Linux 5.11 or later is needed");
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
	return frl_fail(-ENOTSUP, "the kernel's userfaultfd(2) does not report unmapped memory%s%s",
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

/* Signals are for the application's threads. Callers that hold `start_lock` have them blocked, and
 * these threads inherit that. */
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

/* No descriptor is opened or closed during fork(): a child would keep an unknown copy open. `mutex`
 * is not taken here. A thread that unmaps may hold malloc's locks, which fork() takes next, while
 * the reader waits for `mutex`. */
static void before_fork(void)
{
	lock_start();
}

static void after_fork_in_parent(void)
{
	unlock_start();
}

/* A child has no threads of this file, and needs neither the parent's descriptors nor its
 * listeners. It may start its own. */
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
	watch.unmapped_start = watch.unmapped_end = 0;
	atomic_store(&unmap_watch_is_reading, false);
	pthread_mutex_init(&watch.mutex, NULL);
	pthread_cond_init(&watch.dirty, NULL);
	pthread_cond_init(&watch.idle, NULL);
	unlock_start();
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

/* No listener keeps anything, so nothing is watched, except memory that has grown since
 * (mremap(2)). */
static void stop(void)
{
	uint64_t one = 1;
	int fd = watch.fd;
	/* It cannot fail: the count is 0. */
	bool is_woken;

	/* The reader must still read the messages of memory that the cleaner unmaps. */
	end_cleaner();
	set_fd(-1);
	is_woken = write(watch.stop_fd, &one, sizeof(one)) == sizeof(one);
	/* Closing releases threads that wait for their message to be read. pthread_join() may come
	 * next, and may itself wait because it unmaps the stacks of other threads. */
	close(fd);
	if (is_woken)
		pthread_join(watch.reader, NULL);
	close(watch.stop_fd);
	watch.stop_fd = -1;
}

/* Fork handlers registered first lock last: others' locks are held when this file's is taken. */
__attribute__((constructor(201))) static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/* ---- the other functions of the header */

int unmap_watch_add(struct unmap_listener *listener)
{
	int rc = 0;

	lock_start();
	if (watch.fd < 0)
		rc = start();
	if (!rc) {
		unmap_watch_lock();
		listener->is_dirty = false;
		list_add_tail(&watch.listeners, &listener->node);
		unmap_watch_unlock();
	}
	unlock_start();
	return rc;
}

void unmap_watch_remove(struct unmap_listener *listener)
{
	bool last;

	lock_start();
	unmap_watch_lock();
	list_remove(&listener->node);
	while (watch.cleaned == listener)
		wait_for(&watch.idle);
	last = list_empty(&watch.listeners) && watch.fd >= 0;
	unmap_watch_unlock();
	if (last)
		stop();
	unlock_start();
}

size_t unmap_watch_page(uintptr_t start, uintptr_t end)
{
	struct share *share = share_find((const void *)start, end - start);

	if (!share)
		return mapping_private_page(start, end);
	share_put(share);
	return (size_t)sysconf(_SC_PAGESIZE);
}

int unmap_watch_mapping(uintptr_t start, uintptr_t end, size_t page)
{
	/* Write protection is registered but never enabled, so no page ever faults because of
	 * it. */
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_WP };

	start &= ~(page - 1);
	end = (end + page - 1) & ~(page - 1);
	range.range.start = start;
	range.range.len = end - start;
	return ioctl(watch.fd, UFFDIO_REGISTER, &range) == 0 ? 0 : -ENOTSUP;
}

int unmap_watch_range(uintptr_t start, uintptr_t end, size_t page)
{
	return is_zapped(start, end) ? -EAGAIN : unmap_watch_mapping(start, end, page);
}

/* Returns true if a listener needs the page, or it is no longer watched. `*until` as for
 * needs(). */
static bool is_needed(uintptr_t at, uintptr_t *until)
{
	if (watch.unmapped_start <= at && at < watch.unmapped_end) {
		if (watch.unmapped_end < *until)
			*until = watch.unmapped_end;
		return true;
	}
	if (at < watch.unmapped_start && watch.unmapped_start < *until)
		*until = watch.unmapped_start;
	for (struct list *node = watch.listeners.next; node != &watch.listeners;
		node = node->next) {
		if (listener_at(node)->needs(listener_at(node), at, until))
			return true;
	}
	return false;
}

/* Unregisters the pages that lie entirely within the range. This fails if other memory is mapped
 * there, which is then not watched. */
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
