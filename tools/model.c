/* SPDX-License-Identifier: Apache-2.0
 * `echelon model`: a model as a table, or as the text of a model file to start one's own from. */
#include "tool.h"

#include <stdlib.h>
#include <string.h>

static void print_help(FILE *to) {
    fputs("usage: echelon model NAME|FILE [--text]\n\n"
          "Prints each layer of a built-in model (lenet5, resnet18, vgg19, alexnet) or of a model file: what it gives, its parameters and\n"
          "its multiply-adds a sample. With --text the model as a model file, every key written out: a start for one's own.\n", to);
}

typedef size_t writer(const ech_model *model, char *buf, size_t cap);

static int print_model(const char *name, writer *write) {
    struct ech_error err = {.text = ""};
    ech_model *model = NULL;
    const ech_status status = ech_model_open(name, &model, &err);
    if (status != ECH_OK) {
        fprintf(stderr, "echelon: %s\n", err.text);
        return exit_status(status);
    }
    const size_t len = write(model, NULL, 0);
    char *text = malloc(len + 1);
    if (text) {
        write(model, text, len + 1);
        fputs(text, stdout);
    } else fprintf(stderr, "echelon: no memory for %zu bytes of text\n", len);
    const bool good = text != NULL;
    free(text);
    ech_model_destroy(model);
    return good ? 0 : exit_status(ECH_E_MEMORY);
}

int model_main(int argc, char **argv) {
    const char *name = NULL;
    writer *write = ech_model_describe;
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return print_help(stdout), 0;
        if (strcmp(argv[i], "--text") == 0) write = ech_model_text;
        else if (argv[i][0] == '-' || name) {
            fprintf(stderr, "echelon: '%.80s' is too much: echelon model takes one model and --text\n", argv[i]);
            return EXIT_USAGE;
        } else name = argv[i];
    }
    if (name) return print_model(name, write);
    print_help(stderr);
    return EXIT_USAGE;
}
