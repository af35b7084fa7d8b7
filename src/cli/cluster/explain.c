/* SPDX-License-Identifier: Apache-2.0 */

/* `aliquot explain POD`: why a pod is pending, by node, or where its share is and which pods share
 * its cards. */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/num.h"
#include "base/server_time.h"
#include "cli/age.h"
#include "cli/args.h"
#include "cli/clean.h"
#include "cli/cluster/api.h"
#include "cli/cluster/card_share.h"
#include "cli/cluster/cards.h"
#include "cli/cluster/explain_claims.h"
#include "cli/cluster/kubectl.h"
#include "cli/cluster/port_forward.h"
#include "cli/output.h"
#include "cli/table.h"
#include "kube/objects/assignment.h"
#include "kube/objects/pod.h"
#include "wire/json_write.h"

#define ENDS_MAX 10 /* pods that are named */

static const char *arg_namespace;
static struct port_forward arg_source = {.name_space = "aliquot-system"};
static uint32_t arg_nodes = 20;

/* ---- status of the pod ---- */

/* kube-scheduler's condition of a pod that it has not placed; invalid where there is none. */
static struct json find_condition(struct json object) {
    struct json conditions = JSON_PATH(object, "status", "conditions");
    struct json condition = json_find(conditions, "type", "PodScheduled");
    return json_is_string(json_get(condition, "status"), "False") ? condition : (struct json){0};
}

static void print_condition(struct json object) {
    struct json condition = find_condition(object);
    if (json_valid(condition))
        clean_print(stdout, "kube-scheduler: %s: %s\n",
                    json_string_or(json_get(condition, "reason"), ""),
                    json_string_or(json_get(condition, "message"), ""));
}

/* When the pod was created, which is since when it waits; "": it is not known. */
static const char *created(struct json object) {
    return json_string_or(JSON_PATH(object, "metadata", "creationTimestamp"), "");
}

static void print_since(struct json object) {
    struct tm tm = {0};
    char age[AGE_SIZE];
    const char *end = strptime(created(object), "%Y-%m-%dT%H:%M:%SZ", &tm);
    if (!end || *end != '\0')
        return;
    if (output.watch) /* an age alone is no change */
        printf("It waits since %s.\n", created(object));
    else
        printf("It waits since %s, for %s.\n", created(object),
               age_text((time_t) server_time() - timegm(&tm), age));
}

static void print_gates(struct json object) {
    struct json_iter it = json_iter(JSON_PATH(object, "spec", "schedulingGates"));
    struct json gate;
    const char *sep = "kube-scheduler skips it until these scheduling gates are removed:";
    for (; json_next(&it, NULL, &gate); sep = ",")
        clean_print(stdout, "%s %s", sep, json_string_or(json_get(gate, "name"), ""));
    if (*sep == ',')
        puts("");
}

static void print_waiting(struct json statuses) {
    struct json_iter it = json_iter(statuses);
    struct json status;
    while (json_next(&it, NULL, &status)) {
        struct json waiting = JSON_PATH(status, "state", "waiting");
        if (json_valid(waiting))
            clean_print(stdout, "Container %s is waiting: %s: %s\n",
                        json_string_or(json_get(status, "name"), ""),
                        json_string_or(json_get(waiting, "reason"), ""),
                        json_string_or(json_get(waiting, "message"), ""));
    }
}

static void print_containers(struct json object) {
    print_waiting(JSON_PATH(object, "status", "initContainerStatuses"));
    print_waiting(JSON_PATH(object, "status", "containerStatuses"));
}

/* The last Event that the scheduler has written on the pod. It is in the pod's own namespace, so
 * most users who can read the pod can read it. */
