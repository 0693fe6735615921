#pragma once
// Defines an operator: its slots, and the functions NAME::check (its rule, which follows in the same file), ref::run_NAME,
// cpu::make_NAME and cuda::make_NAME of the current namespace. Builds without CUDA leave the last one out. Only files that define
// operators include this.

#include <iterator>

#include "ops/backend.h"
#include "ops/check.h"

/// The definition of an operator whose header declares it: MILLRACE_OPERATOR(name, phase, slots...);
#define MILLRACE_OPERATOR(operation, when, ...) MILLRACE_OPERATOR_WITH(operation, when, nullptr, {}, __VA_ARGS__)

/// The same with a function that counts its FLOPs and an array of rewrites.
#define MILLRACE_OPERATOR_WITH(operation, when, count_flops, rewritten, ...) \
    namespace ref { \
    void run_##operation(const Bound& bound); \
    } \
    namespace cpu { \
    KernelResult make_##operation(Context& context, const Bound& bound); \
    } \
    namespace cuda { \
    KernelResult make_##operation(Context& context, const Bound& bound); \
    } \
    namespace operation { \
    using enum ::millrace::ops::Type; \
    void check(Checker& c); \
    } \
    namespace operation::definition { \
    using enum ::millrace::ops::Access; \
    constexpr SlotDef kSlots[] = {__VA_ARGS__}; \
    static_assert(std::size(kSlots) == slots); \
    } \
    const OpDef operation::kDef({.name = #operation, \
                                 .slots = operation::definition::kSlots, \
                                 .check = check, \
                                 .phase = when, \
                                 .flops = count_flops, \
                                 .ref = ref::run_##operation, \
                                 .cpu = cpu::make_##operation, \
                                 .cuda = MILLRACE_CUDA_FUNCTION(make_##operation), \
                                 .rewrites = rewritten})

/// Of a rewrite: cuda::match_NAME and cuda::make_NAME.
#define MILLRACE_DECLARE_REWRITE(name) \
    namespace cuda { \
    std::size_t match_##name(const Context& context, std::span<const Bound> records); \
    KernelResult make_##name(Context& context, std::span<const Bound> records); \
    }
#define MILLRACE_REWRITE(title) \
    { .name = #title, .match = MILLRACE_CUDA_FUNCTION(match_##title), .make = MILLRACE_CUDA_FUNCTION(make_##title) }

#ifdef MILLRACE_HAVE_CUDA
#define MILLRACE_CUDA_FUNCTION(function) cuda::function
#else
#define MILLRACE_CUDA_FUNCTION(function) nullptr
#endif
