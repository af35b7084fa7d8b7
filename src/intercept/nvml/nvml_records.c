/* SPDX-License-Identifier: Apache-2.0 */

/* What NVML keeps about single processes beside the lists and samples: accounting, sessions of the
 * encoder and of frame capture, names. Only of the container's. */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "intercept/nvml/nvml.h"
#include "intercept/resolve/driver.h"
#include "share/io_core.h"

/* -- accounting -------------------------------------------------------------------------------- */

static struct members *members_of_records(const struct part *part) {
    struct members *members = members_new(part);

    if (members && !nvml_pids_are_ours(PIDS_OF_RECORDS))
        members->n = 0;
    return members;
}

/* The PIDs of the list that are members', by NVML's rules for lists. */
static nvmlReturn_t hand_out_pids(const struct part *part, const unsigned int *pid, unsigned int n,
                                  unsigned int *count, unsigned int *pids) {
    struct members *members = members_of_records(part);
    unsigned int room = *count, kept = 0;

    if (!members)
        return NVML_ERROR_MEMORY;
    for (unsigned int i = 0; i < n; i++)
        if (members_find(members, pid[i])) {
            if (pids && kept < room)
                pids[kept] = pid[i];
            kept++;
        }
    free(members);
    *count = kept;
    return kept > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

#define RECORDS_MAX 8192

nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count,
                                         unsigned int *pids) {
    unsigned int *all, n = RECORDS_MAX;
    struct part part;
    nvmlReturn_t r;

    NVML_TRY(nvml_part_of(device, &part));
    if (!count || !part.share)
        return driver.nvmlDeviceGetAccountingPids(device, count, pids);
    if (*count > 0 && !pids)
        return NVML_ERROR_INVALID_ARGUMENT;
    all = calloc(RECORDS_MAX, sizeof(*all));
    if (!all)
        return NVML_ERROR_MEMORY;
    r = driver.nvmlDeviceGetAccountingPids(device, &n, all);
    if (r == NVML_SUCCESS)
        r = hand_out_pids(&part, all, n < RECORDS_MAX ? n : RECORDS_MAX, count, pids);
    free(all);
    return r;
}

/* NVML_ERROR_NOT_FOUND for processes of others, as for those that there are not. */
static nvmlReturn_t may_ask_about(nvmlDevice_t device, unsigned int pid) {
    struct part part;
    nvmlReturn_t r = nvml_part_of(device, &part);
    struct members *members;

    if (r != NVML_SUCCESS || !part.share)
        return r;
    members = members_of_records(&part);
    if (!members)
        return NVML_ERROR_MEMORY;
    r = members_find(members, pid) ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
    free(members);
    return r;
}

nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid,
                                          nvmlAccountingStats_t *stats) {
    nvmlReturn_t r = may_ask_about(device, pid);

    return r == NVML_SUCCESS ? driver.nvmlDeviceGetAccountingStats(device, pid, stats) : r;
}

nvmlReturn_t nvmlDeviceGetAccountingStats_v2(nvmlDevice_t device, nvmlAccountingStats_v2_t *stats) {
    nvmlReturn_t r = stats ? may_ask_about(device, stats->pid) : NVML_SUCCESS;

    return r == NVML_SUCCESS ? driver.nvmlDeviceGetAccountingStats_v2(device, stats) : r;
}

/* -- sessions ---------------------------------------------------------------------------------- */

#define SESSIONS_MAX 512

/* Both kinds of session have the PID in the same place; the figures are elsewhere. */
struct session_kind {
    size_t size, pid, fps, latency;
    nvmlReturn_t (*ask)(nvmlDevice_t device, unsigned int *n, void *list);
};

static nvmlReturn_t ask_encoder(nvmlDevice_t device, unsigned int *n, void *list) {
    return driver.nvmlDeviceGetEncoderSessions(device, n, list);
}

static nvmlReturn_t ask_capture(nvmlDevice_t device, unsigned int *n, void *list) {
    return driver.nvmlDeviceGetFBCSessions(device, n, list);
}

#define SESSION_KIND(type, fps_member, function)                                                   \
    {                                                                                              \
        .size = sizeof(type), .pid = offsetof(type, pid), .fps = offsetof(type, fps_member),       \
        .latency = offsetof(type, averageLatency), .ask = function,                                \
    }

static const struct session_kind encoder_sessions =
    SESSION_KIND(nvmlEncoderSessionInfo_t, averageFps, ask_encoder);
static const struct session_kind capture_sessions =
    SESSION_KIND(nvmlFBCSessionInfo_t, averageFPS, ask_capture);

static unsigned int number_at(const void *session, size_t offset) {
    unsigned int number;

    memcpy(&number, (const char *) session + offset, sizeof(number));
    return number;
}

/* Moves the members' sessions to the front of the list; returns how many. */
static unsigned int keep_sessions(const struct session_kind *kind, const struct members *members,
                                  void *list, unsigned int n) {
    unsigned int kept = 0;

    for (unsigned int i = 0; i < n && i < SESSIONS_MAX; i++) {
        const char *session = (const char *) list + i * kind->size;

        if (members_find(members, number_at(session, kind->pid)))
            memmove((char *) list + kept++ * kind->size, session, kind->size);
    }
    return kept;
}

