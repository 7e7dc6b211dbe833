/* SPDX-License-Identifier: Apache-2.0
 * From the environment and the command line to a struct command, and --help. The library's option table is the only list
 * of a run's options; here are those that only the tool has. */
#include "tool.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char default_model[] = "lenet5";
static const struct ech_option own[] = {
    {"model", "NAME|FILE", default_model, "built-in model (lenet5, resnet18, vgg19, alexnet), or a text file with one layer a line"},
    {"data", "DIR|glyphs", "", "folder with MNIST's four idx files or CIFAR-10's six binary ones, or the built-in generated digits"},
    {"local", "N", "", "start N nodes on this machine (instead of --rank, --world, --coordinator)"},
    {"slow", "RANK=FACTOR[,...]", "", "that node computes so many times slower, by sleeping; a mere FACTOR: this node (with --local: all)"},
    {"device", "DEVICE[,...]", "cpu",
     "where a node computes: cpu; cuda or cuda:1, a card of NVIDIA's; opencl or opencl:1, a device of OpenCL; auto, "
     "the fastest of the GPUs that compute rightly and cpu; a list: rank 0's, rank 1's, ..."},
    {"hosts", "FILE", "", "the simulated machines, one line a class: speed, jitter, link, ... (test/hosts has some)"},
    {"doctors", "HOST:PORT[,...]", "",
     "instead of simulated machines this one, as rank 0, and those where `echelon doctor --listen` waits: they are measured"},
    {"workers", "N", "", "so many simulated machines of a named spread, instead of --hosts"},
    {"spread", "NAME", "even", "how unlike they are: even, mild, strong; incast: slow links; links: slow links of four kinds"},
    {"compute", "WHAT", "real", "real: the arithmetic is done, and costs virtual time; model: it only costs, and nothing is learned"},
    {"profile", "FILE", "", "what arithmetic costs, as `echelon train --profile-out` writes it; without it a built-in table"},
    {"trace", "FILE", "",
     "instead of a model, layer times of another system: a table of the DAG model of S-SGD, a log of B-Caffe, a graph of PipeDream"},
    {"alpha-beta", "A,B|FILE", "",
     "with --trace and --workers: seconds of a message and of a byte between two of them, as in 50e-6,0.8e-9, or a log of OSU's "
     "all-reduce; without it links follow from the trace's own all-reduce times"},
    {"trace-batch", "SAMPLES", "", "samples of a step in the trace, where its file does not specify them [64]"},
    {"target-from", "FILE", "", "report of a run that reached its --target-accuracy: how long each plan is predicted to take to it"},
    {"curve", "FILE", "", "a line for each evaluation: samples, epochs, seconds, loss, accuracy (CSV); rank 0 writes it"},
    {"svg", "FILE", "", "draws a round of the plan, as predicted, with its critical path, and what other links or fewer nodes make (SVG)"},
    {"verbose", NULL, "", "also tells which kernels compute each layer, and why those; what each parameter of --init was in its file"},
    {"progress", "WHEN", "auto", "on, off, or auto: one line on a terminal, else a line each 10 s and each evaluation"},
    {"json", NULL, "", "what is found as one JSON object, for programs"},
    {"listen", NULL, "", "waits at --coordinator, until it is stopped, for nodes that measure their link and for `echelon plan --doctors`"},
    {"links", NULL, "", "on all nodes at once: measures the link between each two of them, and prints the table"},
    {"help", NULL, "", "this text"},
};
enum { N_OWN = (int)(sizeof own / sizeof own[0]) };

/* Options that one of the subcommands does not have, and what its user is told. All others are of all. What `sim` lacks `plan` lacks too,
 * but for those of SIM_ALONE. */