static void print_event(const struct pod *pod) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json list, event;
    char path[640];
    const char *last = NULL, *when = "";
    (void) snprintf(path, sizeof(path),
                    "/api/v1/namespaces/%s/events?fieldSelector=involvedObject.uid%%3D%s",
                    pod->namespace, pod->uid);
    if (api_read(path, &parser, &list, NULL) < 0)
        return;
    struct json_iter it = json_iter(json_get(list, "items"));
    while (json_next(&it, NULL, &event)) {
        const char *time = json_string_or(JSON_PATH(event, "metadata", "creationTimestamp"), "");
        if (strcmp(json_string_or(JSON_PATH(event, "source", "component"), ""),
                   "aliquot-scheduler") != 0 ||
            strcmp(time, when) < 0)
            continue;
        when = time;
        last = json_string(json_get(event, "message"));
    }
    if (last)
        clean_print(stdout, "Last Event of aliquot-scheduler, %s: %s\n", when, last);
}

/* ---- a pod that is on a node ---- */

/* NULL: the card is not known. */
static const struct card *find_card(const struct cards *cards, const char *uuid) {
    for (size_t i = 0; i < cards->n; i++)
        if (strcmp(cards->list[i].uuid, uuid) == 0)
            return &cards->list[i];
    return NULL;
}

enum share_column { S_CONTAINER, S_GPU, S_UUID, S_CORE, S_MEMORY, S_COLUMNS };

static void put_devices(struct table *t, const struct assigned_container *c) {
    char memory[24];
    for (uint32_t i = 0; i < c->ndevices; i++) {
        table_row(t);
        table_set(t, S_CONTAINER, "%s", c->name);
        table_set(t, S_GPU, "%" PRIu32, c->devices[i].index);
        table_set(t, S_UUID, "%s", c->devices[i].uuid);
        table_set(t, S_CORE, "%" PRIu32 " %%", c->devices[i].core);
        table_set(t, S_MEMORY, "%s", num_format_bytes(c->devices[i].memory, memory));
    }
}

static void print_places(const struct assignment *a, const char *uid) {
    _cleanup_(cards_done) struct cards cards = {0};
    struct err err;
    if (cards_fetch(&cards, &err) < 0) {
        clean_print(stdout, "The pods that share its cards cannot be read: %s\n", err.text);
        return;
    }
    for (uint32_t i = 0; i < a->ncontainers; i++)
        for (uint32_t j = 0; j < a->containers[i].ndevices; j++) {
            const struct card *card = find_card(&cards, a->containers[i].devices[j].uuid);
            if (card)
                card_print_sharing(card, uid);
            else
                clean_print(stdout, "GPU %s no longer exists\n", a->containers[i].devices[j].uuid);
        }
}

static void assignment_cleanup(struct assignment *a) {
    assignment_done(a);
}

static int explain_bound(const struct pod *pod, struct json object, struct err *err) {
    static const char *const titles[S_COLUMNS] = {"CONTAINER", "GPU", "UUID", "CORE", "MEMORY"};
    _cleanup_(assignment_cleanup) struct assignment a = {0};
    _cleanup_(table_done) struct table t = {.columns = S_COLUMNS};
    printf("Pod %s/%s is on node %s.\n", pod->namespace, pod->name, pod->node);
    if (pod->deleting)
        puts("It is being deleted. Its share is released when its containers have terminated.");
    if (!pod->assignment && pod->request.n == 0 && pod->problem == REQUEST_OK) {
        print_containers(object); /* it has claims alone */
        return 0;
    }
    if (!pod->assignment) {
        if (pod->problem == REQUEST_SLOT_MISSING)
            clean_print(
                stdout,
                "Aliquot has allocated nothing to it: the requests of container %s lack "
                "elasticgpu.io/slot.\nIf its resource names are left to another device plugin "
                "(--served-elsewhere), that plugin\nserves it. Otherwise the pod is older "
                "than Aliquot's admission policy: create it again.\n",
                pod->problem_container);
        else
            printf("It was bound without aliquot-scheduler (spec.nodeName, or another scheduler), "
                   "so the node's\nagent allocates no GPU to it. Delete it and let kube-scheduler "
                   "choose the node.\n");
        print_containers(object);
        return 0;
    }
    int r = assignment_parse(pod->assignment, &a, err);
    if (r < 0)
        return r;
    table_titles(&t, titles);
    for (uint32_t i = 0; i < a.ncontainers; i++)
        put_devices(&t, &a.containers[i]);
    r = table_show(&t, err);
    if (r < 0)
        return r;
    print_places(&a, pod->uid);
    print_containers(object);
    return 0;
}

