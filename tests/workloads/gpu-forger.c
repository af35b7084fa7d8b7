/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tenant that does not keep to its share, for the tests of the measures against it.
 *
 *     gpu-forger forge BYTES [KEEP]   takes memory in pieces and strikes each from the ledger; then
 *                                     frees all but KEEP bytes
 *     gpu-forger bypass BYTES         calls the driver itself, by the addresses that an own walk
 *                                     through its symbols finds, past every hook
 *     gpu-forger disguise BYTES       bypass, while a child holds a slot with its PID
 *     gpu-forger claim BYTES          books BYTES in its ledger, and takes none
 *     gpu-forger leaderless BYTES     does that in a second thread; the first one ends
 *     gpu-forger kept-by-fork BYTES   takes memory past the library in a process that ends, while a
 *                                     forked child keeps its descriptors
 *     gpu-forger kept-by-clone BYTES  the same with another thread group that shares its memory and
 *                                     descriptors
 *     gpu-forger kept-by-export BYTES the same with an exported descriptor, in a process that never
 *                                     uses CUDA
 *     gpu-forger kept-elsewhere BYTES the same with a descriptor that `gpu-forger keeper` has, in
 *                                     another container, by the socket /shared/keeper
 *     gpu-forger workers BYTES        takes BYTES through the library and forks a worker that only
 *                                     inherits its descriptors, as data loaders do
 *     gpu-forger orphans BYTES        takes memory as kept-by-fork does, but through the library: a
 *                                     trainer that dies and leaves its workers
 *     gpu-forger truncate             empties the ledger
 *     gpu-forger honest BYTES         takes BYTES without forging
 *
 * Says taken=BYTES at=NANOSECONDS (CLOCK_REALTIME) when that is done, and holds it until it is
 * killed.
 */

#include <elf.h>
#include <fcntl.h>
#include <inttypes.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "abi/cuda.h"
#include "driver.h"
#include "share/ledger_core.h"

#define LEDGER "/dev/aliquot/ledger"
#define DISGUISE_SLOT 900
#define PIECE ((size_t) 64 << 20)
#define PIECES_MAX 4096

static const char *library = "libcuda.so.1";

#define CUDA(name, params) CALL(library, name, CUresult, params)

/* ---- past the hooks ---- */

struct wanted {
    const char *name;
    void *found;
};

static const ElfW(Dyn) * dynamic_of(const struct dl_phdr_info *info) {
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            return (const ElfW(Dyn) *) (info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    return NULL;
}

static int walk(struct dl_phdr_info *info, size_t size, void *userdata) {
    struct wanted *w = userdata;
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    const ElfW(Dyn) *d = dynamic_of(info);

    (void) size;
    if (!d || !strstr(info->dlpi_name, "libcuda-driver.so"))
        return 0;
    for (; d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_SYMTAB)
            symbols = (const ElfW(Sym) *) d->d_un.d_ptr;
        if (d->d_tag == DT_STRTAB)
            strings = (const char *) d->d_un.d_ptr;
    }
    /* The table of symbols ends where the strings begin, in every linker's layout. */
    for (const ElfW(Sym) *s = symbols; s && (const char *) (s + 1) <= strings; s++)
        if (s->st_value && strcmp(strings + s->st_name, w->name) == 0)
            w->found = (void *) (info->dlpi_addr + s->st_value);
    return w->found != NULL;
}

static void *raw_symbol(const char *name) {
    struct wanted w = {.name = name};

    if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) || dl_iterate_phdr(walk, &w) == 0) {
        (void) printf("error=%s is not in the driver\n", name);
        exit(EXIT_FAILURE);
    }
    return w.found;
}