enum { SIM_ALONE = PLAN_HERE + 1 };
static const struct {
    int without;
    const char *name, *instead;
} lacking[] = {
    {TRAIN, "doctors", "`echelon plan` measures nodes that wait; a run's nodes meet at --coordinator"},
    {SIM_ALONE, "doctors", "`echelon plan` measures nodes that wait, and predicts"},
    {DOCTOR, "doctors", "`echelon plan` measures nodes that wait"},
    {PLAN_HERE, "hosts", "--doctors measures machines that are there: leave one of them out"},
    {PLAN_HERE, "workers", "--doctors says how many machines there are"},
    {PLAN_HERE, "spread", "--doctors measures machines that are there"},
    {PLAN_HERE, "profile", "--doctors measures what arithmetic costs"},
    {PLAN_HERE, "trace", "--doctors measures a --model"},
    {PLAN_HERE, "alpha-beta", "--doctors measures links"},
    {PLAN_HERE, "trace-batch", "--doctors measures a --model"},
    {PLAN_HERE, "data", "the nodes that wait have no samples: they are measured with black ones of the model's shape"},
    {PLAN_HERE, "augment", "it is measured with black samples"},
    {PLAN_HERE, "svg", "it draws simulated machines: --save-plan FILE keeps the plan and what its links carry"},
    {TRAIN, "hosts", "machines are simulated by `echelon sim`"},
    {TRAIN, "workers", "machines are simulated by `echelon sim`; --local N starts N nodes on this one"},
    {TRAIN, "spread", "machines are simulated by `echelon sim`; --slow makes nodes unlike"},
    {TRAIN, "compute", "only `echelon sim` can leave the arithmetic out"},
    {TRAIN, "profile", "a run measures its nodes; `echelon sim` takes a profile, and --profile-out writes one"},
    {TRAIN, "json", "--report FILE writes what a run did as JSON"},
    {TRAIN, "svg", "`echelon plan` draws what is predicted"},
    {TRAIN, "listen", "`echelon doctor` measures links"},
    {TRAIN, "links", "`echelon doctor` measures links"},
    {TRAIN, "target-from", "--target-accuracy says which accuracy ends a run; `echelon plan` predicts when"},
    {DOCTOR, "target-from", "it trains nothing"},
    {SIM_ALONE, "target-from", "--target-accuracy says which accuracy ends a run; `echelon plan` predicts when"},
    {DOCTOR, "hosts", "machines are simulated by `echelon sim`"},
    {DOCTOR, "workers", "machines are simulated by `echelon sim`"},
    {DOCTOR, "spread", "machines are simulated by `echelon sim`"},
    {DOCTOR, "compute", "machines are simulated by `echelon sim`"},
    {DOCTOR, "profile", "it measures this machine"},
    {DOCTOR, "local", "it looks at one node: give --world N, and --threads if they share the processors"},
    {DOCTOR, "progress", "it ends with one page"},
    {DOCTOR, "verbose", "it says all it finds"},
    {DOCTOR, "curve", "it trains nothing"},
    {DOCTOR, "efficiency", "it trains nothing"},
    {DOCTOR, "svg", "`echelon plan` draws what is predicted"},
    {PLAN, "compute", "a plan computes nothing"},
    {PLAN, "steps", "a plan trains nothing"},
    {PLAN, "epochs", "a plan trains nothing"},
    {PLAN, "target-accuracy", "a plan trains nothing"},
    {PLAN, "eval-every", "a plan trains nothing"},
    {PLAN, "init", "a plan needs no weights"},
    {PLAN, "save", "a plan has no weights: --save-plan FILE writes the plan, --report FILE what is predicted, as JSON"},
    {PLAN, "curve", "a plan trains nothing"},
    {PLAN, "progress", "it ends with one page"},
    {PLAN, "verbose", "it says all it finds"},
    {PLAN, "json", "--report FILE writes what is predicted as JSON"},
    {TRAIN, "trace", "`echelon plan` plans what a trace has the times of"},
    {TRAIN, "alpha-beta", "a run measures its links"},
    {TRAIN, "trace-batch", "`echelon plan` takes a trace"},
    {DOCTOR, "trace", "`echelon plan` plans what a trace has the times of"},
    {DOCTOR, "alpha-beta", "--links measures links"},
    {DOCTOR, "trace-batch", "`echelon plan` takes a trace"},
    {SIM_ALONE, "trace", "a trace has times and no arithmetic: `echelon plan` takes it"},
    {SIM_ALONE, "alpha-beta", "say what each node's link carries in --hosts FILE, as in 'link 100 Mb/s delay 25 us'"},
    {SIM_ALONE, "trace-batch", "`echelon plan` takes a trace"},
    {SIM, "json", "--report FILE writes what a run did as JSON"},
    {SIM, "listen", "simulated nodes meet without a network"},
    {SIM, "links", "simulated nodes meet without a network"},
    {SIM, "local", "all nodes are simulated here: give their number with --workers, or --hosts FILE"},
    {SIM, "rank", "all nodes are simulated here: give their number with --workers, or --hosts FILE"},
    {SIM, "world", "give the number of nodes with --workers, or --hosts FILE"},
    {SIM, "coordinator", "simulated nodes meet without a network"},
    {SIM, "bind", "simulated nodes meet without a network"},
    {SIM, "local-rank", "simulated nodes have machines of their own"},
    {SIM, "local-world", "simulated nodes have machines of their own"},
    {SIM, "launcher", "all nodes are simulated in this process"},
    {SIM, "join-timeout", "simulated nodes join at the times that --hosts FILE gives"},
    {SIM, "key", "simulated nodes meet without a network"},
    {SIM, "insecure", "simulated nodes meet without a network"},
    {SIM, "slow", "say how fast each node is in --hosts FILE, as in 'speed 0.25 x'"},
    {SIM, "device", "what arithmetic costs is what --profile FILE says, wherever it is done"},
    {SIM, "cache", "a simulation computes on the processor"},
    {SIM, "threads", "what arithmetic costs is what --profile FILE says; it is done on one thread"},
    {SIM, "checkpoint", "a simulated run is short, and is not checkpointed"},
    {SIM, "every", "a simulated run is short, and is not checkpointed"},
    {SIM, "keep", "a simulated run is short, and is not checkpointed"},
    {SIM, "resume", "a simulated run begins at the beginning"},
    {SIM, "record", "the same seed gives the same simulated run again"},
    {SIM, "link", "say what each node's link carries in --hosts FILE, as in 'link 100 Mb/s'"},
    {SIM, "measure", "a simulation measures nothing: what arithmetic costs is what --profile FILE says"},
    {SIM, "profile-out", "a simulation measures nothing: `echelon train --profile-out` writes a profile"},
};
enum { N_LACKING = (int)(sizeof lacking / sizeof lacking[0]) };

