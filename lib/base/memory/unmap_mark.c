/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Each watched range may take two of the process's mappings (vm.max_map_count, 65530 by default),
 * so the number of marks is limited. Long ranges stay watched after their mark is removed, until
 * they are unmapped or nothing is watched any more: to end the watch, the kernel visits each page,
 * which takes 20 us for 1 MiB. The call that unmaps such a range waits for a message without need.
 *
 * The marks are a treap with the largest end of each subtree, so that any number of them can be
 * added without allocating: the lock of unmap_watch.h forbids that. gone() only sets flags. It
 * takes no other lock, so a thread may hold any lock when it unmaps.
 */
#include "lib/base/memory/unmap_mark.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/error.h"
#include "lib/base/memory/mapping.h"
#include "lib/base/memory/unmap_watch.h"

enum {
	MARKS_MAX = 8192,
	RELEASED_MAX = 256 << 10, /* bytes; longer ranges stay watched */
	PAUSE_NS = 1000000,
	PAUSES = 100,
};

static struct {
	pthread_mutex_t mutex; /* for `users`, `is_open` and users; taken before the lock */
	unsigned users;
	bool is_open; /* the listener is added */
	/* With the lock of unmap_watch.h. */
	struct unmap_mark *root;
	unsigned n;
	unsigned process;
	bool is_behind; /* waiting for earlier messages did not help */
	uint32_t random;
	struct unmap_listener listener;
} marks = { .mutex = PTHREAD_MUTEX_INITIALIZER, .process = 1, .random = 1 };

/* ---- the treap; all with the lock held */

static void update_reach(struct unmap_mark *mark)
{
	mark->reach = mark->end;
	if (mark->left && mark->left->reach > mark->reach)
		mark->reach = mark->left->reach;
	if (mark->right && mark->right->reach > mark->reach)
		mark->reach = mark->right->reach;
}

/* Equal starts are ordered by address, so that each mark can be found. */
static bool is_before(const struct unmap_mark *a, const struct unmap_mark *b)
{
	return a->start != b->start ? a->start < b->start : (uintptr_t)a < (uintptr_t)b;
}

/* Divides a tree into the marks before `at` and the others. */
static void split(struct unmap_mark *tree, const struct unmap_mark *at,
	struct unmap_mark **ret_left, struct unmap_mark **ret_right)
{
	if (!tree) {
		*ret_left = *ret_right = NULL;
	} else if (is_before(tree, at)) {
		split(tree->right, at, &tree->right, ret_right);
		update_reach(tree);
		*ret_left = tree;
	} else {
		split(tree->left, at, ret_left, &tree->left);
		update_reach(tree);
		*ret_right = tree;
	}
}

/* All of `left` is before `right`. */
static struct unmap_mark *merge(struct unmap_mark *left, struct unmap_mark *right)
{
	struct unmap_mark *top = left;

	if (!left || !right)
		return left ? left : right;
	if (left->priority > right->priority) {
		left->right = merge(left->right, right);
	} else {
		right->left = merge(left, right->left);
		top = right;
	}
	update_reach(top);
	return top;
}

static struct unmap_mark *insert(struct unmap_mark *tree, struct unmap_mark *mark)
{
	if (!tree || mark->priority > tree->priority) {
		split(tree, mark, &mark->left, &mark->right);
		tree = mark;
	} else if (is_before(mark, tree)) {
		tree->left = insert(tree->left, mark);
	} else {
		tree->right = insert(tree->right, mark);
	}
	update_reach(tree);
	return tree;
}

static struct unmap_mark *erase(struct unmap_mark *tree, const struct unmap_mark *mark)
{
	if (tree == mark)
		return merge(tree->left, tree->right);
	if (is_before(mark, tree))
		tree->left = erase(tree->left, mark);
	else
		tree->right = erase(tree->right, mark);
	update_reach(tree);
	return tree;
}

static void set_flags(struct unmap_mark *tree, uintptr_t start, uintptr_t end)
{
	if (!tree || tree->reach <= start)
		return;
	set_flags(tree->left, start, end);
	if (tree->start >= end)
		return;
	if (tree->end > start)
		atomic_store_explicit(tree->is_gone, true, memory_order_release);
	set_flags(tree->right, start, end);
}

/* Returns the first mark of those that end after `at`, or NULL. */
static const struct unmap_mark *first_after(const struct unmap_mark *tree, uintptr_t at)
{
	while (tree && tree->reach > at) {
		if (tree->left && tree->left->reach > at)
			tree = tree->left;
		else if (tree->end > at)
			return tree;
		else
			tree = tree->right;
	}
	return NULL;
}

/* xorshift32 */
static uint32_t next_priority(void)
{
	marks.random ^= marks.random << 13;
	marks.random ^= marks.random >> 17;
	marks.random ^= marks.random << 5;
	return marks.random;
}

/* ---- the listener */

static bool gone(struct unmap_listener *listener, uintptr_t start, uintptr_t end)
{
	(void)listener;
	set_flags(marks.root, start, end);
	return false;
}

static void after(struct unmap_listener *listener)
{
	(void)listener;
}

