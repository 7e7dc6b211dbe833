#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# An nvcc older than an architecture that an image is for: make leaves that image out, reports it in a line, and goes on. An nvcc that
# knows all of them and fails ends make. Scripts stand in for nvcc.
set -u
cd "$(dirname "$0")/../.." || exit 1
work=$(mktemp -d "${TMPDIR:-/tmp}/echelon-nvcc.XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0
bad() {
    failures=$((failures + 1))
    echo "BAD  $*"
    sed 's/^/     | /' "$work/out"
}
# stand_in UNKNOWN STATUS: an nvcc that refuses options that match, as the real one does; what it compiles ends with that status
stand_in() {
    cat >"$work/nvcc" <<END
#!/usr/bin/env bash
[[ " \$* " =~ $1 ]] && { echo "nvcc fatal   : unknown: \${BASH_REMATCH[0]}" >&2; exit 1; }
while [ \$# != 0 ]; do
    case \$1 in
    --dryrun) exit 0 ;;
    -o) echo image >"\$2" ;;
    esac
    shift
done
exit $2
END
    chmod +x "$work/nvcc"
}
images=(kernels products_f32 products_sm80 products_sm90)
build() {      # into `made` the images that are not empty
    local files=("${images[@]/#/$work/images/ops/gpu/}") status
    rm -rf "$work/images"
    env -u MAKEFLAGS -u MFLAGS "${MAKE:-make}" NVCC="$work/nvcc" CLANG= IMAGES="$work/images" "${files[@]/%/.fatbin}" >"$work/out" 2>&1
    status=$?
    made=$(cd "$work/images/ops/gpu" && find . -name '*.fatbin' -size +0 -printf '%f ' | tr ' ' '\n' | sort | xargs)
    return $status
}
left_out() { grep -qE "^  CUDA  ops/gpu/$1\.cl?u?: left out: $work/nvcc does not know .*$2" "$work/out"; }

stand_in '(--list-gpu-code|-arch=all|sm_90a?)' 0   # CUDA 10 and 11.4
build || bad "an old nvcc ends make"
[ -z "$made" ] || bad "made by an old nvcc: $made"
left_out kernels '-arch=all' && left_out products_sm90 sm_90a && left_out products_f32 sm_90 && left_out products_sm80 sm_90 ||
    bad "make does not report each image that it leaves out"
stand_in '(sm_90a)' 0                              # CUDA 11.8
build || bad "an nvcc that lacks one architecture ends make"
[ "$made" = 'kernels.fatbin products_f32.fatbin products_sm80.fatbin' ] || bad "made by an nvcc without sm_90a: $made"
stand_in '(nothing)' 0
build || bad "a new nvcc ends make"
[ "$made" = "$(echo "${images[@]/%/.fatbin}")" ] || bad "made by a new nvcc: $made"
! grep -q 'left out' "$work/out" || bad "make leaves out what was made"
stand_in '(nothing)' 3
! build || bad "an nvcc that fails does not end make"

echo "nvcc: $failures not as expected"
[ $failures = 0 ]