static bool listed(const char *names, const char *name) {
    char spaced[40];
    snprintf(spaced, sizeof spaced, " %s ", name);
    return strstr(names, spaced) != NULL;
}

/* What a plan of machines that are there has, and one of simulated machines does not. */
static const char of_machines[] = " coordinator bind join-timeout key insecure local-world device cache threads slow link measure ";

/* A plan is one of simulated machines. */
static bool is_of(int row, enum subcommand sub) {
    const int without = lacking[row].without;
    if (sub == PLAN_HERE && without != PLAN_HERE) return !listed(of_machines, lacking[row].name) && is_of(row, PLAN);
    return without == (int)sub || (sub == PLAN && without == SIM) || (sub == SIM && without == SIM_ALONE);
}

/* NULL: `sub` has this option. */
static const char *told_instead(enum subcommand sub, const char *name) {
    for (int i = 0; i < N_LACKING; i++)
        if (is_of(i, sub) && strcmp(lacking[i].name, name) == 0) return lacking[i].instead;
    return NULL;
}

static const char *name_of(enum subcommand sub) {
    static const char *const name[] = {[TRAIN] = "train", [SIM] = "sim", [PLAN] = "plan", [DOCTOR] = "doctor", [PLAN_HERE] = "plan"};
    return name[sub];
}

/* How --help arranges them. An option in no group comes last, under "Others". */
static const struct {
    const char *title, *names;
} sections[] = {
    {"What to train", " model data init "},
    {"The simulated cluster", " hosts doctors workers spread compute profile trace trace-batch alpha-beta "},
    {"Nodes", " local rank world coordinator launcher key insecure bind join-timeout deadline local-rank local-world device cache "
              "threads isa slow measure "},
    {"How the nodes work together",
     " sync staleness rounds-apart groups regroup separate shadow micro-batches heads activations shares shards exchange samples-per-step "
     "inner-steps drop-older weigh-by-time codec link plan efficiency "},
    {"Learning",
     " batch optimizer lr momentum weight-decay beta1 beta2 epsilon schedule warmup lr-steps lr-factor damping outer-lr outer-momentum "
     "seed no-shuffle winograd precision augment sync-norm deterministic "},
    {"When it ends", " epochs steps target-accuracy target-from eval-every "},
    {"Stopping and going on", " checkpoint every keep resume "},
    {"What it tells", " json listen links progress verbose report curve svg save save-plan record profile-out help "},
};
enum { N_SECTIONS = (int)(sizeof sections / sizeof sections[0]) };

static ech_status wrong(struct ech_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static ech_status wrong(struct ech_error *err, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    *err = (struct ech_error){.code = ECH_E_ARGUMENT, .peer = -1};
    vsnprintf(err->text, sizeof err->text, fmt, args);
    va_end(args);
    return ECH_E_ARGUMENT;
}

/* ---------------------------------------------------------------- hints */

/* Levenshtein's distance; words longer than a row count as far away. */
static size_t distance(const char *a, const char *b) {
    size_t row[64], n = strlen(b);
    if (n >= sizeof row / sizeof row[0]) return n;
    for (size_t j = 0; j <= n; j++) row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < n; j++) {
            size_t best = diagonal + (a[i] != b[j]);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j + 1] + 1 < best) best = row[j + 1] + 1;
            diagonal = row[j + 1];
            row[j + 1] = best;
        }
    }
    return row[n];
}

