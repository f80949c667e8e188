#!/usr/bin/env bash
# ci.sh STEP [VARIANT]...: build, test, scan, publish or sign images in any CI; tag prints a built image's name, summary
# a Markdown table of what was built and found (for $GITHUB_STEP_SUMMARY).
# Variants: all with a lock.
#
# REGISTRY   where to publish, for example registry.example/team (publish, sign)
# ARCH       of this runner: amd64 or arm64 (default: the machine's). Each architecture has its own tag; the tag
#            without one is a list of those that were published.
# SCANNER    the scanner: trivy or grype (default: the one on PATH). COSIGN the signer's command (default: cosign,
#            keyless)
set -euo pipefail
step=${1:?give a step: build, test, scan, summary, publish, sign or tag}
shift
gpucheck=${GPUCHECK:-gpucheck}
case ${ARCH:-$(uname -m)} in
aarch64 | arm64) arch=arm64 ;;
*) arch=amd64 ;;
esac
variants=("$@")
if ((${#variants[@]} == 0)); then
    mapfile -t variants < <("$gpucheck" image list --format json |
        python3 -c 'import json, sys; print(*(n for n, v in json.load(sys.stdin)["variants"].items() if v["filled"]["locked"]), sep="\n")')
fi
((${#variants[@]})) || { echo "ci.sh: no variant has a lock; see gpucheck image versions --update" >&2; exit 2; }

# The image that `build` made: by its label, so that the lookup builds and downloads nothing.
tag_of() {
    local found
    found=$(docker image ls --filter "label=gpucheck.images=$1" --format '{{.Repository}}:{{.Tag}}' | grep '^gpucheck/' | head -n 1) ||
        { echo "ci.sh: no image of $1 is here: ci.sh build $1" >&2; return 2; }
    echo "$found"
}

rows=()
for variant in "${variants[@]}"; do
    case $step in
    build) "$gpucheck" image build --fresh "$variant" ;;
    tag) tag_of "$variant" ;;
    test) GPUCHECK_IMAGES=$variant ${PYTEST:-pytest} -m "images and not gpu" tests/images ;;
    # 1 is WARN: an update that came after the build, or an unused exception. 3 is a missing scan.
    scan) "$gpucheck" image scan ${SCANNER:+--scanner "$SCANNER"} "$variant" || test $? -eq 1 ;;
    summary) rows+=("$variant $(tag_of "$variant")") ;;
    publish)
        tag=$(tag_of "$variant")
        case $tag in *-debian12 | *-custom) echo "ci.sh: $tag is not on the pinned base: not published" >&2; exit 2 ;; esac
        revision=$(docker image inspect --format '{{index .Config.Labels "org.opencontainers.image.revision"}}' "$tag")
        case $revision in *-dirty) echo "ci.sh: $tag is of uncommitted files ($revision): not published" >&2; exit 2 ;; esac
        for name in "$tag" "$tag-$(date -u +%Y%m%d)-$(git rev-parse --short=12 HEAD)"; do
            docker tag "$tag" "${REGISTRY:?}/$name-$arch"
            docker push "$REGISTRY/$name-$arch"
            published=()
            for other in amd64 arm64; do
                if docker manifest inspect "$REGISTRY/$name-$other" >/dev/null 2>&1; then published+=("$REGISTRY/$name-$other"); fi
            done
            docker manifest create --amend "$REGISTRY/$name" "${published[@]}"
            list=$(docker manifest push --purge "$REGISTRY/$name")
        done
        mkdir -p build/images
        echo "$REGISTRY/${tag%:*}@$list" >"build/images/$variant.list"
        ;;
    sign)
        name="${REGISTRY:?}/$(tag_of "$variant")-$arch"
        # Of this registry: an image may have been pushed to others.
        digest=$(docker image inspect --format '{{range .RepoDigests}}{{println .}}{{end}}' "$name" | grep -F "${name%:*}@" | head -n 1) ||
            { echo "ci.sh: $name was not pushed from here: ci.sh publish $variant" >&2; exit 2; }
        ${COSIGN:-cosign} sign --yes "$digest" "$(cat "build/images/$variant.list")"
        ${COSIGN:-cosign} attest --yes --type cyclonedx --predicate "build/images/$variant.cdx.json" "$digest"
        ;;
    *) echo "ci.sh: unknown step $step. Steps: build, test, scan, summary, publish, sign, tag" >&2; exit 64 ;;
    esac
done
if ((${#rows[@]})); then
    echo "| variant | image | base | Python | MB | scan |"
    echo "| --- | --- | --- | --- | --- | --- |"
    for row in "${rows[@]}"; do
        tag=${row#* } scan=build/images/${row%% *}.scan.json
        labels='{{with .Config.Labels}}{{index . "org.opencontainers.image.base.name"}} {{index . "org.opencontainers.image.base.digest"}} | {{index . "gpucheck.images.python"}}{{end}}'
        size=$(docker history --human=false --format '{{.Size}}' "$tag" | awk '{bytes += $1} END {printf "%.0f", bytes / 1e6}')
        verdict=$(if [ -e "$scan" ]; then python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["verdict"])' "$scan"; else echo "not scanned"; fi)
        echo "| ${row%% *} | $tag | $(docker image inspect --format "$labels" "$tag") | $size | $verdict |"
    done
fi
