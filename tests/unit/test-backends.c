/* SPDX-License-Identifier: Apache-2.0 */

/* What every back end has to do, tried on each row of the table and on a row of named devices that
 * is added at run time; and that kubelet's calls reach each operation of such a row. */

#include "kubelet-world.h"

#include <errno.h>

#include "agent/backends/backend.h"
#include "agent/backends/whole_rows.h"
#include "agent/kubelet/plugin_messages.h"
#include "agent/kubelet/prestart.h"
#include "agent/shares/shares.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/units.h"

#define NAMED_BYTES (10 * GIB)
#define MINE "MIG-10-a"
#define SICK "MIG-10-b"

/* ---- a back end of named devices: MIG instances of one size ---- */

/* What its operations were called with. */
static struct {
    unsigned prefers, allocates, prepares, polls, waits;
    char allocated[BACKEND_ID_SIZE], prepared[BACKEND_ID_SIZE];
    bool companion;
    int refusal; /* of the next `allocate`; 0: none */
    char slot[BACKEND_CDI_NAME_MAX], nonce[NONCE_LEN + 1], pod_uid[64];
} seen;

static bool is_named(const struct gpu_device *d) {
    return d->kind == GPU_MIG_INSTANCE && d->memory == NAMED_BYTES;
}

static uint32_t named_list(const struct resource *r, const struct gpu_snapshot *s) {
    uint32_t n = 0;

    (void) r;
    for (uint32_t i = 0; i < s->ndevices; i++)
        n += is_named(&s->devices[i]);
    return n;
}

static const struct gpu_device *named_device(const struct gpu_snapshot *s, uint32_t n) {
    for (uint32_t i = 0; i < s->ndevices; i++)
        if (is_named(&s->devices[i]) && n-- == 0)
            return &s->devices[i];
    return NULL;
}

static void named_id(const struct resource *r, const struct gpu_snapshot *s, uint32_t n,
                     char ret[static BACKEND_ID_SIZE]) {
    (void) r;
    (void) snprintf(ret, BACKEND_ID_SIZE, "%s", named_device(s, n)->uuid);
}

static uint32_t named_number(const struct resource *r, const struct gpu_snapshot *s,
                             const char *id) {
    uint32_t n = 0, count = named_list(r, s);

    while (n < count && strcmp(named_device(s, n)->uuid, id) != 0)
        n++;
    return n;
}

static void named_health(const struct resource *r, const struct gpu_snapshot *s,
                         const struct backend_held *held, bool *ret_sick) {
    (void) r;
    for (uint32_t n = 0; n < held->count; n++)
        ret_sick[n] = !named_device(s, n)->healthy;
}

static int64_t named_numa(const struct resource *r, const struct gpu_snapshot *s, const char *id) {
    (void) r;
    return gpu_numa(s, gpu_find(s, id));
}

static size_t named_prefer(const struct backend_choice *c, char **ret) {
    size_t n = 0;

    seen.prefers++;
    for (size_t i = 0; i < c->navailable; i++)
        assert_non_null(gpu_find(c->devices, c->available[i]));
    for (size_t i = 0; i < c->navailable && n < c->want; i++)
        if (c->nmust == 0 || strcmp(c->available[i], c->must[0]) == 0)
            ret[n++] = c->available[i];
    return n;
}

static int named_allocate(const struct backend_ids *ids,
                          char ret_name[static BACKEND_CDI_NAME_MAX]) {
    int r;

    for (size_t i = 0; i < ids->n; i++)
        if (!gpu_find(ids->devices, ids->ids[i]))
            return -ENODEV;
    r = seen.refusal < 0 ? seen.refusal : backend_slot_name(ret_name);
    seen.allocates++;
    (void) snprintf(seen.allocated, sizeof(seen.allocated), "%s", ids->n > 0 ? ids->ids[0] : "");
    (void) snprintf(seen.slot, sizeof(seen.slot), "%s", ret_name);
    return r;
}

