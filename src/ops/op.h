#pragma once
// What an operator of the step program is, and one line of the program. An operator is defined in one folder: contract and
// definition, a scalar reference, kernels for CPU and CUDA. A record points at its definition; a backend that the definition
// lacks is an error when a program is built. docs/own-operator.md adds one.
//
// Conventions of all contracts
// - Operands are [K, G, rows, cols] (tensor/view.h). B = rows of a batch, In/Out = layer widths.
// - `real` and `stat` as in tensor/dtype.h. Matrix products accumulate in stat. Norms, losses, statistics are computed in stat.
// - Parameters are stat; weights of matrix products come as `real` (on CUDA in bf16: a copy that the optimizer keeps up to date).
// - A slot marked (+) obeys the record's `accumulate` bit for that slot: set, it adds to what is there; clear, it overwrites.
// - Optional slots are absent views (`present() == false`).
// - `state` slots are u8 [K,1,1,sizeof(MemberState)], stride_k a multiple of 8; state_of() below gives a member's block.
// - `groups` slots are u8 [K,1,1,G * sizeof(GroupState)], `segments` slots i32 [1,1,S,2], S >= 1: the group of an element of the
//   arenas [K,1,1,P] is that of the first segment whose end is beyond it. Ends never fall; all but the last, which is P, are
//   multiples of 4. No kernel writes segments.
// - An operand that is only read may have stride_g or stride_k 0: one matrix for all groups or members.
// - Random numbers: bits = base::random_bits(state.seed, state.step, state.micro, params.op_number, element) with
//   element = (group * rows + row) * cols + col inside one member; dropout keeps an element iff bits >= uint32(p * 2^32) and
//   scales kept ones by 1 / (1 - p), with p = min(params.dropout * state.dropout_scale, 1 - 2^-24). The mask is never stored.
//   Programs for evaluation pass p = 0, then no state is needed.

#include <any>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "ops/member_state.h"
#include "tensor/view.h"

namespace millrace::ops {

/// The parts of a training step that people ask about.
enum class Phase : std::uint8_t { data, forward, loss, backward, optimizer };

/// What running an operator does to a slot. `add` obeys the record's accumulate bit; `update` changes what is there.
enum class Access : std::uint8_t { read, write, add, update };
struct SlotDef {
    const char* name;
    Access access = Access::read;
    [[nodiscard]] bool written() const { return access != Access::read; }
};

struct Record;
struct Bound;
class Kernel;
class Checker;
using KernelResult = base::Result<std::unique_ptr<Kernel>>;
namespace cpu {
struct Context;
}
namespace cuda {
struct Context;
}

/// What a record's types, shapes and parameters must be (ops/check.h). A definition without one does not compile.
struct Rule {
    Rule(void (*function)(Checker&)) : run(function) {}
    void (*run)(Checker&);
};

struct OpTraits {
    const char* name = nullptr;
    std::span<const SlotDef> slots;
    Rule check;
    std::optional<Phase> phase = {};                 ///< absent: that of its neighbours
    std::int64_t (*flops)(const Record&) = nullptr;  ///< of its matrix products; null: it has none
    void (*ref)(const Bound&) = nullptr;             ///< scalar, in f64
    KernelResult (*cpu)(cpu::Context&, const Bound&) = nullptr;
    KernelResult (*cuda)(cuda::Context&, const Bound&) = nullptr;
    /// Fused operators (ops/fused.h) have as many slots as a record names; this says what a slot is. Null: it is one of `slots`.
    const SlotDef& (*slot_of)(const Record&, int slot) = nullptr;
};

/// The definition of an operator; lives as long as the process.
struct OpDef : OpTraits {
    explicit OpDef(const OpTraits& traits);
    OpDef(const OpDef&) = delete;
    OpDef& operator=(const OpDef&) = delete;
    [[nodiscard]] int slot_count() const { return static_cast<int>(slots.size()); }
    [[nodiscard]] const SlotDef& slot(int index) const { return slots[static_cast<std::size_t>(index)]; }
    const OpDef* next;  ///< of definitions()
};
/// All definitions that are linked into this program but fused ones (ops/fused.h), in order of their names.
std::vector<const OpDef*> definitions();

/// What the slots of a record name, in their order. Those that were never set are absent.
template <class T>
class SlotList {
public:
    SlotList() = default;
    SlotList(std::initializer_list<T> all) : all_(all) {}
    T& operator[](std::size_t slot) {
        if (slot >= all_.size()) all_.resize(slot + 1);
        return all_[slot];
    }
    const T& operator[](std::size_t slot) const {
        static const T absent{};
        return slot < all_.size() ? all_[slot] : absent;
    }
    [[nodiscard]] std::size_t size() const { return all_.size(); }
    [[nodiscard]] auto begin() const { return all_.begin(); }
    [[nodiscard]] auto end() const { return all_.end(); }

private:
    std::vector<T> all_;
};

/// One line of the step program: plain data.
struct Record {
    const OpDef* op = nullptr;
    std::any params;  ///< the operator's parameters, a struct that its contract names
    SlotList<tensor::View> slots;
    std::uint32_t accumulate = 0;  ///< bit per slot: add instead of overwrite
    std::string layer;             ///< that appended it, for messages: "analysts.0", "encoder"
    /// Optional, i32 [K,1,1,1]. Neighbours that name the same one are done only if some member's flag is not 0 when the first of
    /// them is reached. A backend may do them all the same, so that where no flag is set they must harm nothing: what they write
    /// is not read, or written again behind them.
    tensor::View condition = {};

