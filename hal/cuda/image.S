/* SPDX-License-Identifier: Apache-2.0
 * One compiled image in the archive, from echi_image_NAME up to echi_image_NAME_end; NAME and FILE come from the Makefile. A zero behind it
 * ends the text that PTX is. */
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define BEGIN JOIN(echi_image_, NAME)
#define END JOIN(BEGIN, _end)
    .section .rodata.BEGIN, "a"
    .balign 64
    .globl BEGIN, END
    .hidden BEGIN, END
BEGIN:
    .incbin FILE
END:
    .byte 0
    .section .note.GNU-stack, ""