static enum verdict named_prepare(struct shares *s, const struct backend_ids *ids,
                                  const struct provision *p, struct err *why) {
    (void) s, (void) why;
    assert_int_equal(ids->n, 1);
    assert_non_null(gpu_find(ids->devices, ids->ids[0]));
    seen.prepares++;
    seen.companion = p->companion;
    (void) snprintf(seen.prepared, sizeof(seen.prepared), "%s", ids->ids[0]);
    (void) snprintf(seen.nonce, sizeof(seen.nonce), "%s", p->nonce);
    (void) snprintf(seen.pod_uid, sizeof(seen.pod_uid), "%s", p->pod_uid);
    seen.polls += !*p->polled;
    *p->polled = true;
    return seen.waits > 0 && seen.waits-- > 0 ? VERDICT_WAIT : VERDICT_GRANT;
}

static const struct backend backend_named = {
    .list = named_list,
    .id = named_id,
    .number = named_number,
    .health = named_health,
    .numa = named_numa,
    .prefer = named_prefer,
    .allocate = named_allocate,
    .prepare = named_prepare,
};

static const struct resource named = {
    .name = "example.com/mig-10gb", .socket = "mig-10gb", .backend = &backend_named};

static const struct whole_rows mixed = {.strategy = MIG_STRATEGY_MIXED};

/* ---- what every back end has to do ---- */

/* A device of each kind, of all of which every row must list some IDs. */
static void make_zoo(struct gpu_snapshot *s, bool healthy) {
    *s = (struct gpu_snapshot){
        .ndevices = 6,
        .devices = {{.uuid = "GPU-whole", .memory = 80 * GIB},
                    {.index = 1, .divided = true, .uuid = "GPU-divided", .memory = 80 * GIB},
                    {.kind = GPU_MIG_INSTANCE,
                     .uuid = MINE,
                     .parent = "GPU-divided",
                     .mig.profile = "1g.10gb",
                     .memory = NAMED_BYTES},
                    {.kind = GPU_MIG_INSTANCE,
                     .index = 1,
                     .uuid = SICK,
                     .parent = "GPU-divided",
                     .mig.profile = "1g.10gb",
                     .memory = NAMED_BYTES},
                    {.kind = GPU_VGPU, .index = 2, .uuid = "GPU-virtual", .memory = 8 * GIB},
                    {.kind = GPU_REMOTE, .index = 3, .uuid = "GPU-remote", .memory = 80 * GIB}},
    };
    for (uint32_t i = 0; i < s->ndevices; i++)
        s->devices[i].healthy = healthy;
}

static void check_ids(const struct resource *r, const struct gpu_snapshot *s, uint32_t n) {
    char id[BACKEND_ID_SIZE];

    for (uint32_t i = 0; i < n; i++) {
        memset(id, 'x', sizeof(id));
        r->backend->id(r, s, i, id);
        assert_non_null(memchr(id, 0, sizeof(id)));
        assert_true(id[0]);
        assert_int_equal(r->backend->number(r, s, id), i); /* so no two are the same */
    }
    assert_true(r->backend->number(r, s, "none of ours") >= n);
}

static void check_health(const struct resource *r, uint32_t n) {
    static struct gpu_snapshot zoo;
    _cleanup_free_ bool *flags = calloc(2, n);
    bool *held = flags, *sick = flags + n;

    make_zoo(&zoo, true);
    r->backend->health(r, &zoo, &(struct backend_held){.count = n, .ids = held}, sick);
    for (uint32_t i = 0; i < n; i++)
        assert_false(sick[i]);
    make_zoo(&zoo, false);
    r->backend->health(r, &zoo, &(struct backend_held){.count = n, .ids = held}, sick);
    for (uint32_t i = 0; i < n; i++)
        assert_true(sick[i]);
}

static void check_prefer(const struct resource *r, const struct gpu_snapshot *s, uint32_t n) {
    char ids[2][BACKEND_ID_SIZE], *available[] = {ids[0], ids[1]}, *ret[3];
    struct backend_choice c = {r, s, available, 2, &available[1], 1, 1}; /* that one must be in */

    assert_true(n >= 2);
    r->backend->id(r, s, 0, ids[0]);
    r->backend->id(r, s, 1, ids[1]);
    assert_int_equal(r->backend->prefer(&c, ret), 1);
    assert_ptr_equal(ret[0], ids[1]);
    c.nmust = 0;
    c.want = 2;
    assert_int_equal(r->backend->prefer(&c, ret), 2);
    assert_true(ret[0] != ret[1]);
}

