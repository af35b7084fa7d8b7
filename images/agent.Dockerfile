# SPDX-License-Identifier: Apache-2.0
# The agent's image, built in a container. For those who have docker; the project's own tests and its demo make the same
# files without it (images/aliquot_images.py), so this file is a convenience that they do not run.
#     docker build -f images/agent.Dockerfile -t aliquot-agent:dev .
FROM debian:12 AS build
COPY scripts/packages.txt /tmp/packages.txt
RUN apt-get update && xargs apt-get install -y --no-install-recommends </tmp/packages.txt
COPY . /src
RUN meson setup /build /src --buildtype release && ninja -C /build \
    && python3 /src/images/aliquot_images.py --build /build --rootfs /rootfs agent

FROM scratch
COPY --from=build /rootfs /
ENTRYPOINT ["/usr/local/bin/aliquot-agent"]