/* ---- a pending pod ---- */

/* Reserved capacity that no pod uses yet, and what it is reserved for. */
static void put_kept(struct buf *out, struct json kept) {
    struct json_iter it = json_iter(kept);
    struct json hold;
    while (json_next(&it, NULL, &hold)) {
        uint64_t core = 0, memory = 0;
        char text[24];
        (void) json_u64(json_get(hold, "core"), &core);
        (void) json_u64(json_get(hold, "memory"), &memory);
        buf_printf(out, " (%" PRIu64 " %% %s kept for %s)", core, num_format_bytes(memory, text),
                   json_string_or(json_get(hold, "for"), ""));
    }
}

static void put_unattributed(struct buf *out, struct json gpu) {
    uint64_t bytes = 0;
    char text[24];
    (void) json_u64(json_get(gpu, "unattributed"), &bytes);
    if (bytes > 0)
        buf_printf(out, " (%s unattributed)", num_format_bytes(bytes, text));
}

static void put_free(struct buf *out, struct json gpus) {
    struct json_iter it = json_iter(gpus);
    struct json gpu;
    while (json_next(&it, NULL, &gpu)) {
        const char *profile = json_string_or(json_get(gpu, "profile"), "");
        uint64_t index = 0, core = 0, memory = 0;
        bool healthy = false, mps_only = false;
        char text[24];
        (void) json_u64(json_get(gpu, "index"), &index);
        (void) json_u64(json_get(gpu, "freeCore"), &core);
        (void) json_u64(json_get(gpu, "freeMemory"), &memory);
        (void) json_bool(json_get(gpu, "healthy"), &healthy);
        (void) json_bool(json_get(gpu, "mpsOnly"), &mps_only);
        buf_printf(out, "%s%" PRIu64 "%s%s: ", out->len ? ", " : "", index,
                   profile[0] ? " MIG " : "", profile);
        if (healthy)
            buf_printf(out, "%" PRIu64 " %% %s%s", core, num_format_bytes(memory, text),
                       mps_only ? " for claims under MPS" : "");
        else
            buf_puts(out, "not healthy");
        put_kept(out, json_get(gpu, "kept"));
        put_unattributed(out, gpu);
    }
}

enum reason_column { R_NODE, R_REASON, R_FREE, R_COLUMNS };

static int print_nodes(struct json page, struct err *err) {
    static const char *const titles[R_COLUMNS] = {"NODE", "REASON", "FREE ON GPU"};
    _cleanup_(table_done) struct table t = {.columns = R_COLUMNS};
    struct json nodes = json_get(page, "nodes"), node;
    struct json_iter it = json_iter(nodes);
    uint64_t without = 0, more = 0;
    table_titles(&t, titles);
    for (uint32_t i = 0; i < arg_nodes && json_next(&it, NULL, &node); i++) {
        _cleanup_buf_ struct buf free_text = BUF_INIT(8192);
        bool fits = false;
        (void) json_bool(json_get(node, "fits"), &fits);
        put_free(&free_text, json_get(node, "gpus"));
        table_row(&t);
        table_set(&t, R_NODE, "%s", json_string_or(json_get(node, "name"), ""));
        table_set(&t, R_REASON, "%s",
                  fits ? "- (fits)" : json_string_or(json_get(node, "reason"), ""));
        table_set(&t, R_FREE, "%s", buf_str(&free_text));
    }
    while (json_next(&it, NULL, &node))
        more++;
    int r = json_size(nodes) > 0 ? table_print(&t, stdout) : 0;
    if (r < 0)
        return err_errno(err, -r, "cannot print");
    if (more > 0)
        printf("and %" PRIu64 " more node%s (--nodes N lists more)\n", more, more > 1 ? "s" : "");
    if (json_u64(json_get(page, "nodesWithoutGPU"), &without) && without > 0)
        printf("%" PRIu64 " %s no GPU\n", without, without > 1 ? "nodes have" : "node has");
    return 0;
}

