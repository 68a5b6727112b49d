/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All settings in one table: name, default, range, help. Only this file reads the environment. Any
 * thread.
 */
#ifndef FERRULE_BASE_SETTINGS_H
#define FERRULE_BASE_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(member, "NAME", default, min, max, "help") - numbers */
#define SETTINGS_NUMBERS(X)                                                                        \
	X(segment_kb, "FRL_SEGMENT_KB", 128, 4, 16384, "pipeline segment of a collective, KiB")    \
	X(window, "FRL_WINDOW", 256, 1, 4096, "request packets in flight of one queue pair")       \
	X(path_mtu, "FRL_PATH_MTU", 0, 0, 16384, "largest path MTU to use, bytes; 0: what fits")   \
	X(in_place, "FRL_IN_PLACE", 1, 0, 1,                                                       \
		"let peers on this machine read shared payload in place")                          \
	X(shm, "FRL_SHM", 1, 0, 1,                                                                 \
		"collectives of ranks on one machine go by memory that they share")                \
	X(shm_write, "FRL_SHM_WRITE", 1, 0, 1,                                                     \
		"ranks of one machine may write results into each other's memory")                 \
	X(share_malloc_kb, "FRL_SHARE_MALLOC_KB", 256, 64, 1048576,                                \
		"allocations from this size are shareable with --share-malloc, KiB")               \
	X(share_malloc_keep_mb, "FRL_SHARE_MALLOC_KEEP_MB", 64, 0, 1048576,                        \
		"freed blocks kept with --share-malloc for the next allocation, MiB")              \
	X(control_lost_s, "FRL_CONTROL_LOST_S", 15, 1, 3600,                                       \
		"how long ranks of a job do without the control daemon, s")                        \
	X(coll_timeout_s, "FRL_COLL_TIMEOUT_S", 0, 0, 86400,                                       \
		"a collective without progress fails after so long, s; 0: never")                  \
	X(held_frames, "FRL_HELD_FRAMES", 0, 0, 65536,                                             \
		"packet buffers of a port for payload that stays in them")                         \
	X(traffic_class, "FRL_TRAFFIC_CLASS", 0, 0, 255, "of connections: DSCP (times 4) and ECN") \
	X(ack_timeout, "FRL_ACK_TIMEOUT", 0, 0, 31,                                                \
		"of connections: 4.096 us times 2 to this power; 0: by device")                    \
	X(verbs_part_id, "FRL_VERBS_PART_ID", 1, 0, 65535,                                         \
		"vendor_part_id that the drop-in libibverbs reports")

/* X(member, "NAME", "default", "choices", "help") - words; choices separated by |, empty: any
 * word */
#define SETTINGS_WORDS(X)                                                                  \
	X(eal_args, "FRL_EAL_ARGS", "", "", "further arguments for DPDK's EAL")            \
	X(icrc, "FRL_ICRC", "auto", "auto|always", "auto: none where the link is memory")  \
	X(progress, "FRL_PROGRESS", "auto", "auto|inline|thread", "who drives a device")   \
	X(fabric, "FRL_FABRIC", "", "", "fabric of which a device leases its port")        \
	X(control, "FRL_CONTROL", "auto", "", "auto, off, or the daemon's socket")         \
	X(daemon, "FRL_DAEMON", "", "", "executable of the daemon that is started")        \
	X(algo, "FRL_ALGO", "auto", "", "algorithms: ring or allreduce=ring,reduce=tree")  \
	X(tuner_costs, "FRL_TUNER_COSTS", "", "", "latency=2048,byte=0.25, or default")    \
	X(tuner_cache, "FRL_TUNER_CACHE", "auto", "", "folder of measured costs")          \
	X(launcher, "FRL_LAUNCHER", "auto", "auto|settings|torchrun|pmix|hydra|slurm",     \
		"who says which rank this is")                                             \
	X(job, "FRL_JOB", "", "", "name of the job in which ranks meet")                   \
	X(job_host, "FRL_JOB_HOST", "", "", "host whose daemon keeps the job")             \
	X(verbs_devices, "FRL_VERBS_DEVICES", "", "", "devices of the drop-in libibverbs") \
	X(relaxed_ordering, "FRL_RELAXED_ORDERING", "auto", "auto|on|off",                 \
		"hardware: PCIe writes may overtake each other")                           \
	X(gpu_tier, "FRL_GPU_TIER", "auto", "auto|dma-buf|peermem|nic-queue|mapped|off",   \
		"how GPU memory is reached")                                               \
	X(rank, "FRL_RANK", "", "", "rank of this process")                                \
	X(ranks, "FRL_RANKS", "", "", "ranks of the job")

