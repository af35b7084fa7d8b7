/* SPDX-License-Identifier: Apache-2.0 */

/* Calls of kubectl for which what is gone is no error. */

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/cluster/kubectl.h"
#include "cli/uninstall/uninstall.h"

void removal_say(const char *step, const char *format, ...) {
    va_list ap;

    printf("%-12s ", step);
    va_start(ap, format);
    (void) vprintf(format, ap);
    va_end(ap);
    (void) putchar('\n');
    (void) fflush(stdout);
}

/* The object, its namespace, or its kind; kinds of a CRD, and policies before Kubernetes 1.30. */
static bool is_absent(const struct err *err) {
    return strstr(err->text, "(NotFound)") || strstr(err->text, "have a resource type");
}

int removal_get(struct json_parser **ret_parser, struct json *ret, struct err *err,
                const char *const *words) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    int r = kubectl(&text, err, words);

    *ret = (struct json){0};
    if (r < 0)
        return is_absent(err) ? 0 : r;
    return text.len > 0 ? json_open(buf_str(&text), text.len, ret_parser, ret, err) : 0;
}

int removal_delete(unsigned *count, struct err *err, const char *const *words) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    int r = kubectl(&text, err, words);

    /* "No resources found" is none. */
    for (size_t i = 0; i < text.len; i++)
        *count += text.data[i] == '/';
    return r < 0 && is_absent(err) ? 0 : r;
}

int removal_patch(struct err *err, const char *const *words) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    int r = kubectl(&text, err, words);

    return r < 0 && is_absent(err) ? 0 : r;
}

int removal_create(const char *namespace, const char *object, struct err *err) {
    _cleanup_buf_ struct buf printed = BUF_INIT(0);
    _cleanup_close_ int fd = memfd_create("object", 0);
    ssize_t len = (ssize_t) strlen(object);
    char file[32];

    if (fd < 0 || write(fd, object, (size_t) len) != len)
        return err_set(err, ENOMEM, "cannot write an object");
    (void) lseek(fd, 0, SEEK_SET);
    (void) snprintf(file, sizeof(file), "/dev/fd/%d", fd);
    return KUBECTL(&printed, err, "create", "-n", namespace, "-f", file);
}

int removal_await_pods(const struct removal *r, const char *step, const char *name,
                       struct err *err) {
    const struct timespec pause = {.tv_nsec = 500000000};
    time_t end = time(NULL) + r->limit_s;
    char label[96];
    size_t left = 0;

    (void) snprintf(label, sizeof(label), "app.kubernetes.io/name=%s", name);
    do {
        _cleanup_json_ struct json_parser *parser = NULL;
        struct json pods;
        int e =
            REMOVAL_GET(&parser, &pods, err, "pods", "-n", r->system, "-l", label, "-o", "json");

        if (e < 0)
            return e;
        left = json_size(json_get(pods, "items"));
        if (left == 0)
            return 0;
        (void) nanosleep(&pause, NULL);
    } while (time(NULL) < end);
    removal_say(step, "%zu pods of %s have not ended within %u s; going on without them", left,
                name, r->limit_s);
    return 0;
}
