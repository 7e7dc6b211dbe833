/* SPDX-License-Identifier: Apache-2.0
 * Work for the queues of a stack, and the waits for it. What goes wrong is kept, and what comes behind it left out. */
#include "echi_gpu_stack.h"
#include "echi_os.h"

#define PATIENCE ((int64_t)120 * 1000000000)   /* for what a device has to do at once: it has hung if it takes longer */

void echi_gpu_wait_for(struct echi_gpu_stack *g, struct echi_queue *q, echi_event event) {
    if (echi_gpu_fine(g)) g->status = echi_event_wait(q, event, echi_now() + PATIENCE, &g->err);
}

echi_event echi_gpu_mark(struct echi_gpu_stack *g, struct echi_queue *q) {
    echi_event event = 0;
    if (echi_gpu_fine(g)) g->status = echi_queue_event(q, &event, &g->err);
    return event;
}

void echi_gpu_wait(struct echi_gpu_stack *g) {
    echi_gpu_wait_for(g, g->queue, echi_gpu_mark(g, g->queue));
    if (g->copies != g->queue) echi_gpu_wait_for(g, g->copies, echi_gpu_mark(g, g->copies));
    g->busy = false;
}

void echi_gpu_order(struct echi_gpu_stack *g, struct echi_queue *first, struct echi_queue *later) {
    if (first == later) return;
    const echi_event event = echi_gpu_mark(g, first);
    if (echi_gpu_fine(g)) g->status = echi_queue_after(later, first, event, &g->err);
}

void echi_gpu_copy_in(struct echi_gpu_stack *g, struct echi_queue *q, struct echi_buffer *to, const void *host, size_t bytes) {
    g->busy = true;
    if (echi_gpu_fine(g)) g->status = echi_queue_write(q, to, 0, host, bytes, &g->err);
}

void echi_gpu_copy_out(struct echi_gpu_stack *g, struct echi_queue *q, const struct echi_buffer *from, void *host, size_t bytes) {
    g->busy = true;
    if (echi_gpu_fine(g)) g->status = echi_queue_read(q, from, 0, host, bytes, &g->err);
}

void echi_gpu_copy(struct echi_gpu_stack *g, struct echi_buffer *to, const struct echi_buffer *from, size_t bytes) {
    g->busy = true;
    if (echi_gpu_fine(g)) g->status = echi_queue_copy(g->queue, to, 0, from, 0, bytes, &g->err);
}

void echi_gpu_launch(struct echi_gpu_stack *g, const struct echi_kernel *kernel, struct echi_launch how, const struct echi_argument *args,
                     size_t count) {
    g->busy = true;
    if (echi_gpu_fine(g)) g->status = echi_queue_launch(g->queue, kernel, args, (int)count, &how, &g->err);
}