/* The container's own sessions, to be freed. */
static nvmlReturn_t sessions_new(const struct session_kind *kind, nvmlDevice_t device,
                                 const struct part *part, void **ret, unsigned int *ret_n) {
    struct members *members = members_of_records(part);
    void *list = members ? calloc(SESSIONS_MAX, kind->size) : NULL;
    unsigned int n = SESSIONS_MAX;
    nvmlReturn_t r = list ? kind->ask(device, &n, list) : NVML_ERROR_MEMORY;

    if (r == NVML_SUCCESS) {
        *ret_n = keep_sessions(kind, members, list, n);
        *ret = list;
    } else {
        free(list);
    }
    free(members);
    return r;
}

static nvmlReturn_t sessions(const struct session_kind *kind, nvmlDevice_t device,
                             unsigned int *count, void *infos) {
    struct part part;
    nvmlReturn_t r = NVML_SUCCESS;
    unsigned int n, room;
    void *list;

    NVML_TRY(nvml_part_of(device, &part));
    if (!count || !part.share)
        return kind->ask(device, count, infos);
    NVML_TRY(sessions_new(kind, device, &part, &list, &n));
    room = *count;
    *count = n;
    if (infos && n > room)
        r = NVML_ERROR_INSUFFICIENT_SIZE;
    else if (infos)
        memcpy(infos, list, n * kind->size);
    free(list);
    return r;
}

nvmlReturn_t nvmlDeviceGetEncoderSessions(nvmlDevice_t device, unsigned int *session_count,
                                          nvmlEncoderSessionInfo_t *session_infos) {
    return sessions(&encoder_sessions, device, session_count, session_infos);
}

nvmlReturn_t nvmlDeviceGetFBCSessions(nvmlDevice_t device, unsigned int *session_count,
                                      nvmlFBCSessionInfo_t *session_info) {
    return sessions(&capture_sessions, device, session_count, session_info);
}

/* The driver's summary of all sessions, made from those of the container alone. */
static nvmlReturn_t summary(const struct session_kind *kind, nvmlDevice_t device,
                            const struct part *part, nvmlFBCStats_t *ret) {
    nvmlFBCStats_t stats = {0};
    unsigned int n;
    void *list;

    NVML_TRY(sessions_new(kind, device, part, &list, &n));
    stats.sessionsCount = n;
    for (unsigned int i = 0; i < n; i++) {
        stats.averageFPS += number_at((const char *) list + i * kind->size, kind->fps) / n;
        stats.averageLatency += number_at((const char *) list + i * kind->size, kind->latency) / n;
    }
    free(list);
    *ret = stats;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFBCStats(nvmlDevice_t device, nvmlFBCStats_t *fbc_stats) {
    struct part part;

    NVML_TRY(nvml_part_of(device, &part));
    NVML_TRY(driver.nvmlDeviceGetFBCStats(device, fbc_stats));
    if (!fbc_stats || !part.share)
        return NVML_SUCCESS;
    return summary(&capture_sessions, device, &part, fbc_stats);
}

nvmlReturn_t nvmlDeviceGetEncoderStats(nvmlDevice_t device, unsigned int *session_count,
                                       unsigned int *average_fps, unsigned int *average_latency) {
    nvmlFBCStats_t stats;
    struct part part;

    NVML_TRY(nvml_part_of(device, &part));
    NVML_TRY(driver.nvmlDeviceGetEncoderStats(device, session_count, average_fps, average_latency));
    if (!session_count || !average_fps || !average_latency || !part.share)
        return NVML_SUCCESS;
    NVML_TRY(summary(&encoder_sessions, device, &part, &stats));
    *session_count = stats.sessionsCount;
    *average_fps = stats.averageFPS;
    *average_latency = stats.averageLatency;
    return NVML_SUCCESS;
}

/* -- names ------------------------------------------------------------------------------------- */

/* Writes "/proc/PID/cmdline". */
static void cmdline_of(char ret[32], unsigned int pid) {
    char digits[12];
    size_t n = 0;

    do {
        digits[n++] = (char) ('0' + pid % 10);
        pid /= 10;
    } while (pid > 0);
    memcpy(ret, "/proc/", 6);
    for (size_t i = 0; i < n; i++)
        ret[6 + i] = digits[n - 1 - i];
    memcpy(ret + 6 + n, "/cmdline", sizeof("/cmdline"));
}

/* The driver would name processes of the host. In a share the name is read from the container's
 * /proc, which shows the processes that the container may see. */
nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length) {
    int saved = errno, fd;
    char path[32];
    unsigned int n;
    nvmlReturn_t r;
    ssize_t got = -1;

    if (!name || length == 0 || !nvml_limited())
        return driver.nvmlSystemGetProcessName(pid, name, length);
    r = driver.nvmlDeviceGetCount_v2(&n); /* initialised? */
    if (r != NVML_SUCCESS)
        return r;
    cmdline_of(path, pid);
    fd = io_open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        got = io_read(fd, name, length - 1);
        io_close(fd);
    }
    errno = saved;
    if (got <= 0)
        return NVML_ERROR_NOT_FOUND;
    name[got] = '\0'; /* the arguments come behind a NUL */
    return NVML_SUCCESS;
}
