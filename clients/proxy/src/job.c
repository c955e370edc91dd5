/*
 * job.c: which job this process belongs to, as its environment says.
 *
 * An id that somebody gave is kept as it is. Slurm's is told apart by its step, and of PMIx's only what is before the
 * first dot counts: the rest is the rank.
 */
#include "internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    ID_BYTES_MAX = 256,
    WORD_BYTES_MAX = 256,
    COMMAND_BYTES_MAX = 16384,
    LIST_BYTES_MAX = 8192,
    DIR_BYTES_MAX = 4096
};

/* Of the first description: a server that comes back is told of the same job. */
static uint64_t start_ms;

static void put_id(char *id, size_t room)
{
    const char *given = getenv("PROXY_JOB_ID"), *slurm = getenv("SLURM_JOBID"), *step = getenv("SLURM_STEP_ID");
    const char *pmix = getenv("PMIX_ID"), *launcher = getenv("METRIC_PROXY_LAUNCHER_PPID");
    if (given)
        snprintf(id, room, "%s", given);
    else if (slurm && step)
        snprintf(id, room, "%s-%s", slurm, step);
    else if (slurm)
        snprintf(id, room, "%s", slurm);
    else if (pmix)
        snprintf(id, room, "%.*s", (int)strcspn(pmix, "."), pmix);
    else
        snprintf(id, room, "%s", launcher ? launcher : "");
}

static long size_of_job(void)
{
    static const char *const names[] = {"SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        char *end;
        if (!text) continue;
        long size = strtol(text, &end, 10);
        return end != text && !*end && size >= 0 && size <= INT32_MAX ? size : 1;
    }
    return 1;
}

static const char *name_in(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Where the user's command begins: behind the first `--` of a program that only launches it. */
static size_t begin_of_command(const char *words, size_t bytes)
{
    const char *program = name_in(words);
    size_t at = strlen(words) + 1;
    bool launches = strcmp(program, "proxy_run") == 0 || strcmp(program, "proxy_exporter_strace") == 0 ||
                    (strcmp(program, "telem") == 0 && at < bytes && strcmp(words + at, "proxy-run") == 0);
    for (; launches && at < bytes; at += strlen(words + at) + 1)
        if (strcmp(words + at, "--") == 0) return at + 3 < bytes ? at + 3 : 0;
    return 0;
}

/* The command with its arguments, joined by blanks. */
static void put_command(char *command, size_t room)
{
    /* The kernel gives as much at a time as is asked for. */
    size_t bytes = 0, most = room - 1;
    int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    while (file >= 0 && bytes < most) {
        ssize_t got = read(file, command + bytes, most - bytes);
        if (got <= 0) break;
        bytes += (size_t)got;
    }
    if (file >= 0) close(file);
    command[bytes] = 0;
    if (bytes == 0) return;
    size_t begin = begin_of_command(command, bytes);
    bytes -= begin;
    memmove(command, command + begin, bytes + 1);
    for (size_t i = 0; i < bytes; i++)
        if (!command[i]) command[i] = ' ';
    while (bytes && command[bytes - 1] == ' ') bytes--;
    command[bytes] = 0;
    size_t blanks = strspn(command, " ");
    memmove(command, command + blanks, bytes - blanks + 1);
}

/* What is not UTF-8 is shown as question marks. */
static void put_field(struct proxy__buffer *to, const char *key, char *text, size_t most)
{
    size_t bytes = proxy__cut(text, strlen(text), most);
    if (!proxy__is_utf8(text, bytes))
        for (size_t i = 0; i < bytes; i++)
            if ((unsigned char)text[i] >= 0x80) text[i] = '?';
    to->bytes += (size_t)sprintf(to->at + to->bytes, "\"%s\":\"", key);
    to->bytes = (size_t)(proxy__write_text(to->at + to->bytes, text, bytes) - to->at);
    memcpy(to->at + to->bytes, "\",", 2);
    to->bytes += 2;
}

static void put_variable(struct proxy__buffer *to, const char *key, const char *name, size_t most)
{
    char text[LIST_BYTES_MAX + 8];
    const char *value = getenv(name);
    snprintf(text, sizeof text, "%s", value ? value : "");
    put_field(to, key, text, most);
}

bool proxy__write_job(struct proxy__buffer *to)
{
    char id[ID_BYTES_MAX + 8], command[COMMAND_BYTES_MAX + 8], dir[DIR_BYTES_MAX + 8];
    size_t room = 6 * (ID_BYTES_MAX + COMMAND_BYTES_MAX + LIST_BYTES_MAX + DIR_BYTES_MAX + 2 * WORD_BYTES_MAX);
    if (!proxy__has_room(to, room + 2 * PROXY__MESSAGE_ROOM)) return false;
    if (!start_ms) start_ms = proxy__unix_us() / 1000;
    put_id(id, sizeof id);
    put_command(command, sizeof command);
    if (!getcwd(dir, sizeof dir)) dir[0] = 0;
    to->bytes += (size_t)sprintf(to->at + to->bytes, "{\"JobDesc\":{");
    put_field(to, "jobid", id, ID_BYTES_MAX);
    put_field(to, "command", command, COMMAND_BYTES_MAX);
    to->bytes += (size_t)sprintf(to->at + to->bytes, "\"size\":%ld,", size_of_job());
    put_variable(to, "nodelist", "SLURM_JOB_NODELIST", LIST_BYTES_MAX);
    put_variable(to, "partition", "SLURM_JOB_PARTITION", WORD_BYTES_MAX);
    put_variable(to, "cluster", "SLURM_CLUSTER_NAME", WORD_BYTES_MAX);
    put_field(to, "run_dir", dir, DIR_BYTES_MAX);
    to->bytes += (size_t)sprintf(to->at + to->bytes, "\"start_time\":%llu,\"end_time\":0}}",
                                 (unsigned long long)start_ms);
    to->at[to->bytes++] = 0;
    return true;
}
