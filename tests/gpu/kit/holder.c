/* SPDX-License-Identifier: Apache-2.0 */

/* Holds memory of the card in ways that need more than Python: prints the PID of the holder,
 * which holds it until standard input ends.
 *
 *     holder ghost BYTES       a process shares memory and descriptors with the one that took it
 *                              (CLONE_VM | CLONE_FILES), which ends
 *     holder leaderless BYTES  the first thread ends, another goes on
 *     holder rawfork BYTES     a child that fork(2) made without libc's handlers; its parent ends
 *
 * Afterwards the holder tries the driver once more, and prints what cuMemAlloc and cuMemGetInfo
 * answer, and how many bytes it calls free. */

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STACK (1 << 20)

typedef unsigned long long pointer_t;

static struct {
    int (*init)(unsigned int);
    int (*retain)(void **, int);
    int (*set)(void *);
    int (*alloc)(pointer_t *, size_t);
    int (*info)(size_t *, size_t *);
} cuda;

static void *find(void *library, const char *name) {
    void *function = library ? dlsym(library, name) : NULL;

    if (!function) {
        (void) fprintf(stderr, "holder: no %s\n", name);
        exit(EXIT_FAILURE);
    }
    return function;
}

static void must(const char *what, int result) {
    if (result == 0)
        return;
    (void) fprintf(stderr, "holder: %s answered %d\n", what, result);
    exit(EXIT_FAILURE);
}

static void take(size_t bytes) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *context;
    pointer_t pointer;

    cuda.init = (int (*)(unsigned int)) find(library, "cuInit");
    cuda.retain = (int (*)(void **, int)) find(library, "cuDevicePrimaryCtxRetain");
    cuda.set = (int (*)(void *)) find(library, "cuCtxSetCurrent");
    cuda.alloc = (int (*)(pointer_t *, size_t)) find(library, "cuMemAlloc_v2");
    cuda.info = (int (*)(size_t *, size_t *)) find(library, "cuMemGetInfo_v2");
    must("cuInit", cuda.init(0));
    must("cuDevicePrimaryCtxRetain", cuda.retain(&context, 0));
    must("cuCtxSetCurrent", cuda.set(context));
    must("cuMemAlloc", cuda.alloc(&pointer, bytes));
}

/* With system calls only where libc's state may be another thread's. */
static int hold(void *unused) {
    size_t free_bytes = 0, total = 0;
    pointer_t pointer;
    char text[96], byte;
    int n, alloc, info;

    (void) unused;
    n = snprintf(text, sizeof(text), "%ld\n", (long) syscall(SYS_getpid));
    (void) !write(STDOUT_FILENO, text, (size_t) n);
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    alloc = cuda.alloc(&pointer, 1 << 20);
    info = cuda.info(&free_bytes, &total);
    n = snprintf(text, sizeof(text), "%d %d %zu\n", alloc, info, free_bytes);
    (void) !write(STDOUT_FILENO, text, (size_t) n);
    return 0;
}

static void *held_by_thread(void *unused) {
    (void) hold(unused);
    exit(EXIT_SUCCESS);
}

static int ghost(void) {
    char *stack =
        mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);

    if (stack == MAP_FAILED ||
        clone(hold, stack + STACK, CLONE_VM | CLONE_FILES | SIGCHLD, NULL) < 0)
        return EXIT_FAILURE;
    _exit(EXIT_SUCCESS);
}

static int leaderless(void) {
    pthread_t thread;

    if (pthread_create(&thread, NULL, held_by_thread, NULL) != 0)
        return EXIT_FAILURE;
    return (int) syscall(SYS_exit, 0);
}

static int rawfork(void) {
    long pid = syscall(SYS_fork);

    if (pid == 0)
        _exit(hold(NULL));
    return pid < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";

    if (argc == 3) {
        take(strtoull(argv[2], NULL, 10));
        if (strcmp(how, "ghost") == 0)
            return ghost();
        if (strcmp(how, "leaderless") == 0)
            return leaderless();
        if (strcmp(how, "rawfork") == 0)
            return rawfork();
    }
    (void) fprintf(stderr, "usage: holder ghost|leaderless|rawfork BYTES\n");
    return 2;
}
