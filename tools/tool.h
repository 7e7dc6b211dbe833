/* SPDX-License-Identifier: Apache-2.0
 * What the files of the `echelon` command share. */
#ifndef ECHELON_TOOL_H
#define ECHELON_TOOL_H
#include "echelon.h"

#include <stdbool.h>
#include <stdio.h>

/* Exit statuses: 0 what was asked was done, 2 usage, otherwise 10 + the library's status. */
enum { EXIT_USAGE = 2, EXIT_STATUS = 10 };
int exit_status(ech_status status);
/* Writes out what is buffered for stdout: a full disk or a closed pipe behind it makes a good status a bad one. */
int flushed(int status);

/* What the command line of `train`, `sim`, `plan` or `doctor` says: the library's options, and the tool's own. PLAN_HERE: `plan` of
 * machines that are there (--doctors). */
enum subcommand { TRAIN = 1, SIM, PLAN, DOCTOR, PLAN_HERE };
struct command {
    enum subcommand sub;
    struct ech_config config;
    const char *model, *data, *curve;     /* curve: --curve FILE; "": not given */
    const char *svg;                      /* sim, plan: --svg FILE; "": not given */
    const char *hosts, *spread, *profile; /* sim, plan; NULL: not given */
    const char *target_from;              /* plan; NULL: not given */
    const char *doctors;                  /* plan; NULL: not given */
    int workers;                          /* sim, plan; 0: not given */
    const char *trace, *alpha_beta;       /* plan; NULL: not given */
    int trace_batch;                      /* plan; 0: not given */
    bool costs_only;                      /* sim: --compute model; plan: true */
    int local;                            /* --local N; 0: not given */
    bool placed;                          /* the options say which node this is, so that no launcher is asked */
    double slow[ECH_WORLD_MAX];           /* --slow RANK=FACTOR; 0: not given */
    const char *devices;                  /* --device with a list, one a rank; NULL: not given */
    enum { PROGRESS_AUTO, PROGRESS_ON, PROGRESS_OFF } progress;
    bool help, verbose;
    bool json, listen, links;             /* doctor */
};

/* options.c: environment, then command line. On failure a sentence is in err. */
ech_status command_parse(struct command *command, enum subcommand sub, int argc, char **argv, struct ech_error *err);
/* Rank's part of command->devices, if there is a list, into the configuration. */
ech_status command_device(const struct command *command, int rank, struct ech_config *config, struct ech_error *err);
/* The part of --help that lists the options, and the one that lists exit statuses. */
void command_print_options(FILE *to, enum subcommand sub);
void command_print_statuses(FILE *to);
/* "; did you mean --x?" into buf, or "" when nothing known is near to the word. */
const char *hint(const char *dashes, const char *word, const char *const *known, int n, char *buf, size_t cap);

/* command.c: one command that trains, or looks whether it could, from its arguments to its exit status: parsed, checked, model and data
 * opened (data NULL: a doctor, or a plan, was given none; model NULL: a trace is planned), run. */
int command_run(enum subcommand sub, int argc, char **argv, void (*print_help)(void),
                int (*run)(const struct command *command, const ech_model *model, const ech_data *data));
/* A run of an hour must not end with a file that could never have been written. The file itself is not touched; "" is none. */
ech_status check_writable(const char *option, const char *path, struct ech_error *err);

/* progress.c: what a run says while it runs, on stderr. */
struct progress {
    bool quiet, verbose, terminal;
    bool open;            /* the cursor stands in a line that the next one rewrites */
    bool said;            /* a line was written */
    double every, last;   /* seconds between lines, and when the last was written */
    int evals;            /* calls in an evaluation since a line was written */
    char prefix[24];      /* "echelon: ", or "echelon: rank 3: " */
    const char *clock;    /* what follows the seconds: "", or that they are virtual */
    const char *sender;   /* whose bytes are counted; NULL: there is one node, which sends nothing and waits for nobody */
};
void progress_init(struct progress *p, const struct command *command);
void progress_log(struct progress *p, enum ech_log_level level, const char *line);
void progress_tell(struct progress *p, const char *line);   /* what was asked for: never held back */
void progress_show(struct progress *p, const struct ech_progress *now);
void progress_end(struct progress *p);

/* curve.c: a line for each evaluation, into a file. */
struct curve { FILE *file; const char *path; };
ech_status curve_open(struct curve *curve, const char *path, struct ech_error *err);   /* "": none, and the calls below do nothing */
void curve_add(struct curve *curve, const struct ech_progress *now);
int curve_close(struct curve *curve, int status);   /* the exit status: a file that could not be written makes a good one bad */

