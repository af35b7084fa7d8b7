/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/audit/idle_remainder.h"

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

/* A line "DRIVER UUID BYTES". */
struct note {
    const char *driver, *uuid;
    uint64_t bytes;
};

static void read_notes(const char *state_dir, struct buf *ret) {
    char path[384];

    (void) snprintf(path, sizeof(path), "%s/noise", state_dir);
    (void) file_read(path, FILE_MAX - 1, ret, NULL); /* none are as good as unreadable ones */
}

/* The next note with that driver; what is no note is passed over. False behind the last one. Cuts
 * the text into pieces. */
static bool next_note(char **rest, const char *driver, struct note *ret) {
    char *line;

    while ((line = strsep(rest, "\n"))) {
        ret->driver = strsep(&line, " ");
        ret->uuid = strsep(&line, " ");
        if (line && strcmp(ret->driver, driver) == 0 &&
            num_parse_u64(line, UNATTRIBUTED_NOISE_MAX, &ret->bytes) == 0)
            return true;
    }
    return false;
}

void idle_remainder_load(const char *state_dir, const char *driver, const char *uuid,
                         struct unattributed *u) {
    _cleanup_buf_ struct buf text = BUF_INIT(FILE_MAX);
    struct note note;
    char *rest;

    read_notes(state_dir, &text);
    rest = text.data;
    while (next_note(&rest, driver, &note))
        if (strcmp(note.uuid, uuid) == 0) {
            u->noise = note.bytes;
            u->noise_known = true;
        }
}

void idle_remainder_save(const char *state_dir, const char *driver, const char *uuid,
                         const struct unattributed *before, const struct unattributed *u) {
    _cleanup_buf_ struct buf text = BUF_INIT(FILE_MAX), notes = BUF_INIT(FILE_MAX);
    struct note note;
    struct err err;
    char path[384], *rest;

    if (unattributed_tolerated(before) == unattributed_tolerated(u))
        return;
    read_notes(state_dir, &notes);
    rest = notes.data;
    while (next_note(&rest, driver, &note))
        if (strcmp(note.uuid, uuid) != 0)
            buf_printf(&text, "%s %s %" PRIu64 "\n", note.driver, note.uuid, note.bytes);
    buf_printf(&text, "%s %s %" PRIu64 "\n", driver, uuid, u->noise);
    (void) snprintf(path, sizeof(path), "%s/noise", state_dir);
    if (buf_error(&text) == 0 && file_replace(path, text.data, text.len, 0600, &err) < 0)
        log_warn("a restarted agent will not know what an idle GPU shows: %s", err.text);
}
