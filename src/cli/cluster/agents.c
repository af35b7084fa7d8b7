/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster/agents.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "cli/cluster/agent_token.h"
#include "cli/cluster/api.h"
#include "kube/objects/agent_certificate.h"

#define AGENTS_MAX 8192
#define AGENT_MS 4000 /* for one agent; one that has more to do is not worth waiting for */
#define ALL_MS 10000  /* for all that are asked at once */
/* Of one page: some 200 bytes for each container, of which a node has a few hundred. */
#define PAGE_MAX ((size_t) 8 << 20)
#define BATCH 64          /* agents whose pages are held at a time */
#define PAGE_AGENTS 64    /* of the list of their pods */
#define HISTORY_PAGES 100 /* of an agent */

void agents_done(struct agents *agents) {
    HASH_CLEAR(hh, agents->by_uuid);
    HASH_CLEAR(hh, agents->by_node);
    for (size_t i = 0; i < agents->n; i++) {
        json_parser_free(agents->list[i].parser);
        free(agents->list[i].pod);
        free(agents->list[i].node);
    }
    free(agents->list);
    free(agents->cards);
    *agents = (struct agents){0};
}

/* ---- which agents there are ---- */

/* A pod that has ended, such as an evicted one, stays beside its successor for a while. */
static bool can_answer(struct json pod) {
    struct json phase = JSON_PATH(pod, "status", "phase");

    return json_string_or(JSON_PATH(pod, "spec", "nodeName"), "")[0] &&
           !json_is_string(phase, "Succeeded") && !json_is_string(phase, "Failed");
}

static int add_agent(struct agents *agents, struct json pod) {
    struct agent *agent = &agents->list[agents->n];
    const char *name = json_string(JSON_PATH(pod, "metadata", "name"));

    if (!name || !api_is_name(name) || !can_answer(pod))
        return 0;
    agent->pod = strdup(name);
    agent->node = strdup(json_string_or(JSON_PATH(pod, "spec", "nodeName"), ""));
    agent->tls =
        json_is_string(json_get(JSON_PATH(pod, "metadata", "annotations"), AGENT_SCHEME_ANNOTATION),
                       AGENT_SCHEME_TLS);
    agents->n++;
    if (!agent->pod || !agent->node)
        return -ENOMEM;
    return 0;
}

static int add_agents(struct agents *agents, struct json pods) {
    struct json items = json_get(pods, "items"), pod;
    size_t room = AGENTS_MAX - agents->n, n = json_size(items) < room ? json_size(items) : room;
    struct json_iter it = json_iter(items);
    struct agent *list = reallocarray(agents->list, agents->n + n + 1, sizeof(*list));
    int r = 0;

    if (!list)
        return -ENOMEM;
    memset(list + agents->n, 0, (n + 1) * sizeof(*list));
    agents->list = list;
    while (r == 0 && n-- > 0 && json_next(&it, NULL, &pod))
        r = add_agent(agents, pod);
    return r;
}

/* Of all nodes, or of one. A pod has some kilobytes, of which little is kept. */
static int list_agents(const char *system, const char *node, struct agents *agents,
                       struct err *err) {
    char path[1024 + API_CONTINUE_MAX], more[API_CONTINUE_MAX] = "";
    int r;

    if (!api_is_name(system))
        return err_set(err, EINVAL, "'%s' is no name of a namespace", system);
    do {
        _cleanup_json_ struct json_parser *parser = NULL;
        struct json pods;
        (void) snprintf(path, sizeof(path),
                        "/api/v1/namespaces/%s/pods?labelSelector=app.kubernetes.io/name%%3D"
                        "aliquot-agent%s%s&limit=%d%s%s",
                        system, node ? "&fieldSelector=spec.nodeName%3D" : "", node ? node : "",
                        PAGE_AGENTS, more[0] ? "&continue=" : "", more);
        r = api_read(path, &parser, &pods, err);
        if (r == 0 && add_agents(agents, pods) < 0)
            r = err_errno(err, ENOMEM, "cannot read the use of cards");
        if (r == 0)
            r = api_continue(json_string_or(JSON_PATH(pods, "metadata", "continue"), ""), more,
                             err);
    } while (r == 0 && more[0] && agents->n < AGENTS_MAX);
    return r;
}

/* ---- their pages ---- */

