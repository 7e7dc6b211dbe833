/* SPDX-License-Identifier: Apache-2.0
 * Echelon: trains convolutional networks across machines that do not match. This header is the manual.
 *
 * Two ways in (see test/outside/ for a short program of each):
 *   whole      describe a model, name a data set, ech_train;
 *   sync only  keep your own model and arithmetic, register your arrays, ech_session_open / ech_step_begin /
 *              ech_gradient_ready / ech_step_end / ech_session_close; with ech_session_open_with_head and
 *              ech_head_exchange only what is in front of the fully connected layers.
 *
 * Rules that hold for every call:
 *   - What can fail returns ech_status and, if you give a `struct ech_error`, a sentence that says what to do.
 *   - The library never prints, aborts, exits, or reads the environment unasked. Log lines go to your callback.
 *   - create/destroy come in pairs; destroying NULL is harmless; `out_` parameters are set only on success.
 *   - Objects are used by one thread at a time; different objects are independent.
 *   - Tensors are float rows, one sample after the other, each [C][H][W]. */
#ifndef ECHELON_H
#define ECHELON_H

#include "ech_status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ECH_VERSION "0.1.0"
const char *ech_version(void);   /* of the archive; equal to ECH_VERSION when header and archive fit */
/* struct ech_config has a size, and fits archives that are older or newer than the header. All other structs are those of one version. */

/* ------------------------------------------------------------------ models */

typedef struct ech_model ech_model;

/* An empty model for samples of channels x height x width (each 1..65536). */
ech_status ech_model_create(int channels, int height, int width, ech_model **out_model, struct ech_error *err);
void ech_model_destroy(ech_model *model);
/* Layers, in order. A call that does not fit (say, a kernel larger than its padded input) makes the model *broken*: later
 * calls do nothing and the first sentence comes out of ech_model_finish or any use of the model. So calls need no checks
 * one by one. Layers with parameters are named conv1, conv2, ... fc1, ... in order of appearance. */
void ech_model_conv2d(ech_model *model, int out_channels, int kernel, int stride, int pad);
void ech_model_relu(ech_model *model);
void ech_model_tanh(ech_model *model);
void ech_model_max_pool(ech_model *model, int kernel, int stride, int pad);
void ech_model_avg_pool(ech_model *model, int kernel, int stride, int pad);
void ech_model_fc(ech_model *model, int outputs);       /* flattens [C][H][W] */
void ech_model_global_avg_pool(ech_model *model);       /* C x H x W to C x 1 x 1 */
/* While training each number becomes 0 with probability p (0 <= p < 1, taken in millionths) or is divided by 1 - p, as PyTorch does; what
 * is drawn depends on the run's seed, epoch, sample, layer and place alone. Else it changes nothing. */
void ech_model_dropout(ech_model *model, double p);
/* Ioffe and Szegedy (ICML 2015), epsilon 1e-5: while training each channel is normalised by mean and variance of the samples that are
 * computed together (a node's step; with --deterministic four samples, with --sync-norm a whole round), else by running averages of rate
 * 0.1 a round. These are parameters of the model, too (bn1.running_mean, bn1.running_var, as in PyTorch's state_dict): as many as weights
 * and biases. */
void ech_model_batch_norm(ech_model *model);
/* The next conv2d or fc has no bias: one in front of a batch_norm would change nothing. */
void ech_model_without_bias(ech_model *model);
/* Each layer takes the output of the one before it. This makes the next one take that of layer `layer` (1 the first, 0: the model's
 * input), so that a model may branch. Every output but the last must be taken by some layer. */
void ech_model_from(ech_model *model, int layer);
/* Its input plus the output of layer `with`, of the same shape: where branches meet (He et al., CVPR 2016). */
void ech_model_add(ech_model *model, int with);
int ech_model_layers(const ech_model *model);           /* how many there are: the number of the last one */
/* ECH_OK when the model is whole and every shape fits. */
ech_status ech_model_finish(const ech_model *model, struct ech_error *err);
/* A built-in model by name, or a text file. lenet5: 1 x 28 x 28, 10 classes; for CIFAR-10 resnet18, vgg19; alexnet: 3 x 224 x 224, 1000
 * classes, torchvision's form of one tower: no data set that ech_data_open reads is of that size, so its samples come from a callback
 * (ech_data_from_callback). A text file: one layer a line, '#' starts a comment:
 *     input 1 28 28
 *     conv2d out 6 kernel 5 pad 2        (stride 1 and pad 0 when not given; with `bias 0` it has none, fc alike)
 *     batch_norm
 *     relu
 *     max_pool kernel 2                  (stride = kernel when not given; avg_pool alike)
 *     fc out 10
 *     global_avg_pool
 *     dropout p 0.5
 *     add with 2                         (its input plus the output of layer 2; the first layer is 1, the input 0)
 *     conv2d out 8 kernel 1 from 2       (any layer: takes the output of layer 2 instead of the one before it)
 * Errors name file, line and word. */
ech_status ech_model_open(const char *name_or_path, ech_model **out_model, struct ech_error *err);
/* The same text from memory (no NUL needed); `name` is used in messages. */
ech_status ech_model_parse(const char *text, size_t len, const char *name, ech_model **out_model, struct ech_error *err);
/* Writes the model's text form into buf (NUL-terminated when cap > 0) and returns the length it needs without the NUL. */
size_t ech_model_text(const ech_model *model, char *buf, size_t cap);
/* A table for people: layer, kind, output shape, parameters, multiply-adds a sample. Like ech_model_text. */
size_t ech_model_describe(const ech_model *model, char *buf, size_t cap);
size_t ech_model_params(const ech_model *model);        /* number of floats */
/* What the model gives for n samples, n at least 1: rows [n][C][H][W] of its input, out [n][classes], before any softmax. Nothing is
 * dropped, and batch_norm goes by its running averages. params: ech_model_params(model) floats, layer by layer in order, of each weights
 * ([out][in], [out][in][kh][kw]), biases, running averages, as PyTorch has them. On the processor, on the calling thread alone. */
