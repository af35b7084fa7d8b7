/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The file with the configuration of the node, read again when it changes. Its identity is compared
 * once a second: this also notices a ConfigMap whose mount was replaced, a directory that appears
 * later, and changes that inotify does not report. The last good text is kept in `saved`, and an
 * agent that starts with a bad file uses it. */

#include <stdbool.h>
#include <uv.h>

struct config_file;
struct config_overrides;
struct err;
struct node_config;

struct config_file_options {
    const char *path;  /* NULL: texts come by config_file_offer() alone */
    const char *saved; /* a file of the agent */
    const char *node;  /* name of this node */
    const struct config_overrides *overrides;
    /* The configuration is another one; the callee takes it over. */
    void (*on_config)(struct node_config *config, void *userdata);
    /* The file cannot be used, and what applied before still does. "" when it can again. */
    void (*on_trouble)(const char *why, void *userdata);
    void *userdata;
};

/* Reads the file, and calls on_config with what it has, or with the saved one, or with the
 * defaults, before it returns. -ENOMEM. */
int config_file_start(uv_loop_t *loop, const struct config_file_options *options,
                      struct config_file **ret, struct err *err);

/* A text of another source, which `source` names in errors; and why that source has none. */
void config_file_offer(struct config_file *f, const char *source, const char *text);
void config_file_refuse(struct config_file *f, const char *why);

/* Whether the configuration is the node's: a text applies, from the source or from before a
 * restart, or the source is known to have none that can be used. False: only the defaults apply
 * until the first config_file_offer() or config_file_refuse(). */
bool config_file_is_known(const struct config_file *f);

/* Takes NULL: then on_closed is called at once. */
void config_file_stop(struct config_file *f, void (*on_closed)(void *userdata), void *userdata);
