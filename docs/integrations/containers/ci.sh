#!/usr/bin/env bash
# ci.sh STEP [VARIANT]...: build, test, scan, sign or publish images in any CI. Variants: all with a lock.
#
# REGISTRY   where to publish, for example registry.example/team (publish, sign)
# TRIVY      the scanner's command (default: trivy), COSIGN the signer's (default: cosign, keyless)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
step=${1:?say build, test, scan, sign or publish}
shift
gpucheck=${GPUCHECK:-gpucheck}
variants=("$@")
if ((${#variants[@]} == 0)); then
    mapfile -t variants < <("$gpucheck" image list --format json |
        python3 -c 'import json, sys; print(*(n for n, v in json.load(sys.stdin)["variants"].items() if v["filled"]["locked"]), sep="\n")')
fi
((${#variants[@]})) || { echo "ci.sh: no variant has a lock; see gpucheck image versions --update" >&2; exit 2; }

tag_of() { "$gpucheck" image build "$1" 2>/dev/null | cut -d' ' -f1; }

for variant in "${variants[@]}"; do
    case $step in
    build) "$gpucheck" image build "$variant" ;;
    test) GPUCHECK_IMAGES=$variant ${PYTEST:-pytest} -m "images and not gpu" tests/images ;;
    scan)
        tag=$(tag_of "$variant")
        ignore=$(mktemp)
        python3 "$here/scan_exceptions.py" "$here/scan-exceptions.yml" "$variant" >"$ignore"
        ${TRIVY:-trivy} image --ignore-unfixed --severity HIGH,CRITICAL --exit-code 1 --ignorefile "$ignore" "$tag"
        ;;
    publish)
        tag=$(tag_of "$variant")
        case $tag in *-debian12) echo "ci.sh: $tag is on a stand-in base: not published" >&2; exit 2 ;; esac
        for name in "$tag" "$tag-$(date -u +%Y%m%d)-$(git rev-parse --short=12 HEAD)"; do
            docker tag "$tag" "${REGISTRY:?}/$name"
            docker push "$REGISTRY/$name"
        done
        ;;
    sign)
        tag=$(tag_of "$variant")
        digest=$(docker image inspect --format '{{index .RepoDigests 0}}' "${REGISTRY:?}/$tag")
        ${COSIGN:-cosign} sign --yes "$digest"
        ${COSIGN:-cosign} attest --yes --type cyclonedx --predicate "build/images/$variant.cdx.json" "$digest"
        ;;
    *) echo "ci.sh: $step is none of build, test, scan, sign, publish" >&2; exit 64 ;;
    esac
done
