/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Launchers: which rank of which job this process is, according to its launcher. Unique ids are for
 * programs that distribute ranks and names themselves.
 *
 * The launcher only supplies these values. The ranks then connect through the control daemon:
 * frl_bootstrap_join() (connect.h) with the name of the job.
 *
 *     struct frl_bootstrap bootstrap;
 *     int err = frl_bootstrap_from_environment(30000, &bootstrap);
 *
 * Threads: any thread may call these functions, but see frl_bootstrap_from_launch().
 *
 * Sources: PMIx Standard 4.1 (chapters on Init and on job-level data); torchrun's manual, section
 * "Environment Variables"; srun(1), "OUTPUT ENVIRONMENT VARIABLES"; NCCL's ncclGetUniqueId().
 */
#ifndef FERRULE_LAUNCH_H
#define FERRULE_LAUNCH_H

#include <ferrule/cm.h>
#include <ferrule/connect.h>
#include <ferrule/error.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
	FRL_LAUNCHER_MAX = 15,
	FRL_UNIQUE_ID_SIZE = 128,
};

/*
 * The place of a process in a job. A program that knows the values by other means may fill in the
 * struct; start from zero.
 */
struct frl_launch {
	char launcher[FRL_LAUNCHER_MAX + 1]; /* "settings", "pmix", "torchrun", "hydra", "slurm" */
	/*
	 * The name of the job for frl_bootstrap_join(). "" only with "pmix": rank 0 then chooses a
	 * name and distributes it through PMIx when the ranks join.
	 */
	char job[FRL_SERVICE_MAX + 1];
	char host[FRL_HOST_MAX + 1]; /* the host whose daemon keeps the job; "": this host */
	int rank;
	int ranks;
	int local_rank;  /* among the ranks of this host; -1: not known */
	int local_ranks; /* number of ranks of this host; -1: not known */
	void *ctx;       /* owned by the library: a connection to the launcher; NULL: none */
};

/*
 * Detects the launcher of this process. Checks in this order:
 *
 * 1. "settings": FRL_RANK and FRL_RANKS, with FRL_JOB;
 * 2. "torchrun": TORCHELASTIC_RUN_ID with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; also
 *    LOCAL_RANK, LOCAL_WORLD_SIZE, TORCHELASTIC_RESTART_COUNT. torchrun comes before "pmix" because
 *    it may be a task of srun, and PMIx would then report only torchrun's processes;
 * 3. "pmix": PMIX_NAMESPACE, PMIX_RANK and PMIX_SERVER_URI* (mpirun of Open MPI, srun --mpi=pmix,
 *    prun);
 * 4. "torchrun": the same variables without TORCHELASTIC_RUN_ID, set by hand;
 * 5. "hydra": PMI_RANK, PMI_SIZE and HYDI_CONTROL_FD (mpiexec of MPICH);
 * 6. "slurm": SLURM_PROCID and SLURM_STEP_ID (srun without PMIx).
 *
 * FRL_LAUNCHER restricts the search to one launcher. FRL_JOB and FRL_JOB_HOST override the
 * launcher's job and host. The call contacts the PMIx server of this host if that is the launcher,
 * and no other server. Close *ret_launch with frl_launch_close().
 *
 * Returns -ENOENT (no launcher; frl_last_error() names a variable of each), -EINVAL (variables are
 * missing or invalid; the text names variable and value), -ENOTSUP (needs PMIx, which this build or
 * machine does not have), -ENOTCONN (no PMIx server) or -ETIMEDOUT (the PMIx server did not answer
 * within 15 s).
 */
FRL_API int frl_launch_detect(struct frl_launch *ret_launch);

/*
 * Frees what a launch holds. With PMIx the process finalizes its PMIx connection with the last of
 * its launches and of the bootstraps made from them. mpirun treats a process that exits without
 * this as failed, and ends the job. NULL is fine, and so is a second call.
 */
FRL_API void frl_launch_close(struct frl_launch *launch);

/*
 * Joins the job of a launch, as frl_bootstrap_join() does. If the host is this one, by name or
 * address, the daemon of this host is used, even if it does not listen for others. Waits up to
 * `timeout_ms` for the daemons, and with PMIx also for rank 0 to call this. The launch may be
 * closed before the bootstrap.
 *
 * A rank may make several bootstraps of one job and host, by this function or the next one. The
 * n-th one of a rank joins the n-th one of the other ranks; each is a job of its own. Only one
 * thread at a time may call this. Errors as frl_bootstrap_join(); -ETIMEDOUT also if rank 0 did not
 * call this.
 */
FRL_API int frl_bootstrap_from_launch(
	const struct frl_launch *launch, int timeout_ms, struct frl_bootstrap *ret_bootstrap);

/* Calls frl_launch_detect() and frl_bootstrap_from_launch(). */
FRL_API int frl_bootstrap_from_environment(int timeout_ms, struct frl_bootstrap *ret_bootstrap);

/*
 * A unique name of a job, and where its ranks meet. Send the bytes unchanged, all or up to the
 * '\0', which is always there. The receiver checks the contents.
 */
struct frl_unique_id {
	char text[FRL_UNIQUE_ID_SIZE];
};

/*
 * Creates a unique id. One process of a job calls this, and passes the id to the others by its own
 * means. The ranks meet at FRL_JOB_HOST if it is set, and otherwise at the daemon of this host,
 * under the address on which it listens. If that daemon does not listen (a daemon started by the
 * library does not), the id is valid only on this host. Blocks while a daemon is started. Returns
 * -ENOTCONN or -ETIMEDOUT (no daemon), or -EINVAL (FRL_JOB_HOST has more than 64 characters).
 */
FRL_API int frl_unique_id_create(struct frl_unique_id *ret_id);

/*
 * Joins the job of `id`, as frl_bootstrap_join() does. An id is valid for one bootstrap of each
 * rank. Returns -EINVAL if `id` is malformed, and -EHOSTUNREACH if it is valid only on another
 * host, or if no daemon answers there.
 */
FRL_API int frl_bootstrap_from_unique_id(const struct frl_unique_id *id, int rank, int ranks,
	int timeout_ms, struct frl_bootstrap *ret_bootstrap);

#ifdef __cplusplus
}
#endif
#endif
