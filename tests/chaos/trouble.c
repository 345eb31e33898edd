/* Trouble for a server, preloaded into it: a clock that jumps, a disk that is full, a disk that is slow.
 *
 * The file named by TROUBLE_FILE is mapped, so the harness causes trouble by writing into it: first the milliseconds that
 * the wall clock is ahead, then 1 while no regular file can be written to, then how many milliseconds a sync takes, all
 * as 64-bit integers. A sync under way ends when the disk is well again. The monotonic clock stays as it is. System calls are made directly: the allocator of the server may ask for the time before anything works.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct trouble { int64_t ahead_ms; int64_t is_full; int64_t sync_ms; };
static const struct trouble none;
static volatile const struct trouble *trouble;

static volatile const struct trouble *look(void) {
    if (trouble) return trouble;
    const char *path = getenv("TROUBLE_FILE");
    if (!path) return &none;
    int fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY);
    if (fd < 0) return &none;
    void *mapped = mmap(0, sizeof(struct trouble), PROT_READ, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    if (mapped == MAP_FAILED) return &none;
    trouble = mapped;
    return trouble;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int answer = syscall(SYS_clock_gettime, clock, now);
    if (answer == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t ms = look()->ahead_ms;
        int64_t ns = now->tv_nsec + (ms % 1000) * 1000000;
        now->tv_sec += ms / 1000 + (ns < 0 ? -1 : ns >= 1000000000 ? 1 : 0);
        now->tv_nsec = (ns + 1000000000) % 1000000000;
    }
    return answer;
}

int gettimeofday(struct timeval *now, void *zone) {
    (void)zone;
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (now) *now = precise.tv_sec;
    return precise.tv_sec;
}

ssize_t write(int fd, const void *data, size_t length) {
    struct stat status;
    if (look()->is_full && fd > 2 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
        errno = ENOSPC;
        return -1;
    }
    return syscall(SYS_write, fd, data, length);
}

static void wait_for_disk(void) {
    struct timespec moment = {0, 5000000};
    for (int64_t waited = 0; waited < look()->sync_ms; waited += 5) syscall(SYS_nanosleep, &moment, 0);
}

int fsync(int fd) {
    wait_for_disk();
    return syscall(SYS_fsync, fd);
}

int fdatasync(int fd) {
    wait_for_disk();
    return syscall(SYS_fdatasync, fd);
}
