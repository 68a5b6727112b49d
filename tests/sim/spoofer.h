/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Somebody in the network who sends packets in the names of others. In most worlds what he says is
 * wrong in at least one field that receivers must look at, so that it has no effect on any data;
 * under FAULT_SPOOFED he knows the numbers of the first pair, and says what he likes.
 */
#ifndef FERRULE_SIM_SPOOFER_H
#define FERRULE_SIM_SPOOFER_H

struct world;

/* The field that is wrong. */
enum lie {
	LIE_QPN,
	LIE_SOURCE, /* another address of the same subnet */
	LIE_DESTINATION,
	LIE_PKEY,
	LIE_ICRC,
	LIE_VERSION,
	LIE_OPCODE,
	LIE_TRANSPORT,
	LIE_SHORT,
	LIE_OLD_REQUEST,
	LIE_FAR_REQUEST,
	LIE_OLD_ANSWER,
	LIE_FAR_ANSWER,
	LIE_QKEY,
	LIE_CNP,
	LIE_NONE, /* all of it is plausible */
	N_LIES
};

extern const char *const lie_names[N_LIES];

/* He sends as long as the world lasts. */
void spoofer_start(struct world *world);

#endif
