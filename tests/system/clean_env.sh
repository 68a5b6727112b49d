# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Sourced: removes settings of the caller from the environment, so that tests do the same for all
# callers: settings of Ferrule, Check, NCCL, MPI, PMIx, Slurm, torchrun, systemd and the doubles,
# proxies and the language. Variables that meson.build sets, and variables that choose cases, stay.
# So do names that match $keep_settings.

clean_env() {
	local name stays
	stays='FRL_(BIN|DATA|VECTORS|CORPUS|KERNELS|FAKE_LIBCUDA|TUNER_CACHE|TUNER_COSTS|PEER)'
	stays+='|FRL_(NCCL_WIRE|INTEROP_DIR|BUILD|BUILD_DIR|BUILD_ROOT|SOURCE_ROOT)'
	stays+='|FRL_(SEEDS?|MATRIX|FAULTS|CYCLES|TEST_LIMIT|TEST_MACHINE|TEST_USER)'
	for name in $(compgen -e); do
		[[ ! $name =~ ^($stays)$ ]] || continue
		[[ -z ${keep_settings-} || ! $name =~ ^($keep_settings)$ ]] || continue
		case $name in
		FRL_* | CK_* | FERRULE_* | FAKE_CUDA_* | FAKE_DEVICES | SOCKET_NET_* | NCCL_*) ;;
		OMPI_* | OPAL_* | ORTE_* | PRTE_* | PMIX_* | PMI_* | HYDRA_* | MPI*_*) ;;
		SLURM*_* | SRUN_* | SALLOC_* | SBATCH_* | UCX_* | FI_*) ;;
		RANK | *_RANK | WORLD_SIZE | *_WORLD_SIZE | MASTER_* | TORCHELASTIC_*) ;;
		NOTIFY_SOCKET | WATCHDOG_* | LISTEN_* | JOURNAL_STREAM | COLUMNS | LANG*) ;;
		*_proxy | *_PROXY) ;;
		*) continue ;;
		esac
		unset "$name"
	done
	export LC_ALL=C.UTF-8
}
clean_env