static void check_allocate(const struct resource *r, const struct gpu_snapshot *s) {
    char id[BACKEND_ID_SIZE], names[2][BACKEND_CDI_NAME_MAX], nonce[NONCE_LEN + 1];
    const char *ids[] = {id};
    const struct backend_ids chosen = {.resource = r, .devices = s, .ids = ids, .n = 1};

    r->backend->id(r, s, 0, id);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(r->backend->allocate(&chosen, names[i]), 0);
        assert_true(nonce_of_cdi_name(names[i], nonce));
    }
    assert_string_not_equal(names[0], names[1]);
}

/* As many devices as a node can have, all of the kind of which the row lists most, make a list that
 * kubelet takes, and none of them is left out. */
static void check_size(const struct resource *r) {
    static struct gpu_snapshot zoo, many;
    _cleanup_buf_ struct buf out = BUF_INIT(RESOURCE_MESSAGE_MAX);
    uint32_t longest = 0, n = 0, lists;

    make_zoo(&zoo, true);
    for (uint32_t i = 0; i < zoo.ndevices; i++) {
        many.ndevices = 1;
        many.devices[0] = zoo.devices[i];
        lists = r->backend->list(r, &many);
        if (lists <= longest)
            continue;
        longest = lists;
        n = i;
    }
    assert_true(longest > 0);
    many.ndevices = GPU_MAX;
    for (uint32_t i = 0; i < GPU_MAX; i++)
        many.devices[i] = zoo.devices[n];
    lists = r->backend->list(r, &many);
    message_list(r, &many, lists, NULL, &out);
    assert_int_equal(buf_error(&out), 0);
    assert_true(lists == longest * GPU_MAX);
}

static void check_row(const struct resource *r) {
    static struct gpu_snapshot zoo, none;
    uint32_t n;

    print_message("%s\n", r->name);
    assert_true(backend_is_whole(r));
    make_zoo(&zoo, true);
    n = r->backend->list(r, &zoo);
    assert_true(n > 0);
    assert_int_equal(r->backend->list(r, &none), 0);
    check_ids(r, &zoo, n);
    check_health(r, n);
    check_prefer(r, &zoo, n);
    check_allocate(r, &zoo);
    check_size(r);
}

static void every_row_is_whole(void **state) {
    struct whole_row mig;

    (void) state;
    for (size_t i = 0; i < resources_count; i++)
        check_row(&resources[i]);
    check_row(&named);
    whole_row_make(&mig, &mixed, "nvidia.com/mig-1g.10gb");
    check_row(&mig.resource);
}

/* With more IDs for each card than the message has room for, the list ends after the last card that
 * has room for all of its IDs. */
static void a_list_of_shares_is_cut(void **state) {
    static struct gpu_snapshot many = {.ndevices = GPU_MAX};
    _cleanup_buf_ struct buf out = BUF_INIT(RESOURCE_MESSAGE_MAX);
    struct resource row = resources[0];
    uint32_t lists;

    (void) state;
    row.per_card = (uint32_t) (RESOURCE_MESSAGE_MAX / GPU_MAX / 16);
    lists = row.backend->list(&row, &many);
    assert_in_range(lists, row.per_card, (GPU_MAX - 1) * row.per_card);
    assert_int_equal(lists % row.per_card, 0);
    message_list(&row, &many, lists, NULL, &out);
    assert_int_equal(buf_error(&out), 0);
    assert_true(resource_message_size(&row, lists + row.per_card) > RESOURCE_MESSAGE_MAX);
}

/* kubelet aligns CPUs with the node of the card. An ID that is no device has none, unless all cards
 * that it can stand for are on one. */
static void devices_have_a_numa_node(void **state) {
    static struct gpu_snapshot zoo;
    struct whole_row mig;
    const struct resource *rows[] = {&mig.resource, &resources[0]};

    (void) state;
    whole_row_make(&mig, &mixed, "nvidia.com/mig-1g.10gb");
    make_zoo(&zoo, true);
    for (int32_t numa = -1; numa < 2; numa++) {
        zoo.devices[1].links = (struct gpu_connections){.known = 2, .numa = numa};
        for (size_t i = 0; i < 2; i++) {
            _cleanup_buf_ struct buf out = BUF_INIT(RESOURCE_MESSAGE_MAX);
            Deviceplugin__ListAndWatchResponse *m;

            message_list(rows[i], &zoo, 2, NULL, &out);
            m = deviceplugin__list_and_watch_response__unpack(NULL, out.len,
                                                              (const uint8_t *) buf_str(&out));
            assert_non_null(m);
            assert_int_equal(m->n_devices, 2);
            assert_int_equal(m->devices[1]->topology != NULL, numa >= 0 && i == 0);
            if (m->devices[1]->topology)
                assert_int_equal(m->devices[1]->topology->nodes[0]->id, numa);
            deviceplugin__list_and_watch_response__free_unpacked(m, NULL);
        }
    }
}