    [[nodiscard]] bool accumulates(int slot) const { return slot < 32 && (accumulate >> slot & 1u) != 0; }
    [[nodiscard]] int slot_count() const { return op->slot_of != nullptr ? static_cast<int>(slots.size()) : op->slot_count(); }
    [[nodiscard]] const SlotDef& slot(int index) const {
        return op->slot_of != nullptr ? op->slot_of(*this, index) : op->slot(index);
    }
    [[nodiscard]] bool writes(int index) const { return slot(index).written(); }
    /// Whether it depends on what is there.
    [[nodiscard]] bool reads(int index) const {
        const Access access = slot(index).access;
        return access == Access::read || access == Access::update || (access == Access::add && accumulates(index));
    }
    template <class P>
    [[nodiscard]] const P& params_as() const {
        const P* found = std::any_cast<P>(&params);
        MILLRACE_ASSERT(found != nullptr, std::string(op->name) + " has parameters of another type");
        return *found;
    }
};

/// A record whose views are bound to memory.
struct Bound {
    const Record* record = nullptr;
    SlotList<tensor::Operand> operands;
    tensor::Operand condition;

    [[nodiscard]] const tensor::Operand& operator[](int slot) const { return operands[static_cast<std::size_t>(slot)]; }
    template <class P>
    [[nodiscard]] const P& params() const {
        return record->params_as<P>();
    }
    [[nodiscard]] bool accumulates(int slot) const { return record->accumulates(slot); }
};

/// Whether two operands are the same elements.
inline bool same_place(const tensor::Operand& a, const tensor::Operand& b) {
    return a.data == b.data && a.dtype == b.dtype && a.k == b.k && a.g == b.g && a.rows == b.rows && a.cols == b.cols &&
           a.stride_row == b.stride_row && (a.k <= 1 || a.stride_k == b.stride_k) && (a.g <= 1 || a.stride_g == b.stride_g);
}

/// The block of one member behind a `state` slot.
inline MemberState& state_of(const tensor::Operand& state, std::int64_t member) {
    return *reinterpret_cast<MemberState*>(state.at<std::uint8_t>(member));
}

/// The groups of one member behind a `groups` slot, and the segments behind a `segments` slot.
inline std::span<GroupState> groups_of(const tensor::Operand& groups, std::int64_t member) {
    return {reinterpret_cast<GroupState*>(groups.at<std::uint8_t>(member)), groups.cols / sizeof(GroupState)};
}
inline std::span<const Segment> segments_of(const tensor::Operand& segments) {
    return {reinterpret_cast<const Segment*>(segments.at<std::int32_t>(0)), static_cast<std::size_t>(segments.rows)};
}

/// Of a product whose every element of `out` is a sum of `depth` products.
inline std::int64_t product_flops(const tensor::View& out, std::int32_t depth) { return 2 * out.count() * depth; }

}  // namespace millrace::ops
