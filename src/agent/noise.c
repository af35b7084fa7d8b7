/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/noise.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/num.h"

#define FILE_MAX 65536

/* Lines "DRIVER UUID BYTES". */
static void noise_path(const char *state_dir, char ret[static 384]) {
    (void) snprintf(ret, 384, "%s/noise", state_dir);
}

/* Takes the line apart; false when it is none. */
static bool parse(char *line, const char **driver, const char **uuid, uint64_t *bytes) {
    char *rest = line;

    *driver = strsep(&rest, " ");
    *uuid = strsep(&rest, " ");
    return *uuid && rest && num_parse_u64(rest, UNATTRIBUTED_NOISE_MAX, bytes) == 0;
}

void noise_recall(const char *state_dir, const char *driver, const char *uuid,
                  struct unattributed *u) {
    _cleanup_buf_ struct buf text = BUF_INIT(FILE_MAX);
    char path[384], *rest, *line;

    noise_path(state_dir, path);
    if (file_read(path, FILE_MAX - 1, &text, NULL) < 0 || text.len == 0)
        return;
    rest = text.data;
    while ((line = strsep(&rest, "\n"))) {
        const char *of_driver, *of_card;
        uint64_t bytes;

        if (!parse(line, &of_driver, &of_card, &bytes) || strcmp(of_driver, driver) != 0 ||
            strcmp(of_card, uuid) != 0)
            continue;
        u->noise = bytes;
        u->noise_known = true;
    }
}

/* The lines of other cards with this driver. */
static void put_others(const char *path, const char *driver, const char *uuid, struct buf *out) {
    _cleanup_buf_ struct buf text = BUF_INIT(FILE_MAX);
    char *rest, *line;

    if (file_read(path, FILE_MAX - 1, &text, NULL) < 0 || text.len == 0)
        return;
    rest = text.data;
    while ((line = strsep(&rest, "\n"))) {
        const char *of_driver, *of_card;
        uint64_t bytes;

        if (parse(line, &of_driver, &of_card, &bytes) && strcmp(of_driver, driver) == 0 &&
            strcmp(of_card, uuid) != 0)
            buf_printf(out, "%s %s %" PRIu64 "\n", of_driver, of_card, bytes);
    }
}

void noise_keep(const char *state_dir, const char *driver, const char *uuid,
                const struct unattributed *before, const struct unattributed *u) {
    _cleanup_buf_ struct buf text = BUF_INIT(FILE_MAX);
    char path[384];
    struct err err;

    if (unattributed_tolerated(before) == unattributed_tolerated(u))
        return;
    noise_path(state_dir, path);
    put_others(path, driver, uuid, &text);
    buf_printf(&text, "%s %s %" PRIu64 "\n", driver, uuid, u->noise);
    if (buf_error(&text) == 0 && file_replace(path, text.data, text.len, 0600, &err) < 0)
        log_warn("a restarted agent will not know what an idle GPU shows: %s", err.text);
}
