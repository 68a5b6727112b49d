/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An attempt is ended by siglongjmp() out of the handler. The handler runs in the thread that
 * faults, at the instruction that faults, so it interrupts nothing but the access. sigsetjmp() does
 * not save the signal mask, which would be a system call in each attempt. The handler takes it from
 * the context: a handler that was installed later, and passes the fault on, has changed the mask.
 */
#include "lib/base/memory/fault.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <ucontext.h>

#include "lib/base/memory/copy.h"

/* It calls handlers with all signals blocked, and holds locks during accesses that it checks. */
#if defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZER 1
#elif defined(__has_feature)
#define THREAD_SANITIZER __has_feature(thread_sanitizer)
#else
#define THREAD_SANITIZER 0
#endif

enum {
	STEP = 4096, /* at most the size of a page */
	N_SIGNALS = 2,
};

/* From Linux' <asm/signal.h>, which conflicts with <signal.h>. */
#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1U << 31)
#endif

struct attempt {
	sigjmp_buf env;
	const struct fault_area *areas;
	unsigned n;
	/* Set by the handler. */
	uintptr_t at;
	sigset_t mask; /* of the thread before the fault */
	stack_t stack;
};

/* The handler must not allocate, as other models may do at the first use in a thread. */
static _Thread_local struct attempt *volatile current __attribute__((tls_model("initial-exec")));

static const int signals[N_SIGNALS] = { SIGSEGV, SIGBUS };
/* The actions that the application had installed. */
static struct sigaction before[N_SIGNALS];
/* Such a handler with SA_RESETHAND was called, and the default action follows. */
static atomic_bool is_reset[N_SIGNALS];

static bool expects(const struct attempt *attempt, uintptr_t at)
{
	for (unsigned i = 0; i < attempt->n; i++)
		if (at - (uintptr_t)attempt->areas[i].start < attempt->areas[i].length)
			return true;
	return false;
}

static void end_by_default(int signal, bool is_sent)
{
	const struct sigaction action = { .sa_handler = SIG_DFL };

	sigaction(signal, &action, NULL);
	/* Otherwise the instruction faults again, and the default action reports its address. */
	if (is_sent)
		raise(signal);
}

/* Does what the kernel would do without the handler of this file. */
static void pass_on(int signal, siginfo_t *info, void *context)
{
	const int i = signal == SIGBUS;
	const struct sigaction *next = &before[i];
	bool is_sent = info->si_code <= 0;
	sigset_t mask = next->sa_mask;

	if (!(next->sa_flags & SA_SIGINFO) &&
		(next->sa_handler == SIG_DFL || next->sa_handler == SIG_IGN)) {
		/* A fault cannot be ignored. */
		if (next->sa_handler == SIG_DFL || !is_sent)
			end_by_default(signal, is_sent);
		return;
	}
	/* The handler of this file stays, for attempts. */
	if ((next->sa_flags & SA_RESETHAND) && atomic_exchange(&is_reset[i], true)) {
		end_by_default(signal, is_sent);
		return;
	}
	if (!(next->sa_flags & SA_NODEFER))
		sigaddset(&mask, signal);
	/* In effect until this handler returns. */
	pthread_sigmask(SIG_BLOCK, &mask, NULL);
	if (next->sa_flags & SA_SIGINFO)
		next->sa_sigaction(signal, info, context);
	else
		next->sa_handler(signal);
}

/*
 * The return from a handler enables a stack with SS_AUTODISARM again, and a jump does not. The flag
 * is set after the jump, by restore(): with it, another signal would use this stack from its top.
 */
static void keep_stack(struct attempt *attempt, const stack_t *stack)
{
	stack_t plain = *stack;

	attempt->stack = *stack;
	plain.ss_flags &= (int)~SS_AUTODISARM;
	if (plain.ss_flags != stack->ss_flags)
		sigaltstack(&plain, NULL);
}

/* Does what the return from the handler would have done. */
static void restore(const struct attempt *attempt)
{
	if ((unsigned)attempt->stack.ss_flags & SS_AUTODISARM)
		sigaltstack(&attempt->stack, NULL);
	pthread_sigmask(SIG_SETMASK, &attempt->mask, NULL);
}

static void on_fault(int signal, siginfo_t *info, void *context)
{
	const ucontext_t *interrupted = context;
	struct attempt *attempt = current;
	uintptr_t at = (uintptr_t)info->si_addr;

	if (attempt && info->si_code > 0 && expects(attempt, at)) {
		attempt->at = at;
		attempt->mask = interrupted->uc_sigmask;
		keep_stack(attempt, &interrupted->uc_stack);
		siglongjmp(attempt->env, 1);
	}
	pass_on(signal, info, context);
}

static void install(void)
{
	/* On the alternative stack if the thread has one, because the next handler may need it. */
	struct sigaction action = { .sa_sigaction = on_fault,
		.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK | SA_RESTART };

	sigemptyset(&action.sa_mask);
	for (int i = 0; i < N_SIGNALS; i++) {
		/* Complete before a signal can need it. */
		sigaction(signals[i], NULL, &before[i]);
		sigaction(signals[i], &action, NULL);
	}
}

void fault_start(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, install);
}

__attribute__((no_sanitize("thread"))) static void read_pages(void *arg)
{
	const struct fault_area *area = arg;
	const volatile uint8_t *bytes = area->start;

	for (size_t i = 0; i < area->length; i += STEP)
		(void)bytes[i];
	if (area->length)
		(void)bytes[area->length - 1];
}

bool fault_try(void (*access)(void *arg), void *arg, const struct fault_area areas[], unsigned n,
	uintptr_t *ret_at)
{
	struct attempt attempt;

	attempt.areas = areas;
	attempt.n = n;
	if (sigsetjmp(attempt.env, THREAD_SANITIZER)) {
		current = NULL;
		restore(&attempt);
		/* Stores of the part that was copied. */
		copy_settle();
		*ret_at = attempt.at;
		return false;
	}
	current = &attempt;
	atomic_signal_fence(memory_order_seq_cst);
	for (unsigned i = 0; THREAD_SANITIZER && i < n; i++)
		read_pages((void *)(uintptr_t)&areas[i]);
	access(arg);
	atomic_signal_fence(memory_order_seq_cst);
	current = NULL;
	return true;
}

struct copy {
	void *to;
	const void *from;
	size_t n;
};

static void copy(void *arg)
{
	const struct copy *c = arg;

	copy_bulk(c->to, c->from, c->n);
}

bool fault_copy(void *to, const void *from, size_t n)
{
	const struct fault_area area = { from, n };
	struct copy c = { to, from, n };
	uintptr_t at;

	return fault_try(copy, &c, &area, 1, &at);
}

bool fault_read(const void *start, size_t length, uintptr_t *ret_at)
{
	struct fault_area area = { start, length };

	return fault_try(read_pages, &area, &area, 1, ret_at);
}
