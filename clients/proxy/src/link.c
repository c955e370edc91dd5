/*
 * link.c: the connection: made, looked at, written to. The server says nothing on it.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* How long one call of the kernel may wait for a server that does not read. */
enum { SEND_WAIT_US = 50000 };

static int own_fd = -1;
static dev_t device;
static ino_t inode;

/* Whether the number is still our socket: programs close what they do not know, and open something else there. */
static bool is_ours(void)
{
    struct stat found;
    if (own_fd < 0 || fstat(own_fd, &found) != 0) return false;
    return S_ISSOCK(found.st_mode) && found.st_dev == device && found.st_ino == inode;
}

void proxy__hang_up(const char *why)
{
    if (own_fd < 0) return;
    proxy__debug("disconnected: %s", why);
    if (is_ours()) close(own_fd);
    own_fd = -1;
}

/* The connection is the parent's: the child closes its end of it, and says nothing. */
void proxy__link_after_fork(void)
{
    if (is_ours()) close(own_fd);
    own_fd = -1;
}

bool proxy__is_connected(void)
{
    char unwanted[256];
    if (own_fd < 0) return false;
    if (!is_ours()) {
        own_fd = -1;
        proxy__debug("the program closed the connection");
        return false;
    }
    ssize_t got;
    int looks = 16;
    do got = recv(own_fd, unwanted, sizeof unwanted, MSG_DONTWAIT);
    while (got > 0 && --looks);
    if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))) return true;
    proxy__hang_up(got == 0 ? "the server closed the connection" : strerror(errno));
    return false;
}

/* Beyond the numbers that programs use: one that closed its standard output would write there. */
static int move_up(int socket)
{
    int moved = fcntl(socket, F_DUPFD_CLOEXEC, 200);
    if (moved < 0) moved = fcntl(socket, F_DUPFD_CLOEXEC, 10);
    if (moved < 0) return socket;
    close(socket);
    return moved;
}

bool proxy__dial(const char *path)
{
    struct sockaddr_un address;
    struct stat found;
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    if (strlen(path) >= sizeof address.sun_path) {
        proxy__debug("PROXY_PATH '%.200s' is longer than a socket's path can be", path);
        return false;
    }
    strcpy(address.sun_path, path);
    int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made >= 0) made = move_up(made);
    /* Without waiting: of a server that does not accept, its queue may be full. */
    if (made < 0 || connect(made, (struct sockaddr *)&address, sizeof address) != 0 || fstat(made, &found) != 0) {
        proxy__debug("no server at %s: %s", path, strerror(errno));
        if (made >= 0) close(made);
        return false;
    }
    /* From here on it waits, and not for long. */
    struct timeval wait = {0, SEND_WAIT_US};
    int flags = fcntl(made, F_GETFL);
    setsockopt(made, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
    if (flags >= 0) fcntl(made, F_SETFL, flags & ~O_NONBLOCK);
    own_fd = made;
    device = found.st_dev;
    inode = found.st_ino;
    proxy__debug("connected to %s", path);
    return true;
}

size_t proxy__send(const char *at, size_t bytes, uint64_t until_ns, bool *is_gone)
{
    size_t sent = 0;
    int fd = own_fd;
    *is_gone = false;
    while (sent < bytes) {
        ssize_t took = send(fd, at + sent, bytes - sent, MSG_NOSIGNAL);
        if (took >= 0) {
            sent += (size_t)took;
        } else if (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK) {
            *is_gone = true;
            break;
        }
        if (sent < bytes && proxy__now_ns() >= until_ns) break;
    }
    return sent;
}