const char *hint(const char *dashes, const char *word, const char *const *known, int n, char *buf, size_t cap) {
    size_t near = strlen(word) / 3 + 1;   /* a third of the letters may be wrong */
    const char *best = NULL;
    for (int i = 0; i < n; i++) {
        size_t d = distance(word, known[i]);
        if (d > near || (d == near && best)) continue;
        near = d;
        best = known[i];
    }
    if (best) snprintf(buf, cap, "; did you mean %s%s?", dashes, best);
    else buf[0] = 0;
    return buf;
}

/* What other trainers and launchers call it. Of several rows the first counts whose option the subcommand has. */
static const struct {
    const char *theirs, *ours;
} synonyms[] = {
    {"learning-rate", "lr"}, {"step-size", "lr"}, {"alpha", "lr"},
    {"bs", "batch"}, {"batch-size", "batch"}, {"batchsize", "batch"}, {"global-batch-size", "batch"}, {"mini-batch", "batch"},
    {"micro-batch-size", "samples-per-step"}, {"per-device-train-batch-size", "samples-per-step"},
    {"wd", "weight-decay"}, {"l2", "weight-decay"},
    {"opt", "optimizer"}, {"optim", "optimizer"}, {"eps", "epsilon"},
    {"lr-scheduler", "schedule"}, {"lr-schedule", "schedule"}, {"lr-policy", "schedule"}, {"scheduler", "schedule"},
    {"warmup-epochs", "warmup"}, {"milestones", "lr-steps"}, {"lr-decay-steps", "lr-steps"}, {"gamma", "lr-factor"},
    {"lr-gamma", "lr-factor"},
    {"num-epochs", "epochs"}, {"max-epochs", "epochs"}, {"num-train-epochs", "epochs"},
    {"iterations", "steps"}, {"max-steps", "steps"}, {"num-steps", "steps"}, {"max-iter", "steps"},
    {"eval-interval", "eval-every"}, {"eval-steps", "eval-every"}, {"val-interval", "eval-every"},
    {"nodes", "local"}, {"num-nodes", "local"}, {"nnodes", "local"}, {"np", "local"}, {"nproc", "local"}, {"nproc-per-node", "local"},
    {"num-workers", "local"}, {"nodes", "workers"}, {"num-nodes", "workers"}, {"num-workers", "workers"}, {"nodes", "world"},
    {"num-nodes", "world"}, {"world-size", "world"}, {"num-processes", "world"}, {"node-rank", "rank"}, {"machine-rank", "rank"},
    {"master-addr", "coordinator"}, {"master-port", "coordinator"}, {"dist-url", "coordinator"}, {"rdzv-endpoint", "coordinator"},
    {"num-threads", "threads"}, {"jobs", "threads"}, {"gpu", "device"}, {"gpus", "device"}, {"cuda", "device"}, {"backend", "device"},
    {"dtype", "precision"}, {"amp", "precision"}, {"bf16", "precision"}, {"mixed-precision", "precision"},
    {"arch", "model"}, {"network", "model"}, {"dataset", "data"}, {"data-dir", "data"}, {"data-path", "data"}, {"train-dir", "data"},
    {"pretrained", "init"}, {"weights", "init"}, {"load", "init"}, {"output", "save"}, {"output-dir", "save"}, {"out", "save"},
    {"save-dir", "checkpoint"}, {"checkpoint-dir", "checkpoint"}, {"ckpt", "checkpoint"}, {"save-every", "every"}, {"save-steps", "every"},
    {"save-total-limit", "keep"}, {"resume-from-checkpoint", "resume"}, {"random-seed", "seed"}, {"manual-seed", "seed"},
    {"sync-bn", "sync-norm"}, {"compression", "codec"},
};
enum { N_SYNONYMS = (int)(sizeof synonyms / sizeof synonyms[0]) };

/* "; did you mean --x?" for an option of another program, or one that is misspelt. --batch_size is --batch-size. */
static const char *hint_option(const char *given, const char *const *known, int n, char *buf, size_t cap) {
    char word[64];
    size_t len = 0;
    for (; given[len] && len + 1 < sizeof word; len++) word[len] = given[len] == '_' ? '-' : given[len];
    word[len] = 0;
    for (int s = 0; s < N_SYNONYMS; s++)
        for (int i = 0; i < n && strcmp(synonyms[s].theirs, word) == 0; i++)
            if (strcmp(synonyms[s].ours, known[i]) == 0) return hint("--", synonyms[s].ours, &known[i], 1, buf, cap);
    return hint("--", word, known, n, buf, cap);
}