static int64_t numa_of_a_share(const struct gpu_snapshot *s) {
    return resources[0].backend->numa(&resources[0], s, "");
}

/* Cards that kubelet gives out do not count, nor do those in MIG mode. */
static void shares_have_the_node_of_all_cards(void **state) {
    static struct gpu_snapshot s = {.ndevices = 3,
                                    .devices = {{.uuid = "GPU-0"},
                                                {.uuid = "GPU-1"},
                                                {.uuid = "GPU-2", .offer = GPU_OFFER_WHOLE}}};

    (void) state;
    assert_int_equal(numa_of_a_share(&s), -1);
    s.devices[0].links = (struct gpu_connections){.known = 3, .numa = 1};
    s.devices[2].links = (struct gpu_connections){.known = 3, .numa = 0};
    assert_int_equal(numa_of_a_share(&s), -1);
    s.devices[1].links = (struct gpu_connections){.known = 3, .numa = 1};
    assert_int_equal(numa_of_a_share(&s), 1);
    s.devices[2].offer = GPU_OFFER_DEFAULT;
    assert_int_equal(numa_of_a_share(&s), -1);
    s.devices[2].divided = true;
    assert_int_equal(numa_of_a_share(&s), 1);
}

/* ---- a row that is added at run time ---- */

/* The last list that was sent to kubelet for `named`. */
static char sent[256];

static char logged[1024]; /* the last warning */

