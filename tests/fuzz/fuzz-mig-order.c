/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "mig/order.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What was read is written as a text that is read as the same. */
static void check_order(const struct mig_order *order) {
    _cleanup_buf_ struct buf text = BUF_INIT(65536), again = BUF_INIT(65536);
    struct mig_order other;

    mig_order_encode(order, &text);
    if (buf_error(&text) < 0 || mig_order_parse(text.data, text.len, &other, NULL) < 0)
        abort();
    mig_order_encode(&other, &again);
    if (strcmp(buf_str(&text), buf_str(&again)) != 0)
        abort();
}

/* What is to be done leads to a division that the card can have. */
static void carry_out(const struct mig_order *order, struct mig_report *report) {
    struct mig_edit edit;
    struct mig_want want;

    if (mig_order_edit(order, report, &edit) && edit.nmake > 0 &&
        mig_want_edit(&report->card, &edit, &want, NULL) < 0)
        abort();
    if (report->nfailures + edit.nmake > order->n || edit.nremove > order->n)
        abort();
}

/* An order, a line feed, and the report that it is carried out on. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    _cleanup_json_ struct json_parser *parser = NULL;
    const char *text = (const char *) data, *end = memchr(text, '\n', size);
    size_t len = end ? (size_t) (end - text) : size;
    struct mig_report report;
    struct mig_order order;
    struct err err = {0};
    struct json root;

    if (mig_order_parse(text, len, &order, &err) < 0) {
        if (!err.text[0])
            abort();
        return 0;
    }
    check_order(&order);
    if (!end || json_open(end + 1, size - len - 1, &parser, &root, NULL) < 0 ||
        mig_report_parse(root, &report, NULL) < 0)
        return 0;
    carry_out(&order, &report);
    return 0;
}
