/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An attacker in the network who sends packets in the names of others. In most worlds at least one
 * field that receivers must check is wrong, so that the packet has no effect on any data. Under
 * FAULT_SPOOFED the attacker knows the numbers of the first pair and sends anything.
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

/* Sends as long as the world lasts. */
void spoofer_start(struct world *world);

#endif
