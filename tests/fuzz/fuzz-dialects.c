/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "kube/objects/dialect_export.h"
#include "model/dialect.h"
#include "wire/json.h"
#include "wire/json_write.h"

/* What pods write beside the names of resources: a byte for the name and a text with a zero byte
 * behind it, for each line of one container. The texts of the first three are KAI's annotations,
 * too. */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LINES_MAX 8

static const char *name_of(uint8_t number) {
    if (number < dialect_quantities_count)
        return dialect_quantities[number].name;
    return number == dialect_quantities_count ? "nvidia.com/mig-1g.10gb"
           : number % 2 == 0                  ? RESOURCE_SLOT
                                              : "cpu";
}

static size_t read_lines(char *text, size_t size, struct resource_line *ret) {
    size_t n = 0;
    while (size > 1 && n < LINES_MAX) {
        size_t len = strlen(text + 1);
        ret[n++] = (struct resource_line){name_of((uint8_t) text[0]), text + 1, len};
        len += 2;
        text += len < size ? len : size;
        size -= len < size ? len : size;
    }
    return n;
}

static void check_request(const struct container_request *a) {
    bool share =
        a->core > 0 || a->memory > 0 || a->memory_percent > 0 || a->tflops > 0 || a->replicas > 0;
    if (a->cards < 1 || a->cards > 64 || a->core > 100 || a->memory_percent > 100 ||
        a->memory > INT64_MAX || a->memory_floor > INT64_MAX || a->dialect >= DIALECT_COUNT)
        abort();
    if (a->whole == share || (a->core > 0 && a->tflops > 0) ||
        (a->memory > 0 && a->memory_percent > 0))
        abort();
    if (a->replicas > 1024 || (a->as_replica && !a->whole))
        abort();
    if (a->slot != (!a->whole && a->core == 0 && a->tflops == 0))
        abort();
}

static uint64_t card_memory(const char *uuid, void *userdata) {
    (void) uuid;
    return *(uint64_t *) userdata;
}

/* What is written about it is JSON. */
static void try_export(const struct container_request *req) {
    struct assigned_device device = {3, "GPU-1", req->core, req->memory + 1, 1};
    struct assigned_container container = {.ndevices = 1, .devices = &device};
    struct assignment assignment = {.node = "n", .ncontainers = 1, .containers = &container};
    uint64_t card = req->memory_floor;
    const struct export_pod pod = {req, 1, &assignment, card_memory, &card, 1};
    struct buf out = BUF_INIT(0);
    struct json_writer w = {.out = &out};
    struct json_parser *parser = json_parser_new();
    struct json root;
    memcpy(container.name, req->container, sizeof(container.name));
    json_object_begin(&w, NULL);
    export_annotate(&pod, &w);
    json_object_end(&w);
    if (!parser || json_parse(parser, buf_str(&out), out.len, &root, NULL) < 0)
        abort();
    json_parser_free(parser);
    buf_done(&out);
}

static enum request_problem read_annotations(const char *fraction, const char *memory,
                                             const char *devices, struct container_request *ret) {
    const struct annotated_request request = {DIALECT_KAI, {fraction, memory, devices, NULL}};
    return dialect_read_annotated(&request, ret);
}

static void try_lines(struct resource_line *lines, size_t n) {
    struct container_request req = {.container = "main", .phase = CONTAINER_APP};
    bool requested = false, needs = dialect_needs_slot(lines, n);
    struct dialect_pair mixed = {0};
    enum request_problem p = dialect_read(lines, n, &req, &requested, &mixed);
    if ((p != REQUEST_OK && requested) || (needs && p == REQUEST_OK) ||
        !*request_problem_text(p, mixed))
        abort();
    (void) dialect_label(lines, n);
    if (requested) {
        check_request(&req);
        try_export(&req);
    }
    lines[n] = (struct resource_line){RESOURCE_SLOT, "1", 1};
    if (needs && dialect_read(lines, n + 1, &req, &requested, &mixed) == REQUEST_SLOT_MISSING)
        abort(); /* admission adds what the scheduler misses */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct resource_line lines[LINES_MAX + 1] = {{0}};
    struct container_request req = {.container = "main", .phase = CONTAINER_APP};
    char *text = malloc(size + 2);
    if (!text)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = text[size + 1] = '\0';
    size_t n = read_lines(text, size, lines);
    if (n > 0 && read_annotations(lines[0].quantity, lines[1].quantity, lines[2].quantity, &req) ==
                     REQUEST_OK)
        check_request(&req);
    if (n > 0 && read_annotations(NULL, lines[0].quantity, NULL, &(struct container_request){0}) !=
                     REQUEST_OK)
        (void) read_annotations(lines[0].quantity, NULL, lines[2].quantity, &req);
    try_lines(lines, n);
    free(text);
    return 0;
}
