/* SPDX-License-Identifier: Apache-2.0 */

/* Where the installation is, and what it leaves to other plugins. */

#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "cli/uninstall/uninstall.h"
#include "model/dialect.h"

#define ELSEWHERE "--served-elsewhere="

static int find_namespace(struct removal *r, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json binding, subject;
    struct json_iter it;
    const char *found = NULL;
    int e = removal_get(OBJECTS(.kind = "clusterrolebindings", .name = LOCATION_BINDING), &parser,
                        &binding, err);

    it = json_iter(json_get(binding, "subjects"));
    if (e == 0 && json_next(&it, NULL, &subject))
        found = json_string(json_get(subject, "namespace"));
    if (e < 0)
        return e;
    if (found && r->system && strcmp(found, r->system) != 0)
        return err_set(err, EINVAL,
                       "Aliquot is in namespace %s, not in %s: leave out --system; nothing is "
                       "removed",
                       found, r->system);
    text_copy(r->found, sizeof(r->found), found ? found : "aliquot-system");
    if (!r->system)
        r->system = r->found;
    return 0;
}

/* Of those names nothing on a Node is Aliquot's. */
static int leave_names(const struct removal *r, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json list, daemons, arg;
    int e = removal_get(AGENTS(r), &parser, &list, err);
    struct json_iter it = json_iter(json_get(list, "items")), args;

    while (e == 0 && json_next(&it, NULL, &daemons)) {
        args = json_iter(json_get(removal_agent_of(daemons), "args"));
        while (e == 0 && json_next(&args, NULL, &arg)) {
            const char *text = json_string_or(arg, "");

            if (strncmp(text, ELSEWHERE, strlen(ELSEWHERE)) == 0)
                e = dialect_leave(text + strlen(ELSEWHERE), err);
        }
    }
    return e;
}

int removal_locate(struct removal *r, struct err *err) {
    int e = find_namespace(r, err);

    return e < 0 ? e : leave_names(r, err);
}
