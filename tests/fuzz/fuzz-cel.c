/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "cel/cel.h"

/* A selector in CEL, evaluated for one device. The answer is the same each time, and takes no more
 * than the budget. */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BUDGET 10000

static const struct cel_attribute attributes[] = {
    {"a.io", "text", CEL_KIND_STRING, 0, "GPU-1"},
    {"a.io", "number", CEL_KIND_INT, INT64_MAX, NULL},
    {"a.io", "flag", CEL_KIND_BOOL, 1, NULL},
    {"a.io", "version", CEL_KIND_VERSION, 0, "570.1.2-rc.1"},
    {"a.io", "odd", CEL_KIND_VERSION, 0, "570"},
};
static const struct cel_capacity capacities[] = {{"a.io", "memory", UINT64_MAX}};
static const struct cel_device device = {"a.io", true, 5, 1, attributes, capacities};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    struct cel *cel;
    struct err err;

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (cel_parse(text, &cel, &err) < 0) {
        if (err.text[0] == '\0')
            abort();
        free(text);
        return 0;
    }
    free(text); /* nothing of it is used any more */
    uint64_t first = BUDGET, second = BUDGET;
    enum cel_answer answer = cel_ask(cel, &device, &first, &err);
    if ((answer == CEL_FAILS || answer == CEL_UNSERVED) && err.text[0] == '\0')
        abort();
    if (cel_ask(cel, &device, &second, &err) != answer || first != second || first >= BUDGET)
        abort();
    cel_free(cel);
    return 0;
}
