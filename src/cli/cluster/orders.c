/* SPDX-License-Identifier: Apache-2.0 */

/* `aliquot card` and `aliquot node`: orders to the agents, as annotations of GPU objects and of
 * Nodes, which the agents follow. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "cli/args.h"
#include "cli/clean.h"
#include "cli/cluster/api.h"
#include "cli/kubectl_options.h"
#include "kube/api/client.h"
#include "kube/api/object_write.h"
#include "kube/objects/gpu_object.h"
#include "wire/json.h"
#include "wire/json_write.h"

#define NODES "/api/v1/nodes"
#define WORDS_MAX 65 /* a verb, and the cards of one node */
#define PODS_TOLD 3

static uint32_t arg_wait;

struct target;

struct verb {
    struct opt_word word;
    const char *annotation;
    const char *value; /* NULL: removed; "": the time */
    bool (*is_done)(const struct gpu_object *now, const struct target *); /* for --wait */
    bool (*has_failed)(const struct gpu_object *now);                     /* NULL: it cannot */
};

struct target {
    struct gpu_object gpu; /* as it was before the order */
    const struct verb *verb;
    const char *order; /* the text of the annotation; "": it is removed */
};

/* ---- what is waited for ---- */

static bool is_in(const struct gpu_object *gpu, const char *state) {
    return strcmp(gpu->state, state) == 0;
}

/* The agent follows that order, or a higher one. */
static bool is_level(const struct gpu_object *gpu, const char *level) {
    static const char *const levels[] = {"release", "drain", "cordon"};

    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
        if (strcmp(gpu->maintenance, levels[i]) == 0)
            return true;
        if (strcmp(level, levels[i]) == 0)
            return false;
    }
    return false;
}

static bool is_out(const struct gpu_object *gpu, const struct target *t) {
    (void) t;
    return is_level(gpu, "cordon") && !gpu->healthy && !is_in(gpu, "Suspect");
}

static bool is_drained(const struct gpu_object *gpu, const struct target *t) {
    (void) t;
    return is_level(gpu, "drain") && is_in(gpu, "Draining") && !gpu->evict[0];
}

/* A card that the driver no longer lists is open in no process. */
static bool is_released(const struct gpu_object *gpu, const struct target *t) {
    (void) t;
    return (is_level(gpu, "release") && gpu->unknown) || strcmp(gpu->reason, GPU_LOST_REASON) == 0;
}

static bool is_back(const struct gpu_object *gpu, const struct target *t) {
    (void) t;
    return !gpu->maintenance[0] && !gpu->unknown;
}

static bool is_healthy(const struct gpu_object *gpu, const struct target *t) {
    (void) t;
    return gpu->healthy;
}

