/* SPDX-License-Identifier: Apache-2.0
 * Whether a sanitizer watches this program, whichever the compiler: gcc says it by a macro, clang by a feature. Each is 0 or 1. */
#ifndef TEST_SANITIZED_H
#define TEST_SANITIZED_H

#ifndef __has_feature
#define __has_feature(x) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define ADDRESSES_WATCHED 1
#else
#define ADDRESSES_WATCHED 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define THREADS_WATCHED 1
#else
#define THREADS_WATCHED 0
#endif
/* Either, or clang's for memory: they have a malloc of their own, and what they put on a stack is not the library's. */
#define SANITIZED (ADDRESSES_WATCHED || THREADS_WATCHED || __has_feature(memory_sanitizer))
#endif