#define RAW(name, params)                                                                          \
    (*({                                                                                           \
        CUresult(*function_) params;                                                               \
        *(void **) (&function_) = raw_symbol(#name);                                               \
        function_;                                                                                 \
    }))

/* ---- what it does ---- */

static void check(CUresult result, const char *what) {
    if (result == CUDA_SUCCESS)
        return;
    (void) printf("error=%s answered %d\n", what, (int) result);
    exit(EXIT_FAILURE);
}

static void hold(size_t taken) {
    struct timespec now;

    (void) clock_gettime(CLOCK_REALTIME, &now);
    (void) printf("taken=%zu at=%" PRIu64 "\n", taken,
                  (uint64_t) now.tv_sec * 1000000000u + (uint64_t) now.tv_nsec);
    for (;;)
        (void) pause();
}

static void open_context(void) {
    CUcontext context;

    check(CUDA(cuInit, (unsigned) )(0), "cuInit");
    check(CUDA(cuCtxCreate_v2, (CUcontext *, unsigned, CUdevice))(&context, 0, 0), "cuCtxCreate");
}

static struct ledger_file *map_ledger(void) {
    int fd = open(LEDGER, O_RDWR | O_CLOEXEC);
    void *map =
        fd < 0 ? MAP_FAILED
               : mmap(NULL, sizeof(struct ledger_file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (map == MAP_FAILED) {
        (void) printf("error=the ledger cannot be mapped\n");
        exit(EXIT_FAILURE);
    }
    (void) close(fd);
    return map;
}

/* As if nothing had ever been booked, in the sum and in every slot. */
static void strike(struct ledger_file *ledger) {
    __atomic_store_n(&ledger->device[0].sum.lo, 0, __ATOMIC_SEQ_CST);
    for (uint32_t i = 0; i < ledger->slots_used && i < LEDGER_SLOTS; i++)
        __atomic_store_n(&ledger->slot[i].cell[0].booked.lo, 0, __ATOMIC_SEQ_CST);
}

static void forge(size_t bytes, size_t keep) {
    static CUdeviceptr pieces[PIECES_MAX];
    struct ledger_file *ledger = map_ledger();
    size_t n = 0, taken = 0;

    open_context();
    for (; taken < bytes && n < PIECES_MAX; taken += PIECE) {
        check(CUDA(cuMemAlloc_v2, (CUdeviceptr *, size_t))(&pieces[n++], PIECE), "cuMemAlloc");
        strike(ledger);
    }
    for (; keep > 0 && taken > keep; taken -= PIECE)
        (void) CUDA(cuMemFree_v2, (CUdeviceptr))(pieces[--n]);
    hold(taken);
}

static void take_past(size_t bytes) {
    CUcontext context;
    CUdeviceptr all;

    check(RAW(cuInit, (unsigned) )(0), "cuInit");
    check(RAW(cuCtxCreate_v2, (CUcontext *, unsigned, CUdevice))(&context, 0, 0), "cuCtxCreate");
    check(RAW(cuMemAlloc_v2, (CUdeviceptr *, size_t))(&all, bytes), "cuMemAlloc");
}

static void bypass(size_t bytes) {
    take_past(bytes);
    hold(bytes);
}

/* A slot that is alive by its lock and names another process. */
static void hold_slot_of(pid_t pid) {
    struct flock lock = {.l_type = F_WRLCK, .l_start = DISGUISE_SLOT, .l_len = 1};
    int fd = open(LEDGER, O_RDWR | O_CLOEXEC);
    struct ledger_file *file = mmap(NULL, sizeof(*file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    check(fd >= 0 && file != MAP_FAILED && fcntl(fd, F_OFD_SETLK, &lock) == 0 ? CUDA_SUCCESS
                                                                              : CUDA_ERROR_UNKNOWN,
          "the ledger");
    file->slot[DISGUISE_SLOT].pid = (uint32_t) pid;
    file->slot[DISGUISE_SLOT].pidns = 0;
    file->slots_used = DISGUISE_SLOT + 1;
}

static void claim(size_t bytes) {
    struct ledger_file *file = map_ledger();

    hold_slot_of(getpid());
    file->slot[DISGUISE_SLOT].cell[0].booked.lo = bytes;
    file->device[0].sum.lo = bytes;
    hold(0);
}

static void disguise(size_t bytes) {
    pid_t self = getpid();
    int ready[2];
    char c;

    check(pipe(ready) == 0 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN, "pipe");
    if (fork() == 0) {
        hold_slot_of(self);
        (void) close(ready[1]);
        for (;;)
            (void) pause();
    }
    (void) close(ready[1]);
    /* Until the other one has it: there is nothing to read. */
    check(read(ready[0], &c, 1) == 0 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN, "read");
    bypass(bytes);
}

static void take_honestly(size_t bytes) {
    CUdeviceptr all;

    open_context();
    check(CUDA(cuMemAlloc_v2, (CUdeviceptr *, size_t))(&all, bytes), "cuMemAlloc");
}

static void *bypass_in_thread(void *bytes) {
    bypass(*(size_t *) bytes);
    return NULL;
}

/* Leaves a process whose first thread is a zombie while another one runs. */
static void leaderless(size_t bytes) {
    static size_t wanted;
    pthread_t thread;

    wanted = bytes;
    check(pthread_create(&thread, NULL, bypass_in_thread, &wanted) == 0 ? CUDA_SUCCESS
                                                                        : CUDA_ERROR_UNKNOWN,
          "pthread_create");
    (void) syscall(SYS_exit, 0);
}

/* ---- memory that outlives its process ---- */

static int hold_as_thread_group(void *maker) {
    while (getppid() == *(const pid_t *) maker)
        (void) sched_yield();
    hold(0);
    return 0;
}

static void keep_by_clone(size_t bytes) {
    static char stack[1 << 16];
    static pid_t self;

    self = getpid();
    take_past(bytes);
    if (clone(hold_as_thread_group, stack + sizeof(stack), CLONE_VM | CLONE_FILES, &self) < 0)
        exit(EXIT_FAILURE);
}

static void keep_by_fork(void (*take)(size_t bytes), size_t bytes) {
    take(bytes);
    if (fork() == 0)
        hold(bytes);
}

static int export_past(size_t bytes) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    CUmemGenericAllocationHandle handle;
    CUcontext context;
    int fd = -1;

    check(RAW(cuInit, (unsigned) )(0), "cuInit");
    check(RAW(cuCtxCreate_v2, (CUcontext *, unsigned, CUdevice))(&context, 0, 0), "cuCtxCreate");
    check(RAW(cuMemCreate, (CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                            unsigned long long) )(&handle, bytes, &prop, 0),
          "cuMemCreate");
    check(RAW(cuMemExportToShareableHandle,
              (void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
               unsigned long long) )(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
          "cuMemExportToShareableHandle");
    return fd;
}

union passed {
    struct cmsghdr header;
    char space[CMSG_SPACE(sizeof(int))];
};

/* Sends a descriptor, or receives one (fd < 0), which then is this process's own. */
static void pass(int socket, int fd) {
    char byte = 0;
    struct iovec iov = {&byte, 1};
    union passed control = {.header = {.cmsg_level = SOL_SOCKET,
                                       .cmsg_type = SCM_RIGHTS,
                                       .cmsg_len = CMSG_LEN(sizeof(int))}};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof(control)};

    memcpy(CMSG_DATA(&control.header), &fd, sizeof(int));
    if ((fd < 0 ? recvmsg(socket, &msg, 0) : sendmsg(socket, &msg, 0)) != 1)
        exit(EXIT_FAILURE);
}

static void keep_by_export(size_t bytes) {
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) < 0)
        exit(EXIT_FAILURE);
    if (fork() == 0) {
        pass(ends[1], -1);
        hold(bytes);
    }
    pass(ends[0], export_past(bytes));
}

static const struct sockaddr_un keeper_address = {.sun_family = AF_UNIX,
                                                  .sun_path = "/shared/keeper"};

static void keeper(void) {
    int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    int fd;

    if (bind(listener, (const struct sockaddr *) &keeper_address, sizeof(keeper_address)) < 0 ||
        listen(listener, 1) < 0 || (fd = accept(listener, NULL, NULL)) < 0)
        exit(EXIT_FAILURE);
    pass(fd, -1);
    hold(0);
}

static void keep_elsewhere(size_t bytes) {
    const struct timespec rest = {.tv_nsec = 20000000};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

    while (connect(fd, (const struct sockaddr *) &keeper_address, sizeof(keeper_address)) < 0)
        (void) nanosleep(&rest, NULL);
    pass(fd, export_past(bytes));
}

static void workers(size_t bytes) {
    take_honestly(bytes);
    if (fork() == 0)
        for (;;)
            (void) pause();
    hold(bytes);
}

/* In a child: the container's first process must live. Returns false for no such way. */
static bool leave_behind(const char *mode, size_t bytes) {
    pid_t maker;

    if (strncmp(mode, "kept-", 5) != 0 && strcmp(mode, "orphans") != 0)
        return false;
    maker = fork();
    if (maker == 0) {
        if (strcmp(mode, "kept-by-clone") == 0)
            keep_by_clone(bytes);
        else if (strcmp(mode, "kept-elsewhere") == 0)
            keep_elsewhere(bytes);
        else if (strcmp(mode, "kept-by-export") == 0)
            keep_by_export(bytes);
        else
            keep_by_fork(strcmp(mode, "orphans") == 0 ? take_honestly : take_past, bytes);
        _exit(EXIT_SUCCESS);
    }
    while (waitpid(-1, NULL, 0) > 0)
        ;
    if (strcmp(mode, "kept-elsewhere") == 0)
        hold(bytes);
    return true;
}

static void honest(size_t bytes) {
    take_honestly(bytes);
    hold(bytes);
}

static size_t read_number(const char *text) {
    size_t n = 0;

    for (; *text >= '0' && *text <= '9'; text++)
        n = n * 10 + (size_t) (*text - '0');
    return n;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    size_t bytes = argc > 2 ? read_number(argv[2]) : 0;
    size_t keep = argc > 3 ? read_number(argv[3]) : 0;

    (void) setvbuf(stdout, NULL, _IOLBF, 0);
    end_on_sigterm();
    if (strcmp(mode, "bypass") == 0)
        bypass(bytes);
    if (strcmp(mode, "forge") == 0)
        forge(bytes, keep);
    if (strcmp(mode, "disguise") == 0)
        disguise(bytes);
    if (strcmp(mode, "claim") == 0)
        claim(bytes);
    if (leave_behind(mode, bytes))
        return EXIT_SUCCESS;
    if (strcmp(mode, "leaderless") == 0)
        leaderless(bytes);
    if (strcmp(mode, "honest") == 0)
        honest(bytes);
    if (strcmp(mode, "workers") == 0)
        workers(bytes);
    if (strcmp(mode, "keeper") == 0)
        keeper();
    if (strcmp(mode, "truncate") == 0) {
        open_context();
        check(truncate(LEDGER, 0) == 0 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN, "truncate");
        hold(0);
    }
    (void) fprintf(stderr,
                   "usage: gpu-forger forge|bypass|disguise|claim|leaderless|kept-by-fork|kept-by-"
                   "clone|kept-by-export|kept-elsewhere|keeper|workers|orphans|honest|truncate "
                   "[BYTES [KEEP]]\n");
    return 2;
}
