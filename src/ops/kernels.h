#pragma once
// Defines an operator: its slots, and the functions NAME::check (its rule, which follows in the same file), ref::run_NAME,
// cpu::make_NAME and cuda::make_NAME of the current namespace. Builds without CUDA leave the last one out. Only files that define
// operators include this.

#include <iterator>

#include "ops/backend.h"
#include "ops/check.h"
#include "ops/fused.h"
#include "ops/op.h"

/// The definition of an operator whose header declares it: MILLRACE_OPERATOR(name, phase, slots...);
#define MILLRACE_OPERATOR(operation, when, ...) MILLRACE_OPERATOR_WITH(operation, when, nullptr, __VA_ARGS__)

/// The same with a function that counts its FLOPs.
#define MILLRACE_OPERATOR_WITH(operation, when, count_flops, ...) \
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
                                 .cuda = MILLRACE_CUDA_FUNCTION(make_##operation)})

/// A rewrite of records from operator `first` on, for CUDA: cuda::match_NAME says which, and cuda::make_NAME makes the kernel of
/// the fused operator NAME that they become. MILLRACE_REWRITE(NAME, first, priority);
#define MILLRACE_REWRITE(title, first, order) \
    namespace cuda { \
    Match match_##title(const Context& context, const Window& records); \
    KernelResult make_##title(Context& context, std::span<const Bound> records); \
    } \
    namespace title##_rewrite { \
        extern const OpDef kDef; \
        extern const Rewrite kRewrite; \
    } \
    const OpDef title##_rewrite::kDef(fused_traits(#title, MILLRACE_CUDA_FUNCTION_OF_PARTS(make_##title))); \
    const Rewrite title##_rewrite::kRewrite({.name = #title, \
                                             .fused = &title##_rewrite::kDef, \
                                             .begins = &first::kDef, \
                                             .priority = order, \
                                             .cuda = MILLRACE_CUDA_FUNCTION(match_##title)})

#ifdef MILLRACE_HAVE_CUDA
#define MILLRACE_CUDA_FUNCTION(function) cuda::function
#define MILLRACE_CUDA_FUNCTION_OF_PARTS(function) make_from_parts<cuda::function>
#else
#define MILLRACE_CUDA_FUNCTION(function) nullptr
#define MILLRACE_CUDA_FUNCTION_OF_PARTS(function) nullptr
#endif