void __wrap_log_write(enum log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

void __wrap_log_write(enum log_level level, const char *format, ...) {
    va_list args;

    if (level != LOG_WARN)
        return;
    va_start(args, format);
    (void) vsnprintf(logged, sizeof(logged), format, args);
    va_end(args);
}

int __real_grpc_call_send(struct grpc_call *call, const uint8_t *message, size_t size);
int __wrap_grpc_call_send(struct grpc_call *call, const uint8_t *message, size_t size);

int __wrap_grpc_call_send(struct grpc_call *call, const uint8_t *message, size_t size) {
    Deviceplugin__ListAndWatchResponse *m =
        deviceplugin__list_and_watch_response__unpack(NULL, size, message);

    assert_non_null(m);
    if (m->n_devices < 3) {
        sent[0] = 0;
        for (size_t i = 0; i < m->n_devices; i++)
            (void) snprintf(sent + strlen(sent), sizeof(sent) - strlen(sent), "%s %s, ",
                            m->devices[i]->id, m->devices[i]->health);
    }
    deviceplugin__list_and_watch_response__free_unpacked(m, NULL);
    return __real_grpc_call_send(call, message, size);
}

/* An operation that is missing is refused, also one that is added to the structure later. */
static void a_row_that_is_not_whole(void **state) {
    struct fixture *f = *state;
    struct backend part;
    struct resource row = named;

    row.backend = &part;
    for (size_t at = 0; at < sizeof(part); at += sizeof(void (*)(void))) {
        part = backend_named;
        memset((char *) &part + at, 0, sizeof(void (*)(void)));
        assert_int_equal(kubelet_add(f->kubelet, &row), -EINVAL);
    }
    row = named;
    row.socket = "a name that is too long";
    assert_int_equal(kubelet_add(f->kubelet, &row), -EINVAL);
    row = named;
    row.name = resources[0].name;
    assert_int_equal(kubelet_add(f->kubelet, &row), -EEXIST);
    row = named;
    row.socket = resources[0].socket;
    assert_int_equal(kubelet_add(f->kubelet, &row), -EEXIST);
    assert_int_equal(kubelet_add(f->kubelet, &named), 0);
    assert_int_equal(kubelet_add(f->kubelet, &named), -EEXIST);
}

static void on_stream_end(const struct grpc_result *result, void *userdata) {
    (void) result, (void) userdata;
}

/* kubelet reads the list of a plugin that has registered. */
static void watch(struct fixture *f, size_t row) {
    char path[160];
    const struct grpc_request_options options = {.socket_path = path,
                                                 .method = "/v1beta1.DevicePlugin/ListAndWatch",
                                                 .message = (const uint8_t *) "",
                                                 .timeout_ms = 60000};

    (void) snprintf(path, sizeof(path), "%s/%s", f->plugins, f->endpoints[row]);
    assert_int_equal(grpc_request_start(&f->loop, &options, on_stream_end, f, NULL, NULL), 0);
    RUN_UNTIL(f, plugin_is_served(kubelet_plugin(f->kubelet, row)));
}

static uint32_t offered(const struct fixture *f, size_t row) {
    struct plugin_stats stats;

    plugin_stats(kubelet_plugin(f->kubelet, row), &stats);
    return stats.ids;
}

/* The zoo with the instance SICK unhealthy, or of it the whole card alone. */
static void set_instances(struct fixture *f, bool there) {
    make_zoo(&f->devices, true);
    f->devices.devices[3].healthy = false;
    if (!there)
        f->devices.ndevices = 1;
    kubelet_update(f->kubelet, true);
}

/* kubelet has all rows of the table and reads their lists; the row `named` has no device yet. */
static void begin(struct fixture *f) {
    memset(&seen, 0, sizeof(seen));
    sent[0] = 0;
    f->resource = named.name;
    assert_int_equal(kubelet_add(f->kubelet, &named), 0);
    kubelet_up(f);
    set_instances(f, false);
    for (size_t i = 0; i < resources_count; i++) {
        assert_false(kubelet_is_served(f->kubelet));
        RUN_UNTIL(f, f->endpoints[i][0]);
        watch(f, i);
    }
}

/* kubelet reads the list of the row `named`, too: the plugin of a list that kubelet does not read
 * starts a new server. */
static void begin_with_instances(struct fixture *f) {
    begin(f);
    set_instances(f, true);
    RUN_UNTIL(f, f->endpoints[resources_count][0]);
    watch(f, resources_count);
}

/* A row without devices is not offered, and does not keep the node from being ready. */
static void a_row_comes_and_goes(void **state) {
    const size_t row = resources_count;
    struct fixture *f = *state;

    begin(f);
    assert_true(kubelet_is_served(f->kubelet));
    assert_string_equal(f->endpoints[row], "");
    for (int round = 0; round < 2; round++) {
        f->endpoints[row][0] = 0;
        set_instances(f, true);
        assert_false(kubelet_is_served(f->kubelet));
        RUN_UNTIL(f, f->endpoints[row][0]);
        watch(f, row);
        RUN_UNTIL(f, kubelet_is_served(f->kubelet));
        assert_string_equal(sent, MINE " Healthy, " SICK " Unhealthy, ");
        f->devices.devices[3].healthy = true;
        kubelet_update(f->kubelet, true);
        assert_string_equal(sent, MINE " Healthy, " SICK " Healthy, ");
        set_instances(f, false);
        assert_int_equal(offered(f, row), 0);
        RUN_UNTIL(f, !plugin_is_served(kubelet_plugin(f->kubelet, row)));
        assert_true(kubelet_is_served(f->kubelet));
    }
}

/* The devices have not changed since the last update, only the rows. */
static void a_row_for_devices_that_are_there(void **state) {
    struct fixture *f = *state;

    kubelet_up(f);
    set_instances(f, true);
    assert_int_equal(kubelet_add(f->kubelet, &named), 0);
    kubelet_update(f->kubelet, true);
    assert_int_equal(offered(f, resources_count), 2);
    RUN_UNTIL(f, f->endpoints[resources_count][0]);
}

static uint32_t list_of_data(const struct resource *r, const struct gpu_snapshot *s) {
    const uint32_t *n = r->data;

    (void) s;
    return *n;
}

static void id_of_data(const struct resource *r, const struct gpu_snapshot *s, uint32_t n,
                       char ret[static BACKEND_ID_SIZE]) {
    (void) s;
    resource_id(r, n, ret);
}

/* The devices are the same, what the back end knows of the row is not. */
static void data_of_a_row_changes(void **state) {
    struct fixture *f = *state;
    struct backend part = backend_named;
    struct resource row = named;
    uint32_t n = 3;

    part.list = list_of_data;
    part.id = id_of_data;
    row.backend = &part;
    row.data = &n;
    row.letter = 'd';
    assert_int_equal(kubelet_add(f->kubelet, &row), 0);
    make_zoo(&f->devices, true);
    kubelet_update(f->kubelet, true);
    assert_int_equal(offered(f, resources_count), 3);
    n = 5;
    kubelet_update(f->kubelet, true);
    assert_int_equal(offered(f, resources_count), 3);
    kubelet_rows_changed(f->kubelet);
    kubelet_update(f->kubelet, true);
    assert_int_equal(offered(f, resources_count), 5);
}

/* Unique for names with a common beginning, and never too long for a path. */
static void sockets_have_names(void **state) {
    static const char *const names[] = {
        "nvidia.com/mig-1g.10gb",
        "nvidia.com/mig-1g.10gb.me",
        "nvidia.com/mig-1g.10gb.shared",
        "nvidia.com/gpu",
        "example.com/gpu",
        "gpu",
        "nvidia.com/a-name-of-sixty-three-characters-is-the-longest-that-is-allowed"};
    const size_t n = sizeof(names) / sizeof(names[0]);
    char sockets[sizeof(names) / sizeof(names[0])][RESOURCE_SOCKET_MAX + 1];

    (void) state;
    for (size_t i = 0; i < n; i++) {
        resource_socket(names[i], sockets[i]);
        assert_in_range(strlen(sockets[i]), 10, RESOURCE_SOCKET_MAX);
        assert_null(strchr(sockets[i], '/'));
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(sockets[i], sockets[j]);
    }
    assert_memory_equal(sockets[0], "mig-1g.-", 8);
    assert_memory_equal(sockets[3], "gpu-", 4);
}

/* More IDs than a message of kubelet has room for. */
static uint32_t list_too_long(const struct resource *r, const struct gpu_snapshot *s) {
    (void) r, (void) s;
    return RESOURCE_MESSAGE_MAX / 16;
}

static void id_of_number(const struct resource *r, const struct gpu_snapshot *s, uint32_t n,
                         char ret[static BACKEND_ID_SIZE]) {
    (void) s;
    resource_id(r, n, ret);
}

/* The log names the resource and the cause; the other rows are offered. */
static void a_list_that_is_too_long(void **state) {
    struct fixture *f = *state;
    struct backend part = backend_named;
    struct resource row = named;

    part.list = list_too_long;
    part.id = id_of_number;
    row.backend = &part;
    row.letter = 'x';
    assert_int_equal(kubelet_add(f->kubelet, &row), 0);
    logged[0] = 0;
    kubelet_up(f);
    make_zoo(&f->devices, true);
    kubelet_update(f->kubelet, true);
    assert_non_null(strstr(logged, row.name));
    assert_non_null(strstr(logged, strerror(EMSGSIZE)));
    assert_null(strstr(logged, "memory"));
    RUN_UNTIL(f, f->endpoints[0][0]);
    assert_int_equal(offered(f, resources_count), 0);
}

/* ---- kubelet's calls ---- */

static void base64(const uint8_t *bytes, size_t n, char *ret) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    for (size_t i = 0; i < n; i += 3) {
        uint32_t word = (uint32_t) bytes[i] << 16;

        word |= i + 1 < n ? (uint32_t) bytes[i + 1] << 8 : 0;
        word |= i + 2 < n ? (uint32_t) bytes[i + 2] : 0;
        for (size_t k = 0; k < 4; k++)
            *ret++ = i + k > n ? '=' : digits[word >> (18 - 6 * k) & 63];
    }
    *ret = 0;
}

