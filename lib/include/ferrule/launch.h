/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Launchers: which rank of which job this process is, as told by who started it; and unique ids,
 * for programs that pass ranks and names around by their own means.
 *
 * A launcher only answers. The ranks then meet as always, through the control daemon, which is what
 * frl_bootstrap_join() (connect.h) does with the name of the job:
 *
 *	struct frl_bootstrap bootstrap;
 *	int err = frl_bootstrap_from_environment(30000, &bootstrap);
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

/* Whoever knows all this by other means may fill it in; start from zero. */
struct frl_launch {
	char launcher[FRL_LAUNCHER_MAX + 1]; /* "settings", "pmix", "torchrun", "hydra", "slurm" */
	/* The name under which the ranks meet. "" with "pmix" alone: rank 0 chooses one and gives
	 * it to the others through PMIx when they join. */
	char job[FRL_SERVICE_MAX + 1];
	char host[FRL_HOST_MAX + 1]; /* whose daemon keeps the job; "": this one's */
	int rank;
	int ranks;
	int local_rank;  /* among the ranks of this host; -1: the launcher does not say */
	int local_ranks; /* how many those are; or -1 */
	void *ctx;       /* the library's: a connection to the launcher; NULL: none */
};

/*
 * Finds out who has started this process. Looks, in this order, for
 *
 * 1. "settings": FRL_RANK and FRL_RANKS, with FRL_JOB;
 * 2. "torchrun": TORCHELASTIC_RUN_ID with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; also
 *    LOCAL_RANK, LOCAL_WORLD_SIZE, TORCHELASTIC_RESTART_COUNT. torchrun itself may be a task of
 *    srun, so that PMIx would know of torchrun only;
 * 3. "pmix": PMIX_NAMESPACE, PMIX_RANK and PMIX_SERVER_URI* (mpirun of Open MPI, srun --mpi=pmix,
 *    prun);
 * 4. "torchrun": the same variables without TORCHELASTIC_RUN_ID, set by hand;
 * 5. "hydra": PMI_RANK, PMI_SIZE and HYDI_CONTROL_FD (mpiexec of MPICH);
 * 6. "slurm": SLURM_PROCID and SLURM_STEP_ID (srun without PMIx).
 *
 * FRL_LAUNCHER names the only one to be looked for. FRL_JOB and FRL_JOB_HOST, where set, go before
 * what the launcher says of job and host.
 * Talks to the PMIx server of this host, if that is the launcher, and to nobody else. Whoever gets
 * a launch closes it. -ENOENT: there is none of these, frl_last_error() lists what was looked for;
 * -EINVAL: half of it is set, or to something that makes no sense: it names variable and value;
 * -ENOTSUP: it needs PMIx, and this build or this machine has none; -ENOTCONN: the PMIx server is
 * not there; -ETIMEDOUT: it does not answer within 15 s.
 */
FRL_API int frl_launch_detect(struct frl_launch *ret_launch);

/*
 * Gives back what a launch holds. With PMIx the process says good-bye to its launcher with the last
 * of its launches and of the bootstraps made from them; a process that ends without that has failed
 * as far as mpirun is concerned, which then ends the job. NULL is fine, and a second call.
 */
FRL_API void frl_launch_close(struct frl_launch *launch);

/*
 * frl_bootstrap_join() as the launch says. A host that is this one by name or address means the
 * daemon of this host, even one that does not listen for others. Waits up to `timeout_ms` for the
 * daemons, and with PMIx for rank 0 to have come here. The launch may be closed before the
 * bootstrap is. Of the bootstraps that a rank makes of one job and host, by this function or the
 * next one, the first meets the other ranks' first, the second one their second, and so on: each is
 * a job of its own. Not by two threads at once. Errors as of frl_bootstrap_join(); -ETIMEDOUT also:
 * rank 0 did not come.
 */
FRL_API int frl_bootstrap_from_launch(
	const struct frl_launch *launch, int timeout_ms, struct frl_bootstrap *ret_bootstrap);

/* frl_launch_detect() and frl_bootstrap_from_launch(). */
FRL_API int frl_bootstrap_from_environment(int timeout_ms, struct frl_bootstrap *ret_bootstrap);

/*
 * Names a job that nobody else has, and where its ranks meet. Bytes to be sent as they are, all or
 * up to the '\0', which is always there; the contents are checked by the receiver.
 */
struct frl_unique_id {
	char text[FRL_UNIQUE_ID_SIZE];
};

/*
 * For one process of a job, which then passes it to the others by its own means. They meet at
 * FRL_JOB_HOST, if that is set; else at the daemon of this host: from elsewhere under the address
 * on which it listens. If it does not (the one that the library starts does not) the id is for
 * processes of this host only. Blocks while a daemon is started. -ENOTCONN, -ETIMEDOUT: no daemon;
 * -EINVAL: FRL_JOB_HOST has more than 64 characters.
 */
FRL_API int frl_unique_id_create(struct frl_unique_id *ret_id);

/*
 * frl_bootstrap_join() for the job of `id`. -EINVAL: that is none; -EHOSTUNREACH: it is good for
 * another host only, or nobody is there. An id is good for one bootstrap of each rank.
 */
FRL_API int frl_bootstrap_from_unique_id(const struct frl_unique_id *id, int rank, int ranks,
	int timeout_ms, struct frl_bootstrap *ret_bootstrap);

#ifdef __cplusplus
}
#endif
#endif