ech_status ech_model_forward(const ech_model *model, const float *params, int n, const float *rows, float *out, struct ech_error *err);

/* -------------------------------------------------------------------- data */

typedef struct ech_data ech_data;

/* A folder with MNIST's four idx files (train-images-idx3-ubyte, ...; a `.idx3-ubyte`-style dot name works too): pixels become
 * (x/255 - 0.1307) / 0.3081. Or with CIFAR-10's six binary files (data_batch_1.bin to data_batch_5.bin, test_batch.bin): pixels become
 * (x/255 - mean) / deviation with the means 0.4914 0.4822 0.4465 and deviations 0.2470 0.2435 0.2616 of red, green and blue.
 * Which it is the names of the files say; a folder with both is refused. "glyphs" is the built-in generated digit set (28 x 28, ten
 * classes). ECH_E_IO: a file is missing; ECH_E_FORMAT: one is not what it should be. */
ech_status ech_data_open(const char *dir_or_name, uint64_t seed, ech_data **out_data, struct ech_error *err);
void ech_data_destroy(ech_data *data);

/* Your own samples. `read` fills rows [n][C][H][W] (already normalised) and labels [n] (each < classes) for the samples
 * index[0..n), of the training set or, when test is 1, of the test set; it returns 0, or anything else to stop the run.
 * It may be called from several of the library's threads at once, and the samples of the next step are asked for while this one is
 * computed, where that saves time. It must give the same sample for the same index on every node, and must stay valid until
 * ech_data_destroy. Before a run trains it is also called for samples that nobody trains with, while a node measures how long its steps
 * take. What it gives is trained with as it is: the option `augment` is not for it. One that does not return stops its node: see
 * ech_train, ECH_E_TIMEOUT. */
typedef int (*ech_data_read)(void *user, int test, const uint32_t *index, int n, float *rows, uint16_t *labels);
struct ech_data_callback {
    int channels, height, width, classes;   /* classes 2..65536 */
    uint32_t train_samples, test_samples;   /* train at least 1; test may be 0 (accuracy is then not measured) */
    ech_data_read read;
    void *user;
    const char *name;                       /* for reports and the nodes' agreement; all nodes the same */
};
ech_status ech_data_from_callback(const struct ech_data_callback *callback, ech_data **out_data, struct ech_error *err);

uint32_t ech_data_samples(const ech_data *data, int test);
void ech_data_shape(const ech_data *data, int *out_channels, int *out_height, int *out_width, int *out_classes);
/* Reads samples as a run would see them, but for the option `augment`: rows [n][C][H][W], labels [n]. */
ech_status ech_data_get(const ech_data *data, int test, const uint32_t *index, int n, float *rows, uint16_t *labels, struct ech_error *err);

/* ------------------------------------------------------------------ options */

enum ech_log_level { ECH_LOG_ERROR, ECH_LOG_WARN, ECH_LOG_INFO, ECH_LOG_DEBUG };

struct ech_progress {
    double seconds;             /* of training, without measuring */
    uint64_t steps, samples;    /* rounds and samples applied */
    double epochs;
    double loss;                /* mean over the samples since the last call */
    double images_per_second;   /* over the last quarter of a second, or more, of training */
    double staleness;           /* mean since the last call, in rounds */
    uint64_t bytes_sent;        /* by this node */
    double accuracy;            /* of the last evaluation, 0..1; negative before the first */
    int new_accuracy;           /* 1: this call reports an accuracy that is new */
    uint32_t evaluated, to_evaluate;   /* an evaluation runs: it has so many of so many test samples behind it. 0, 0: none runs */
};

/* Options of a run. Get defaults with ech_config_init; set fields yourself or by name with ech_config_set. Fields are
 * added only at the end, and `size` is that of the caller's header: fields that it lacks have their defaults, and fields that only it has
 * must be as ech_config_init leaves them, which is all bytes 0. Zero-length strings mean "not given". */
