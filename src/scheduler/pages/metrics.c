/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/pages/pages.h"
#include "scheduler/pages/samples.h"

#define METRICS_OF scheduler
#define METRICS_FILE "scheduler/pages/metrics.def"
#include "wire/metric_table.h"

const struct vocabulary scheduler_vocabulary = METRIC_VOCABULARY(scheduler, NULL);

void scheduler_write_metrics(struct scheduler *s, enum prom_format format, struct buf *out) {
    struct scheduler_samples samples;
    int r = scheduler_samples_collect(s, &samples);
    if (r < 0)
        out->error = -r;
    else
        vocabulary_write(&scheduler_vocabulary, samples.sets, format, out);
    scheduler_samples_done(&samples);
    prom_end(out, format);
}

void scheduler_copy_metrics(struct scheduler *s, enum prom_format format, struct buf *out) {
    struct shared_page *page = &s->shared_pages[format];
    const uint64_t now = scheduler_now(s);
    if (page->text.len == 0 || now - page->made_ms >= SHARED_PAGE_MS) {
        page->made_ms = now;
        buf_reset(&page->text);
        scheduler_write_metrics(s, format, &page->text);
    }
    buf_append(out, page->text.data, page->text.len);
    if (buf_error(&page->text) < 0)
        out->error = page->text.error;
}
