/* SPDX-License-Identifier: Apache-2.0 */

/* Memory and events between two processes. This program starts itself once more, with a socket;
 * they go through the same script, each its side of it. */

#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define MIB ((size_t) 1 << 20)

static int line; /* to the other one */

static void tell(const void *data, size_t size) {
    REQUIRE(send(line, data, size, 0) == (ssize_t) size);
}

static void hear(void *data, size_t size) {
    REQUIRE(recv(line, data, size, MSG_WAITALL) == (ssize_t) size);
}

/* Both have come so far. */
static void meet(void) {
    char c = 'x';
    tell(&c, 1);
    hear(&c, 1);
}

static void tell_fd(int fd) {
    char c = 'f', space[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec iov = {&c, 1};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space)};
    struct cmsghdr *h = CMSG_FIRSTHDR(&msg);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(h), &fd, sizeof(int));
    REQUIRE(sendmsg(line, &msg, 0) == 1);
}

static int hear_fd(void) {
    char c, space[CMSG_SPACE(sizeof(int))];
    struct iovec iov = {&c, 1};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space)};
    REQUIRE(recvmsg(line, &msg, 0) == 1);
    struct cmsghdr *h = CMSG_FIRSTHDR(&msg);
    REQUIRE(h && h->cmsg_type == SCM_RIGHTS);
    int fd;
    memcpy(&fd, CMSG_DATA(h), sizeof(int));
    return fd;
}

static unsigned char byte_at(CUdeviceptr p) {
    unsigned char byte;
    OK(cuMemcpyDtoH_v2(&byte, p, 1));
    return byte;
}

/* -- by handle: large memory, and small, which lies between other small ones ----------------- */