struct ech_config {
    size_t size;                  /* set by ech_config_init */
    int rank, world;              /* this node, all nodes */
    char coordinator[256];        /* host:port; rank 0 binds it */
    char bind[256];               /* address the other nodes listen on */
    double join_timeout;          /* seconds to wait for all nodes (default 60) */
    char sync[16];                /* bsp asp ssp gssp local, or auto: the one that is predicted to learn the fastest */
    int staleness;                /* S, 0.. (default 3) */
    int groups;                   /* 0: auto */
    int separate;                 /* -1 auto, 0 off, 1 one node trains the head, N from 2: and it begins with layer N of the table that
                                     `echelon model` prints; with 1, with separate_from */
    char shares[256];             /* "speed", "equal", or a list "24,24,12,4" (BSP) */
    int batch;                    /* B, 0: max(64, 16 x nodes); with `deterministic` 64 */
    int samples_per_step;         /* n of the asynchronous policies, for all; 0: chosen by the planner, by speed with layer separation */
    double lr, momentum, weight_decay;   /* negative: the model's default */
    double epochs;                /* default 10; ends there or at steps or target_accuracy, whichever comes first */
    int64_t steps;                /* rounds of B samples; negative: not given; 0: no training */
    /* 0..1; 0: not given. The run ends at the first evaluation that finds it, and the weights that were evaluated are those that are
     * reported, saved and returned. A run that ends without it: ECH_E_NOT_REACHED. The last checkpoint has the weights after the work
     * that was under way, with their momentum: training goes on from there. Resumed with a target that it had reached, a run evaluates
     * the checkpoint's weights first and trains on if they do not meet it. */
    double target_accuracy;
    uint32_t eval_every;          /* samples between evaluations (default 3000); 0: only at the end */
    uint64_t seed;                /* default 1 */
    int no_shuffle;
    int threads;                  /* of computation; 0 (default): the processors that this process may run on, or is granted the time of,
                                     divided among all nodes where they meet at a loopback address. The same bits come out for any number */
    char device[64];              /* where this node computes: "cpu" (default); "cuda", "cuda:1", ...: a card of NVIDIA's; "opencl",
                                     "opencl:1", ...: a device of OpenCL; "auto": the fastest, by a product of matrices, of the GPUs
                                     whose kernels compute rightly, as each is asked when it is opened, and the CPU */
    double slow;                  /* this node computes that many times slower (>= 1), by sleeping */
    double deadline;              /* seconds without a word after which a node is lost at the latest (default 10) */
    char init[1024], save[1024], report[1024];   /* files; only rank 0 reads init and writes save and report */
    char plan[1024], save_plan[1024];            /* plan to follow instead of making one; where rank 0 writes the plan */
    /* Callbacks, from a thread of the library, at most one at a time; may be NULL; must not call back into this run, and
     * return soon: meanwhile this node serves nobody, and the others may take it for lost. */
    void (*on_log)(void *user, enum ech_log_level level, const char *line);
    void (*on_bound)(void *user, const char *address);             /* rank 0, once it listens: "127.0.0.1:40001" */
    void (*on_progress)(void *user, const struct ech_progress *p); /* rank 0, about once a second and at each evaluation */
    void *user;
    /* When not NULL, a signal handler may set it. *stop non-zero on rank 0: the run ends in order for all (ech_train: ECH_E_ABORTED, and
     * what was trained is saved). An evaluation that runs then ends without an accuracy; one of what was trained last has `deadline`
     * seconds. On another rank 1 means that this node leaves: its work is handed on, the others go on, and ech_train or
     * ech_step_begin returns ECH_E_ABORTED, without final weights. A node that the run cannot do without (its only owner of weights, of
     * fully connected layers, its last worker) ends the run in order instead, and so does any node with a value above 1. */
    const volatile int *stop;
    /* How 3 x 3 convolutions with many channels are summed: 4 or 2: m of Winograd's F(m x m, 3 x 3), 0: directly. With 4 they are fastest,
     * 5 x 5 too (F(2 x 2, 5 x 5)), and round some four times coarser than the others. The same on all nodes;
     * with `deterministic` always directly. */
    int winograd;
    int deterministic;            /* 1 (BSP, ech_train): for one batch the same bits whatever the nodes, shares (multiples of 4), cut
                                     and machines; slower */
    /* When not NULL: each time *tell changes (a signal handler may add 1) this node says who waits for whom, in which phase,
     * in a few lines, one a role, to on_tell (as the callbacks above; NULL: to on_log, as ECH_LOG_INFO). For a run that hangs. */
    const volatile int *tell;
    void (*on_tell)(void *user, const char *line);
    char key[1024];               /* file with the key of the run (at least 16 bytes, the same on all nodes): nodes prove that
                                     they have it, and every frame carries an authenticator (SECURITY.md) */
    int insecure;                 /* 1: without a key: meet beyond this machine, and with other users of it, all the same */
    /* Checkpoints: a folder on rank 0, which alone reads and writes there; it is made if its parent is there. */
    char checkpoint[1024];
    int64_t every;                /* rounds between them; 0: only when the run ends or is stopped (default 1000) */
    int keep;                     /* the last so many are kept, at least 1 (default 3) */
    int resume;                   /* 1: go on from the newest whole one; from the beginning when there is none yet */
    char record[1024];            /* folder in which each node writes rank<N>.events for `echelon replay`; made if its parent is there.
                                     A disk that is full ends the recording with a log line, and not the run */
    char profile_out[1024];       /* where rank 0 writes what arithmetic costs its machine, for `echelon sim --profile` */
    char codec[32];               /* how changes travel: dense, topk, topk:paper, topk:volume, topk:balanced (GDTopK) */
    double link;                  /* megabits a second of this node's link; 0: measured when all have joined, if there is one */
    /* sync local (DiLoCo, arXiv 2311.08105): workers step by themselves, and a round's changes make one outer step. */
    int inner_steps;              /* H, a worker's steps in a round, in the mean over all (default 16); each gets them by its speed */
    double outer_lr, outer_momentum;   /* of the outer step, with Nesterov's momentum (defaults 0.7 and 0.9, the paper's) */
    /* sync asp, nothing separated */
    double drop_older;            /* rounds: gradients that are staler are dropped, their samples issued again (arXiv 2501.16168);
                                     0: none */
    int weigh_by_time;            /* 1: gradients count in proportion to their node's step times (arXiv 2605.13434) */
    int rounds_apart;             /* R, 1.. (default 4): rounds that a group may run ahead of what the others have (gssp) */
    double damping;               /* c, 0.. (default 0, off): a push that is t rounds stale weighs 1 / (1 + c t); not under bsp */
    char regroup[8];              /* "auto" (gssp): workers change groups or step sizes when their speeds have changed for good, and who
                                     falls behind gets a group of its own until it keeps up again; under bsp with shares "speed" rounds
                                     get other shares; with topk ratios follow links and steps, as they are measured while the run
                                     goes; a plan that has become clearly better is named in the log. "off" */
    /* "sgd" (default), "nesterov": PyTorch's SGD, with nesterov=True or without. "adam", "adamw": PyTorch's Adam (weight_decay is L2, added
     * to the gradient) and AdamW (it decays the weights themselves); they have no momentum, and lr is 0.001 if not given. */
    char optimizer[16];
    /* lr is multiplied by what the schedule says of the place in the data, in epochs from the beginning of the run, that an update's
     * samples have (of several leases the first): "constant" (default), "step" or "cosine", to 0 at the end of epochs or steps. */
    char schedule[16];
    double warmup;                /* epochs, 0.. (default 0): first lr rises in a straight line from 0 */
    char lr_steps[128];           /* step: up to 8 places, ascending, "30,60,80": at each lr is multiplied by lr_factor */
    double lr_factor;             /* step: above 0, at most 1 (default 0.1) */
    /* ech_train: what training samples are in each epoch. "crop-flip": a crop of the image's size at a random place of the image with 4
     * black pixels around it, and mirrored or not, each case as likely (PyTorch's RandomCrop(32, padding=4) and RandomHorizontalFlip,
     * before normalisation; He et al., arXiv 1512.03385, section 4.2). It depends on seed, epoch and sample alone. "off": they are taken
     * as they are. "auto" (default): crop-flip for CIFAR-10, whose published accuracies are with it, off for digits, which a mirror
     * spoils. The test set is never augmented. All nodes the same. With samples from a callback, or in a session, crop-flip is refused:
     * they are the program's. */
    char augment[16];
    /* 1 (BSP, ech_train): batch-norm's mean and variance, and what its gradients sum, are those of the whole round, exchanged between the
     * nodes at each batch-norm, forward and backward; so unequal shares come to what one node makes of the round. After a loss, where
     * shares grow beyond a node's memory, of the parts of a round that are computed together. Refused where there is no batch-norm, with
     * `deterministic`, and where a separated layer is one. All nodes the same. */
    int sync_norm;
    /* "fp32" (default), or "bf16": fully connected layers, and convolutions where that is faster, multiply numbers rounded to bf16, by
     * 2^-8 of themselves at most, and sum in float; parameters, gradients and all else stay float. Each node needs a processor with
     * AVX512-BF16, faster with AMX-BF16, or an NVIDIA card of compute capability 8.0 or later. "tf32": rounded by 2^-11 at most on such
     * cards, fp32 on other devices. The same on all nodes. */
    char precision[8];
    /* adam, adamw: decays of the first and of the second moment in a round of B samples, 0 to 0.999999 (defaults 0.9 and 0.999); what is
     * added to the root of the second, 1e-12 to 1 (default 1e-8). PyTorch's betas and eps. */
    double beta1, beta2, epsilon;
    char cache[1024];             /* folder in which kernels compiled for a device other than the CPU are kept for the next run; made if its
                                     parent is there; "" (default): nowhere */
    /* Instruction set of this node's arithmetic: "auto" (default), the most that its processor has, or no more than "base" (what every
     * processor of its kind has: SSE2, NEON, or plain C), "avx2" (with FMA), "avx512" (F, BW, DQ, VL). One that it lacks is refused. Sums
     * are rounded in another order by each; with `deterministic` they are the same by all. bf16 needs avx512. */
    char isa[8];
    int local_rank;               /* of the nodes on this machine (default 0): the number of its GPU where `device` has none */
    int local_world;              /* nodes on this machine, among which its processors are divided; 0 (default): all nodes where they
                                     meet at a loopback address, else this one alone */
    char launcher[8];             /* "auto" (default) or "off": whether ech_config_from_env asks the program's launcher */
    /* Seconds, about, for which this node measures its steps before the run, 0.001 to 60 (default 0.4). Shorter: the run begins sooner and
     * the plan goes by noisier times. Longer: where a control group deals the processor out in periods of more than 100 ms. */
    double measure;
    /* sync bsp: nodes that own the parameters together, each some parts: a number of nodes (those with the fastest links, of such the
     * fastest; fewer where a link has no room), two or more ranks, "0,2,3", or "auto", the default: the fewest of 1, 2, 4, ... that are
     * predicted to be within 2 % of the best (one with another policy or codec). Only rank 0 reads it. */
    char shards[256];
    /* sync bsp: how gradients are summed and weights given out: "server" (by their owners), "ring" (from worker to worker; the parameters
     * are owned by all that train, unless shards names some; not with sync_norm or separate) or "auto" (default): the ring
     * where it is predicted to be as fast as several owners, or to gain 5 % over one. Only rank 0 reads it. */
    char exchange[16];
    /* File in which rank 0 keeps the training loss by samples of runs, in their first epochs; made when the first run ends; "" (default):
     * none. A plan takes from it what a policy's staleness costs: the samples that earlier runs of the same model, data, batch, learning
     * rate and optimiser needed to the same losses under bsp and under this policy. Of what is not in it a table tells that was made with
     * LeNet-5. A run that began with `init`, went on from a checkpoint, followed `plan`'s file or was local adds nothing. */
    char efficiency[1024];
    /* With separate 1: the name of the layer that the head begins with, "fc2"; "": the first fully connected one behind convolutions. One
     * with parameters, in front of which no branch goes past the cut and there is something to train; else ECH_E_ARGUMENT, with those that
     * are possible. All nodes the same. */
    char separate_from[36];
    /* 1: where layers are separated, a second node trains them as well, on a copy of all activations that workers send: a run outlives the
     * loss of the node that owns them, rank 0 apart, and loses no update; then a third gets a copy of them and is the shadow. 0 (default):
     * none does. Only rank 0 reads it. */
    int shadow;
    /* sync bsp with `separate`: micro-batches into which each node cuts its step, 2 to 8: it sends the activations of each as soon as they
     * are computed, and the node that trains the separated layers computes meanwhile; gradients are those of whole steps. 1: steps are
     * whole; 0 (default): as many as are predicted to be the fastest. More than 1 is ECH_E_ARGUMENT where a batch-norm is among the layers
     * that are not separated. Only rank 0 reads it. */
    int64_t micro_batches;
    /* sync bsp: where layers are separated so many nodes, "1" to "8", train them together: each the activations of some workers, on a copy
     * of its own, and once a round they send one another the sums of their gradients. Not with shadow or deterministic. The loss of one of
     * several ends the run. "auto" (default): more than one where that is predicted to be a tenth faster, and then as few as are nearly
     * the fastest. Only rank 0 reads it. */
    char heads[8];
    /* Where layers are separated: how activations travel to who trains these layers, and their gradients back: "fp32" (default), as they
     * are; "bf16": rounded to the nearest bf16, by 2^-8 of themselves at most, in half of the bytes, whichever device a node has. Also
     * between a worker and a head on one node, so that weights do not depend on who is where. ECH_E_ARGUMENT with deterministic, and where
     * no layers are or may be separated. Only rank 0 reads it. */
    char activations[8];
};
void ech_config_init_sized(struct ech_config *config, size_t size);
#define ech_config_init(config) ech_config_init_sized((config), sizeof *(config))

