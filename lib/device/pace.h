/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long the progress thread rests: pauses while the application polls and does the work itself,
 * and sleeps while other threads want its processor (progress.c). No clock, no state but struct
 * probe.
 */
#ifndef FERRULE_DEVICE_PACE_H
#define FERRULE_DEVICE_PACE_H

#include <stdbool.h>
#include <stdint.h>

/* Returns how long the progress thread pauses next, or 0 if it drives the device. `polls` have come
 * since its last pause of `pause_ns` (0: since it drove the device). `first_ns` is the result of
 * first_pause_ns(). */
uint32_t next_pause_ns(uint32_t pause_ns, unsigned polls, uint32_t first_ns);
/* Returns how long the thread pauses if the application polls after it has driven the device.
 * `pause_ns` is the last pause, with `polls`, which ended `since_ns` ago; 0: something has moved
 * since before that pause. If nothing has, and the application polls regularly, the thread is not
 * needed: the pause is longer than the last one. */
uint32_t first_pause_ns(uint32_t pause_ns, unsigned polls, uint64_t since_ns);
/* Returns the pause after one of `pause_ns`, if the application goes on polling. */
uint32_t longer_pause_ns(uint32_t pause_ns);

/*
 * When the progress thread yields next, to find out whether other threads still want the processor.
 * Until then it sleeps instead. All zero at first.
 */
struct probe {
	uint64_t next_ns;
	uint32_t gap_ns; /* from the last yield until then */
};

bool probe_is_due(const struct probe *probe, uint64_t now_ns);
/*
 * Notes what a yield has found: other threads that want the processor, or, after such a yield, none
 * any more. The first gap is 1 ms. It doubles each time, up to 256 ms, and halves when there are
 * none. After 256 ms without such threads it is 1 ms again.
 */
void probe_note(struct probe *probe, bool is_crowded, uint64_t now_ns);

#endif
