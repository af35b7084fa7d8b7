/* SPDX-License-Identifier: Apache-2.0 */

/* A program that uses no library, neither the driver's nor Aliquot's: it speaks the simulated
 * driver's protocol itself, as one calls ioctl() on /dev/nvidia* of a real driver. It is linked
 * statically, so that nothing is loaded into it.
 *
 *     driver-bypass reach DIR    what it reaches of the driver in DIR, as JSON
 *     driver-bypass make         which device nodes it can make and open, as JSON
 *
 * `reach`: "cards" and "capabilities", the nodes that it can open; "card", the results of a context
 * and of memory on each of these cards itself; "instances", the same by the UUID of each instance
 * that it may attach; "others", how many more instances it is refused; "taken", what succeeded on
 * units and cards that it has not attached; "changed", which changes and readings of a whole card
 * succeeded.
 *
 * `make`: the error of making and opening a node by its name; "dynamic", how many of the majors
 * from which Linux takes that of /dev/nvidia-caps can be opened. */

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include "sim/proto.h"

#define BYTES (1ull << 30)
#define CAPABILITIES 4323u /* one more than the last number of the driver */
#define ONE_SLICE 19u      /* profile 1g of an A100 */
#define NODE "driver-bypass-node"

static const char *dir;
static int control;
static uint64_t token[2];

/* ---- the protocol ---- */

static int open_node(const char *name) {
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    (void) snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/%s", dir, name);
    if (fd >= 0 && connect(fd, (struct sockaddr *) &sa, sizeof(sa)) < 0) {
        (void) close(fd);
        fd = -1;
    }
    return fd;
}

/* The status of the answer, or -EPIPE. `ret_fd` may be NULL; -1: the answer has no descriptor. */
static int ask(int fd, const struct sim_request *q, struct sim_reply *ret, int *ret_fd) {
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(2 * sizeof(int))];
    } passed = {.space = {0}};
    struct iovec iov = {ret, sizeof(*ret)};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &passed, .msg_controllen = sizeof(passed)};
    int found = -1;

    if (send(fd, q, sizeof(*q), MSG_NOSIGNAL) != (ssize_t) sizeof(*q) ||
        recvmsg(fd, &msg, MSG_CMSG_CLOEXEC) < (ssize_t) sizeof(*ret))
        return -EPIPE;
    if (CMSG_FIRSTHDR(&msg))
        memcpy(&found, CMSG_DATA(&passed.header), sizeof(found));
    if (ret_fd)
        *ret_fd = found;
    else if (found >= 0)
        (void) close(found);
    return ret->status;
}

static int request(uint32_t op, uint32_t minor, uint64_t a, uint64_t x, uint64_t y) {
    const struct sim_request q = {
        .magic = SIM_MAGIC, .op = op, .minor = minor, .a = a, .token = {x, y}};
    struct sim_reply reply;

    return ask(control, &q, &reply, NULL);
}

static int begin(void) {
    const struct sim_request q = {.magic = SIM_MAGIC, .op = SIM_HELLO, .a = SIM_PROTO};
    struct sim_reply reply;

    control = open_node(SIM_CTL_NAME);
    if (control < 0 || ask(control, &q, &reply, NULL) < 0)
        return -1;
    memcpy(token, reply.token, sizeof(token));
    return 0;
}

/* Of a card or of a capability. The connection stays: it is the right to use the node. */
static bool attach(const char *prefix, uint32_t number) {
    const struct sim_request q = {.magic = SIM_MAGIC,
                                  .op = SIM_ATTACH,
                                  .minor = number < SIM_MAX_UNITS ? number : 0,
                                  .token = {token[0], token[1]}};
    struct sim_reply reply;
    char name[64];
    int fd;

    (void) snprintf(name, sizeof(name), "%s%u", prefix, number);
    fd = open_node(name);
    return fd >= 0 && ask(fd, &q, &reply, NULL) == 0;
}

/* ---- what it reaches ---- */

static const char *separator(bool *more) {
    const char *text = *more ? "," : "";

    *more = true;
    return text;
}

static void print_use(uint32_t minor) {
    int context = request(SIM_CTX_CREATE, minor, 0, 0, 0);
    int memory = request(SIM_ALLOC, minor, BYTES, 0, 0);

    (void) printf("[%d,%d]", context, memory);
}

static uint64_t print_cards(void) {
    uint64_t cards = 0;
    bool more = false;

    (void) printf("\"cards\":[");
    for (uint32_t i = 0; i < SIM_MAX_GPUS; i++)
        if (attach(SIM_DEVICE_NAME, i)) {
            cards |= 1ull << i;
            (void) printf("%s%u", separator(&more), i);
        }
    (void) printf("],\"capabilities\":[");
    more = false;
    for (uint32_t i = 0; i < CAPABILITIES; i++)
        if (attach(SIM_CAP_NAME, i))
            (void) printf("%s%u", separator(&more), i);
    (void) printf("],\"card\":{");
    more = false;
    for (uint32_t i = 0; i < SIM_MAX_GPUS; i++)
        if (cards >> i & 1) {
            (void) printf("%s\"%u\":", separator(&more), i);
            print_use(i);
        }
    (void) printf("}");
    return cards;
}

/* Tries every unit as a part of every card. */
static int attach_unit(uint32_t unit, uint32_t *ret_card, int *ret_page) {
    int result = -ENODEV;

    for (uint32_t card = 0; card < SIM_MAX_GPUS; card++) {
        const struct sim_request q = {
            .magic = SIM_MAGIC, .op = SIM_MIG, .minor = card, .a = SIM_MIG_ATTACH, .token = {unit}};
        struct sim_reply reply;
        int r = ask(control, &q, &reply, ret_page);

        *ret_card = card;
        if (r == 0)
            return 0;
        if (r == -EACCES)
            result = r;
    }
    return result;
}