/* One row of the option table: what ech_config_set, ech_config_from_env and the command line all use. */
struct ech_option {
    const char *name;      /* "eval-every"; on the command line --eval-every, in the environment ECH_EVAL_EVERY */
    const char *value;     /* how its value is shown: "SAMPLES", or NULL for a switch without a value */
    const char *fallback;  /* its default, as text */
    const char *help;      /* one line */
};
const struct ech_option *ech_options(int *out_count);
/* Sets an option from text. ECH_E_ARGUMENT with a sentence that names option, value and what is allowed. */
ech_status ech_config_set(struct ech_config *config, const char *name, const char *value, struct ech_error *err);
/* Takes ECH_RANK, ECH_WORLD, ECH_COORDINATOR and every other option from the environment. Refuses ECH_ names that are no option, but
 * for those of a Service of Kubernetes, of which it warns on_log.
 * Without ECH_RANK and ECH_WORLD, and while rank and world are the defaults, it asks the launcher of this process: the first of torchrun,
 * Open MPI, PMI and Slurm whose variables are complete sets rank, world, local_rank and local_world, and also coordinator if that is
 * empty and they name a place to meet. on_log is told which it was. ECH_E_ARGUMENT: what a launcher has set makes no sense. */
ech_status ech_config_from_env(struct ech_config *config, struct ech_error *err);
/* ECH_OK when the options fit together. Called by ech_train and ech_session_open too. */
ech_status ech_config_check(const struct ech_config *config, struct ech_error *err);