/* The fewest pods whose end would make room, as the scheduler says. */
static void print_ends(struct json page) {
    struct json ends = json_get(page, "ends"), pods = json_get(ends, "pods"), one;
    struct json_iter it = json_iter(pods);
    size_t n = json_size(pods), shown = 0;
    const char *node = json_string(json_get(ends, "node"));
    bool cut_short = false;
    (void) json_bool(json_get(page, "cutShort"), &cut_short);
    if (!node && cut_short)
        puts("The search for pods whose end would make room was cut short and found none.");
    if (!node)
        return;
    if (n == 0) {
        printf("It fits on node %s as soon as pods that are being deleted have terminated.\n",
               node);
        return;
    }
    printf("It would fit on node %s if %s ended:", node, n > 1 ? "these pods" : "this pod");
    for (; shown < ENDS_MAX && json_next(&it, NULL, &one); shown++)
        clean_print(stdout, "%s %s/%s", shown ? "," : "",
                    json_string_or(json_get(one, "namespace"), ""),
                    json_string_or(json_get(one, "name"), ""));
    if (n > shown)
        printf(", and %zu more", n - shown);
    puts(cut_short ? ". The search was cut short: fewer may do." : ".");
}

static int print_page(const struct pod *pod, struct json object, struct json page,
                      struct err *err) {
    uint64_t fitting = 0;
    bool gated = json_size(JSON_PATH(object, "spec", "schedulingGates")) > 0;
    const char *held = json_string(json_get(page, "held"));
    const char *foreign = json_string(json_get(page, "foreignScheduler"));
    const char *claims = json_string(json_get(page, "claims"));
    if (claims)
        clean_print(stdout, "Its ResourceClaims wait: %s\n", claims);
    if (pod->request.n == 0)
        return 0;
    clean_print(stdout, "Request: %s.\n", json_string_or(json_get(page, "wants"), ""));
    if (foreign) { /* what fits where is of no use to it */
        clean_print(stdout, "It names the scheduler %s, which does not ask Aliquot.\n", foreign);
        return 0;
    }
    if (held)
        clean_print(stdout, "Gated: %s.\n", held);
    int r = print_nodes(page, err);
    (void) json_u64(json_get(page, "nodesThatFit"), &fitting);
    if (r == 0 && fitting > 0 && !held && !gated)
        printf("%" PRIu64 " %s enough free GPU capacity. If the pod stays pending, the reason is "
               "not the GPUs.\n",
               fitting, fitting > 1 ? "nodes have" : "node has");
    if (r == 0 && fitting == 0 && !pod->nominated[0])
        print_ends(page);
    if (r == 0 && pod->nominated[0])
        clean_print(stdout,
                    "Preemption is in progress on node %s: the pod is bound when the evicted pods "
                    "have terminated.\n",
                    pod->nominated);
    return r;
}

static int get_page(const struct pod *pod, struct buf *text, struct err *err) {
    char path[512];
    (void) snprintf(path, sizeof(path), "/explain?namespace=%s&pod=%s", pod->namespace, pod->name);
    return port_forward_get(&arg_source, path, text, err);
}

static int print_scheduler_page(const struct pod *pod, struct json object, struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json page;
    int r = get_page(pod, &text, err);
    if (r == 0)
        r = json_open(buf_str(&text), text.len, &parser, &page, err);
    return r < 0 ? r : print_page(pod, object, page, err);
}

/* Without the scheduler the reasons by node are unknown, but free capacity can be shown. */
static void print_free_cards(void) {
    _cleanup_(cards_done) struct cards cards = {0};
    _cleanup_(table_done) struct table t = {.columns = 4};
    static const char *const titles[] = {"NODE", "GPU", "FREE CORE", "FREE MEMORY"};
    struct err err;
    if (cards_fetch(&cards, &err) < 0) {
        clean_print(stdout, "Free capacity cannot be read either: %s\n", err.text);
        return;
    }
    table_titles(&t, titles);
    for (size_t i = 0; i < cards.n; i++) {
        char memory[24];
        table_row(&t);
        table_set(&t, 0, "%s", cards.list[i].node);
        table_set(&t, 1, "%" PRIu64, cards.list[i].index);
        table_set(&t, 2, "%" PRIu64 " %%", cards.list[i].free_core);
        table_set(&t, 3, "%s", num_format_bytes(cards.list[i].free_memory, memory));
    }
    (void) table_print(&t, stdout);
}

