#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The CUDA texts of ops/gpu, as the build compiled them: no kernel spills registers or has products of four warps one after the other, each
# fits the card it is for, and each has the instructions it was written for. Says what each takes: ops/gpu/README.md has the table.
# Without those that an old nvcc left out; skipped where there is no nvcc. usage: IMAGES=build/images test/check/gpu_texts.sh
set -eu
images=$IMAGES/ops/gpu
made() { [ -s "$images/$1.fatbin" ]; }
made products_f32 || made products_sm80 || made products_sm90 || { echo "no nvcc made the images of this build"; exit 77; }
cuobjdump=${CUOBJDUMP:-$(command -v cuobjdump || true)}
work=$(mktemp -d "${TMPDIR:-/tmp}/echelon-gpu.XXXXXX")
trap 'rm -rf "$work"' EXIT
wrong() { echo "$*" | tee -a "$work/wrong"; }

# PTX of kernel $2 in file $1; and its machine code
ptx_of() { sed -n "/^\.visible \.entry $2(/,/^\.visible/p" "$1"; }
sass_of() { "$cuobjdump" -sass -fun "$2" "$1"; }

# has FUNCTION FILE KERNEL WORD...: all of these words are in what the function says of the kernel
has() {
    local of=$1 file=$2 kernel=$3 word
    shift 3
    "$of" "$file" "$kernel" >"$work/said"
    for word in "$@"; do grep -qF "$word" "$work/said" || wrong "$kernel: no $word in its code"; done
}

# look TEXT ARCHITECTURE: what ptxas said of each kernel for it, as lines "kernel registers static-bytes"
look() {
    local text=$1 said=$images/$1.said
    ! grep -i 'performance loss' "$said" || wrong "$text: products wait for each other"
    ! grep -E '[1-9][0-9]* bytes (stack frame|spill)' "$said" || wrong "$text: registers are spilled"
    awk -v arch="$2" '/Compiling entry/ { split($0, part, "\047"); name = part[2]; here = part[4] == arch }
         / Used / && here { bytes = 0
                    for (i = 1; i <= NF; i++) { if ($i == "registers,") r = $(i - 1); if ($i == "smem,") bytes = $(i - 2) }
                    print name, r, bytes }' "$said" | sort >"$work/$text.kernels"
    [ -s "$work/$text.kernels" ] || wrong "$text: ptxas names no kernel for $2"
}

# What gpu_products.c asks for: threads of a block, and bytes of its shared memory
launch_of() {
    local rows cols
    read -r rows cols < <(sed 's/.*_\([0-9]*\)x\([0-9]*\)$/\1 \2/' <<<"$1")
    case $1 in
    pack_*) echo 256 0 ;;
    product_wgmma_*) echo $((256 + 32)) $((4 * ((rows + cols) * 128 + 16) + 1024)) ;;
    *_wgmma_*) echo $((256 + 256)) $((4 * ((rows + cols) * 128 + 16) + 1024)) ;;
    *_float_*) echo 256 $((2 * (rows + cols) * 128)) ;;
    *) echo 128 $((2 * (rows + cols) * 128)) ;;
    esac
}

tell() {   # TEXT SHARED_OF_A_BLOCK SHARED_OF_A_MULTIPROCESSOR
    local kernel registers static threads shared by_registers by_shared
    while read -r kernel registers static; do
        read -r threads shared < <(launch_of "$kernel")
        shared=$((shared + static))
        by_registers=$((65536 / (threads * ((registers + 7) / 8 * 8))))
        by_shared=$(($3 / (shared + 1024)))
        [ "$shared" -le "$2" ] || wrong "$kernel: $shared bytes of shared memory of $2"
        [ "$by_registers" -ge 1 ] || wrong "$kernel: $threads threads of $registers registers"
        printf '%-34s %4d threads %4d registers %7d bytes %3d blocks\n' "$kernel" "$threads" "$registers" "$shared" \
            $((by_registers < by_shared ? by_registers : by_shared))
    done <"$work/$1.kernels"
}

for text in products_f32:sm_80 products_sm80:sm_80 products_sm90:sm_90a; do
    if made ${text%:*}; then look ${text%:*} ${text#*:}; else : >"$work/${text%:*}.kernels"; fi
done
[ ! -e "$work/wrong" ] || exit 1
tell products_f32 101376 167936        # the least that a block may have since 8.0 (8.6, 8.9); a multiprocessor of an 8.0
tell products_sm80 101376 167936
tell products_sm90 232448 233472

kernels() { cut -d' ' -f1 "$work/$1.kernels" | grep -v '^pack_'; }
for kernel in $(kernels products_f32); do
    has ptx_of "$images/products_f32.kept/products_f32.ptx" "$kernel" fma.rn.f32 ld.shared.v4.f32 cp.async.cg
done
for kernel in $(kernels products_sm80); do
    case $kernel in *_tf32_*) mma=m16n8k8.row.col.f32.tf32 ;; *) mma=m16n8k16.row.col.f32.bf16 ;; esac
    has ptx_of "$images/products_sm80.kept/products_sm80.ptx" "$kernel" $mma ldmatrix.sync.aligned.m8n8.x4 cp.async.cg.shared.global
done
for kernel in $(kernels products_sm90); do
    case $kernel in *_tf32_*) type=k8.f32.tf32 ;; *) type=k16.f32.bf16 ;; esac
    has ptx_of "$images/products_sm90.kept/products_sm90.ptx" "$kernel" "wgmma.mma_async.sync.aligned.m64n${kernel##*x}$type" \
        cp.async.bulk.shared mbarrier.try_wait
done
if [ -n "$cuobjdump" ]; then
    for kernel in $(kernels products_sm80); do
        case $kernel in *_tf32_*) mma=HMMA.1688.F32.TF32 ;; *) mma=HMMA.16816.F32.BF16 ;; esac
        has sass_of "$images/products_sm80.kept/products_sm80.sm_80.cubin" "$kernel" $mma LDSM LDGSTS
    done
    for kernel in $(kernels products_sm90); do
        case $kernel in *_tf32_*) mma=x8.F32.TF32 ;; *) mma=x16.F32.BF16 ;; esac
        has sass_of "$images/products_sm90.kept/products_sm90.cubin" "$kernel" "HGMMA.64x${kernel##*x}$mma" UBLKCP
    done
else
    echo "no cuobjdump here: machine code was not looked at, PTX was"
fi
[ ! -e "$work/wrong" ]