/* summary.c: what a run did, for people. */
void summary_print(FILE *to, const struct command *command, const struct ech_report *report, ech_status status);
struct target;
void plan_print(FILE *to, const struct ech_report *report, const struct target *target);   /* of a run that trained nothing */
/* What a run waits for the most, and what comes next to it, of one at least; no line end. */
void what_if_print(FILE *to, const struct ech_what_if *what_if, int count);
void what_print(FILE *to, const struct ech_what_if *what_if);   /* "rank 3's link" */
/* Parts of a summary, each its lines, or none where there is nothing to tell. */
void speed_print(FILE *to, const struct ech_report *report, const char *clock);   /* clock: "", or what comes before its seconds */
void bottleneck_print(FILE *to, const struct ech_report *report);
void path_print(FILE *to, const struct ech_report *report);   /* the critical path */
void groups_print(FILE *to, const struct ech_report *report);
void candidates_print(FILE *to, const struct ech_report *report, const struct target *target);   /* a star is at what was taken */
void staleness_print(FILE *to, const struct ech_report *report);
void accuracy_print(FILE *to, const struct ech_report *report, bool reached);   /* reached: its target, if it had one */
void events_print(FILE *to, const struct ech_report *report);       /* who was lost, joined another group; what was dropped */
void codec_print(FILE *to, const struct ech_report *report);
/* By a quarter or more; false where one of them is not known. */
bool link_changed(const struct ech_link_rate *was, const struct ech_link_rate *is);
double sent_bytes(const struct ech_report *report);   /* by all nodes */
/* "5.2 ms a round"; "38 % backward of rank 3; 20 % rank 0's link, in": the critical path, of a report that has one, and so many kinds of
 * things on it at most, but none of less than 2 %; no line end. */
void path_length_print(FILE *to, const struct ech_report *report);
void path_parts_print(FILE *to, const struct ech_report *report, int most);
/* "12.3 MB" into buf. */
const char *bytes_text(double bytes, char *buf, size_t cap);

/* train.c */
int train_main(int argc, char **argv);
/* One node of the run described by command, in this process. `address_fd`, when not -1, receives the coordinator's
 * address and a line end. Returns the exit status. */
int train_node(const struct command *command, const ech_model *model, const ech_data *data, int address_fd);
extern volatile int stops;             /* SIGINTs and SIGTERMs so far; what the library watches */
extern volatile int tells;             /* SIGUSR1s so far */
/* Counts them from now on. One more than `most` ends the process at once; 0: none does. */
void watch_stops(int most);
int stops_of(int rank);                /* how many mean something: rank 0 ends the run; another leaves, and then ends the run */
void watch_tells(void);

/* sim.c */
int sim_main(int argc, char **argv);

/* target.c: seconds to an accuracy, by the report of a run that reached it (--target-from). Without one, `run` is NULL. */
struct target { const char *path; struct ech_report *run; };
ech_status target_open(struct target *target, const char *path, struct ech_error *err);   /* closed also after a failure */
void target_close(struct target *target);
/* Whether epochs of that run say anything of this plan's: the same model, B and codec. */
ech_status target_check(const struct target *target, const struct ech_report *plan, struct ech_error *err);
double target_epochs(const struct target *target, const struct ech_candidate *plan);    /* NaN: nobody knows */
double target_seconds(const struct target *target, const struct ech_candidate *plan);
void target_print(FILE *to, const struct target *target, const struct ech_report *plan);

/* plan.c */
int plan_main(int argc, char **argv);

/* svg.c: a round of a plan, or a recorded step, as a picture (SVG 1.1), and what the plan would make on other links. `out` is to be
 * filled by ech_simulate or ech_recording_timeline, if it has memory then: with path "" it has none, and there is no picture. */
struct ech_timeline;
ech_status svg_open(struct ech_timeline *out, const char *path, struct ech_error *err);
int svg_close(struct ech_timeline *line, const char *path, const struct ech_report *report, int status);   /* as curve_close */

/* doctor.c */
int doctor_main(int argc, char **argv);

/* words.c: the command line of `replay` and `explain`. */
#define WORDS_MOST 16
struct words {
    const char *command;                  /* its name */
    const char *takes;                    /* "the folder of a recorded run: echelon replay DIR" */
    const struct ech_option *option; int count;   /* WORDS_MOST at most, with "help" */
    const char *dir, *value[WORDS_MOST];  /* as given, by row of `option`; "" for a switch that was given; NULL: not given */
};
bool words_parse(struct words *words, int argc, char **argv);   /* false after a sentence on stderr */
const char *words_given(const struct words *words, const char *name);
/* A whole number; false with a sentence when what was given is none from `least` to `most`. */
bool words_whole(const struct words *words, const char *name, int least, int most, int *out);
void words_print_options(const struct words *words);

/* replay.c */
int replay_main(int argc, char **argv);

/* explain.c */
int explain_main(int argc, char **argv);

/* explain_report.c: what a report tells of a run's speed. Returns the exit status. */
int explain_report(const char *path);

/* model.c */
int model_main(int argc, char **argv);

/* local.c: the nodes of --local N as child processes. Returns the exit status. */
int local_run(const struct command *command, const ech_model *model, const ech_data *data);
#endif