static int explain_pending(const struct pod *pod, struct json object) {
    struct err err;
    printf("Pod %s/%s is pending.\n", pod->namespace, pod->name);
    print_since(object);
    if (pod->problem != REQUEST_OK)
        clean_print(stdout, "Container %s: %s.\n", pod->problem_container,
                    request_problem_text(pod->problem, pod->mixed));
    else if (print_scheduler_page(pod, object, &err) < 0) {
        fflush(stdout);
        clean_print(stderr, "aliquot explain: aliquot-scheduler does not answer: %s\n", err.text);
        print_event(pod);
        print_free_cards();
    }
    print_gates(object);
    print_condition(object);
    return 0;
}

/* ---- JSON ---- */

/* A text from outside that should be JSON; null where it is not. */
static void put_document(struct json_writer *w, const char *key, const char *text) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json root;
    bool good = text && json_open(text, strlen(text), &parser, &root, NULL) == 0;
    json_put_raw(w, key, good ? text : "null");
}

/* The page of aliquot-scheduler; null where it does not answer. */
static void put_page(struct json_writer *w, const struct pod *pod) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    struct err err;
    int r = get_page(pod, &text, &err);
    put_document(w, "scheduler", r < 0 ? NULL : buf_str(&text));
    if (r < 0)
        clean_print(stderr, "aliquot explain: aliquot-scheduler does not answer: %s\n", err.text);
}

static void put_or_null(struct json_writer *w, const char *key, const char *text) {
    json_put_string(w, key, text && *text ? text : NULL);
}

/* What is explained: a pod, and its object. */
struct explained {
    struct pod pod;
    struct json object;
};

static void show_document(const void *view, struct json_writer *w) {
    const struct explained *explained = view;
    const struct pod *pod = &explained->pod;
    struct json condition = find_condition(explained->object);
    bool asks =
        pod->problem != REQUEST_OK || pod->request.n > 0 || explain_has_claims(explained->object);
    bool waits = !pod->node[0] && !pod->finished;
    json_object_begin(w, NULL);
    json_put_string(w, "namespace", pod->namespace);
    json_put_string(w, "name", pod->name);
    json_put_string(w, "uid", pod->uid);
    json_put_string(w, "phase",
                    json_string_or(JSON_PATH(explained->object, "status", "phase"), ""));
    put_or_null(w, "since", waits ? created(explained->object) : NULL);
    json_put_bool(w, "asksForGPU", asks);
    json_put_string(w, "problem",
                    pod->problem == REQUEST_OK ? NULL
                                               : request_problem_text(pod->problem, pod->mixed));
    put_or_null(w, "node", pod->node);
    put_or_null(w, "nominatedNode", pod->nominated);
    put_document(w, "assignment", pod->assignment);
    json_put_string(w, "kubeScheduler", json_string(json_get(condition, "message")));
    if (asks && waits && pod->problem == REQUEST_OK)
        put_page(w, pod);
    else
        json_put_null(w, "scheduler");
    json_object_end(w);
}

/* ---- the command ---- */

/* Which namespace is that of the context, only kubectl knows. */
static int get_pod(const char *name, struct buf *text, struct err *err) {
    char path[2 * API_NAME_MAX + 64];
    if (!arg_namespace)
        return KUBECTL(text, err, "get", "pod", name, "-o", "json");
    if (!api_is_name(name) || !api_is_name(arg_namespace))
        return err_set(err, ENOENT, "there is no pod %s/%s", arg_namespace, name);
    (void) snprintf(path, sizeof(path), "/api/v1/namespaces/%s/pods/%s", arg_namespace, name);
    return api_get(path, text, err);
}

