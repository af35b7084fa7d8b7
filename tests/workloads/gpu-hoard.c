/* SPDX-License-Identifier: Apache-2.0 */

/* Collects memory by descriptors: COUNT times a child process takes BYTES of the card, exports
 * them, passes the descriptor to this process, which never uses CUDA, and ends.
 *
 *     gpu-hoard handle|pool BYTES COUNT keep|drop [MILLISECONDS]
 *
 * "keep" holds all descriptors, "drop" closes each at once. A child that is refused tries again for
 * so long, and the first one that gets nothing is the last. Prints how many succeeded. Then each
 * line on standard input closes what is held, has one more child try, and prints 1 if it got the
 * memory, else 0. Lives until standard input ends. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "abi/cuda.h"
#include "driver.h"

#define CUDA(name, params) CALL("libcuda.so.1", name, CUresult, params)

#define HELD_MAX 1024
#define REFUSED 2
#define BROKEN 3

static int held[HELD_MAX];

static void must(CUresult r) {
    if (r == CUDA_SUCCESS)
        return;
    (void) fprintf(stderr, "gpu-hoard: error %d\n", (int) r);
    _exit(r == CUDA_ERROR_OUT_OF_MEMORY ? REFUSED : BROKEN);
}

static long now_ms(void) {
    struct timespec t;

    (void) clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void send_descriptor(int link, int fd) {
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {.space = {0}};
    char byte = 0;
    struct iovec iov = {&byte, 1};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof(control)};

    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.header), &fd, sizeof(int));
    if (sendmsg(link, &msg, 0) != 1)
        _exit(BROKEN);
}

static int receive_descriptor(int link) {
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control;
    char byte;
    struct iovec iov = {&byte, 1};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof(control)};
    int fd;

    if (recvmsg(link, &msg, 0) != 1 || msg.msg_controllen == 0)
        return -1;
    memcpy(&fd, CMSG_DATA(&control.header), sizeof(int));
    return fd;
}

static int export_handle(size_t bytes, long until) {
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                      .requestedHandleTypes =
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    CUmemGenericAllocationHandle handle;
    CUresult r;
    int fd;

    do
        r = CUDA(cuMemCreate, (CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                               unsigned long long) )(&handle, bytes, &prop, 0);
    while (r == CUDA_ERROR_OUT_OF_MEMORY && now_ms() < until);
    must(r);
    must(CUDA(cuMemExportToShareableHandle,
              (void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
               unsigned long long) )(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    return fd;
}

static int export_pool(size_t bytes, long until) {
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemPoolPtrExportData data;
    CUmemoryPool pool;
    CUdeviceptr p;
    CUresult r;
    int fd;

    must(CUDA(cuMemPoolCreate, (CUmemoryPool *, const CUmemPoolProps *) )(&pool, &props));
    must(CUDA(cuMemPoolExportToShareableHandle,
              (void *, CUmemoryPool, CUmemAllocationHandleType, unsigned long long) )(
        &fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    do
        r = CUDA(cuMemAllocFromPoolAsync,
                 (CUdeviceptr *, size_t, CUmemoryPool, CUstream))(&p, bytes, pool, NULL);
    while (r == CUDA_ERROR_OUT_OF_MEMORY && now_ms() < until);
    must(r);
    must(CUDA(cuCtxSynchronize, (void) )());
    must(CUDA(cuMemPoolExportPointer, (CUmemPoolPtrExportData *, CUdeviceptr))(&data, p));
    return fd;
}

static _Noreturn void maker(int link, int pool, size_t bytes, long until) {
    CUcontext context;

    must(CUDA(cuInit, (unsigned) )(0));
    must(CUDA(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))(&context, 0));
    must(CUDA(cuCtxSetCurrent, (CUcontext))(context));
    send_descriptor(link, pool ? export_pool(bytes, until) : export_handle(bytes, until));
    _exit(0);
}

/* -1: refused. */
static int make_one(int pool, size_t bytes, long patience_ms) {
    int ends[2], status, fd;
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) < 0)
        exit(BROKEN);
    pid = fork();
    if (pid == 0)
        maker(ends[1], pool, bytes, now_ms() + patience_ms);
    (void) close(ends[1]);
    fd = receive_descriptor(ends[0]);
    (void) close(ends[0]);
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) == BROKEN)
        exit(BROKEN);
    return WEXITSTATUS(status) == 0 ? fd : -1;
}

int main(int argc, char **argv) {
    int pool, count, keep, done = 0;
    long patience_ms = argc > 5 ? atoi(argv[5]) : 0;
    size_t bytes;
    char line[16];

    end_on_sigterm();
    if (argc < 5)
        return BROKEN;
    pool = strcmp(argv[1], "pool") == 0;
    bytes = strtoull(argv[2], NULL, 10);
    count = atoi(argv[3]);
    keep = strcmp(argv[4], "keep") == 0;

    for (; done < count && done < HELD_MAX; done++) {
        held[done] = make_one(pool, bytes, patience_ms);
        if (held[done] < 0)
            break;
        if (!keep)
            (void) close(held[done]);
    }
    (void) printf("%d\n", done);
    (void) fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        for (int i = 0; keep && i < done; i++)
            (void) close(held[i]);
        keep = 0;
        (void) printf("%d\n", make_one(pool, bytes, patience_ms) >= 0);
        (void) fflush(stdout);
    }
    return 0;
}