/* -------------------------------------------------------------- parsing */

static const struct ech_option *find(const struct ech_option *table, int n, const char *name, size_t len) {
    for (int i = 0; i < n; i++)
        if (strncmp(table[i].name, name, len) == 0 && !table[i].name[len]) return &table[i];
    return NULL;
}

/* A list RANK=FACTOR,... into command->slow; a mere FACTOR is the library's option of the same name. */
static ech_status set_slow(struct command *command, const char *value, struct ech_error *err) {
    if (!strchr(value, '=')) return ech_config_set(&command->config, "slow", value, err);
    for (const char *at = value;;) {
        char factor[32], *end;
        long rank = strtol(at, &end, 10);
        size_t len = strcspn(end, ",");
        if (end == at || *end != '=' || rank < 0 || rank >= ECH_WORLD_MAX || len < 2 || len > sizeof factor)
            return wrong(err, "--slow '%.80s': give RANK=FACTOR[,RANK=FACTOR...], as in 3=4,2=1.5", value);
        memcpy(factor, end + 1, len - 1);
        factor[len - 1] = 0;
        struct ech_config one = command->config;
        ech_status status = ech_config_set(&one, "slow", factor, err);
        if (status != ECH_OK) return status;
        command->slow[rank] = one.slow;
        if (!end[len]) return ECH_OK;
        at = end + len + 1;
    }
}

/* One device is the library's option; a list of them is settled when the number of nodes is known. */
static ech_status set_device(struct command *command, const char *value, struct ech_error *err) {
    command->devices = strchr(value, ',') ? value : NULL;
    return command->devices ? ECH_OK : ech_config_set(&command->config, "device", value, err);
}

ech_status command_device(const struct command *command, int rank, struct ech_config *config, struct ech_error *err) {
    char device[sizeof config->device];
    const char *at = command->devices;
    if (!at) return ECH_OK;
    for (int r = 0; r < rank && at; r++) at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL;
    const size_t len = at ? strcspn(at, ",") : 0;
    if (len == 0 || len >= sizeof device)
        return wrong(err, "--device '%.80s' has no device for rank %d: give one for each rank, as in cpu,opencl:0", command->devices, rank);
    snprintf(device, sizeof device, "%.*s", (int)len, at);
    return ech_config_set(config, "device", device, err);
}

static ech_status set_count(const char *name, const char *value, const char *of, int most, int *out, struct ech_error *err) {
    char *end;
    long n = strtol(value, &end, 10);
    if (!*value || *end || n < 1 || n > most)
        return wrong(err, "--%s '%.40s': give a whole number of %s from 1 to %d", name, value, of, most);
    *out = (int)n;
    return ECH_OK;
}

static ech_status set_own(struct command *command, const char *name, const char *value, struct ech_error *err) {
    if (strcmp(name, "model") == 0) command->model = value;
    else if (strcmp(name, "data") == 0) command->data = value;
    else if (strcmp(name, "curve") == 0) command->curve = value;
    else if (strcmp(name, "svg") == 0) command->svg = value;
    else if (strcmp(name, "help") == 0) command->help = true;
    else if (strcmp(name, "verbose") == 0) command->verbose = true;
    else if (strcmp(name, "json") == 0) command->json = true;
    else if (strcmp(name, "listen") == 0) command->listen = true;
    else if (strcmp(name, "links") == 0) command->links = true;
    else if (strcmp(name, "slow") == 0) return set_slow(command, value, err);
    else if (strcmp(name, "device") == 0) return set_device(command, value, err);
    else if (strcmp(name, "local") == 0) return set_count(name, value, "nodes", ECH_LIVE_MAX, &command->local, err);
    else if (strcmp(name, "workers") == 0) return set_count(name, value, "nodes", ECH_WORLD_MAX, &command->workers, err);
    else if (strcmp(name, "hosts") == 0) command->hosts = value;
    else if (strcmp(name, "spread") == 0) command->spread = value;
    else if (strcmp(name, "profile") == 0) command->profile = value;
    else if (strcmp(name, "trace") == 0) command->trace = value;
    else if (strcmp(name, "alpha-beta") == 0) command->alpha_beta = value;
    else if (strcmp(name, "trace-batch") == 0) return set_count(name, value, "samples", 65536, &command->trace_batch, err);
    else if (strcmp(name, "target-from") == 0) command->target_from = value;
    else if (strcmp(name, "doctors") == 0) command->doctors = value;
    else if (strcmp(name, "compute") == 0) {
        command->costs_only = strcmp(value, "model") == 0;
        if (!command->costs_only && strcmp(value, "real") != 0) return wrong(err, "--compute '%.40s': give real or model", value);
    } else if (strcmp(value, "auto") == 0) command->progress = PROGRESS_AUTO;
    else if (strcmp(value, "on") == 0) command->progress = PROGRESS_ON;
    else if (strcmp(value, "off") == 0) command->progress = PROGRESS_OFF;
    else return wrong(err, "--progress '%.40s': give auto, on or off", value);
    return ECH_OK;
}

