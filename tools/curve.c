/* SPDX-License-Identifier: Apache-2.0
 * --curve: what each evaluation found, as comma-separated values for a spreadsheet or a plot. */
#include "tool.h"

#include <errno.h>
#include <string.h>

ech_status curve_open(struct curve *curve, const char *path, struct ech_error *err) {
    *curve = (struct curve){.path = path};
    if (!*path) return ECH_OK;
    curve->file = fopen(path, "w");
    if (curve->file && fputs("samples,epochs,seconds,loss,accuracy\n", curve->file) != EOF) return ECH_OK;
    *err = (struct ech_error){.code = ECH_E_IO, .peer = -1};
    snprintf(err->text, sizeof err->text, "--curve %.200s cannot be written: %s", path, strerror(errno));
    return ECH_E_IO;
}

void curve_add(struct curve *curve, const struct ech_progress *now) {
    if (!curve->file || !now->new_accuracy) return;
    fprintf(curve->file, "%llu,%.6g,%.6g,%.6g,%.6g\n", (unsigned long long)now->samples, now->epochs, now->seconds, now->loss,
            now->accuracy);
    fflush(curve->file);   /* the line of a long run that somebody plots while it goes */
}

int curve_close(struct curve *curve, int status) {
    if (!curve->file) return status;
    const int failed = ferror(curve->file);
    if ((fclose(curve->file) != 0 || failed) && status == 0) {
        fprintf(stderr, "echelon: --curve %s could not be written to its end: is the disk full?\n", curve->path);
        return exit_status(ECH_E_IO);
    }
    return status;
}
