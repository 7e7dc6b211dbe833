/* SPDX-License-Identifier: Apache-2.0
 * See switch.h. What a call must not change is kept on the stack that is left, and taken up on the other. */
#include "switch.h"
#include "../sanitized.h"

#include <stdint.h>
#if ADDRESSES_WATCHED
#include <sanitizer/asan_interface.h>   /* which still guards what functions that never return had there */
#endif

#if defined __x86_64__
#define KEPT 7    /* words on a stack that was left, the last of them where to go on */
#define GO_ON 6
__asm__(".text\n.hidden switch_to\n.globl switch_to\n.type switch_to, %function\nswitch_to:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
#elif defined __aarch64__
#define KEPT 20
#define GO_ON 11
__asm__(".text\n.hidden switch_to\n.globl switch_to\n.type switch_to, %function\nswitch_to:\n"
        "sub sp, sp, #160\nstp x19, x20, [sp]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\nstp x25, x26, [sp, #48]\n"
        "stp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\nstp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\n"
        "stp d12, d13, [sp, #128]\nstp d14, d15, [sp, #144]\nmov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
        "ldp x19, x20, [sp]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\nldp x25, x26, [sp, #48]\n"
        "ldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\nldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\n"
        "ldp d12, d13, [sp, #128]\nldp d14, d15, [sp, #144]\nadd sp, sp, #160\nret\n");
#endif

#if defined KEPT
void *switch_begin(void *stack, size_t bytes, void (*start)(void)) {
    uint64_t *words = stack;
    const size_t top = bytes / sizeof *words - KEPT - 1 - (KEPT % 2 == 0);   /* aligned as after a call */
    words[top + GO_ON] = (uint64_t)(uintptr_t)start;
    return words + top;
}
#else   /* any other processor */
#include <ucontext.h>

void *switch_begin(void *stack, size_t bytes, void (*start)(void)) {
    ucontext_t *begin = stack;
    getcontext(begin);
    begin->uc_stack.ss_sp = begin + 1;
    begin->uc_stack.ss_size = bytes - sizeof *begin;
    begin->uc_link = NULL;
    makecontext(begin, start, 0);
    return begin;
}

void switch_to(void **left, void *take) {
    ucontext_t here;
    *left = &here;
    swapcontext(&here, take);
}
#endif

void switch_end(void *stack, size_t bytes) {
#if ADDRESSES_WATCHED
    __asan_unpoison_memory_region(stack, bytes);
#else
    (void)stack, (void)bytes;
#endif
}
