/* SPDX-License-Identifier: Apache-2.0 */

/*
 * dlsym and dlvsym. Names that are not ours go to the C library's function by a jump that leaves the caller's
 * return address where it was: RTLD_NEXT and the scope of RTLD_DEFAULT hang on it. A C function that calls
 * the real one would make itself the caller.
 *
 * lookup_dlsym and lookup_dlvsym get the caller's arguments and return address. They return in the first of
 * the two registers of a result where to jump to, or 0 with the answer in the second.
 */

#if defined(__x86_64__)
        .text

        .macro ENTRY name, decide, return_address_register
        .globl  \name
        .type   \name, @function
\name:
        .cfi_startproc
        endbr64
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        pushq   %rdx
        .cfi_adjust_cfa_offset 8
        movq    24(%rsp), \return_address_register
        call    \decide
        movq    %rdx, %rcx
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        testq   %rax, %rax
        je      1f
        jmp     *%rax
1:      movq    %rcx, %rax
        ret
        .cfi_endproc
        .size   \name, . - \name
        .endm

        ENTRY   dlsym, lookup_dlsym, %rdx
        ENTRY   dlvsym, lookup_dlvsym, %rcx
#elif defined(__aarch64__)
        .text

        .macro ENTRY name, decide, return_address_register
        .globl  \name
        .type   \name, %function
\name:
        .cfi_startproc
        hint    #34     /* bti c */
        stp     x29, x30, [sp, #-48]!
        .cfi_adjust_cfa_offset 48
        .cfi_rel_offset x29, 0
        .cfi_rel_offset x30, 8
        stp     x0, x1, [sp, #16]
        str     x2, [sp, #32]
        mov     \return_address_register, x30
        bl      \decide
        mov     x16, x0
        mov     x17, x1
        ldp     x0, x1, [sp, #16]
        ldr     x2, [sp, #32]
        ldp     x29, x30, [sp], #48
        .cfi_restore x29
        .cfi_restore x30
        .cfi_adjust_cfa_offset -48
        cbz     x16, 1f
        br      x16
1:      mov     x0, x17
        ret
        .cfi_endproc
        .size   \name, . - \name
        .endm

        ENTRY   dlsym, lookup_dlsym, x2
        ENTRY   dlvsym, lookup_dlvsym, x3
#else
#error "dlsym and dlvsym are not written for this processor"
#endif

        .section .note.GNU-stack, "", %progbits
