# gpucheck as a preflight check of NVSentinel: docker build --build-arg IMAGE=<tag> -t preflight -f preflight.Dockerfile .
ARG IMAGE
# hadolint ignore=DL3006 # IMAGE is a tag of `gpucheck image list`; gpucheck/torch-cpu is enough, it needs no CUDA
FROM ${IMAGE}
USER 0
COPY preflight-requirements.txt /tmp/
# hadolint ignore=DL3042 # typing_extensions, which grpcio needs, is in the image
RUN pip install --no-deps --only-binary :all: --require-hashes --requirement /tmp/preflight-requirements.txt && pip check
COPY --chmod=755 gpucheck_preflight.py /usr/local/bin/
USER 1000:1000
CMD ["gpucheck_preflight.py"]