/* ------------------------------------------------------------- train, whole */

#define ECH_WORLD_MAX 1024   /* nodes of a run that is simulated */
#define ECH_LIVE_MAX 64      /* nodes of a run on machines: every node keeps a connection to every other */
#define ECH_KINDS_MAX 72     /* 64 kinds of message, net's own frames, and the end of the list */
#define ECH_GROUPS_MAX 8
#define ECH_SHARDS_MAX 64
#define ECH_HEADS_MAX 8
#define ECH_STALENESS_BINS 13

/* One direction of a node's link, megabits a second; all measurements lie between the last two. 0: not known. */
struct ech_link_rate { float rate, lowest, highest; };

/* What makes a run no faster: if `what` took half of its time, the same plan was predicted to make so many times more images a second: 0.41
 * is 41 % more. "steps": forward and backward of workers, without separated layers. "links": bytes on links. "latency": what each message
 * takes beside its bytes, at processors and on its way. "owners": taking in, adding and applying gradients. "head": separated layers.
 * "variation": jitter and stutters of steps. */
#define ECH_WHAT_IF_MAX 6
struct ech_what_if { const char *what; int rank; double gain; };   /* rank: whose; -1: all nodes' */

/* A part of a round's critical path: of the chain of computing and messages, each of which waits for the one before, that ends with the
 * round. "forward", "backward"; "apply": of an owner, adding included; "head": separated layers; "codec"; "out", "in": bytes on a link's
 * way out and in; "messages": what messages take a node's processor; "wake": of its compute thread; "latency": on the way between nodes. */
#define ECH_PATH_MAX 20
struct ech_path_part { const char *what; int rank; double seconds; };   /* rank -1: of none, or of all that are not listed */

/* Megabits a second in both directions of a node's link. */
struct ech_link_use { float out, in; };

/* Seconds of a node's compute thread from its first task on, but while it is held for an evaluation or evaluates. It had a task: "steps"
 * (forward and backward of a worker), "owner" (sums and updates), "head" (separated layers), "codec"; of several the most urgent counts,
 * and what it takes to hand a task over. It had none until there came "weights", a "lease", "activations" or their gradients, "gradients"
 * of workers, or "other". */
struct ech_spent { float steps, owner, head, codec, weights, lease, activations, gradients, other; };

/* A plan that the planner compared with others. */
#define ECH_CANDIDATES_MAX 20
struct ech_candidate {
    const char *sync;
    int groups, separated, taken;         /* taken: the plan is of this kind. It may have left nodes out */
    double images_per_second, staleness;  /* predicted; staleness in rounds, mean */
    double efficiency, goodput;           /* statistical: 1 is that of BSP; images a second times that */
    /* Its standard error, as a part of it; whether the efficiency is "measured" by earlier runs (option efficiency) or of a "table" that
     * was made with LeNet-5. "": nothing is stale, and it is 1. Where policies are compared goodput counts less by the error. */
    double efficiency_error; const char *efficiency_from;
};