/* While an agent is replaced, a node can have two: the one that answers counts. */
static int index_nodes(struct agents *agents) {
    for (size_t i = 0; i < agents->n; i++) {
        struct agent *agent = &agents->list[i], *known = NULL;
        HASH_FIND(hh, agents->by_node, agent->node, strlen(agent->node), known);
        if (known && known->parser)
            continue;
        if (known)
            HASH_DELETE(hh, agents->by_node, known);
        HASH_ADD_KEYPTR(hh, agents->by_node, agent->node, strlen(agent->node), agent);
        if (!hash_added(agent))
            return -ENOMEM;
    }
    return 0;
}

/* Without a token only agents of older versions answer. */
struct login {
    const char *token;
    struct err no_token; /* why there is none */
};

static struct login login_to(const char *system) {
    struct login login = {0};

    login.token = agent_token(system, &login.no_token);
    return login;
}

/* Whether the agent would have answered a user with the rights that a token takes. */
static bool is_denied(const struct login *login, int result) {
    return !login->token &&
           (result == -ENOKEY || (result == -EACCES && login->no_token.code == EACCES));
}

/* What to ask one for: a page of its own. */
static struct api_get page_of(const char *system, const struct agent *agent, const char *page,
                              const char *token) {
    struct api_get get = {.who = "the agent", .token = token, .max = PAGE_MAX};

    /* The API server does not verify what the pod shows; it has its address from the pod's status.
     */
    if (asprintf(&get.path, "/api/v1/namespaces/%s/pods/%s%s:9400/proxy/%s", system,
                 agent->tls ? "https:" : "", agent->pod, page) < 0)
        get.path = NULL;
    return get;
}

/* Those from `first` to before `end`, all that came before having been asked. None is when all of
 * those deny it: kubectl logs in anew for every such answer. `trouble` may be NULL. -ENOMEM. */
static int ask(const char *system, struct agents *agents, size_t first, size_t end,
               void (*trouble)(const char *pod, const char *text)) {
    if (first > 0 && agents->ndenied == first)
        return 0;
    struct api_get *gets = calloc(end - first + 1, sizeof(*gets));
    if (!gets)
        return -ENOMEM;
    const struct login login = login_to(system);
    for (size_t i = first; i < end; i++)
        gets[i - first] = page_of(system, &agents->list[i], "usage", login.token);
    api_get_all(gets, end - first, AGENT_MS, ALL_MS);
    for (size_t i = first; i < end; i++) {
        struct agent *agent = &agents->list[i];
        struct api_get *get = &gets[i - first];
        if (get->result == 0)
            get->result = json_open(buf_str(&get->text), get->text.len, &agent->parser,
                                    &agent->usage, &get->err);
        if (get->result == -ENOKEY && login.token)
            agent_token_refused();
        if (is_denied(&login, get->result)) {
            text_copy(agents->denied, sizeof(agents->denied), login.no_token.text);
            agents->ndenied++;
        } else if (get->result < 0 && trouble) {
            trouble(agent->pod, get->err.text);
        }
    }
    api_gets_done(gets, end - first);
    return 0;
}

int agents_each(const char *system, int (*each)(const struct agent *agent, void *userdata),
                void *userdata, struct err *err) {
    _cleanup_(agents_done) struct agents agents = {0};
    int r = list_agents(system, NULL, &agents, err);

    for (size_t at = 0; r >= 0 && at < agents.n;) {
        size_t end = agents.n - at > BATCH ? at + BATCH : agents.n;
        if (ask(system, &agents, at, end, NULL) < 0)
            return err_errno(err, ENOMEM, "cannot read the use of cards");
        for (; at < end; at++) {
            struct agent *agent = &agents.list[at];
            r = r < 0 ? r : each(agent, userdata);
            agent->parser = json_parser_free(agent->parser);
        }
    }
    if (r >= 0 && agents.denied[0])
        return err_set(err, EACCES, "%s", agents.denied);
    return r;
}

static const struct agent *agent_on(const struct agents *agents, const char *node) {
    for (size_t i = 0; i < agents->n; i++)
        if (strcmp(agents->list[i].node, node) == 0)
            return &agents->list[i];
    return NULL;
}

