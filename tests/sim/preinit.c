/* SPDX-License-Identifier: Apache-2.0 */

/* preinit LIBRARY: reads names of functions and prints what each returns before cuInit, called
 * with zeros. (Not for those that answer then: they would be given nonsense.) */

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    char name[128];
    if (!library) {
        (void) fprintf(stderr, "%s\n", dlerror());
        return EXIT_FAILURE;
    }
    while (fgets(name, sizeof(name), stdin)) {
        name[strcspn(name, "\n")] = '\0';
        int (*f)(long, long, long, long, long, long, long, long) =
            (int (*)(long, long, long, long, long, long, long, long)) dlsym(library, name);
        if (!f)
            continue;
        (void) printf("%s ", name);
        (void) fflush(stdout);
        pid_t child = fork(); /* the real driver does not survive every one */
        if (child == 0) {
            (void) printf("%d\n", f(0, 0, 0, 0, 0, 0, 0, 0));
            (void) fflush(stdout);
            _exit(0);
        }
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
            (void) printf("crash\n");
    }
    return 0;
}