/* Training loss where `samples` were applied, the mean over the samples around; of weights that were computed on, staleness included. Of
 * the first epoch: losses of samples that nothing was learnt from yet. */
#define ECH_CURVE_MAX 128
struct ech_loss_point { double samples, loss; };

/* What a run did, in some 160 KB: mind small stacks. On ranks other than 0 only `lost_peer`, `resident_peak` and the plan are meaningful.
 * Of a resumed run the counts of steps and samples, the times, the accuracies and when the target was reached are of all its runs together;
 * bytes, staleness and what was lost are of the last. */
struct ech_report {
    char model[32], data[96], sync[16], version[16];
    int world, separate;
    int n_groups;                         /* with the reserve for who falls behind, the last, if any worker was ever in it */
    int group_of[ECH_WORLD_MAX];          /* group of each rank's worker; -1 when it has none */
    int owner_of[ECH_GROUPS_MAX];         /* rank that owns the trunk for each group */
    int head;                             /* rank that owns the head; -1 when nothing is separated */
    int batch[ECH_WORLD_MAX];             /* samples a step of each rank */
    int round;                            /* B */
    double step_seconds[ECH_WORLD_MAX];   /* measured at start: one step of 64 samples, whole model */
    double link[ECH_WORLD_MAX];           /* megabits a second of each node's link in its slower direction, measured at start or given;
                                             0: not known */
    struct ech_link_rate link_out[ECH_WORLD_MAX], link_in[ECH_WORLD_MAX];   /* each direction, and between what measurements lie */
    double delay[ECH_WORLD_MAX];          /* seconds from each node's link to the middle of the network, measured at start; 0: not known */
    uint64_t steps, samples;
    double epochs, seconds, images_per_second, measuring_seconds, startup_seconds;
    double train_loss, test_accuracy, best_accuracy;   /* accuracies 0..1; negative: no evaluation. test_accuracy: of the final weights */
    double target_seconds, target_epochs; /* when target_accuracy was first reached; negative: never */
    uint64_t bytes_sent[ECH_KINDS_MAX];   /* by all nodes, by message kind */
    const char *kind_name[ECH_KINDS_MAX]; /* NULL ends the list */
    double staleness_max, staleness_mean; /* of trunk pushes, in rounds */
    uint64_t seed;
    size_t resident_peak;                 /* bytes, this node */
    int threads;                          /* of computation, this node */
    int lost_peer;                        /* rank whose loss ended the run; -1 */
    /* Pushes by staleness, in rounds of B samples. The first bin counts those of 0, bin i those above staleness_edge[i - 1] and at
     * most staleness_edge[i], the last those above all edges. trunk: what others added between the weights that a push was
     * computed on and its apply. head: by how much the head's weights behind a push were older than the newest that any push
     * applied so far came from; the head's own gradients are never stale. Empty where nothing is separated. */
    double staleness_edge[ECH_STALENESS_BINS - 1];
    uint64_t staleness_trunk[ECH_STALENESS_BINS], staleness_head[ECH_STALENESS_BINS];
    double checkpoint_seconds;            /* no training while checkpoints were gathered, and at the end written */
    uint64_t resumed_samples;             /* of `samples`, those of the runs before this one; seconds and samples are those of all */
    int n_lost, lost[ECH_WORLD_MAX];      /* ranks that were lost while the others went on, in order */
    uint64_t leases_again, samples_again; /* work of theirs that others were given again; `samples` counts each once */
    uint64_t head_repeats;                /* rows that the head had trained already: answered, not trained again */
    char codec[32];                       /* "dense", "topk:paper", ... */
    /* With topk, of pushes and of weights and states between nodes: bytes by those that they would have had dense; 1 with dense. */
    double push_ratio, state_ratio;
    uint64_t residuals_lost;              /* with topk: residuals that were lost with their worker, or cleared since its owner was lost */
    uint64_t momentum_lost;               /* parameters whose owner was lost, and whose optimiser's memory began anew, each time counted */
    /* Shadows that were made while the run went, since one was lost or had become the head; moves of the head to a better place; seconds in
     * which nothing new was given out for either. */
    uint64_t shadows_made, head_moves; double head_seconds;
    uint64_t leases_dropped, samples_dropped;   /* drop_older: too old when they came; issued again, and so among leases_again too */
    double predicted_images_per_second, predicted_staleness;   /* of the plan, before it ran; staleness in rounds, mean;
                                                                  negative: nobody could tell */
    int net_negative;                          /* rank without which the others were predicted to be faster; -1: none, or any, of nodes
                                                  that share too few processors of one machine */
    /* Seconds from one push of a worker to its next, whatever it waits for, in the mean over the workers of each group; 0: nobody
     * pushed twice. What lies between the groups is what a slow link or a slow machine costs its group. */
    double iteration_seconds[ECH_GROUPS_MAX];
    double net_negative_gain;                  /* by so much: 0.12 is 12 % more images a second; with sync auto the rank was left out if its
                                             batch is 0 */
    /* Because speeds had changed for good: workers that joined another group, and changes of a worker's samples a step, under bsp of all
     * shares of a round. group_of and batch above are those at the end. */
    uint64_t regroups, resizes;
    int n_shards, shard_owner[ECH_SHARDS_MAX];   /* ranks that own the parameters together, owner_of[0] first; 0: owner_of has all */
    /* The same as link_out and link_in, of late, by what went over the links while the run went: `rate` is at most what they carry, since
     * the other end may be slower. 0: not known, since too little went over them at a time. */
    struct ech_link_rate link_run_out[ECH_WORLD_MAX], link_run_in[ECH_WORLD_MAX];
    /* topk: of a gradient, each group's pushes from the sixth epoch on, as planned and as they are at the end; how often they were changed
     * because links or steps had, when for the last time (as `seconds`; negative: never), and why. */
    double ratio_planned[ECH_GROUPS_MAX], ratio[ECH_GROUPS_MAX];
    uint64_t ratio_changes; double ratio_seconds; char ratio_reason[120];
    /* How often another plan became clearly better (by a tenth, and lasting) that roles cannot change to while a run goes; the last, and
     * why, as a sentence ("": none). */
    uint64_t better_plans; char better_plan[240];
    double predicted_over_measured;       /* images a second; negative: nothing was predicted, or nothing trained */
    /* What each node's link carries while the plan trains, as predicted; 0 of one node, of more than 256, after a loss. */
    struct ech_link_use predicted_link[ECH_WORLD_MAX];
    int n_candidates; struct ech_candidate candidate[ECH_CANDIDATES_MAX];   /* policies with sync auto, else numbers of groups; or one */
    /* What would gain 2 % or more, the most first; its first is the run's bottleneck. None of one node, of more than 256, after a loss. */
    int n_what_if; struct ech_what_if what_if[ECH_WHAT_IF_MAX];
    double target_accuracy;               /* 0..1, that the run was to reach; 0: none */
    /* Where a round's time goes, as predicted: parts that add up to path_seconds, the longest first. Where nobody waits for rounds they are
     * from a push of path_rank, the slowest node, to its next; else that is -1. None after a loss, of more than 256 nodes. */
    int n_path, path_rank; double path_seconds; struct ech_path_part path[ECH_PATH_MAX];
    /* Bytes that a node holds under the plan: weights, gradients, the optimiser's memory, rows; without activations. Of simulated runs of
     * a model, of up to ECH_LIVE_MAX nodes; else 0. */
    uint64_t slot_bytes[ECH_WORLD_MAX];
    /* Likewise bytes of activations and scratch, those of evaluations included, as the processor of this machine would take them with one
     * thread; where that one has no kernels for the options, 0. */
    uint64_t activation_bytes[ECH_WORLD_MAX];
    double behind;                        /* rounds that pushes were behind, mean: staleness_mean, and what other groups had done that their
                                             owners did not know yet, as predicted; negative: not known */
    int n_loss_curve; struct ech_loss_point loss_curve[ECH_CURVE_MAX];   /* ascending, a point for as many samples each */
    /* Statistical efficiency of this run's policy by its curve and by those of earlier runs (option efficiency), and its standard error as
     * a part of it. Negative: not known, or 1 by definition, under BSP. */
    double measured_efficiency, measured_efficiency_error;
    int simulated;                        /* 1: seconds, links and machines are those of a simulation */
    struct ech_spent spent[ECH_WORLD_MAX];/* of each rank; of one that is lost 0 */
    char head_from[32];                   /* the layer that the head begins with; "" where nothing is separated */
    int micro_batches;                    /* into which each node cuts its step beside a separated head; 1: into none */
    char activations[8];                  /* how they travel to the head: "fp32" or "bf16"; "" where nothing is separated */
    int n_heads, head_rank[ECH_HEADS_MAX];   /* ranks that train the head's layers together, `head` first; 0: it does alone */
};
/* The report as one JSON object, like ech_model_text. */
size_t ech_report_json(const struct ech_report *report, char *buf, size_t cap);

