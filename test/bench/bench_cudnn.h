/* SPDX-License-Identifier: Apache-2.0
 * Convolutions by cuDNN, opened at run time: those of its calls that name an algorithm, which are older than its graphs. What is declared
 * here, names, numbers and the one struct, is of NVIDIA's "cuDNN API reference", libraries cudnn_ops and cudnn_cnn; versions 8 and 9 have
 * it alike (test/check/cuda.sh compares it with the headers). All calls answer 0 or what went wrong. One thread. */
#ifndef BENCH_CUDNN_H
#define BENCH_CUDNN_H
#include "gpu/echi_gpu_stack.h"

#include <dlfcn.h>
#include <stdio.h>

enum { CUDNN_DATA_FLOAT = 0, CUDNN_DATA_BFLOAT16 = 9 };
enum { CUDNN_TENSOR_NCHW = 0, CUDNN_TENSOR_NHWC = 1, CUDNN_FORMATS };
enum { CUDNN_DEFAULT_MATH = 0, CUDNN_TENSOR_OP_MATH = 1, CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION = 2, CUDNN_FMA_MATH = 3 };
enum { CUDNN_CROSS_CORRELATION = 1 };

/* cudnnConvolutionFwdAlgoPerf_t, and its twins for the two ways back. */
struct cudnn_found { int algorithm, status; float milliseconds; size_t bytes; int determinism, math, reserved[3]; };

#define CUDNN_CALLS(X)                                                                                                                 \
    X(cudnnCreate, (void **handle)) X(cudnnDestroy, (void *handle)) X(cudnnSetStream, (void *handle, void *stream))                    \
    X(cudnnCreateTensorDescriptor, (void **out)) X(cudnnDestroyTensorDescriptor, (void *tensor))                                       \
    X(cudnnSetTensor4dDescriptor, (void *tensor, int format, int type, int n, int c, int h, int w))                                    \
    X(cudnnCreateFilterDescriptor, (void **out)) X(cudnnDestroyFilterDescriptor, (void *filter))                                       \
    X(cudnnSetFilter4dDescriptor, (void *filter, int type, int format, int out, int in, int h, int w))                                 \
    X(cudnnCreateConvolutionDescriptor, (void **out)) X(cudnnDestroyConvolutionDescriptor, (void *conv))                               \
    X(cudnnSetConvolution2dDescriptor,                                                                                                 \
      (void *conv, int pad_h, int pad_w, int stride_h, int stride_w, int dilation_h, int dilation_w, int mode, int type))              \
    X(cudnnSetConvolutionMathType, (void *conv, int math))

/* One way through a layer, from two tensors a and b to c: cudnn_operands says which. */
struct cudnn_way {
    int (*find)(void *handle, void *a_of, void *b_of, void *conv, void *c_of, int wanted, int *found, struct cudnn_found *out);
    int (*room)(void *handle, void *a_of, void *b_of, void *conv, void *c_of, int algorithm, size_t *bytes);
    int (*run)(void *handle, const float *alpha, void *a_of, const void *a, void *b_of, const void *b, void *conv, int algorithm,
               void *work, size_t bytes, const float *beta, void *c_of, void *c);
};
enum cudnn_tensor { CUDNN_X, CUDNN_W, CUDNN_Y, CUDNN_TENSORS };   /* or their gradients */
static const enum cudnn_tensor cudnn_operands[ECHI_GPU_WAYS][3] = {[ECHI_GPU_FORWARD] = {CUDNN_X, CUDNN_W, CUDNN_Y},
                                                                   [ECHI_GPU_BACKWARD_WEIGHT] = {CUDNN_X, CUDNN_Y, CUDNN_W},
                                                                   [ECHI_GPU_BACKWARD_INPUT] = {CUDNN_W, CUDNN_Y, CUDNN_X}};

static struct {
#define CUDNN_FIELD(name, parameters) int (*name) parameters;
    CUDNN_CALLS(CUDNN_FIELD)
    size_t (*version)(void);   /* 91002: 9.10.2; 8902: 8.9.2 */
    const char *(*words)(int code);
    struct cudnn_way way[ECHI_GPU_WAYS];
    void *handle;
} cudnn;

/* Looks up one of the calls that the three ways have each, into `to`. */
static bool cudnn_look(void *library, const char *before, enum echi_gpu_way way, const char *behind, void *to) {
    static const char *const names[ECHI_GPU_WAYS] = {[ECHI_GPU_FORWARD] = "Forward", [ECHI_GPU_BACKWARD_WEIGHT] = "BackwardFilter",
                                                     [ECHI_GPU_BACKWARD_INPUT] = "BackwardData"};
    char name[64];
    snprintf(name, sizeof name, "%s%s%s", before, names[way], behind);
    *(void **)to = dlsym(library, name);
    return *(void **)to != NULL;
}

/* Opens it for the context that is current; NULL, or why it cannot be had. */
static const char *cudnn_open(void *stream) {
    void *library = dlopen("libcudnn.so.9", RTLD_NOW);
    if (library == NULL) library = dlopen("libcudnn.so.8", RTLD_NOW);
    if (library == NULL) return "neither libcudnn.so.9 nor libcudnn.so.8 is here";
#define CUDNN_LOOK(name, parameters)                                     \
    *(void **)&cudnn.name = dlsym(library, #name);                       \
    if (cudnn.name == NULL) return "libcudnn.so has no " #name;
    CUDNN_CALLS(CUDNN_LOOK)
    *(void **)&cudnn.version = dlsym(library, "cudnnGetVersion");
    *(void **)&cudnn.words = dlsym(library, "cudnnGetErrorString");
    bool all = cudnn.version != NULL && cudnn.words != NULL;
    for (enum echi_gpu_way way = ECHI_GPU_FORWARD; way < ECHI_GPU_WAYS; way++)
        all = all && cudnn_look(library, "cudnnGetConvolution", way, "Algorithm_v7", &cudnn.way[way].find) &&
              cudnn_look(library, "cudnnGetConvolution", way, "WorkspaceSize", &cudnn.way[way].room) &&
              cudnn_look(library, "cudnnConvolution", way, "", &cudnn.way[way].run);
    if (!all) return "libcudnn.so has not all calls for convolutions by algorithms";
    int code = cudnn.cudnnCreate(&cudnn.handle);
    if (code == 0) code = cudnn.cudnnSetStream(cudnn.handle, stream);
    return code == 0 ? NULL : cudnn.words(code);
}
#endif
