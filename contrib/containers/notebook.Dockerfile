# A notebook server on top of an image: docker build --build-arg IMAGE=<tag> -t notebook -f notebook.Dockerfile .
# docker run --rm -p 127.0.0.1:8888:8888 --gpus all --shm-size 8g -v "$PWD:/workspace" notebook
ARG IMAGE
# hadolint ignore=DL3006 # IMAGE is a tag of `gpucheck image list`
FROM ${IMAGE}
USER 0
# hadolint ignore=DL3013,DL3042 # the constraints of the image hold the versions; pass a lock of your own for the rest
RUN pip install --constraint /opt/venv/share/gpucheck/constraints.txt jupyterlab
USER 1000:1000
CMD ["jupyter", "lab", "--ip=0.0.0.0", "--no-browser"]