/* The checkpoint that kubelet writes with the last answer of Allocate. The container has a share,
 * too. */
/* The answer to Allocate, as kubelet keeps it. */
static void read_answer(const struct fixture *f, char ret[static 2048]) {
    Deviceplugin__AllocateResponse *m =
        deviceplugin__allocate_response__unpack(NULL, f->result.size, f->reply);
    uint8_t bytes[1024];
    size_t n;

    assert_non_null(m);
    assert_int_equal(m->n_container_responses, 1);
    n = deviceplugin__container_allocate_response__get_packed_size(m->container_responses[0]);
    assert_in_range(n, 1, sizeof(bytes));
    (void) deviceplugin__container_allocate_response__pack(m->container_responses[0], bytes);
    deviceplugin__allocate_response__free_unpacked(m, NULL);
    base64(bytes, n, ret);
}

/* An instance of container main, and a share of `other`. */
static void write_checkpoint(const struct fixture *f, const char *answer, const char *other) {
    char path[160], text[8192];

    (void) snprintf(text, sizeof(text),
                    "{\"Data\":{\"PodDeviceEntries\":["
                    "{\"PodUID\":\"uid-1\",\"ContainerName\":\"%s\",\"ResourceName\":\"%s\","
                    "\"DeviceIDs\":{\"-1\":[\"c-0001\"]},\"AllocResp\":\"%s\"},"
                    "{\"PodUID\":\"uid-1\",\"ContainerName\":\"main\",\"ResourceName\":\"%s\","
                    "\"DeviceIDs\":{\"-1\":[\"" MINE "\"]},\"AllocResp\":\"%s\"}]}}",
                    other, resources[0].name, answer, named.name, answer);
    (void) snprintf(path, sizeof(path), "%s/" CHECKPOINT_FILE, f->plugins);
    assert_int_equal(file_replace(path, text, strlen(text), 0600, NULL), 0);
}

