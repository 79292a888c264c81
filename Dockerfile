# The sharder's image, and one with the examples (--target examples):
#
#   make image                       docker, podman or buildah: make image BUILDER=podman
#
# Any base will do that has Python 3.11 or newer as python3; the one that builds needs pip, too. Name a base with its
# digest to pin its content.
ARG BASE=docker.io/library/python:3.13.7-slim-bookworm
ARG BUILD_BASE=${BASE}

FROM ${BUILD_BASE} AS build
# Where packages come from and whom to trust there, when it is not PyPI.
ARG PIP_INDEX_URL=
ARG PIP_FIND_LINKS=
ARG PIP_CERT=
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python3 -m venv --without-pip /opt/sharder
# Versions and hashes as locked. They come before the sources, which change more often.
COPY requirements.txt ./
RUN python3 -m pip --python /opt/sharder/bin/python3 install --require-hashes --no-compile -r requirements.txt
# Of the kubernetes package only configuration and transport are used; generated APIs and models are half of everything.
RUN find /opt/sharder/lib/python3*/site-packages/kubernetes -name '*.py' ! -name __init__.py \
      \( -path '*/client/api/*' -o -path '*/client/models/*' \) -delete
COPY shardsdk/ shardsdk/
COPY sharder/ sharder/
COPY crds/ sharder/crds/
# Compiled here, once: it runs on a read-only root file system, and files' times mean nothing in layers.
RUN cp -R shardsdk sharder /opt/sharder/lib/python3*/site-packages/ \
 && printf '#!/opt/sharder/bin/python3\nfrom sharder.__main__ import main\n\nraise SystemExit(main())\n' > /opt/sharder/bin/sharder \
 && chmod 0755 /opt/sharder/bin/sharder \
 && /opt/sharder/bin/python3 -m compileall -q --invalidation-mode unchecked-hash /opt/sharder/lib \
 && /opt/sharder/bin/sharder version \
 && /opt/sharder/bin/python3 -c 'import sharder.install, sharder.service, shardsdk.kube.kubeconfig, shardsdk.lease.election'

FROM ${BASE} AS runtime
COPY --from=build /opt/sharder /opt/sharder
ENV PATH=/opt/sharder/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /tmp
# By number, so that a kubelet can see that it is not root.
USER 65532:65532
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="controller-sharding" \
      org.opencontainers.image.description="Spreads the objects of Kubernetes controllers over several active replicas" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

# Its argument is the example's module: examples.checksum, examples.elected or examples.stateful. Others take packages, or
# parts of the kubernetes package, that are not in here.
FROM runtime AS examples
COPY examples/ /opt/examples/examples/
ENV PYTHONPATH=/opt/examples
ENTRYPOINT ["/opt/sharder/bin/python3", "-m"]

FROM runtime AS sharder
# 9443 webhook, 8080 metrics, 8081 probes
EXPOSE 9443 8080 8081
ENTRYPOINT ["/opt/sharder/bin/sharder"]