int agents_page(const char *system, const char *node, const char *page, struct buf *ret,
                struct err *err) {
    _cleanup_(agents_done) struct agents agents = {0};
    int r = list_agents(system, node, &agents, err);
    const struct agent *agent = agent_on(&agents, node);

    if (r < 0 || !agent)
        return r < 0 ? r : err_set(err, ENOENT, "node %s has no agent", node);
    struct api_get *get = calloc(1, sizeof(*get));
    if (!get)
        return err_errno(err, ENOMEM, "cannot send a request");
    const struct login login = login_to(system);
    *get = page_of(system, agent, page, login.token);
    api_get_all(get, 1, AGENT_MS, AGENT_MS);
    r = get->result;
    if (r < 0)
        *err = r == -ENOKEY && !login.token ? login.no_token : get->err;
    else
        buf_append(ret, buf_str(&get->text), get->text.len);
    api_gets_done(get, 1);
    return r < 0 ? r : buf_error(ret);
}

static void index_card(struct agents *agents, size_t *at, struct json card) {
    const char *uuid = json_string(json_get(card, "uuid"));
    struct agent_card *known = NULL, *entry = &agents->cards[(*at)++];

    if (!uuid)
        return;
    HASH_FIND(hh, agents->by_uuid, uuid, strlen(uuid), known);
    if (known)
        return;
    entry->card = card;
    HASH_ADD_KEYPTR(hh, agents->by_uuid, uuid, strlen(uuid), entry);
}

static size_t count_cards(const struct agents *agents) {
    size_t n = 0;

    for (size_t i = 0; i < agents->n; i++) {
        struct json_iter it = json_iter(json_get(agents->list[i].usage, "gpus"));
        struct json gpu;
        while (json_next(&it, NULL, &gpu))
            n += 1 + json_size(json_get(gpu, "instances"));
    }
    return n;
}

static int index_cards(struct agents *agents, struct err *err) {
    size_t at = 0;

    agents->cards = calloc(count_cards(agents) + 1, sizeof(*agents->cards));
    if (!agents->cards)
        return err_errno(err, ENOMEM, "cannot read the use of cards");
    for (size_t i = 0; i < agents->n; i++) {
        struct json_iter it = json_iter(json_get(agents->list[i].usage, "gpus"));
        struct json gpu, instance;
        while (json_next(&it, NULL, &gpu)) {
            struct json_iter parts = json_iter(json_get(gpu, "instances"));
            index_card(agents, &at, gpu);
            while (json_next(&parts, NULL, &instance))
                index_card(agents, &at, instance);
        }
    }
    return 0;
}

int agents_read(const char *system, void (*trouble)(const char *pod, const char *text),
                struct agents *ret, struct err *err) {
    _cleanup_(agents_done) struct agents agents = {0};
    int r = list_agents(system, NULL, &agents, err);

    if (r < 0)
        return r;
    size_t some = agents.n < BATCH ? agents.n : BATCH;
    if (ask(system, &agents, 0, some, trouble) < 0 ||
        ask(system, &agents, some, agents.n, trouble) < 0 || index_nodes(&agents) < 0)
        return err_errno(err, ENOMEM, "cannot read the use of cards");
    r = index_cards(&agents, err);
    if (r < 0)
        return r;
    *ret = take_struct(agents);
    return 0;
}

int agents_of_page(const struct buf *page, struct agents *ret, struct err *err) {
    _cleanup_(agents_done) struct agents agents = {0};

    agents.list = calloc(1, sizeof(*agents.list));
    if (!agents.list)
        return err_errno(err, ENOMEM, "cannot read the use of cards");
    agents.n = 1;
    int r = json_open(buf_str(page), page->len, &agents.list->parser, &agents.list->usage, err);
    if (r == 0)
        r = index_cards(&agents, err);
    if (r < 0)
        return r;
    *ret = take_struct(agents);
    return 0;
}

/* ---- the last hour ---- */

/* Of one agent: which page is next. */
struct history {
    const struct agent *agent;
    uint64_t skip;
};