static struct shares shares;
static struct prestarts prestarts;

static void on_begin(struct fixture *f, struct grpc_call *call, const struct resource *resource,
                     const char *const *ids, size_t nids) {
    (void) f;
    prestart_begin(&prestarts, call, resource, ids, nids);
}

static void on_granted(void *userdata) {
    (void) userdata;
}

/* kubelet reports the cause of a failed Allocate in an Event. */
static void a_failed_allocate_has_its_cause(void **state) {
    static const char *const mine[] = {MINE};
    static const struct {
        int error;
        enum grpc_status status;
        const char *text;
    } rows[] = {{-EAGAIN, GRPC_UNAVAILABLE, "random numbers"},
                {-ENODEV, GRPC_FAILED_PRECONDITION, "not on this node"},
                {-ENOMEM, GRPC_RESOURCE_EXHAUSTED, "out of memory"}};
    struct fixture *f = *state;
    _cleanup_buf_ struct buf request = BUF_INIT(4096);

    begin_with_instances(f);
    put_ids(&request, true, mine, 1);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        seen.refusal = rows[i].error;
        call(f, "/v1beta1.DevicePlugin/Allocate", &request, 5000);
        assert_int_equal(f->result.status, rows[i].status);
        assert_non_null(strstr(f->result.text, rows[i].text));
    }
}

