/* SPDX-License-Identifier: Apache-2.0 */

/* Thunk i passes its number and the six integer arguments to record_call() and goes on to the function
 * that this returns, with every register and the stack as the caller left them (r11 belongs to neither side). */

    .section .note.GNU-stack, "", @progbits
    .text
    .globl record_thunks
    .hidden record_thunks
    .balign 16
record_thunks:
    .set index, 0
    .rept 4096
    .balign 16
    endbr64
    pushq $index
    jmp common
    .set index, index + 1
    .endr

common:
    pushq %rax
    pushq %r10
    pushq %r9
    pushq %r8
    pushq %rcx
    pushq %rdx
    pushq %rsi
    pushq %rdi
    movq %rsp, %rsi
    movq 64(%rsp), %rdi
    subq $128, %rsp
    movups %xmm0, (%rsp)
    movups %xmm1, 16(%rsp)
    movups %xmm2, 32(%rsp)
    movups %xmm3, 48(%rsp)
    movups %xmm4, 64(%rsp)
    movups %xmm5, 80(%rsp)
    movups %xmm6, 96(%rsp)
    movups %xmm7, 112(%rsp)
    call record_call
    movq %rax, %r11
    movups (%rsp), %xmm0
    movups 16(%rsp), %xmm1
    movups 32(%rsp), %xmm2
    movups 48(%rsp), %xmm3
    movups 64(%rsp), %xmm4
    movups 80(%rsp), %xmm5
    movups 96(%rsp), %xmm6
    movups 112(%rsp), %xmm7
    addq $128, %rsp
    popq %rdi
    popq %rsi
    popq %rdx
    popq %rcx
    popq %r8
    popq %r9
    popq %r10
    popq %rax
    addq $8, %rsp
    jmp *%r11