static void explain_ended(const struct pod *pod, struct json status) {
    const char *reason = json_string_or(json_get(status, "reason"), "");
    const char *message = json_string_or(json_get(status, "message"), "");
    clean_print(stdout, "Pod %s/%s has terminated (%s) and holds no share.\n", pod->namespace,
                pod->name, json_string_or(json_get(status, "phase"), ""));
    if (*reason || *message)
        clean_print(stdout, "Pod status: %s: %s\n", reason, message);
    /* Any device plugin can be the cause, and ours can have refused the allocation. */
    if (strcmp(reason, "UnexpectedAdmissionError") == 0 && pod->request.n > 0)
        puts("Usual cause: the agent of its node was not registered with kubelet when the pod was "
             "admitted.");
}

static int show_text(const void *view, bool wide, struct err *err) {
    const struct explained *explained = view;
    const struct pod *pod = &explained->pod;
    if (wide)
        arg_nodes = UINT32_MAX;
    if (pod->finished) {
        explain_ended(pod, json_get(explained->object, "status"));
        return 0;
    }
    bool claims = explain_has_claims(explained->object);
    if (pod->problem == REQUEST_OK && pod->request.n == 0 && !pod->assignment && !claims) {
        printf("Pod %s/%s requests no GPU, so Aliquot does not schedule it.\n", pod->namespace,
               pod->name);
        print_condition(explained->object);
        return 0;
    }
    int r = pod->node[0] ? explain_bound(pod, explained->object, err)
                         : explain_pending(pod, explained->object);
    return r == 0 && claims ? explain_claims(explained->object, err) : r;
}

static void show_name(const void *view, struct buf *out) {
    const struct explained *explained = view;
    buf_printf(out, "pod/%s\n", explained->pod.name);
}

static void explained_done(struct explained *explained) {
    pod_done(&explained->pod);
}

static int explain_pod(void *name, struct err *err) {
    static const struct output_view how = {show_text, show_document, show_name};
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    _cleanup_json_ struct json_parser *parser = NULL;
    _cleanup_(explained_done) struct explained explained = {0};
    int r = get_pod(name, &text, err);
    if (r == 0)
        r = json_open(buf_str(&text), text.len, &parser, &explained.object, err);
    if (r == 0)
        r = pod_parse(explained.object, &explained.pod, err);
    return r < 0 ? r : output_print(&how, &explained, err);
}

static const struct opt options[] = {
    {"namespace", 'n', "NAME", "the pod's namespace (default: that of the context)", opt_string,
     &arg_namespace},
    {"nodes", 0, "N", "nodes to list (default 20; with -o wide all)", opt_u32, &arg_nodes},
    SYSTEM_OPTION(&arg_source.name_space),
    {"scheduler", 0, "URL", "address of the scheduler, such as http://127.0.0.1:9401 on its host",
     opt_string, &arg_source.url},
    OUTPUT_OPTIONS,
    KUBECTL_OPTIONS,
    OPT_END,
};

static const struct opt_usage usage = {
    .synopsis = "aliquot explain POD [options]",
    .purpose = "Explains why a pod is pending, with the reason and the free capacity of each node. "
               "For a pod\n"
               "on a node, prints its cards and the pods that share them.",
    .epilog = "Uses kubectl (or $KUBECTL) with your context, and connects to aliquot-scheduler by\n"
              "port-forward, which needs the right to create pods/portforward in its namespace. "
              "Without it,\n"
              "prints what the pod, its Events and the GPU objects contain. Exit status: 0; 1 when "
              "there is\n"
              "no such pod or the cluster does not answer; 2 for wrong arguments.",
};

int cmd_explain(int argc, char **argv) {
    const char *words[1] = {NULL};
    struct err err;
    int r = args_parse(options, &usage, argc, argv, words, 1, &err);
    if (r == 0)
        r = err_set(&err, EINVAL, "the name of a pod is missing; see --help");
    return output_command("explain", r, explain_pod, (void *) (uintptr_t) words[0], &err);
}