static void memory_first(size_t bytes) {
    CUipcMemHandle handle, again;
    CUdeviceptr p, own;
    size_t before = check_free();
    OK(cuMemAlloc_v2(&p, bytes));
    OK(cuMemsetD8_v2(p, 5, bytes));
    OK(cuIpcGetMemHandle(&handle, p));
    OK(cuIpcGetMemHandle(&again, p));
    REQUIRE(memcmp(&handle, &again, sizeof(handle)) == 0 && byte_at(p + bytes - 1) == 5);
    EXPECT(cuIpcOpenMemHandle_v2(&own, handle, 1), CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE(check_free() == before - bytes);
    tell(&handle, sizeof(handle));
    meet(); /* it has written */
    REQUIRE(byte_at(p) == 6 && byte_at(p + bytes - 1) == 7);
    REQUIRE(check_free() == before - bytes); /* counted once */
    OK(cuMemFree_v2(p));
    REQUIRE(check_free() == before - bytes); /* the other one holds it */
    meet();
    meet(); /* it has let go */
    REQUIRE(check_free() == before);
}

static void memory_second(size_t bytes) {
    CUipcMemHandle handle, wrong;
    CUdeviceptr p, again;
    hear(&handle, sizeof(handle));
    memset(&wrong, 1, sizeof(wrong));
    EXPECT(cuIpcOpenMemHandle_v2(&p, wrong, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuIpcOpenMemHandle_v2(&p, handle, 1));
    OK(cuIpcOpenMemHandle_v2(&again, handle, 1));
    REQUIRE(again == p && byte_at(p) == 5 && byte_at(p + bytes - 1) == 5);
    EXPECT(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemsetD8_v2(p, 6, 1));
    OK(cuMemsetD8_v2(p + bytes - 1, 7, 1));
    meet();
    meet(); /* it has freed its own */
    REQUIRE(byte_at(p) == 6);
    OK(cuIpcCloseMemHandle(p));
    REQUIRE(byte_at(p) == 6); /* opened twice */
    OK(cuIpcCloseMemHandle(p));
    EXPECT(cuIpcCloseMemHandle(p), CUDA_ERROR_INVALID_VALUE);
    meet();
}

/* -- by descriptor --------------------------------------------------------------------------- */

static const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                         .requestedHandleTypes =
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                         .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

static CUdeviceptr map(CUmemGenericAllocationHandle h, size_t size) {
    CUdeviceptr p;
    CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(cuMemAddressReserve(&p, size, 0, 0, 0));
    OK(cuMemMap(p, size, 0, h, 0));
    OK(cuMemSetAccess(p, size, &access, 1));
    return p;
}

static void virtual_first(void) {
    CUmemGenericAllocationHandle h, plain;
    CUmemAllocationProp none = prop;
    size_t before = check_free();
    int fd;
    none.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    OK(cuMemCreate(&plain, 2 * MIB, &none, 0));
    EXPECT(cuMemExportToShareableHandle(&fd, plain, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
           CUDA_ERROR_INVALID_VALUE);
    OK(cuMemRelease(plain));
    OK(cuMemCreate(&h, 4 * MIB, &prop, 0));
    CUdeviceptr p = map(h, 4 * MIB);
    OK(cuMemsetD8_v2(p, 9, 4 * MIB));
    OK(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuMemUnmap(p, 4 * MIB));
    OK(cuMemAddressFree(p, 4 * MIB));
    OK(cuMemRelease(h));
    REQUIRE(check_free() == before - 4 * MIB); /* the descriptor alone keeps it */
    tell_fd(fd);
    (void) close(fd);
    meet();
    meet(); /* it has let go */
    REQUIRE(check_free() == before);
}

static void virtual_second(void) {
    CUmemGenericAllocationHandle h, none;
    CUexternalMemory ext;
    CUdeviceptr buffer;
    int fd = hear_fd();
    EXPECT(cuMemImportFromShareableHandle(&none, (void *) (intptr_t) line,
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
           CUDA_ERROR_INVALID_VALUE);
    OK(cuMemImportFromShareableHandle(&h, (void *) (intptr_t) fd,
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    CUdeviceptr p = map(h, 4 * MIB);
    REQUIRE(byte_at(p + 4 * MIB - 1) == 9);
    /* The same as external memory, which owns the descriptor from now on. */
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = {
        .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .handle = {.fd = fd}, .size = 4 * MIB};
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC part = {.offset = MIB, .size = MIB};
    desc.type = 8;
    EXPECT(cuImportExternalMemory(&ext, &desc), CUDA_ERROR_NOT_SUPPORTED);
    desc.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
    OK(cuImportExternalMemory(&ext, &desc));
    REQUIRE(close(fd) < 0);
    OK(cuExternalMemoryGetMappedBuffer(&buffer, ext, &part));
    OK(cuMemsetD8_v2(buffer, 3, MIB));
    EXPECT(cuMemsetD8_v2(buffer, 3, MIB + 1), CUDA_ERROR_INVALID_VALUE);
    REQUIRE(byte_at(p + MIB) == 3 && byte_at(p + 2 * MIB) == 9);
    meet();
    OK(cuDestroyExternalMemory(ext));
    OK(cuMemUnmap(p, 4 * MIB));
    OK(cuMemAddressFree(p, 4 * MIB));
    OK(cuMemRelease(h));
    REQUIRE(byte_at(buffer) == 3);
    OK(cuMemFree_v2(buffer));
    meet();
}

static void pool_first(void) {
    CUmemoryPool pool, plain;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                            .location = prop.location};
    CUmemPoolPtrExportData data;
    CUdeviceptr p;
    size_t before = check_free();
    int fd;
    OK(cuDeviceGetDefaultMemPool(&plain, 0));
    EXPECT(
        cuMemPoolExportToShareableHandle(&fd, plain, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        CUDA_ERROR_INVALID_VALUE);
    OK(cuMemPoolCreate(&pool, &props));
    OK(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuMemAllocFromPoolAsync(&p, MIB, pool, NULL));
    OK(cuMemsetD8_v2(p, 8, MIB));
    OK(cuMemPoolExportPointer(&data, p));
    tell_fd(fd);
    (void) close(fd);
    tell(&data, sizeof(data));
    meet();
    REQUIRE(byte_at(p) == 4 && check_free() == before - MIB);
    OK(cuMemFreeAsync(p, NULL));
    REQUIRE(check_free() == before);
    OK(cuMemPoolDestroy(pool));
}

static void pool_second(void) {
    CUmemoryPool pool;
    CUmemPoolPtrExportData data;
    CUdeviceptr p, q;
    int fd = hear_fd();
    hear(&data, sizeof(data));
    OK(cuMemPoolImportFromShareableHandle(&pool, (void *) (intptr_t) fd,
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    (void) close(fd);
    EXPECT(cuMemAllocFromPoolAsync(&q, 1, pool, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemPoolImportPointer(&p, pool, &data));
    REQUIRE(byte_at(p + MIB - 1) == 8);
    OK(cuMemsetD8_v2(p, 4, MIB));
    OK(cuMemFreeAsync(p, NULL));
    OK(cuMemPoolDestroy(pool));
    meet();
}

/* -- events ---------------------------------------------------------------------------------- */

static void event_first(void) {
    CUevent event, plain;
    CUipcEventHandle handle;
    CUstream s;
    OK(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    EXPECT(cuIpcGetEventHandle(&handle, plain), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuEventCreate(&event, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
    OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    OK(cuIpcGetEventHandle(&handle, event));
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    check_spin(check_function("spin"), 300000000, s);
    OK(cuEventRecord(event, s));
    EXPECT(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    unsigned long long begin = check_now_ns();
    tell(&handle, sizeof(handle));
    tell(&begin, sizeof(begin));
    OK(cuEventSynchronize(event));
    meet();
    OK(cuEventDestroy_v2(event));
    OK(cuEventDestroy_v2(plain));
}

static void event_second(void) {
    CUevent event;
    CUipcEventHandle handle;
    CUstream s;
    unsigned long long begin;
    hear(&handle, sizeof(handle));
    hear(&begin, sizeof(begin));
    OK(cuIpcOpenEventHandle(&event, handle));
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    EXPECT(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    OK(cuStreamWaitEvent(s, event, 0));
    check_spin(check_function("spin"), 1000, s);
    EXPECT(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    OK(cuStreamSynchronize(s)); /* behind a kernel of the other process */
    REQUIRE(check_now_ns() - begin >= 250000000);
    OK(cuEventQuery(event));
    OK(cuEventDestroy_v2(event));
    meet();
}

/* -- the end of one of them ------------------------------------------------------------------ */

static void end_first(size_t before, pid_t child) {
    CUipcMemHandle handle;
    CUdeviceptr p;
    int status;
    hear(&handle, sizeof(handle));
    OK(cuIpcOpenMemHandle_v2(&p, handle, 1));
    meet();
    REQUIRE(waitpid(child, &status, 0) == child && status == 0);
    /* Its context goes, what it shared stays. */
    while (check_free() < before - MIB)
        (void) usleep(1000);
    REQUIRE(check_free() == before - MIB && byte_at(p) == 77);
    OK(cuIpcCloseMemHandle(p));
    REQUIRE(check_free() == before);
}

static void end_second(void) {
    CUipcMemHandle handle;
    CUdeviceptr p;
    OK(cuMemAlloc_v2(&p, MIB));
    OK(cuMemsetD8_v2(p, 77, MIB));
    OK(cuIpcGetMemHandle(&handle, p));
    tell(&handle, sizeof(handle));
    meet();
    _exit(0);
}

static void second(void) {
    line = 3;
    (void) check_start(0);
    meet();
    memory_second(3 * MIB);
    memory_second(1000);
    virtual_second();
    pool_second();
    event_second();
    end_second();
}

int main(int argc, char **argv) {
    if (argc > 1)
        second();
    (void) check_start(0);
    CUdeviceptr neighbour[2];
    size_t before = check_free();
    OK(cuMemAlloc_v2(&neighbour[0], 1000));
    int pair[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pid_t child = fork();
    if (child == 0) {
        (void) dup2(pair[1], 3);
        (void) execl("/proc/self/exe", argv[0], "second", (char *) NULL);
        _exit(127);
    }
    line = pair[0];
    (void) close(pair[1]);
    meet();
    memory_first(3 * MIB);
    memory_first(1000);
    OK(cuMemAlloc_v2(&neighbour[1], 1000));
    virtual_first();
    pool_first();
    event_first();
    OK(cuMemFree_v2(neighbour[0]));
    OK(cuMemFree_v2(neighbour[1]));
    end_first(before, child);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    (void) puts("ok");
    return 0;
}