/* One word of the command line, and the next one when it is this one's value: *at moves on. */
static ech_status take(struct command *command, int argc, char **argv, int *at, struct ech_error *err) {
    const char *word = argv[(*at)++];
    if (strcmp(word, "-h") == 0) word = "--help";
    if (strncmp(word, "--", 2) != 0) {
        const char *before = *at >= 2 ? argv[*at - 2] : "";
        const bool flag = strncmp(before, "--", 2) == 0 && !strchr(before, '=');   /* had it a value, it would have taken this word */
        return wrong(err, "'%.80s' is no option; %.40s%s, see `echelon %s --help`", word, flag ? before : "options begin with --",
                     flag ? " takes no value" : "", name_of(command->sub));
    }
    const char *name = word + 2, *value = NULL;
    size_t len = strcspn(name, "=");
    int n;
    const struct ech_option *table = ech_options(&n), *mine = find(own, N_OWN, name, len);
    const struct ech_option *option = mine ? mine : find(table, n, name, len);
    if (!option) {
        const char *known[128];
        int k = 0;
        for (int i = 0; i < N_OWN; i++)
            if (!told_instead(command->sub, own[i].name)) known[k++] = own[i].name;
        for (int i = 0; i < n && k < 128; i++)
            if (!told_instead(command->sub, table[i].name)) known[k++] = table[i].name;
        char given[64], near[80];
        snprintf(given, sizeof given, "%.*s", (int)len, name);
        return wrong(err, "there is no option --%s%s (`echelon %s --help` lists all)", given,
                     hint_option(given, known, k, near, sizeof near), name_of(command->sub));
    }
    const char *instead = told_instead(command->sub, option->name);
    if (instead)
        return wrong(err, "echelon %s has no --%s%s: %s", name_of(command->sub), option->name,
                     command->sub == PLAN && listed(of_machines, option->name) ? " without --doctors" : "", instead);
    if (name[len] == '=') value = name + len + 1;
    else if (option->value) {
        if (*at == argc) return wrong(err, "--%s needs a value: --%s %s", option->name, option->name, option->value);
        value = argv[(*at)++];
    }
    static const char *const places[] = {"local", "rank", "world"};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (strcmp(option->name, places[i]) == 0) command->placed = true;
    if (!option->value && value && mine) return wrong(err, "--%s takes no value", option->name);
    return mine ? set_own(command, option->name, value, err) : ech_config_set(&command->config, option->name, value, err);
}

/* Where compiled kernels are kept when nobody says: $XDG_CACHE_HOME/echelon, or ~/.cache/echelon (XDG Base Directory Specification). A
 * folder that is not there is not made for it. */
static void default_cache(struct ech_config *c) {
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char parent[sizeof c->cache - 16] = "";
    if (xdg && xdg[0] == '/') snprintf(parent, sizeof parent, "%s", xdg);
    else if (home && home[0] == '/') snprintf(parent, sizeof parent, "%s/.cache", home);
    if (parent[0] && access(parent, W_OK | X_OK) == 0) snprintf(c->cache, sizeof c->cache, "%s/echelon", parent);
}

/* What is said of the nodes that are started here; --slow and --device name ranks that must exist. */
static ech_status settle_nodes(struct command *command, struct ech_error *err) {
    struct ech_config *c = &command->config;
    for (int r = c->world; r < ECH_WORLD_MAX; r++)
        if (command->slow[r] > 0) return wrong(err, "--slow names rank %d, but ranks go from 0 to %d", r, c->world - 1);
    if (command->slow[c->rank] > 0 && !command->local) c->slow = command->slow[c->rank];
    if (!c->cache[0] && (command->devices || strcmp(c->device, "cpu") != 0)) default_cache(c);
    int devices = 1;
    for (const char *at = command->devices; at && (at = strchr(at, ',')); at++) devices++;
    if (devices > c->world && command->devices)
        return wrong(err, "--device '%.80s' names %d devices, but there are %d nodes", command->devices, devices, c->world);
    for (int r = 0; r < c->world; r++) {
        struct ech_config one = *c;
        ech_status status = command_device(command, r, command->local || r != c->rank ? &one : c, err);
        if (status != ECH_OK) return status;
    }
    return ECH_OK;
}

