/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Deliberate mistakes of the socket plugin (SOCKET_NET_DEFECT=NAME), one at a time. Each has a row
 * of the harness that must fail by it. See selftest.sh.
 */
#ifndef TESTS_NCCL_SOCKET_DEFECTS_H
#define TESTS_NCCL_SOCKET_DEFECTS_H

#include <stdbool.h>

#define SOCKET_DEFECTS(X)                                                              \
	X(NONE, "none")                                                                \
	X(ACCEPT_BLOCKS, "accept-blocks")         /* accept waits for its peer */      \
	X(ANY_DEVICE, "any-device")               /* devices that there are not */     \
	X(ANY_POINTER, "any-pointer")             /* registers memory of GPUs */       \
	X(CLOSE_BLOCKS, "close-blocks")           /* close takes three seconds */      \
	X(CUT_SIZE, "cut-size")                   /* int's 30 low bits */              \
	X(CORRUPT, "corrupt")                     /* a bit of a long message flips */  \
	X(DEAF, "deaf")                           /* a dead peer goes unnoticed */     \
	X(DUPLICATE_NAMES, "duplicate-names")     /* two devices, one name */          \
	X(FIRST_TAG, "first-tag")                 /* of all parts, in old tables */    \
	X(FULL_ERROR, "full-error")               /* an error instead of no request */ \
	X(GROUP_MISMATCH, "group-mismatch")       /* slots by order, not by tag */     \
	X(HUGE_HANDLE, "huge-handle")             /* writes beyond 128 bytes */        \
	X(LATE_WRITE, "late-write")               /* writes after completion */        \
	X(LEAKS_FILES, "leaks-files")             /* sockets of receivers */           \
	X(LOST_MESSAGE, "lost-message")           /* every 20th message */             \
	X(LOST_TAG, "lost-tag")                   /* the header has no tag */          \
	X(NEEDS_LISTENER, "needs-listener")       /* closeListen ends what it gave */  \
	X(NO_EVENTS, "no-events")                 /* for the profiler */               \
	X(NOT_AGAIN, "not-again")                 /* no second life after dlclose */   \
	X(OPTIONAL_NEVER, "optional-never")       /* then never says done */           \
	X(OVERRUN, "overrun")                     /* one byte beyond the message */    \
	X(OVERTAKES, "overtakes")                 /* sends go out of order */          \
	X(RAIL_ZERO, "rail-zero")                 /* properties filled with zeroes */  \
	X(SHORT_EVENT, "short-event")             /* of half the bytes */              \
	X(SILENT, "silent")                       /* fails without a word */           \
	X(SWAPPED, "swapped")                     /* speed and port, in version 8 */   \
	X(TEAR_LINE, "tear-line")                 /* LL128's flag before its line */   \
	X(TEAR_WORD, "tear-word")                 /* LL's flag before its data */      \
	X(TRUSTS_HANDLES, "trusts-handles")       /* connects to anything */           \
	X(TRUNCATES, "truncates")                 /* drops what does not fit */        \
	X(UNBALANCED_EVENTS, "unbalanced-events") /* a start without a stop */         \
	X(USES_GONE, "uses-gone")                 /* what was deregistered */          \
	X(WINDOW_16, "window-16")                 /* half the requests */              \
	X(WRITES_AFTER_CLOSE, "writes-after-close")                                    \
	X(WRONG_EVENT, "wrong-event") /* of no network */                              \
	X(WRONG_MR, "wrong-mr")       /* deregisters another one */                    \
	X(WRONG_SIZE, "wrong-size")   /* says what was asked for */                    \
	X(ZERO_NEVER, "zero-never")   /* nothing for empty messages */

#define SOCKET_DEFECT_ENUM(name, text) DEFECT_##name,
enum socket_defect { SOCKET_DEFECTS(SOCKET_DEFECT_ENUM) };

extern enum socket_defect socket_defect;

/* Reads SOCKET_NET_DEFECT; returns false for an unknown name. */
bool socket_read_defect(void);

static inline bool has_defect(enum socket_defect defect)
{
	return __builtin_expect(socket_defect == defect, 0);
}

#endif
