/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/api/config.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/num.h"

#define SERVICE_ACCOUNT "/var/run/secrets/kubernetes.io/serviceaccount"

void kube_config_done(struct kube_config *config) {
    free(config->server);
    free(config->token_file);
    free(config->ca_file);
    *config = (struct kube_config){0};
}

static int check_readable(const char *path, const char *what, struct err *err) {
    if (access(path, R_OK) == 0)
        return 0;
    return err_errno(err, errno, "cannot read %s %s", what, path);
}

/* "10.96.0.1" and "443" to a URL; addresses of IPv6 need brackets there. */
static char *service_url(const char *host, const char *port) {
    char *url = NULL;
    bool v6 = strchr(host, ':') != NULL;
    int n = asprintf(&url, "https://%s%s%s:%s", v6 ? "[" : "", host, v6 ? "]" : "", port);
    return n < 0 ? NULL : url;
}

/* Takes over `server`, fills `config` in any case. */
static int fill(struct kube_config *config, char *server, const char *token_file,
                const char *ca_file, struct err *err) {
    *config = (struct kube_config){
        .server = server,
        .token_file = token_file ? strdup(token_file) : NULL,
        .ca_file = strdup(ca_file),
    };
    if (!config->server || !config->ca_file || (token_file && !config->token_file))
        return err_errno(err, ENOMEM, "cannot load the API server's address");
    int r = check_readable(config->ca_file, "the API server's CA file", err);
    if (r == 0 && config->token_file)
        r = check_readable(config->token_file, "the token file", err);
    return r;
}

static int load(const char *server, const char *token_file, const char *ca_file,
                struct kube_config *ret_config, struct err *err) {
    struct kube_config config;
    const char *host = getenv("KUBERNETES_SERVICE_HOST");
    const char *port = getenv("KUBERNETES_SERVICE_PORT");
    if (!server && (!host || !*host || !port || !*port))
        return err_set(err, ENOENT,
                       "not inside a cluster (KUBERNETES_SERVICE_HOST and _PORT are not set): name "
                       "the API server with --api-server");
    int r =
        fill(&config, server ? strdup(server) : service_url(host, port), token_file, ca_file, err);
    if (r < 0) {
        kube_config_done(&config);
        return r;
    }
    *ret_config = config;
    return 0;
}

int kube_config_load(const char *server, const char *token_file, const char *ca_file,
                     struct kube_config *ret_config, struct err *err) {
    if (server && !ca_file)
        return err_set(err, EINVAL, "an API server (%s) needs a CA file", server);
    if (!server && !token_file)
        token_file = SERVICE_ACCOUNT "/token";
    return load(server, token_file, ca_file ? ca_file : SERVICE_ACCOUNT "/ca.crt", ret_config, err);
}

int kube_config_load_address(const char *server, const char *ca_file,
                             struct kube_config *ret_config, struct err *err) {
    return load(server, NULL, ca_file ? ca_file : SERVICE_ACCOUNT "/ca.crt", ret_config, err);
}

/* Splits "host:port", "[v6]:port" and the same without a port. */
static int split_authority(const char *text, size_t len, struct kube_address *ret) {
    size_t host_len = len, host_at = 0;
    const char *port = NULL;
    if (len > 0 && text[0] == '[') {
        const char *end = memchr(text, ']', len);
        if (!end)
            return -EINVAL;
        host_at = 1;
        host_len = (size_t) (end - text) - 1;
        if (host_len + 2 < len)
            port = end + 1;
    } else if ((port = memchr(text, ':', len))) {
        host_len = (size_t) (port - text);
    }
    size_t port_len = port ? len - (size_t) (port + 1 - text) : 0;
    if (host_len == 0 || host_len >= sizeof(ret->host) || port_len >= sizeof(ret->port) ||
        (port && (*port != ':' || port_len == 0)))
        return -EINVAL;
    memcpy(ret->host, text + host_at, host_len);
    ret->host[host_len] = '\0';
    (void) snprintf(ret->port, sizeof(ret->port), "%.*s", port ? (int) port_len : 3,
                    port ? port + 1 : "443");
    (void) snprintf(ret->authority, sizeof(ret->authority), "%.*s", (int) len, text);
    return 0;
}

int kube_address_parse(const char *url, struct kube_address *ret, struct err *err) {
    static const char scheme[] = "https://";
    struct kube_address address = {0};
    uint64_t port;
    size_t skip = sizeof(scheme) - 1;
    if (strncmp(url, scheme, skip) != 0)
        return err_set(err, EINVAL, "the API server's address '%s' does not begin with https://",
                       url);
    size_t len = strlen(url + skip);
    if (len > 0 && url[skip + len - 1] == '/')
        len--;
    if (len >= sizeof(address.authority) || memchr(url + skip, '/', len) ||
        split_authority(url + skip, len, &address) < 0 ||
        num_parse_u64(address.port, 65535, &port) < 0 || port == 0)
        return err_set(err, EINVAL, "the API server's address '%s' is not https://HOST[:PORT]",
                       url);
    *ret = address;
    return 0;
}
