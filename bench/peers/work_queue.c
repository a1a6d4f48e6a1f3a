/* The program that drives Work Queue for work_queue.py:  drive PORTFILE MODE COUNT WORKERS COMMAND [HOLD FIRST WINDOW PATIENCE]
   It waits for its workers and warms them up, then, by mode:
     all    submits COUNT tasks and waits for all       -> "seconds S"
     each   one task at a time                          -> "each MS", COUNT times
     first  one task, no warming up                     -> "seconds S"
     queue  submits COUNT tasks behind some that wait   -> "queued N", then "rate R": tasks per second over a window
            (HOLD FIRST WINDOW PATIENCE: the command that waits; the window begins behind so many tasks and has so
            many; after so many seconds either part of it ends as far as it came)
   Tasks that fail are counted: "bad N". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>
#include "work_queue.h"

static double now(void) {
    struct timeval t;
    gettimeofday(&t, 0);
    return t.tv_sec + t.tv_usec * 1e-6;
}

static void submit(struct work_queue *queue, const char *command) {
    struct work_queue_task *task = work_queue_task_create(command);
    work_queue_task_specify_cores(task, 1);
    work_queue_submit(queue, task);
}

/* 0: nothing came within 5 s; 1: a good task; 2: a failed one */
static int collect(struct work_queue *queue) {
    struct work_queue_task *task = work_queue_wait(queue, 5);
    if (!task) return 0;
    int bad = task->result || task->return_status;
    work_queue_task_delete(task);
    return bad ? 2 : 1;
}

int main(int argc, char **argv) {
    if (argc < 6) return 2;
    const char *mode = argv[2], *command = argv[5];
    if (!strcmp(mode, "queue") && argc != 10) return 2;
    int count = atoi(argv[3]), workers = atoi(argv[4]), done = 0, bad = 0;
    struct work_queue *queue = work_queue_create(0);
    if (!queue) return 1;
    char draft[4096];
    snprintf(draft, sizeof draft, "%s.new", argv[1]);
    FILE *file = fopen(draft, "w");
    if (!file) return 1;
    fprintf(file, "%d", work_queue_port(queue));
    fclose(file);
    rename(draft, argv[1]);

    struct work_queue_stats stats;
    do {
        work_queue_wait(queue, 1);
        work_queue_get_stats(queue, &stats);
    } while (stats.workers_connected < workers);
    if (strcmp(mode, "first")) {
        for (int i = 0; i < 10 * workers; i++) submit(queue, "/bin/true");
        while (!work_queue_empty(queue)) collect(queue);
    }

    double began = now();
    if (!strcmp(mode, "each")) {
        for (int i = 0; i < count; i++) {
            int result;
            double start = now();
            submit(queue, command);
            while (!(result = collect(queue)));
            bad += result == 2;
            printf("each %.4f\n", (now() - start) * 1e3);
        }
    } else if (!strcmp(mode, "queue")) {
        int first = atoi(argv[7]), window = atoi(argv[8]);
        double patience = atof(argv[9]);
        for (int i = 0; i < workers; i++) submit(queue, argv[6]);
        for (int i = 0; i < count; i++) submit(queue, command);
        work_queue_wait(queue, 1);
        printf("queued %d\n", count);
        fflush(stdout);
        began = now();
        while (done < first && (done <= workers || now() - began < patience)) {
            int result = collect(queue);
            done += result != 0;
            bad += result == 2;
        }
        began = now();
        first = done;
        while (done < first + window && (done == first || now() - began < patience)) {
            int result = collect(queue);
            done += result != 0;
            bad += result == 2;
        }
        printf("rate %.6f\n", (done - first) / (now() - began));
    } else {
        for (int i = 0; i < count; i++) submit(queue, command);
        while (done < count) {
            int result = collect(queue);
            done += result != 0;
            bad += result == 2;
        }
        printf("seconds %.6f\n", now() - began);
    }
    printf("bad %d\n", bad);
    fflush(stdout);
    _exit(0); /* the workers are ended by the caller */
}
