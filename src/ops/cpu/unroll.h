// KV8_UNROLL before a loop of a constant number of rounds: written out, so that an array that it indexes can
// live in registers. At -O2 GCC would keep such loops, and their arrays in memory.
#pragma once

#if defined(__clang__)
#define KV8_UNROLL _Pragma("clang loop unroll(full)")
#else
#define KV8_UNROLL _Pragma("GCC unroll 16")
#endif
