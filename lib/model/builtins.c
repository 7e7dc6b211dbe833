/* SPDX-License-Identifier: Apache-2.0
 * The built-in models, as the text that a model file would have. */
#include "echi_model.h"

/* A convolution as all nets since batch-norm have it. */
#define NORMED(out) "conv2d out " #out " kernel 3 pad 1 bias 0\nbatch_norm\nrelu\n"

/* He et al., figure 2, behind layer `from`, seven layers long; and the block that begins a stage, which halves the maps and is nine long:
 * `branch` is the last layer of the first of its two branches, the second is one convolution from `from`. */
#define BLOCK(out, from) NORMED(out) "conv2d out " #out " kernel 3 pad 1 bias 0\nbatch_norm\nadd with " #from "\nrelu\n"
#define STAGE(out, from, branch)                                                                                            \
    "conv2d out " #out " kernel 3 stride 2 pad 1 bias 0\nbatch_norm\nrelu\n"                                                 \
    "conv2d out " #out " kernel 3 pad 1 bias 0\nbatch_norm\n"                                                                \
    "conv2d out " #out " kernel 1 stride 2 bias 0 from " #from "\nbatch_norm\nadd with " #branch "\nrelu\n"

const struct echi_builtin echi_builtins[] = {
    /* LeCun et al., "Gradient-based learning applied to document recognition", 1998, with today's ReLU and max-pooling. */
    {"lenet5", "input 1 28 28\n"
               "conv2d out 6 kernel 5 pad 2\n"
               "relu\n"
               "max_pool kernel 2\n"
               "conv2d out 16 kernel 5\n"
               "relu\n"
               "max_pool kernel 2\n"
               "fc out 120\n"
               "relu\n"
               "fc out 84\n"
               "relu\n"
               "fc out 10\n"},
    /* He et al., "Deep residual learning for image recognition", CVPR 2016, with the first layers that small pictures ask for: one 3 x 3
     * convolution, and no pool. */
    {"resnet18", "input 3 32 32\n"
                 NORMED(64) BLOCK(64, 3) BLOCK(64, 10)
                 STAGE(128, 17, 22) BLOCK(128, 26)
                 STAGE(256, 33, 38) BLOCK(256, 42)
                 STAGE(512, 49, 54) BLOCK(512, 58)
                 "global_avg_pool\n"
                 "fc out 10\n"},
    /* Simonyan and Zisserman, "Very deep convolutional networks for large-scale image recognition", ICLR 2015, configuration E with
     * batch-norm. Of 32 x 32 pictures the last pool leaves one number a channel, so one fc is its head. */
    {"vgg19", "input 3 32 32\n"
              NORMED(64) NORMED(64) "max_pool kernel 2\n"
              NORMED(128) NORMED(128) "max_pool kernel 2\n"
              NORMED(256) NORMED(256) NORMED(256) NORMED(256) "max_pool kernel 2\n"
              NORMED(512) NORMED(512) NORMED(512) NORMED(512) "max_pool kernel 2\n"
              NORMED(512) NORMED(512) NORMED(512) NORMED(512) "max_pool kernel 2\n"
              "fc out 10\n"},
    /* Krizhevsky, "One weird trick for parallelizing convolutional neural networks", arXiv 1404.5997, 2014: one tower, as torchvision has
     * it, whose adaptive pool to 6 x 6 changes nothing at this size. */
    {"alexnet", "input 3 224 224\n"
                "conv2d out 64 kernel 11 stride 4 pad 2\nrelu\n"
                "max_pool kernel 3 stride 2\n"
                "conv2d out 192 kernel 5 pad 2\nrelu\n"
                "max_pool kernel 3 stride 2\n"
                "conv2d out 384 kernel 3 pad 1\nrelu\n"
                "conv2d out 256 kernel 3 pad 1\nrelu\n"
                "conv2d out 256 kernel 3 pad 1\nrelu\n"
                "max_pool kernel 3 stride 2\n"
                "dropout p 0.5\n"
                "fc out 4096\nrelu\n"
                "dropout p 0.5\n"
                "fc out 4096\nrelu\n"
                "fc out 1000\n"},
    {NULL, NULL},
};
