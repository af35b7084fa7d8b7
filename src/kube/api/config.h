/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Address of the API server and the credentials of both sides. */

struct err;

struct kube_config {
    char *server; /* "https://10.96.0.1:443", "https://[fd00::1]:6443", "https://localhost:6443" */
    char *token_file; /* bearer token, read again when the file changes; NULL: none */
    char *ca_file;    /* PEM, one or more certificates: the only ones trusted */
};

/*
 * From KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT and the service account's files. When
 * `server` is not NULL the three arguments are taken instead (token_file may be NULL). Free with
 * kube_config_done. Errors name the missing variable or file and what to do.
 */
int kube_config_load(const char *server, const char *token_file, const char *ca_file,
                     struct kube_config *ret_config, struct err *err);
/* The same without a token, for requests that bring their own. */
int kube_config_load_address(const char *server, const char *ca_file,
                             struct kube_config *ret_config, struct err *err);
void kube_config_done(struct kube_config *config);

struct kube_address {
    char host[256];      /* name or address, without brackets */
    char port[6];        /* digits */
    char authority[264]; /* as in the URL */
};

/* Takes an https URL apart; it may end in one slash. -EINVAL with a reason for anything else. */
int kube_address_parse(const char *url, struct kube_address *ret, struct err *err);