/* The IDs of a container reach the back end in each call, with the devices as they are then. */
static void calls_reach_the_back_end(void **state) {
    static const char *const mine[] = {MINE}, *const gone[] = {"MIG-gone"};
    struct fixture *f = *state;
    _cleanup_buf_ struct buf request = BUF_INIT(4096), lost = BUF_INIT(4096), ids = BUF_INIT(4096);
    char nonce[NONCE_LEN + 1], refusal[160], answer[2048];

    begin_with_instances(f);
    put_ids(&request, true, mine, 1);
    put_ids(&lost, true, gone, 1);
    put_ids(&ids, false, mine, 1);
    /* The available IDs of this call have the field number of the IDs of Allocate, and no size. */
    call(f, "/v1beta1.DevicePlugin/GetPreferredAllocation", &request, 5000);
    assert_int_equal(f->result.status, GRPC_OK);
    assert_int_equal(seen.prefers, 1);
    call(f, "/v1beta1.DevicePlugin/Allocate", &lost, 5000);
    assert_int_equal(f->result.status, GRPC_FAILED_PRECONDITION);
    assert_int_equal(seen.allocates, 0);
    call(f, "/v1beta1.DevicePlugin/Allocate", &request, 5000);
    assert_int_equal(f->result.status, GRPC_OK);
    assert_int_equal(seen.allocates, 1);
    assert_string_equal(seen.allocated, MINE);
    read_answer(f, answer);
    write_checkpoint(f, answer, "main");
    shares.loop = &f->loop;
    prestarts =
        (struct prestarts){.shares = &shares, .kubelet = f->kubelet, .on_granted = on_granted};
    prestart_init(&prestarts);
    f->begin = on_begin;
    prestarts.blocker = "the configuration is not known";
    call(f, "/v1beta1.DevicePlugin/PreStartContainer", &ids, 3000);
    assert_int_not_equal(f->result.status, GRPC_OK);
    assert_int_equal(seen.prepares, 0);
    prestarts.blocker = NULL;
    /* A share and an instance in one container. */
    call(f, "/v1beta1.DevicePlugin/PreStartContainer", &ids, 5000);
    assert_int_equal(f->result.status, GRPC_FAILED_PRECONDITION);
    (void) snprintf(refusal, sizeof(refusal), "container main requests %s and %s: a share and a",
                    named.name, resources[0].name);
    assert_non_null(strstr(f->result.text, refusal));
    assert_int_equal(seen.prepares, 0);
    write_checkpoint(f, answer, "other");
    call(f, "/v1beta1.DevicePlugin/PreStartContainer", &ids, 5000);
    assert_int_equal(f->result.status, GRPC_OK);
    assert_int_equal(seen.prepares, 1);
    assert_string_equal(seen.prepared, MINE);
    assert_string_equal(seen.pod_uid, "uid-1");
    assert_false(seen.companion); /* the share carries no instance */
    assert_true(nonce_of_cdi_name(seen.slot, nonce));
    assert_string_equal(seen.nonce, nonce);
    seen.waits = 2; /* tries of one call, with one poll */
    call(f, "/v1beta1.DevicePlugin/PreStartContainer", &ids, 5000);
    assert_int_equal(f->result.status, GRPC_OK);
    assert_int_equal(seen.prepares, 4);
    assert_int_equal(seen.polls, 2);
    uv_close((uv_handle_t *) &prestarts.wake, NULL);
}

/* An instance in shares has IDs for its percent of a card; how much that is has to be known. */
static void shares_of_an_instance(void **state) {
    static struct gpu_snapshot s = {
        .ndevices = 3,
        .devices = {{.uuid = "GPU-whole"},
                    {.index = 1, .uuid = "GPU-divided", .divided = true},
                    {.kind = GPU_MIG_INSTANCE, .uuid = "MIG-1", .parent = "GPU-divided"}}};
    const struct resource *core = &resources[0], *slots = &resources[2];
    struct gpu_device *d = &s.devices[2];
    bool sick[142] = {false};
    bool held[142] = {false};
    uint32_t n = 0;

    (void) state;
    for (uint32_t i = 0; i < s.ndevices; i++)
        s.devices[i].healthy = true;
    assert_true(gpu_is_given_whole(d));
    assert_int_equal(core->backend->list(core, &s), 100);
    d->offer = GPU_OFFER_SHARES;
    assert_null(gpu_find_card(&s, "MIG-1"));
    d->mig.ci_slices = 3;
    d->mig.card_slices = 7;
    assert_ptr_equal(gpu_find_card(&s, "MIG-1"), d);
    assert_false(gpu_is_given_whole(d));
    assert_int_equal(core->backend->list(core, &s), 142);
    assert_int_equal(slots->backend->list(slots, &s), 2 * slots->per_card);
    d->healthy = false;
    core->backend->health(core, &s, &(struct backend_held){.count = 142, .ids = held}, sick);
    for (uint32_t i = 0; i < 142; i++)
        n += sick[i];
    assert_int_equal(n, 42);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_whole),
        cmocka_unit_test(a_list_of_shares_is_cut),
        cmocka_unit_test(shares_of_an_instance),
        cmocka_unit_test(devices_have_a_numa_node),
        cmocka_unit_test(shares_have_the_node_of_all_cards),
        cmocka_unit_test_setup_teardown(a_row_that_is_not_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(a_row_comes_and_goes, setup, teardown),
        cmocka_unit_test_setup_teardown(data_of_a_row_changes, setup, teardown),
        cmocka_unit_test(sockets_have_names),
        cmocka_unit_test_setup_teardown(a_list_that_is_too_long, setup, teardown),
        cmocka_unit_test_setup_teardown(a_row_for_devices_that_are_there, setup, teardown),
        cmocka_unit_test_setup_teardown(a_failed_allocate_has_its_cause, setup, teardown),
        cmocka_unit_test_setup_teardown(calls_reach_the_back_end, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
