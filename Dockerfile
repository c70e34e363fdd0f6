# mgformer as a service, and for training by a schedule. Build it in the folder of this file:
#
#     docker build -t mgformer .
#     docker run --rm -p 8000:8000 -v /srv/mgformer:/srv/mgformer mgformer
#
# It serves /srv/mgformer/runs/live. Nothing but /srv/mgformer and /tmp is written to, so the root file
# system may be read-only.

FROM python:3.11-slim AS build
WORKDIR /build
RUN python -m venv /opt/mgformer
COPY constraints.txt ./
# torch first and from an index of builds for CPUs if TORCH_INDEX names one: the default build for
# Linux brings gigabytes for graphics cards. This layer is kept as long as the constraints stay.
ARG TORCH_INDEX=""
RUN /opt/mgformer/bin/pip install --no-cache-dir -c constraints.txt \
    ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch
COPY pyproject.toml README.md LICENSE ./
COPY configs configs
COPY src src
RUN /opt/mgformer/bin/pip install --no-cache-dir -c constraints.txt '.[serve]'

FROM python:3.11-slim
RUN useradd --system --uid 10001 --home-dir /srv/mgformer --create-home mgformer
COPY --from=build /opt/mgformer /opt/mgformer
COPY deploy/retrain.sh deploy/refresh.sh /opt/mgformer/bin/
ENV PATH=/opt/mgformer/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    MGFORMER_HOME=/srv/mgformer
USER 10001
WORKDIR /srv/mgformer
EXPOSE 8000
# The first answer takes as long as importing torch and loading the bundle.
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 CMD ["python", "-c", \
    "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
ENTRYPOINT ["mgformer"]
CMD ["serve", "runs/live", "--host", "0.0.0.0", "--feedback", "feedback"]
