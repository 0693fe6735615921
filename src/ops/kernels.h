#pragma once
// Names the kernels of an operator in its definition: functions ref::run_NAME, cpu::make_NAME and cuda::make_NAME of the current
// namespace. Builds without CUDA leave the last one out. Only files that define operators include this.

#include "ops/backend.h"
#include "ops/op.h"

#define MILLRACE_DECLARE_KERNELS(name) \
    namespace ref { \
    void run_##name(const Bound& bound); \
    } \
    namespace cpu { \
    KernelResult make_##name(Context& context, const Bound& bound); \
    } \
    namespace cuda { \
    KernelResult make_##name(Context& context, const Bound& bound); \
    }

/// Of a rewrite: cuda::match_NAME and cuda::make_NAME.
#define MILLRACE_DECLARE_REWRITE(name) \
    namespace cuda { \
    std::size_t match_##name(const Context& context, std::span<const Bound> records); \
    KernelResult make_##name(Context& context, std::span<const Bound> records); \
    }

#ifdef MILLRACE_HAVE_CUDA
#define MILLRACE_REWRITE(title) \
    { .name = #title, .match = cuda::match_##title, .make = cuda::make_##title }
#define MILLRACE_KERNELS(operation) .ref = ref::run_##operation, .cpu = cpu::make_##operation, .cuda = cuda::make_##operation
#else
#define MILLRACE_REWRITE(title) \
    { .name = #title, .match = nullptr, .make = nullptr }
#define MILLRACE_KERNELS(operation) .ref = ref::run_##operation, .cpu = cpu::make_##operation
#endif