static bool needs(struct unmap_listener *listener, uintptr_t at, uintptr_t *until)
{
	const struct unmap_mark *mark = first_after(marks.root, at);
	uintptr_t first, end;
	bool is_inside;

	(void)listener;
	if (!mark)
		return false;
	first = mark->start & ~(mark->page - 1);
	end = (mark->end + mark->page - 1) & ~(mark->page - 1);
	is_inside = first <= at;
	if ((is_inside ? end : first) < *until)
		*until = is_inside ? end : first;
	return is_inside;
}

/* A child has none of the parent's devices, and its marks are void. */
static void reset_in_child(void)
{
	pthread_mutex_init(&marks.mutex, NULL);
	marks.users = 0;
	marks.is_open = false;
	marks.root = NULL;
	marks.n = 0;
	marks.is_behind = false;
	marks.process++;
}

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, reset_in_child);
}

/* ---- the functions of the header */

static void add_user(struct unmap_user *user)
{
	user->process = marks.process;
	if (marks.users++)
		return;
	marks.listener = (struct unmap_listener){
		.gone = gone, .after = after, .needs = needs, .ignores_pages = true
	};
	list_init(&marks.listener.node);
	marks.is_open = unmap_watch_add(&marks.listener) == 0;
}

void unmap_mark_open(struct unmap_user *user)
{
	static atomic_flag was_said = ATOMIC_FLAG_INIT;
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	char error[ERROR_TEXT_MAX];
	bool is_open;

	pthread_once(&once, watch_forks);
	error_save(error);
	pthread_mutex_lock(&marks.mutex);
	if (user->process != marks.process)
		add_user(user);
	is_open = marks.is_open;
	pthread_mutex_unlock(&marks.mutex);
	if (!is_open && !atomic_flag_test_and_set(&was_said))
		frl_log(FRL_LOG_INFO,
			"regions whose memory was unmapped are detected only when they are used: "
			"%s",
			frl_last_error());
	error_restore(error);
}

void unmap_mark_close(struct unmap_user *user)
{
	pthread_mutex_lock(&marks.mutex);
	if (user->process == marks.process && --marks.users == 0 && marks.is_open) {
		marks.is_open = false;
		unmap_watch_remove(&marks.listener);
	}
	user->process = 0;
	pthread_mutex_unlock(&marks.mutex);
}

/*
 * Takes the lock when earlier messages were handled. They are about what was mapped before at the
 * addresses of the next mark, and would set its flag. A thread that unmaps may have lost its
 * processor before its message, so this waits without the lock.
 *
 * Some kernels count a failed mremap() as a change for ever. After one wait in vain, marks are
 * added at once: a late message is then less likely than memory that nobody watches.
 */
static void lock_caught_up(void)
{
	const struct timespec pause = { .tv_nsec = PAUSE_NS };
	int pauses = 0;

	unmap_watch_lock();
	while (!unmap_watch_catch_up()) {
		if (marks.is_behind || pauses++ == PAUSES) {
			marks.is_behind = true;
			return;
		}
		unmap_watch_unlock();
		nanosleep(&pause, NULL);
		unmap_watch_lock();
	}
	marks.is_behind = false;
}

/* Watches the range and adds the mark. Huge pages of hugetlbfs need their own size. */
static bool try_add(struct unmap_mark *mark, size_t page)
{
	bool is_added;

	lock_caught_up();
	is_added = marks.n < MARKS_MAX && unmap_watch_mapping(mark->start, mark->end, page) == 0;
	if (is_added) {
		mark->page = page;
		mark->process = marks.process;
		mark->priority = next_priority();
		marks.root = insert(marks.root, mark);
		marks.n++;
	}
	unmap_watch_unlock();
	return is_added;
}

bool unmap_mark_add(struct unmap_mark *mark, uintptr_t start, uintptr_t end, atomic_bool *is_gone)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), huge;

	*mark = (struct unmap_mark){ .start = start, .end = end, .is_gone = is_gone };
	if (!marks.is_open)
		return false;
	if (try_add(mark, page))
		return true;
	huge = mapping_private_page(start, end);
	return huge > page && try_add(mark, huge);
}

void unmap_mark_move(struct unmap_mark *to, struct unmap_mark *from, atomic_bool *is_gone)
{
	if (!from->page)
		return;
	unmap_watch_lock();
	marks.root = erase(marks.root, from);
	*to = *from;
	to->is_gone = is_gone;
	marks.root = insert(marks.root, to);
	if (atomic_load(from->is_gone))
		atomic_store_explicit(is_gone, true, memory_order_release);
	unmap_watch_unlock();
	from->page = 0;
}

void unmap_mark_remove(struct unmap_mark *mark)
{
	if (!mark->page)
		return;
	unmap_watch_lock();
	if (mark->process == marks.process) {
		marks.root = erase(marks.root, mark);
		marks.n--;
		if (mark->end - mark->start <= RELEASED_MAX)
			unmap_watch_release(mark->start, mark->end, mark->page);
	}
	unmap_watch_unlock();
	mark->page = 0;
}
