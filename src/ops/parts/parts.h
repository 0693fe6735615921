#pragma once
// A step in several micro-batches, on one rank or on many, gives the same bits: every micro-batch finishes its gradients, sums
// and running statistics apart, and what the parts left is added in the order of their numbers. Conventions: ops/op.h. `world`
// ranks take turns: micro-batch m is row m / world in the table of rank m mod world.

#include "ops/op.h"
#include "ops/step/step.h"

namespace millrace::ops {

/// What a micro-batch leaves for one member. In a table W floats follow, what its running statistics move by.
struct PartSums {
    double loss = 0, penalty = 0;
    std::uint32_t rows = 0, correct = 0, nonfinite = 0, unused = 0;
};
static_assert(sizeof(PartSums) == 32);
/// Words (i32) of a cell of a table, of one part of one member.
constexpr std::int32_t part_words(std::int32_t width) {
    return static_cast<std::int32_t>((sizeof(PartSums) + static_cast<std::size_t>(width) * sizeof(float) + 7) / 8 * 2);
}
/// A running statistic that no micro-batch has moved: adding m * x to it gives m * x, to the bit.
constexpr float kUnmoved = -0.0f;

// clang-format off

/// part_end. Moves the sums of state, and `running` stat [K,1,1,W] where there are statistics, into the row of `table` that is micro-batch number state.micro
/// of rank `rank`; the sums become 0 and `running` kUnmoved. Then it is micro_end. table i32 [K,1,parts,part_words(W)].
struct PartEndParams { MicroEndParams micro; std::uint32_t rank = 0; };
namespace part_end { enum Slot { state, running, table, slots }; extern const OpDef kDef; }

/// add_part. sums += gradients, then gradients = sums. Both stat [K,1,1,P].
struct AddPartParams {};
namespace add_part { enum Slot { gradients, sums, slots }; extern const OpDef kDef; }

/// exchange. gradients stat [K,1,1,P], neighbours in memory, become ((0 + x0) + x1) + ... over the ranks of the backend's group; by_library: in the order of
/// its library. `all` i32 [K,1,world * parts,C] receives `table` i32 [K,1,parts,C] of all ranks, rank after rank. The reference has a group of one.
struct ExchangeParams { bool by_library = false; };
namespace exchange { enum Slot { gradients, table, all, slots }; extern const OpDef kDef; }

/// fold_sums. loss, penalty, rows and correct of state become the sums over the first `count` micro-batches, in their order; nonfinite is set if one of theirs is.
/// `all` as exchange leaves it, or the one table of world 1.
/// fold_running. value stat [K,G,1,C], elements [offset, offset + G * C) of what statistics moved by: for every micro-batch that moved one, value = (1 - momentum)
/// * value + that.
struct FoldParams { std::uint32_t count = 1, world = 1, offset = 0; float momentum = 0; };
namespace fold_sums { enum Slot { all, state, slots }; extern const OpDef kDef; }
namespace fold_running { enum Slot { all, value, slots }; extern const OpDef kDef; }

// clang-format on

/// Where the cell of micro-batch number `part` of a member begins, in tables of `rows` rows with cells of `words`.
MILLRACE_HD constexpr std::int64_t cell_of(const FoldParams& p, std::int64_t members, std::int64_t rows, std::int64_t words,
                                           std::int64_t member, std::uint32_t part) {
    return ((part % p.world * members + member) * rows + part / p.world) * words;
}

MILLRACE_HD inline PartSums take_sums(MemberState& s) {
    const PartSums sums{s.loss, s.penalty, s.rows, s.correct, s.nonfinite, 0};
    s.loss = s.penalty = 0;
    s.rows = s.correct = s.nonfinite = 0;
    return sums;
}

MILLRACE_HD inline void add_sums(MemberState& s, const PartSums& part) {
    s.loss += part.loss;
    s.penalty += part.penalty;
    s.rows += part.rows;
    s.correct += part.correct;
    s.nonfinite |= part.nonfinite;
}

/// `moved`: of the statistic by one micro-batch.
template <class T>
MILLRACE_HD T fold_statistic(T value, float moved, float momentum) {
    const bool is_unmoved = moved == 0 && 1 / moved < 0;
    return is_unmoved ? value : (1 - static_cast<T>(momentum)) * value + static_cast<T>(moved);
}

}  // namespace millrace::ops
