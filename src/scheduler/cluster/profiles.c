/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/cluster/profiles.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "kube/objects/pod.h"
#include "wire/yaml.h"

#define KIND "KubeSchedulerConfiguration"

static int add_profile(const struct yaml *v, void *target, const void *arg, struct err *err) {
    struct profiles *p = target;
    const struct yaml *named = yaml_get(v, "schedulerName");
    const char *name = named && named->text ? named->text : POD_DEFAULT_SCHEDULER;
    (void) arg;
    if (p->n == PROFILES_MAX)
        return yaml_error(v, err, "more than %d profiles", PROFILES_MAX);
    if (strlen(name) >= KUBE_NAME_MAX)
        return yaml_error(named, err, "longer than the name of a scheduler can be");
    memcpy(p->names[p->n++], name, strlen(name) + 1);
    return 0;
}

int profiles_parse(const char *text, size_t len, struct profiles *ret, struct err *err) {
    _cleanup_yaml_ struct yaml_doc *doc = NULL;
    const struct yaml *root;
    struct profiles p = {0};
    int r = yaml_parse(text, len, &doc, &root, err);
    if (r < 0)
        return r;
    const struct yaml *kind = yaml_get(root, "kind");
    if (!kind || !kind->text || strcmp(kind->text, KIND) != 0)
        return err_set(err, EINVAL, "its kind is not " KIND);
    r = yaml_read_each(yaml_get(root, "profiles"), add_profile, &p, NULL, err);
    if (r == 0 && p.n == 0)
        r = add_profile(NULL, &p, NULL, err);
    if (r == 0)
        *ret = p;
    return r;
}

int profiles_read(const char *path, struct profiles *ret, struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(YAML_SIZE_MAX);
    int r = file_read(path, YAML_SIZE_MAX, &text, err);
    if (r == 0)
        r = profiles_parse(buf_str(&text), text.len, ret, err);
    if (r < 0)
        err_wrap(err, "cannot read kube-scheduler's configuration %s", path);
    return r;
}

bool profiles_have(const struct profiles *p, const char *name) {
    for (uint32_t i = 0; i < p->n; i++)
        if (strcmp(p->names[i], name) == 0)
            return true;
    return false;
}
