# gpucheck as a preflight check of NVSentinel: docker build --build-arg IMAGE=<tag> -t preflight -f preflight.Dockerfile .
ARG IMAGE
# hadolint ignore=DL3006 # IMAGE is a tag of `gpucheck image list`; gpucheck/torch-cpu is enough, it needs no CUDA
FROM ${IMAGE}
USER 0
# hadolint ignore=DL3013,DL3042 # the constraints of the image hold the versions of what is there
RUN pip install --constraint /opt/venv/share/gpucheck/constraints.txt 'grpcio>=1.60'
COPY --chmod=755 gpucheck_preflight.py /usr/local/bin/
USER 1000:1000
CMD ["gpucheck_preflight.py"]
