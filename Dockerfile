# One image for all services; docker-compose.yml says which one a container runs.
# Nothing here needs BuildKit.
ARG PYTHON_IMAGE=python:3.12-slim

FROM ${PYTHON_IMAGE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# pip installs into an environment that it is not a part of, so that none is left in the image.
RUN python -m venv /opt/tools && python -m venv --without-pip /opt/reprieve
ENV INTO="/opt/tools/bin/pip --quiet --python /opt/reprieve/bin/python"
WORKDIR /source
# The dependencies are a layer of their own: a change of our code does not fetch them again. They
# are wheels of the locked versions with the locked hashes (`make lock`), pip and the build's too.
COPY requirements requirements
ENV LOCKED="--only-binary :all: --require-hashes --requirement"
RUN /opt/tools/bin/pip --quiet install $LOCKED requirements/pip.txt \
    && /opt/tools/bin/pip --quiet install $LOCKED requirements/build.txt \
    && $INTO install $LOCKED requirements/run.txt
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY protos protos
COPY services services
COPY replay replay
COPY conformance conformance
COPY examples examples
RUN /opt/tools/bin/pip --quiet wheel --no-build-isolation --no-deps --wheel-dir /tmp/wheels . \
    && $INTO install --no-deps --no-index /tmp/wheels/*.whl \
    && $INTO check
COPY deploy/entrypoint.sh /opt/reprieve/bin/entrypoint
# numba keeps the kernels that a warm-up compiles, for this processor: deploy/entrypoint.sh.
RUN chmod 0755 /opt/reprieve/bin/entrypoint \
    && NUMBA_CACHE_DIR=/opt/reprieve/kernels /opt/reprieve/bin/python -P -c \
       "from services.scheduler.core.session.warm_up import warm_up; warm_up(); \
        from services.autoscaler.core.estimator import packing_kernel; packing_kernel.warm_up()"

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="reprieve" \
      org.opencontainers.image.description="Scheduling queue, scheduler, eviction and autoscaler as gRPC services" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/reprieve /opt/reprieve
ENV PATH=/opt/reprieve/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/tmp \
    NUMBA_CACHE_DIR=/tmp/kernels \
    OPENBLAS_NUM_THREADS=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONSAFEPATH=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
WORKDIR /tmp
EXPOSE 50051 50052 50053 50054
ENTRYPOINT ["entrypoint"]
CMD ["reprieve", "--help"]