/* Calls `take` for what is on the page. 1: another one follows, 0, or a negative errno. */
static int take_page(struct history *h, const struct api_get *get,
                     void (*take)(void *arg, struct json record, uint64_t step_ms), void *arg,
                     struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json page, record;
    uint64_t step_ms = 0, before = h->skip;

    int r = json_open(buf_str(&get->text), get->text.len, &parser, &page, err);
    if (r < 0)
        return r;
    (void) json_u64(json_get(page, "stepMs"), &step_ms);
    struct json_iter it = json_iter(json_get(page, "containers"));
    while (step_ms > 0 && json_next(&it, NULL, &record))
        take(arg, record, step_ms);
    return json_u64(json_get(page, "next"), &h->skip) && h->skip > before;
}

/* A page of each of so many. Those that have another one stay in the list. */
static void read_pages(const struct history_source *of, struct history *list, size_t *n) {
    struct api_get *gets = calloc(*n + 1, sizeof(*gets));
    const char *token = agent_token(of->system, NULL);
    const size_t asked = *n;
    size_t kept = 0;

    for (size_t i = 0; gets && i < *n; i++) {
        char page[512];
        (void) snprintf(page, sizeof(page), "history?%s%sskip=%" PRIu64, of->query,
                        of->query[0] ? "&" : "", list[i].skip);
        gets[i] = page_of(of->system, list[i].agent, page, token);
    }
    if (gets)
        api_get_all(gets, *n, AGENT_MS, ALL_MS);
    for (size_t i = 0; gets && i < *n; i++) {
        int r = gets[i].result;
        if (r == 0)
            r = take_page(&list[i], &gets[i], of->take, of->arg, &gets[i].err);
        if (r < 0)
            of->trouble(list[i].agent->pod, gets[i].err.text);
        if (r > 0)
            list[kept++] = list[i];
    }
    *n = kept;
    if (gets)
        api_gets_done(gets, asked);
}

static void read_all(const struct agents *agents, const struct history_source *of,
                     bool (*is_asked)(const struct agent *agent, const char *const *nodes,
                                      size_t n),
                     const char *const *nodes, size_t nnodes) {
    for (size_t at = 0; at < agents->n;) {
        struct history list[BATCH];
        size_t n = 0;
        for (; at < agents->n && n < BATCH; at++)
            if (is_asked(&agents->list[at], nodes, nnodes))
                list[n++] = (struct history){&agents->list[at], 0};
        for (int page = 0; n > 0 && page < HISTORY_PAGES; page++)
            read_pages(of, list, &n);
    }
}

static bool has_answered(const struct agent *agent, const char *const *nodes, size_t n) {
    (void) nodes;
    (void) n;
    return agent->parser;
}

static bool is_on(const struct agent *agent, const char *const *nodes, size_t n) {
    while (n > 0)
        if (strcmp(agent->node, nodes[--n]) == 0)
            return true;
    return false;
}

void agents_history(const struct agents *agents, const struct history_source *of) {
    read_all(agents, of, has_answered, NULL, 0);
}

int agents_history_of(const char *const *nodes, size_t n, const struct history_source *of,
                      struct err *err) {
    _cleanup_(agents_done) struct agents agents = {0};

    int r = list_agents(of->system, NULL, &agents, err);
    if (r == 0)
        read_all(&agents, of, is_on, nodes, n);
    return r;
}

/* ---- look-ups ---- */

struct json agents_find(const struct agents *agents, const char *uuid) {
    struct agent_card *found = NULL;

    HASH_FIND(hh, agents->by_uuid, uuid, strlen(uuid), found);
    return found ? found->card : (struct json){0};
}

static const struct agent *find_agent(const struct agents *agents, const char *node) {
    struct agent *found = NULL;

    HASH_FIND(hh, agents->by_node, node, strlen(node), found);
    return found;
}

bool agents_answers(const struct agents *agents, const char *node) {
    const struct agent *agent = find_agent(agents, node);

    return agent && agent->parser;
}

bool agents_silent(const struct agents *agents, const char *node) {
    const struct agent *agent = find_agent(agents, node);

    return agent && !agent->parser;
}

struct json agents_holder(struct json use, const struct holder *holder) {
    struct json_iter it = json_iter(json_get(use, "holders"));
    struct json one;

    while (json_next(&it, NULL, &one))
        if (holder->claim[0] ? json_is_string(json_get(one, "claimUID"), holder->uid)
                             : json_is_string(json_get(one, "podUID"), holder->uid) &&
                                   json_is_string(json_get(one, "container"), holder->container) &&
                                   !json_valid(json_get(one, "claimUID")))
            return one;
    return (struct json){0};
}