/* X("NAME") - the NCCL plugin's settings, which nccl/settings.c reads. */
/* clang-format off */
#define SETTINGS_PLUGIN(X)                                                                         \
	X("FERRULE_DEVICES") X("FERRULE_GPU") X("FERRULE_LOG") X("FERRULE_QPS")                    \
	X("FERRULE_REQUIRE") X("FERRULE_TIMEOUT_S") X("FERRULE_UNPACK")
/* clang-format on */

struct settings {
#define SETTINGS_NUMBER_FIELD(member, name, value, min, max, help) uint64_t member;
	SETTINGS_NUMBERS(SETTINGS_NUMBER_FIELD)
#undef SETTINGS_NUMBER_FIELD
#define SETTINGS_WORD_FIELD(member, name, value, choices, help) const char *member;
	SETTINGS_WORDS(SETTINGS_WORD_FIELD)
#undef SETTINGS_WORD_FIELD
};

/* Returns the value of a variable, or NULL. This is getenv() except in tests. */
typedef const char *(*settings_lookup_fn)(const char *name);

/*
 * Fills in *settings. Words are copied or point into the table. A value that is no number, out of
 * range or no valid choice is replaced by the default. Returns 0, or -EINVAL or -ENOMEM with a text
 * about the first error in `error`. Call settings_free() in any case.
 */
int settings_read(struct settings *settings, settings_lookup_fn lookup, char *error, size_t size);
void settings_free(struct settings *settings);

/* Returns the effective settings, which are read once from the environment. A bad value is replaced
 * by the default, and settings_error() reports it. Never NULL. */
const struct settings *settings_get(void);

/* Returns true if the program has more privileges than its user (setuid, file capabilities). Then
 * only settings that give the user no privileges are read from the environment. */
bool settings_are_guarded(void);
/* Returns the names of the settings ignored for that reason, separated by commas, or NULL. */
const char *settings_ignored(void);

/* Returns the current value of another program's variable, such as a launcher's, or NULL. Guarded
 * programs read it, too: ask settings_are_guarded() before it lets code be loaded. */
const char *settings_foreign(const char *name);

/* Returns true if a variable with this prefix exists. */
bool settings_has_foreign(const char *prefix);

/* Returns $XDG_RUNTIME_DIR, or NULL. It is not a setting, but also part of the environment. */
const char *settings_runtime_dir(void);

/* Returns the folder for reproducible files of the user: $XDG_CACHE_HOME/ferrule, or
 * ~/.cache/ferrule. Returns NULL if neither variable is set. */
const char *settings_cache_dir(void);

/* Returns the setting that a misspelt variable FRL_* or FERRULE_* of this length resembles. Returns
 * NULL if the variable is a setting, or resembles none. */
const char *settings_nearest(const char *name, size_t len);

/* Writes a text about all misspelt settings. Returns false if there are none. */
bool settings_misspelt(char *const *environment, char *text, size_t size);

/* Returns that text for the process's environment, or NULL. */
const char *settings_misspelling(void);

/* Returns the first error in the environment, with which opening a device fails, or NULL. */
const char *settings_error(void);

#endif