/* --local decides rank, world and coordinator. */
static ech_status settle(struct command *command, struct ech_error *err) {
    struct ech_config *c = &command->config;
    if (command->local) {
        if (c->rank != 0 || c->world != 1 || *c->coordinator)
            return wrong(err, "--local starts all nodes itself: leave out --rank, --world and --coordinator (and ECH_RANK, ECH_WORLD, "
                              "ECH_COORDINATOR in the environment)");
        c->world = command->local;
        snprintf(c->coordinator, sizeof c->coordinator, "%s", c->world > 1 ? "127.0.0.1:0" : "");
    }
    const ech_status status = settle_nodes(command, err);
    return status == ECH_OK ? ech_config_check(c, err) : status;
}

/* A trace is planned in the place of a model, whose machines the named spreads are. */
static ech_status settle_trace(const struct command *command, struct ech_error *err) {
    if (!command->trace && command->alpha_beta)
        return wrong(err, "--alpha-beta is for machines like a trace's: give --trace FILE, or say what links carry in --hosts FILE");
    if (!command->trace) return command->trace_batch ? wrong(err, "--trace-batch is about a trace: give --trace FILE") : ECH_OK;
    if (command->model != default_model) return wrong(err, "--trace is planned in the place of a model: leave --model out");
    if (command->data) return wrong(err, "--trace is planned without samples: leave --data out");
    if (command->spread)
        return wrong(err, "--trace with --workers is of machines that are alike: leave --spread out, or give --hosts FILE");
    if (command->hosts && command->alpha_beta) return wrong(err, "--hosts says what links carry: leave --alpha-beta out");
    return ECH_OK;
}

/* What of a simulated cluster the user has said must fit together; the rest is the library's to check, with the number of hosts. */
static ech_status settle_sim(const struct command *command, struct ech_error *err) {
    const struct ech_config *c = &command->config;
    if (!command->hosts && !command->workers)
        return wrong(err, "which machines? Give --hosts FILE, or --workers N and --spread even, mild or strong%s",
                     command->sub == PLAN ? "; or --doctors HOST:PORT,..., where `echelon doctor --listen` waits" : "");
    if (command->hosts && command->workers) return wrong(err, "--hosts says how many machines there are: leave --workers out");
    if (command->hosts && command->spread) return wrong(err, "--hosts says how unlike the machines are: leave --spread out");
    const ech_status status = settle_trace(command, err);
    if (status != ECH_OK) return status;
    if (command->costs_only && *c->save) return wrong(err, "--compute model learns no weights to --save: leave one of them out");
    if (command->costs_only && *c->init) return wrong(err, "--compute model takes no weights from --init: leave one of them out");
    if (command->costs_only && *command->curve)
        return wrong(err, "--compute model learns nothing that --curve could show: leave one of them out");
    if (command->costs_only && c->target_accuracy > 0)
        return wrong(err, "--compute model learns nothing, so no --target-accuracy is ever reached: leave one of them out");
    return ECH_OK;
}

/* The environment may hold what is for the runs on this machine; a simulation would silently be another than it says. */
static ech_status check_environment(enum subcommand sub, struct ech_error *err) {
    for (int i = 0; i < N_LACKING; i++) {
        char name[40] = "ECH_";
        size_t len = 4;
        for (const char *c = lacking[i].name; *c && len + 1 < sizeof name; c++) name[len++] = *c == '-' ? '_' : (char)(*c - 'a' + 'A');
        name[len] = 0;
        if (is_of(i, sub) && getenv(name))
            return wrong(err, "the environment has %s, but echelon %s has no --%s: %s", name, name_of(sub), lacking[i].name,
                         lacking[i].instead);
    }
    return ECH_OK;
}

/* What the environment says of this run is told before there is a node that could. */
static void on_log(void *user, enum ech_log_level level, const char *line) {
    (void)user;
    (void)level;
    fprintf(stderr, "echelon: %s\n", line);
}

/* Its options are others: known before any is read. */
static enum subcommand plan_of(int argc, char **argv) {
    static const char word[] = "--doctors";
    for (int i = 0; i < argc; i++)
        if (strncmp(argv[i], word, sizeof word - 1) == 0 && (argv[i][sizeof word - 1] == 0 || argv[i][sizeof word - 1] == '='))
            return PLAN_HERE;
    return PLAN;
}

