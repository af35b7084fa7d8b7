/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/report/mig_status.h"

#include "base/hash.h"

#define TEXT_MAX 65536
#define UNREADABLE 1

uint64_t mig_status_wanted(const struct mig_report *report) {
    _cleanup_buf_ struct buf text = BUF_INIT(TEXT_MAX);
    struct json_writer w = {.out = &text};

    if (!report)
        return 0;
    mig_report_encode(report, &w, NULL);
    return hash_text(HASH_START, buf_str(&text));
}

/* The API server sorts members: texts are compared as they are written here. */
uint64_t mig_status_seen(struct json mig) {
    struct mig_report report;

    if (!json_valid(mig))
        return 0;
    return mig_report_parse(mig, &report, NULL) < 0 ? UNREADABLE : mig_status_wanted(&report);
}

void mig_status_patch(const struct mig_report *report, struct buf *out) {
    struct json_writer w = {.out = out};

    json_object_begin(&w, NULL);
    json_object_begin(&w, "status");
    if (report)
        mig_report_encode(report, &w, "mig");
    else
        json_put_null(&w, "mig");
    json_object_end(&w);
    json_object_end(&w);
}