static bool begins(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Without a problem, by an order to cordon or drain it. */
static bool is_kept_out(const struct gpu_object *gpu) {
    return is_in(gpu, "Draining") &&
           (begins(gpu->reason, "drained ") || begins(gpu->reason, "cordoned "));
}

static bool reset_failed(const struct gpu_object *gpu) {
    return gpu->reset.failed;
}

/* What starts after the reset, such as the card's MPS daemon, is waited for, too. */
static bool is_reset(const struct gpu_object *gpu, const struct target *t) {
    return strcmp(gpu->reset.order, t->order) == 0 &&
           (reset_failed(gpu) || gpu->healthy || is_kept_out(gpu));
}

static const struct verb card_verbs[] = {
    {{"cordon", NULL, "no new pods; those that are there go on", false},
     GPU_MAINTENANCE,
     "cordon",
     is_out,
     NULL},
    {{"drain", NULL, "no new pods; those that are there are evicted within their budgets", false},
     GPU_MAINTENANCE,
     "drain",
     is_drained,
     NULL},
    {{"release", NULL, "no new pods, and the agent closes the card; its pods go on", false},
     GPU_MAINTENANCE,
     "release",
     is_released,
     NULL},
    {{"uncordon", NULL, "ends cordon, drain and release", false},
     GPU_MAINTENANCE,
     NULL,
     is_back,
     NULL},
    {{"reset", NULL, "the card is reset as soon as it has no pods: drain it to have them end",
      false},
     GPU_RESET,
     "",
     is_reset,
     reset_failed},
    {{"set-healthy", NULL, "problems that are over, and flapping, are forgotten", false},
     GPU_SET_HEALTHY,
     "",
     is_healthy,
     NULL},
    {OPT_END, NULL, NULL, NULL, NULL},
};

static const struct verb node_verbs[] = {
    {{"release", NULL,
      "the agent closes all cards, so that their driver can be unloaded when no pod uses\n"
      "it; the cards take no pods",
      false},
     GPU_MAINTENANCE,
     "release",
     is_released,
     NULL},
    {{"resume", NULL, "ends release", false}, GPU_MAINTENANCE, NULL, is_back, NULL},
    {OPT_END, NULL, NULL, NULL, NULL},
};

/* ---- GPU objects ---- */

static int read_gpus(struct json_parser **ret_parser, struct json *ret_items, struct err *err) {
    struct json list;
    int r = api_read(API_GPUS, ret_parser, &list, err);

    if (r == 0)
        *ret_items = json_get(list, "items");
    return r;
}

/* By the name of the object, the UUID, or NODE/INDEX. */
static bool is_named(const struct gpu_object *gpu, const char *name) {
    char place[KUBE_NAME_MAX + 16];

    (void) snprintf(place, sizeof(place), "%s/%u", gpu->node, gpu->index);
    return strcmp(gpu->name, name) == 0 || strcmp(gpu->uuid, name) == 0 ||
           (!gpu->parent[0] && strcmp(place, name) == 0);
}

static int find_gpu(struct json items, const char *name, struct gpu_object *ret, struct err *err) {
    struct json_iter it = json_iter(items);
    struct json item;

    while (json_next(&it, NULL, &item))
        if (gpu_object_parse(item, ret, NULL) == 0 && is_named(ret, name))
            return 0;
    return err_set(err, ENOENT, "there is no GPU '%s'; `aliquot gpus` lists their names", name);
}

/* Only what is over can be forgotten of a part of a card; all else is done to the card. */
static int check_gpu(const struct gpu_object *gpu, const struct verb *verb, struct err *err) {
    if (!gpu->parent[0] || strcmp(verb->annotation, GPU_SET_HEALTHY) == 0)
        return 0;
    return err_set(err, EINVAL, "%s is a MIG instance: name its card, %s", gpu->name, gpu->parent);
}

/* ---- orders ---- */

/* The text of the annotation; "": it is removed. */
static const char *order_text(const struct verb *verb) {
    static char now[OBJECT_TIME_SIZE];

    if (!verb->value)
        return "";
    object_now(now);
    return verb->value[0] ? verb->value : now;
}

static int annotate(const char *kind, const char *name, const struct verb *verb, const char *order,
                    struct err *err) {
    _cleanup_buf_ struct buf patch = BUF_INIT(0);
    struct json_writer w = {.out = &patch};
    char path[API_NAME_MAX + 64];

    if (!api_is_name(name))
        return err_set(err, ENOENT, "'%s' is no name of an object", name);
    (void) snprintf(path, sizeof(path), "%s/%s", kind, name);
    json_object_begin(&w, NULL);
    json_object_begin(&w, "metadata");
    json_object_begin(&w, "annotations");
    json_put_string(&w, verb->annotation, order[0] ? order : NULL);
    json_object_end(&w);
    json_object_end(&w);
    json_object_end(&w);
    if (buf_error(&patch) < 0)
        return err_errno(err, ENOMEM, "cannot order");
    return api_patch(path, KUBE_MERGE_PATCH, buf_str(&patch), err);
}

static int read_state(const struct target *t, struct gpu_object *ret, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json object;
    char path[API_NAME_MAX + 64];
    int r;

    (void) snprintf(path, sizeof(path), API_GPUS "/%s", t->gpu.name);
    r = api_read(path, &parser, &object, err);
    return r == 0 ? gpu_object_parse(object, ret, err) : r;
}

/* What the Events of the pods explain. */
static void add_pods(const struct gpu_object *gpu, char *ret, size_t size) {
    size_t len = strcspn(gpu->evict, " ");

    for (int i = 1; i < PODS_TOLD && gpu->evict[len] && gpu->evict[len + 1]; i++)
        len += 1 + strcspn(gpu->evict + len + 1, " ");
    if (len > 0)
        (void) snprintf(ret, size, "; it has pods, see their Events: %.*s%s", (int) len, gpu->evict,
                        gpu->evict[len] && gpu->evict[len + 1] ? " ..." : "");
}

static int time_out(const struct gpu_object *gpu, struct err *err) {
    char pods[sizeof(gpu->evict) + 64] = "";

    add_pods(gpu, pods, sizeof(pods));
    return err_set(err, ETIMEDOUT, "not within %u s: GPU %s is %s%s%s%s", arg_wait, gpu->name,
                   gpu->state, gpu->reason[0] ? ": " : "", gpu->reason, pods);
}

static int wait_for(const struct target *t, time_t end, struct err *err) {
    const struct timespec second = {.tv_sec = 1};
    struct gpu_object now;
    int r;

    while ((r = read_state(t, &now, err)) == 0 && !t->verb->is_done(&now, t)) {
        if (time(NULL) >= end)
            return time_out(&now, err);
        (void) nanosleep(&second, NULL);
    }
    if (r != 0)
        return r;
    if (t->verb->has_failed && t->verb->has_failed(&now))
        return err_set(err, EIO, "GPU %s: %s (it is %s)", now.name, now.reset.message, now.state);
    clean_print(stdout, "GPU %s is %s%s%s\n", now.name, now.state, now.reason[0] ? ": " : "",
                now.reason);
    return 0;
}

static int wait_for_all(const struct target *targets, size_t n, struct err *err) {
    time_t end = time(NULL) + arg_wait;
    int r = 0;

    for (size_t i = 0; i < n && r == 0 && arg_wait > 0; i++)
        r = wait_for(&targets[i], end, err);
    return r;
}

/* All names are checked before the first order is given. */
static int order_cards(const struct verb *verb, const char **names, size_t n, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    _cleanup_free_ struct target *targets = calloc(n, sizeof(*targets));
    const char *order = order_text(verb);
    struct json items;
    int r = targets ? read_gpus(&parser, &items, err) : err_errno(err, ENOMEM, "cannot order");

    for (size_t i = 0; i < n && r == 0; i++) {
        targets[i].verb = verb;
        targets[i].order = order;
        r = find_gpu(items, names[i], &targets[i].gpu, err);
        if (r == 0)
            r = check_gpu(&targets[i].gpu, verb, err);
    }
    for (size_t i = 0; i < n && r == 0; i++)
        r = annotate(API_GPUS, targets[i].gpu.name, verb, order, err);
    return r < 0 ? r : wait_for_all(targets, n, err);
}

static int order_node(const struct verb *verb, const char *node, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    _cleanup_free_ struct target *targets = NULL;
    const char *order = order_text(verb);
    struct json items, item;
    struct json_iter it;
    size_t n = 0;
    int r = read_gpus(&parser, &items, err);

    if (r != 0)
        return r;
    targets = calloc(json_size(items) + 1, sizeof(*targets));
    if (!targets)
        return err_errno(err, ENOMEM, "cannot order");
    it = json_iter(items);
    while (json_next(&it, NULL, &item)) {
        struct target *t = &targets[n];

        t->verb = verb;
        t->order = order;
        n += gpu_object_parse(item, &t->gpu, NULL) == 0 && strcmp(t->gpu.node, node) == 0 &&
             !t->gpu.parent[0];
    }
    r = annotate(NODES, node, verb, order, err);
    if (r == 0 && n == 0 && arg_wait > 0)
        r = err_set(err, ENOENT,
                    "node '%s' has no GPU objects to wait for; the order is on the Node, and its "
                    "agent will follow it",
                    node);
    return r < 0 ? r : wait_for_all(targets, n, err);
}

/* ---- commands ---- */

static const struct opt options[] = {
    {"wait", 'w', "SECONDS", "wait until the agent has done it, and print the state", opt_u32,
     &arg_wait},
    KUBECTL_OPTIONS,
    OPT_END,
};

#define EPILOG_END                                                                                 \
    "Uses kubectl (or $KUBECTL) with your context: the annotations say what is ordered. Exit\n"    \
    "status: 0; 1 when the cluster does not answer, there is no such object, --wait is over, or\n" \
    "the reset has failed meanwhile; 2 for wrong arguments."

/* A verb and what it is done to, at least one. Returns how many words there are. */
static int parse_words(const struct opt_usage *usage, int argc, char **argv, const char **words,
                       int max, const struct verb **ret_verb, struct err *err) {
    char meant[OPT_MEANT_SIZE];
    int r = args_parse(options, usage, argc, argv, words, max, err);

    if (r >= 0 && r < 2)
        return err_set(err, EINVAL, "a verb and a name are needed; see --help");
    if (r > 0 && !(*ret_verb = opt_word_find(usage, words[0])))
        return err_set(err, EINVAL, "there is no verb '%s'; %s", words[0],
                       opt_meant(usage, words[0], meant));
    return r;
}

int cmd_card(int argc, char **argv) {
    static const struct opt_usage usage = {
        .synopsis = "aliquot card VERB GPU... [options]",
        .purpose =
            "Orders something of cards. GPU is the name of a GPU object, a UUID, or NODE/INDEX.",
        .epilog = EPILOG_END,
        .title = "Verbs",
        .words = &card_verbs[0].word,
        .stride = sizeof(card_verbs[0]),
    };
    const char *words[WORDS_MAX] = {NULL};
    const struct verb *verb = NULL;
    struct err err;
    int r = parse_words(&usage, argc, argv, words, WORDS_MAX, &verb, &err);
    bool understood = r > 0;
    if (understood)
        r = order_cards(verb, words + 1, (size_t) r - 1, &err);
    return args_exit("card", r, understood, &err);
}

int cmd_node(int argc, char **argv) {
    static const struct opt_usage usage = {
        .synopsis = "aliquot node VERB NODE [options]",
        .purpose = "Orders something of all cards of a node.",
        .epilog = EPILOG_END,
        .title = "Verbs",
        .words = &node_verbs[0].word,
        .stride = sizeof(node_verbs[0]),
    };
    const char *words[2] = {NULL};
    const struct verb *verb = NULL;
    struct err err;
    int r = parse_words(&usage, argc, argv, words, 2, &verb, &err);
    bool understood = r > 0;
    if (understood)
        r = order_node(verb, words[1], &err);
    return args_exit("node", r, understood, &err);
}
