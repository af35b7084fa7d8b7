/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/top/terminal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define ESCAPE_MS 50 /* what follows an escape later is another key */

/* The other screen, no cursor, no wrapping at the right edge; and the way back. */
#define ENTER "\033[?1049h\033[?25l\033[?7l"
#define LEAVE "\033[0m\033[?7h\033[?25h\033[?1049l"

static const int ends[] = {SIGHUP,  SIGINT, SIGQUIT, SIGTERM, SIGABRT,
                           SIGSEGV, SIGBUS, SIGFPE,  SIGILL};
static struct termios before;
static volatile sig_atomic_t is_ours;

static void put(const char *text) {
    (void) !write(STDOUT_FILENO, text, strlen(text));
}

static void take(void) {
    struct termios raw = before;

    raw.c_lflag &= ~(tcflag_t) (ICANON | ECHO);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    is_ours = 1; /* first: a signal from here on gives all of it back */
    (void) tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    put(ENTER);
}

/* Only what a handler of signals may call. */
void terminal_leave(void) {
    if (!is_ours)
        return;
    put(LEAVE);
    (void) tcsetattr(STDIN_FILENO, TCSANOW, &before);
    is_ours = 0;
}

static void on_end(int number) {
    terminal_leave();
    (void) signal(number, SIG_DFL);
    (void) raise(number);
}

/* Stopped by the user, and continued. */
static void on_stop(int number) {
    int saved = errno;

    (void) number;
    terminal_leave();
    (void) raise(SIGSTOP);
    take();
    errno = saved;
}

/* Interrupts the wait for a key. */
static void on_size(int number) {
    (void) number;
}

static void catch (int number, void (*handler)(int number), int flags) {
    struct sigaction now, action = {.sa_handler = handler, .sa_flags = flags};

    /* What is ignored stays so, such as SIGHUP under nohup. */
    if (sigaction(number, NULL, &now) == 0 && now.sa_handler == SIG_IGN)
        return;
    /* One handler at a time has the terminal. */
    (void) sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        (void) sigaddset(&action.sa_mask, ends[i]);
    (void) sigaction(number, &action, NULL);
}

int terminal_enter(void) {
    if (tcgetattr(STDIN_FILENO, &before) < 0)
        return -errno;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        catch (ends[i], on_end, 0);
    catch (SIGTSTP, on_stop, 0);
    catch (SIGWINCH, on_size, 0);
    (void) atexit(terminal_leave);
    take();
    return 0;
}

void terminal_size(int *ret_columns, int *ret_lines) {
    struct winsize size = {0};

    (void) ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    *ret_columns = size.ws_col > 0 ? size.ws_col : 80;
    *ret_lines = size.ws_row > 0 ? size.ws_row : 24;
}

/* ---- keys ---- */

static int read_byte(int timeout_ms) {
    struct pollfd in = {STDIN_FILENO, POLLIN, 0};
    unsigned char byte;

    if (poll(&in, 1, timeout_ms) <= 0)
        return KEY_NONE;
    ssize_t n = read(STDIN_FILENO, &byte, 1);
    if (n < 0 && errno == EINTR)
        return KEY_NONE;
    return n == 1 ? byte : KEY_END;
}

/* What "\033[" and a letter, or a number and '~', stand for. With a letter come modifiers. */
static int key_of(int number, int last) {
    static const struct {
        int number, last, key;
    } keys[] = {
        {0, 'A', KEY_UP},      {0, 'B', KEY_DOWN},      {0, 'H', KEY_FIRST}, {0, 'F', KEY_LAST},
        {1, '~', KEY_FIRST},   {4, '~', KEY_LAST},      {7, '~', KEY_FIRST}, {8, '~', KEY_LAST},
        {5, '~', KEY_PAGE_UP}, {6, '~', KEY_PAGE_DOWN},
    };

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (keys[i].last == last && (keys[i].number == number || last != '~'))
            return keys[i].key;
    return KEY_NONE;
}

static int read_escape(void) {
    int number = 0, parameters = 1, byte = read_byte(ESCAPE_MS);

    if (byte != '[' && byte != 'O')
        return KEY_ESCAPE;
    /* Up to the final byte, as the rest would be taken for keys. */
    while ((byte = read_byte(ESCAPE_MS)) >= ' ' && byte < '@') {
        parameters += byte == ';';
        if (parameters == 1 && byte >= '0' && byte <= '9')
            number = number < 100 ? 10 * number + byte - '0' : number;
    }
    return key_of(number, byte);
}

int terminal_key(int one, int other) {
    struct pollfd fds[] = {{STDIN_FILENO, POLLIN, 0}, {one, POLLIN, 0}, {other, POLLIN, 0}};

    if (poll(fds, 3, -1) <= 0 || fds[0].revents == 0)
        return KEY_NONE;
    int byte = read_byte(0);
    return byte == '\033' ? read_escape() : byte;
}
