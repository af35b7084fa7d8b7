/* SPDX-License-Identifier: Apache-2.0 */

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/doctor/doctor.h"

void doctor_find(struct doctor *d, enum doctor_level level, const char *remedy, const char *format,
                 ...) {
    struct doctor_finding *list = reallocarray(d->list, d->n + 1, sizeof(*list));
    char *text = NULL;
    va_list ap;

    va_start(ap, format);
    if (!list || vasprintf(&text, format, ap) < 0)
        d->out_of_memory = true;
    va_end(ap);
    if (list)
        d->list = list;
    if (!d->out_of_memory)
        d->list[d->n++] = (struct doctor_finding){level, d->check, text, remedy};
}

void doctor_find_unread(struct doctor *d, const struct doctor_doc *doc) {
    doctor_find(d, DOCTOR_UNSURE, NULL, "not read: %s", doc->err.text);
}

void doctor_done(struct doctor *d) {
    for (size_t i = 0; i < d->n; i++)
        free(d->list[i].text);
    free(d->list);
    doctor_evidence_done(&d->evidence);
}
