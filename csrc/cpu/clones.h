// Functions compiled for several generations of x86: the loader picks the widest vectors that the machine has.
// Results stay the same bit for bit: the build allows no implicit fused multiply-add.
#pragma once

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define GPUAUG_CLONES __attribute__((target_clones("arch=skylake-avx512", "arch=haswell", "default")))
#else
#define GPUAUG_CLONES
#endif
