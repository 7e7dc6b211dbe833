/* SPDX-License-Identifier: Apache-2.0
 * The kernels' text in the archive: kernels.cl with all that it includes, as the Makefile has put it together. */
#include "echi_gpu.h"

const char echi_gpu_text[] =
#include "kernels.inc"
    ;
const char echi_gpu_text_cpu[] = "#define CPU\n"
#include "kernels.inc"
    ;