static void print_instances(bool attached[static SIM_MAX_UNITS]) {
    unsigned others = 0;
    bool more = false;

    (void) printf(",\"instances\":{");
    for (uint32_t unit = SIM_MAX_GPUS; unit < SIM_MAX_UNITS; unit++) {
        const struct sim_page *page;
        uint32_t card;
        int fd = -1;
        int r = attach_unit(unit, &card, &fd);

        others += r == -EACCES;
        attached[unit] = r == 0;
        if (r < 0)
            continue;
        page = mmap(NULL, sizeof(*page), PROT_READ, MAP_SHARED, fd, 0);
        (void) printf("%s\"%s\":", separator(&more), page == MAP_FAILED ? "?" : page->uuid);
        print_use(unit);
    }
    (void) printf("},\"others\":%u", others);
}

/* Memory, contexts and the use of what was not attached: no node leads there. */
static void print_taken(uint64_t cards, const bool attached[static SIM_MAX_UNITS]) {
    static const struct {
        const char *name;
        uint32_t op;
        uint64_t a;
    } rows[] = {{"context", SIM_CTX_CREATE, 0},
                {"memory", SIM_ALLOC, BYTES},
                {"shared memory", SIM_SHARE, BYTES},
                {"processes", SIM_PROCESSES, 0},
                {"open", SIM_OPEN, 0}};
    bool more = false;

    (void) printf(",\"taken\":[");
    for (uint32_t unit = 0; unit < SIM_MAX_UNITS; unit++)
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
            if (unit < SIM_MAX_GPUS ? cards >> unit & 1 : attached[unit])
                continue;
            if (request(rows[i].op, unit, rows[i].a, 0, 0) == 0)
                (void) printf("%s\"%s %u\"", separator(&more), rows[i].name, unit);
        }
    (void) printf("]");
}

/* What is for administrators, and for holders of the capabilities `config` and `monitor`. */
static void print_changed(void) {
    static const struct {
        const char *name;
        uint32_t op;
        uint64_t a, x, y;
    } rows[] = {{"processes of the card", SIM_PROCESSES, 0, 0, 0},
                {"list for a monitor", SIM_MIG, SIM_MIG_LIST, SIM_CAP_MONITOR, 0},
                {"new instance", SIM_MIG, SIM_MIG_CREATE, ONE_SLICE, UINT32_MAX},
                {"compute mode", SIM_SET, (uint64_t) SIM_SETTING_COMPUTE_MODE << 32, 0, 0},
                {"MIG mode", SIM_MIG, SIM_MIG_MODE, 0, 0}};
    bool more = false;

    (void) printf(",\"changed\":[");
    for (uint32_t card = 0; card < SIM_MAX_GPUS; card++) {
        for (uint32_t unit = SIM_MAX_GPUS; unit < SIM_MAX_UNITS; unit++)
            if (request(SIM_MIG, card, SIM_MIG_ATTACH, unit, SIM_CAP_MONITOR) == 0)
                (void) printf("%s\"figures of %u\"", separator(&more), unit);
        for (uint32_t gi = 0; gi < SIM_GPU_INSTANCES_MAX; gi++)
            if (request(SIM_MIG, card, SIM_MIG_DESTROY_COMPUTE, gi, 0) == 0 ||
                request(SIM_MIG, card, SIM_MIG_DESTROY, gi, 0) == 0)
                (void) printf("%s\"end of %u/%u\"", separator(&more), card, gi);
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
            if (request(rows[i].op, card, rows[i].a, rows[i].x, rows[i].y) == 0)
                (void) printf("%s\"%s %u\"", separator(&more), rows[i].name, card);
    }
    (void) printf("]");
}

static int reach(void) {
    static bool attached[SIM_MAX_UNITS];
    uint64_t cards;

    if (begin() < 0) {
        (void) fprintf(stderr, "driver-bypass: no driver in %s\n", dir);
        return 1;
    }
    (void) printf("{");
    cards = print_cards();
    print_instances(attached);
    print_taken(cards, attached);
    print_changed();
    (void) printf("}\n");
    return 0;
}

/* ---- device nodes of its own ---- */

/* The error of making and opening the node of a character device; 0: it is open. */
static int make_and_open(unsigned major, unsigned minor) {
    int fd, error = 0;

    if (mknod(NODE, S_IFCHR | 0600, makedev(major, minor)) < 0)
        return errno;
    fd = open(NODE, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        error = errno;
    else
        (void) close(fd);
    (void) unlink(NODE);
    return error;
}

static int make(void) {
    /* Of the kernel, and of NVIDIA's driver. The first can be opened in every container. */
    static const struct {
        const char *name;
        unsigned major, minor;
    } rows[] = {{"zero", 1, 5}, {"nvidia0", 195, 0}, {"nvidia1", 195, 1}, {"nvidiactl", 195, 255}};
    static const struct { unsigned first, last; } dynamic[] = {{234, 254}, {384, 511}};
    unsigned opened = 0;

    (void) printf("{");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        (void) printf("\"%s\":%d,", rows[i].name, make_and_open(rows[i].major, rows[i].minor));
    for (size_t i = 0; i < sizeof(dynamic) / sizeof(dynamic[0]); i++)
        for (unsigned major = dynamic[i].first; major <= dynamic[i].last; major++)
            opened += make_and_open(major, SIM_CAP_CONFIG) != EPERM;
    (void) printf("\"dynamic\":%u}\n", opened);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "make") == 0)
        return make();
    if (argc != 3 || strcmp(argv[1], "reach") != 0)
        return 2;
    dir = argv[2];
    return reach();
}
