/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Options that kubectl has, too. */

#include "base/opt.h"

extern struct kubectl_options {
    const char *context, *kubeconfig; /* NULL: as kubectl finds them */
} kubectl_options;

/* The end of --help of commands that only read. */
#define KUBECTL_EPILOG                                                                             \
    "Uses kubectl (or $KUBECTL) with your context. Exit status: 0; 1 when the cluster does not\n"  \
    "answer; 2 for wrong arguments."

/* Rows of struct opt for every command that calls kubectl. */
#define KUBECTL_OPTIONS                                                                            \
    {"context",  0,                                                                                \
     "NAME",     "the context of the kubeconfig to use",                                           \
     opt_string, &kubectl_options.context},                                                        \
    {                                                                                              \
        "kubeconfig", 0, "FILE", "the kubeconfig to use", opt_string, &kubectl_options.kubeconfig  \
    }

/* A row for every command that finds something of Aliquot in its namespace. */
#define SYSTEM_OPTION(target)                                                                      \
    { "system", 0, "NAME", "namespace of Aliquot (default aliquot-system)", opt_string, (target) }

/* A row for every command that shows containers, of all namespaces or of one. */
#define NAMESPACE_OPTION(target)                                                                   \
    { "namespace", 'n', "NAME", "only what pods of this namespace have", opt_string, (target) }

/* Parser of an option -A: const char **, the namespace of an option -n, becomes NULL. */
int kubectl_all_namespaces(const char *value, void *target, struct err *err);
