# SPDX-License-Identifier: Apache-2.0
# The scheduler's image, built in a container, for machines with docker. The project's own tests and its demo make the same
# files without docker (images/aliquot_images.py) and do not run this file.
#     docker build -f images/scheduler.Dockerfile -t aliquot-scheduler:VERSION .
FROM debian:12 AS build
COPY scripts/packages.txt /tmp/packages.txt
RUN apt-get update && sed 's/#.*//' /tmp/packages.txt | xargs apt-get install -y --no-install-recommends
COPY . /src
# Not below /src, which has the builds of the machine that sends it. The packages are there.
RUN make -C /src BUILD=/build -o setup release \
    && python3 /src/images/aliquot_images.py --build /build-release --rootfs /rootfs scheduler

FROM scratch
COPY --from=build /rootfs /
ENTRYPOINT ["/usr/local/bin/aliquot-scheduler"]