/* A run that cannot go on without a node that is lost (ECH_E_PEER_LOST) ends with the newest weights that are left, if there are any: they
 * are saved and returned, and the sentence says of which round they are.
 * Joins the other nodes and trains until the run ends. Blocks. The calling thread needs a stack of 128 KiB,
 * plus what the program's callbacks and a GPU's driver take. Every rank calls it with the same model, data and options
 * (rank, device, threads, slow and callbacks may differ). out_report may be NULL; it is filled as far as the run came,
 * also on failure. params (may be NULL): on rank 0, ech_model_params(model) floats that receive the trained weights.
 * ECH_E_NOT_REACHED (rank 0 only: the others return ECH_OK), ECH_E_DIVERGED, ECH_E_PEER_LOST (error.peer names it), ECH_E_TIMEOUT,
 * ECH_E_MISMATCH, ECH_E_BUSY, ECH_E_ABORTED (stopped), ECH_E_IO (a file, or the last checkpoint, could not be written),
 * ECH_E_UNRECORDED (all went well, but the recording breaks off), and what the arguments can do wrong.
 * ECH_E_TIMEOUT also says that computing stood still on this node (a data callback that does not return, a device that hangs) for ten
 * times as long as a step was measured to take, `deadline` at least, or ten times `deadline` while nothing was measured yet and
 * in evaluations. The others go on without it where they can. It returns all the same, with or without `stop`, but the thread
 * that stands still stays behind: then model and data must never be destroyed, and what the callback uses must stay. It does
 * nothing more if it comes back.
 * A session returns the same way; how long the caller's own steps take is not judged. */
ech_status ech_train(const ech_model *model, const ech_data *data, const struct ech_config *config, float *params,
                     struct ech_report *out_report, struct ech_error *err);

/* -------------------------------------------------------- train, sync only */

/* One array of your model. Layers are handed over in the order given; the same names, counts and order on all nodes. */
struct ech_param {
    const char *name;
    float *value;          /* [count]: Echelon writes new weights here, only inside ech_session_open, ech_step_begin, ech_session_close */
    const float *grad;     /* [count]: read between ech_gradient_ready and the next ech_step_begin; leave it as it is until then */
    size_t count;
    /* NULL, or: where Echelon says where the weights are, and saves a copy of them a step. ech_step_begin sets *lent to [count] floats of
     * Echelon's own, which are lent until ech_gradient_ready for this array; `value` then has what it had, until the run is over:
     * ech_step_begin with ECH_E_END writes the final weights there, and *lent is `value`, as it is at ech_session_open and after a
     * failure. */
    const float **lent;
};
typedef struct ech_session ech_session;

