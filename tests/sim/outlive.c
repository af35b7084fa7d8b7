/* SPDX-License-Identifier: Apache-2.0 */

/* Takes 1 GiB of a card and ends, while another process keeps what the driver knows it by:
 *
 *     sim-outlive fork     a forked child has the descriptors
 *     sim-outlive clone    another thread group shares memory and descriptors
 *     sim-outlive export   a process that never uses CUDA has an exported descriptor of the memory
 *
 * That process prints its PID and lives until standard input ends. */

#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

#define BYTES ((size_t) 1 << 30)

static _Noreturn void stay(void) {
    char byte;
    (void) printf("%d\n", (int) getpid());
    (void) fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    _exit(EXIT_SUCCESS);
}

static void take(void) {
    CUdeviceptr p;
    (void) check_start(0);
    OK(cuMemAlloc_v2(&p, BYTES));
}

static int stay_as_thread_group(void *arg) {
    /* Not before the maker has gone: what it had is the same memory. */
    while (getppid() == *(const pid_t *) arg)
        (void) sched_yield();
    stay();
}

static void share_all(void) {
    static char stack[1 << 16];
    static pid_t self;
    self = getpid();
    take();
    REQUIRE(clone(stay_as_thread_group, stack + sizeof(stack), CLONE_VM | CLONE_FILES, &self) > 0);
    _exit(EXIT_SUCCESS);
}

union passed {
    struct cmsghdr header;
    char space[CMSG_SPACE(sizeof(int))];
};

static void pass(int socket, int fd) {
    char byte = 0;
    struct iovec iov = {&byte, 1};
    union passed control = {0};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof(control)};
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.header), &fd, sizeof(int));
    REQUIRE(sendmsg(socket, &msg, 0) == 1);
}

static void receive(int socket) {
    char byte;
    struct iovec iov = {&byte, 1};
    union passed control;
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof(control)};
    REQUIRE(recvmsg(socket, &msg, 0) == 1 && msg.msg_controllen > 0);
}

static int export_memory(void) {
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    int fd = -1;
    (void) check_start(0);
    OK(cuMemCreate(&handle, BYTES, &prop, 0));
    OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    return fd;
}

static void give_away(void) {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
    pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
        receive(ends[1]);
        stay();
    }
    pass(ends[0], export_memory());
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    if (strcmp(how, "clone") == 0)
        share_all();
    if (strcmp(how, "export") == 0) {
        give_away();
        return 0;
    }
    take();
    pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0)
        stay();
    return 0;
}
