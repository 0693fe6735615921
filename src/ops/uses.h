#pragma once
// Who reads and writes which elements, derived from a program's records: what each slot names, what running the operator does to
// it (Access), and which slots add. No operator is known by its identity here, so that what holds for ours holds for a user's.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ops/op.h"

namespace millrace::ops {

/// The elements of an operand as memory: runs of bytes that repeat at strides.
class Box {
public:
    explicit Box(const tensor::Operand& operand);

    /// Whether they share a byte. Exact, but for boxes of unlike strides that meet in very many ways to try: those are said to.
    [[nodiscard]] bool meets(const Box& other) const;
    /// Whether all of `other` lies in it; boxes of unlike strides may be said not to.
    [[nodiscard]] bool covers(const Box& other) const;
    [[nodiscard]] bool empty() const { return run_ == 0; }

    /// `count` repetitions, `stride` bytes apart.
    struct Axis {
        std::int64_t count = 1, stride = 0;
    };

private:
    [[nodiscard]] std::span<const Axis> axes() const { return {axes_.data(), axis_count_}; }

    std::uintptr_t begin_ = 0;
    std::int64_t run_ = 0, extent_ = 0;  ///< bytes of a run, bytes from the first to behind the last
    std::array<Axis, 3> axes_;           ///< largest stride first
    std::size_t axis_count_ = 0;
};

/// The operand with an address that stands for its buffer's: equal, adjacent and aligned as they will be. Absent stays absent.
tensor::Operand stand_in(const tensor::View& view);

/// Consecutive records that run `repeat` times.
struct Section {
    std::size_t first = 0, count = 0;
    int repeat = 1;
};

/// Operands are told apart by their addresses: real ones, or those that stand for them (stand_in). Records are numbered as they
/// were given.
class Uses {
public:
    /// Memory that one owner holds, a buffer or an arena. `kept`: somebody outside of the program reads it afterwards.
    struct Block {
        const void* data = nullptr;
        std::size_t bytes = 0;
        bool kept = false;
    };
    /// No sections: all records are one, which runs once. Memory outside of all blocks is not kept. `records` may be forgotten.
    explicit Uses(std::span<const Bound> records, std::span<const Section> sections = {}, std::vector<Block> blocks = {});

    /// Whether one of the records [first, end) writes to it.
    [[nodiscard]] bool is_written(const tensor::Operand& o, std::size_t first, std::size_t end) const;
    /// The last of the records before `end` that writes to it, and the first behind `after` that reads of it, in the order of one
    /// round.
    [[nodiscard]] std::optional<std::size_t> last_writer(const tensor::Operand& o, std::size_t end) const;
    [[nodiscard]] std::optional<std::size_t> next_reader(const tensor::Operand& o, std::size_t after) const;
    /// Whether a record reads what `after` leaves there before it is overwritten as a whole: a later one or, in a section that
    /// repeats, any of the next round.
    [[nodiscard]] bool is_read(const tensor::Operand& o, std::size_t after) const;
    /// The same, or the memory is kept.
    [[nodiscard]] bool outlives(const tensor::Operand& o, std::size_t after) const;
    /// Records between which the content of a block matters; empty: none names it. What a repeated section finds from before
    /// matters up to its last record, and what it reads before it has written anything there from its first one on.
    struct Lifetime {
        std::size_t first = 0, last = 0;
    };
    [[nodiscard]] std::optional<Lifetime> lifetime(std::size_t block) const;

private:
    struct Use {
        std::size_t record;
        Box box;
        bool reads, writes, always;  ///< always: the record has no condition
    };
    using List = std::vector<Use>;
    [[nodiscard]] const List& uses_near(const tensor::Operand& o) const { return uses_[block_of(o)]; }
    [[nodiscard]] std::size_t block_of(const tensor::Operand& o) const;
    [[nodiscard]] const Section& section_of(std::size_t record) const;
    enum class Fate : std::uint8_t { read, overwritten, left };
    /// What happens to it first in the records [first, end).
    [[nodiscard]] Fate fate(const tensor::Operand& o, std::size_t first, std::size_t end) const;

    std::vector<Section> sections_;
    std::vector<Block> blocks_;       ///< by address
    std::vector<std::size_t> order_;  ///< of blocks_: where it was given
    std::vector<List> uses_;          ///< per block as given, in the order of records; last: outside of all
    std::size_t count_ = 0;           ///< of records
};

/// Whether the order of two records matters: one writes what the other reads or writes.
bool depend(const Bound& a, const Bound& b);
/// The record with addresses that stand for its buffers'.
Bound stand_in(const Record& record);

}  // namespace millrace::ops