/* What a step is to compute: `n` samples, numbers in index[0..n), each 0..train_samples-1. */
struct ech_step {
    int n;
    const uint32_t *index; /* valid until ech_step_end */
    uint32_t epoch;
};

/* Joins the other nodes with your own arrays. train_samples: size of the training set (all nodes can read all of it).
 * rank 0's values are the initial weights of all. sync bsp, asp, ssp, gssp, local or auto; evaluations of a test set
 * are yours to make. params and the arrays must stay valid until ech_session_close. Blocks until all nodes have joined
 * and measured: `measure`, when not NULL, is called a few times with a number of samples and must compute gradients for
 * the samples as a step would (its results are not used); without it shares are equal. */
ech_status ech_session_open(const struct ech_param *params, int n_params, uint32_t train_samples, const struct ech_config *config,
                            int (*measure)(void *user, const uint32_t *index, int n), void *user,
                            ech_session **out_session, struct ech_error *err);
/* Layers of Echelon's behind your own: the fully connected ones (layer separation; Stanza: Wu et al., arXiv 1812.10624). Your arrays are
 * what is in front of them, and `model` takes what that makes of a sample, C x H x W. It ends in one output a class; softmax and
 * cross-entropy are behind it. A node that the plan names trains these layers on the rows of all nodes (option separate: on; auto: under
 * gssp, where that is better), or each node does on its own (off, and where there is one node). Both are Echelon's work, by threads of its
 * own. All nodes give the same model. It may be destroyed after the opening. */
struct ech_head {
    const ech_model *model;
    const float *first;    /* [ech_model_params(model)], rank 0: its first weights; NULL: PyTorch's default, by config.seed, as ech_train
                              has it. Other ranks' are not looked at */
    float *weights;        /* NULL, or [ech_model_params(model)]: gets the trained weights where and when the arrays do, on every node. It
                              must stay valid until ech_session_close. After a failure it is as it was */
};
/* ech_session_open with a head; with NULL the same. `measure` computes what is in front of the head, forward and backward, from any
 * gradient; Echelon measures the head itself. One step is in flight at a time. */
ech_status ech_session_open_with_head(const struct ech_param *params, int n_params, const struct ech_head *head, uint32_t train_samples,
                                      const struct ech_config *config, int (*measure)(void *user, const uint32_t *index, int n),
                                      void *user, ech_session **out_session, struct ech_error *err);
/* Waits for samples and for the weights they are to be computed on; writes new weights into the arrays. ECH_E_END: the
 * run is over, and so it is after it was stopped (config.stop): what had been given out was trained, the arrays have the final weights,
 * equal on all nodes; call ech_session_close, which says whether the run did all that it was to do. Any other failure leaves in the
 * arrays what this node's last step was computed on, which may differ between nodes. */
ech_status ech_step_begin(ech_session *session, struct ech_step *out_step, struct ech_error *err);
/* What the head makes of a step's rows. */
struct ech_head_answer {
    double loss;           /* mean over the step's samples. Where the head took rows of several nodes at once it is the mean over all of
                              them, and `correct` this node's part of their right answers: sums over all nodes are exact */
    int correct;
    int divisor;           /* of the gradients: the step's n. They are those of the mean loss, so that what your backward pass makes of
                              them is the mean that ech_gradient_ready takes */
    int over;              /* 1: the node that waited for this step's gradients is lost, and its samples are given out again. Gradient,
                              loss and correct are 0, nothing is lent any more, and what is left of the step is not looked at */
};
/* In a session with a head, once in each step, between ech_step_begin and the first ech_gradient_ready: rows is what your layers make of
 * the step's samples, `count` floats, n x C x H x W; labels [n], each below the head's classes. Both are read before it waits. Blocks until
 * out_row_grads, as many floats as rows, has the gradient of the mean loss with respect to rows; it may be rows itself. Then go on with
 * your backward pass. It waits for the head's node, not for another's caller. Of that node nothing is heard for `deadline` seconds, or its
 * computing stands still: it is lost, which ends the run, unless option shadow gives the head a second node. ECH_E_SHAPE, ECH_E_ARGUMENT:
 * nothing was handed over, and the step is as it was. Else the run is over, and the status is that of the next ech_step_begin. */
ech_status ech_head_exchange(ech_session *session, const float *rows, size_t count, const uint16_t *labels, float *out_row_grads,
                             struct ech_head_answer *out_answer, struct ech_error *err);
/* The gradient of array `param`, as the *mean* over the step's n samples, is ready in its grad array. Returns at once.
 * Once for each array, in any order. */
ech_status ech_gradient_ready(ech_session *session, int param, struct ech_error *err);
/* The step is done: loss is the mean over its samples (goes into the report; with a head it is the head's, and this one is not looked at).
 * ECH_E_DIVERGED when it is not finite. */
ech_status ech_step_end(ech_session *session, double loss, struct ech_error *err);
/* Leaves in order, frees. After ECH_E_END the values are the trained weights, equal on all nodes. ECH_OK: the run did all that it was to
 * do; ECH_E_UNRECORDED: it did, but its recording breaks off; ECH_E_ABORTED: it was stopped before, or this session is closed before its
 * end, which ends the run for all. NULL is harmless. */
ech_status ech_session_close(ech_session *session, struct ech_report *out_report, struct ech_error *err);

#ifdef __cplusplus
}
#endif
#endif
