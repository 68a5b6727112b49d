# SPDX-License-Identifier: BSD-3-Clause
#
# An image in which programs for libibverbs run without an RDMA NIC (docs/guide/verbs.md). Its
# context is the folder of packages, as for the image of the daemon:
#
#     scripts/package.sh --build-only --out packages
#     docker build -t ferrule-verbs:0.1.0 -f packaging/container/verbs.Dockerfile packages
#
# Put your programs into an image that is made FROM this one, or replace those of Debian here.
FROM debian:bookworm-slim
COPY libferrule0_*.deb ferrule-tools_*.deb /packages/
RUN apt-get update && \
    apt-get install -y --no-install-recommends /packages/*.deb ibverbs-utils perftest && \
    rm -rf /packages /var/lib/apt/lists/*
CMD ["ferrule-run", "ibv_devinfo"]