static ech_status take_all(struct command *command, int argc, char **argv, struct ech_error *err) {
    ech_status status = ECH_OK;
    for (int at = 0; status == ECH_OK && at < argc;) status = take(command, argc, argv, &at, err);
    return status;
}

ech_status command_parse(struct command *command, enum subcommand sub, int argc, char **argv, struct ech_error *err) {
    const bool plans = sub == PLAN;
    if (plans) sub = plan_of(argc, argv);
    *command = (struct command){.sub = sub, .model = default_model, .curve = "", .svg = "", .placed = sub == SIM || plans,
                                .costs_only = plans};
    ech_config_init(&command->config);
    if (plans) strcpy(command->config.sync, "auto");   /* all are compared where nobody says which */
    for (int i = 0; i < argc; i++)   /* help is given whatever else is wrong */
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            command->help = true;
            return ECH_OK;
        }
    /* The command line comes last, because it wins. Before that, it must be known whether it leaves anything to a launcher. */
    struct command line = *command;
    ech_status status = take_all(&line, argc, argv, err);
    if (line.placed || strcmp(line.config.launcher, "off") == 0) strcpy(command->config.launcher, "off");
    command->config.on_log = on_log;
    if (status == ECH_OK) status = ech_config_from_env(&command->config, err);
    command->config.on_log = NULL;
    if (status == ECH_OK) status = check_environment(sub, err);
    if (status == ECH_OK) status = take_all(command, argc, argv, err);
    if (status != ECH_OK) return status;
    if (sub == PLAN_HERE) return settle_nodes(command, err);   /* the rest is the library's to check, with the number of nodes */
    return sub == SIM || sub == PLAN ? settle_sim(command, err) : settle(command, err);
}

/* ----------------------------------------------------------------- help */

/* Text from column 34 to at most column 110, broken at spaces. */
static void print_wrapped(FILE *to, const char *text) {
    enum { INDENT = 34, WIDTH = 76 };
    for (;;) {
        size_t len = strlen(text);
        if (len > WIDTH)
            for (len = WIDTH; len > 0 && text[len] != ' ';) len--;
        if (len == 0) len = strlen(text);   /* a word wider than a line */
        fprintf(to, "%.*s\n", (int)len, text);
        text += len;
        while (*text == ' ') text++;
        if (!*text) return;
        fprintf(to, "%*s", INDENT, "");
    }
}

/* When: "", or where alone there is this option. */
static void print_option(FILE *to, const struct ech_option *o, const char *when) {
    char left[64], text[320];
    snprintf(left, sizeof left, "  --%s%s%s", o->name, o->value ? " " : "", o->value ? o->value : "");
    snprintf(text, sizeof text, "%s%s%s%s%s", when, o->help, *o->fallback ? " [" : "", o->fallback, *o->fallback ? "]" : "");
    fprintf(to, "%-32s  ", left);
    if (strlen(left) > 32) fprintf(to, "\n%34s", "");
    print_wrapped(to, text);
}

void command_print_statuses(FILE *to) {
    fputs("\nExit status:\n", to);
    fprintf(to, "  %3d  what was asked was done\n", 0);
    fprintf(to, "  %3d  usage: an argument or option is wrong\n", EXIT_USAGE);
#define ROW(name, number, text, retry, remake)                                                                                \
    if (name != ECH_OK && name != ECH_E_ARGUMENT && name != ECH_E_AGAIN && name != ECH_E_END)                                 \
        fprintf(to, "  %3d  %s\n", exit_status(name), text);
    ECH_STATUS_LIST(ROW)
#undef ROW
}

void command_print_options(FILE *to, enum subcommand sub) {
    int n;
    const struct ech_option *table = ech_options(&n);
    for (int s = 0; s <= N_SECTIONS; s++) {
        bool titled = false;
        for (int i = 0; i < N_OWN + n; i++) {
            const struct ech_option *o = i < N_OWN ? &own[i] : &table[i - N_OWN];
            if (i >= N_OWN && find(own, N_OWN, o->name, strlen(o->name))) continue;   /* the tool's own takes its place */
            int home = 0;
            while (home < N_SECTIONS && !listed(sections[home].names, o->name)) home++;
            const bool here = sub == PLAN && told_instead(sub, o->name) && !told_instead(PLAN_HERE, o->name);
            if (home != s || (told_instead(sub, o->name) && !here)) continue;
            if (!titled) fprintf(to, "\n%s:\n", s < N_SECTIONS ? sections[s].title : "Others");
            titled = true;
            print_option(to, o, here ? "with --doctors: " : "");
        }
    }
}
