/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

struct err;

/* All texts borrow from argv or the environment. */
struct config {
    const char *node_name;
    const char *listen;      /* "" or "off": no HTTP */
    const char *host_root;   /* "" for / */
    const char *driver_root; /* "" for / */
    const char *sim_dir;
    const char *kubelet_dir;
    const char *state_dir;
    const char *cdi_dir;
    const char *library;
    const char *namespace;  /* of our own objects */
    const char *api_server; /* NULL: as a pod finds it */
    const char *token_file;
    const char *ca_file;
};

/* Fills *ret from the command line and the environment and checks it. -ECANCELED after --help or
 * --version; -EINVAL with a text that names what is wrong and what to do. */
int config_parse(int argc, char **argv, struct config *ret, struct err *err);
