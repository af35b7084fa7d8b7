/* SPDX-License-Identifier: Apache-2.0 */

/*
 * dlsym and dlvsym. Names that are not ours go to the C library's function by a jump that leaves the caller's
 * return address where it was: RTLD_NEXT and the scope of RTLD_DEFAULT hang on it. A C function that calls
 * the real one would make itself the caller.
 *
 * lookup_dlsym and lookup_dlvsym get the caller's arguments and return address, and return in rax where to jump
 * to, or 0 with the answer in rdx.
 */

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

        .section .note.GNU-stack, "", @progbits
