#include "ops/check.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/fused.h"

namespace millrace::ops {
namespace {

using tensor::DType;

DType stat_of(DType real) { return real == DType::f64 ? DType::f64 : DType::f32; }

std::string describe(const char* type, const Shape& s) {
    return fmt::format("{} [{}, {}, {}, {}]", type, s.k, s.g, s.rows, s.cols);
}

}  // namespace

Checker::Checker(const Record& record, std::span<const DType> reals) : record_(record), reals_(reals) {
    if (reals.size() == 1) real_ = reals.front(), stat_ = stat_of(reals.front());
}

Shape Checker::shape(int slot) const {
    const tensor::View& at = (*this)[slot];
    return at.present() ? Shape{at.k, at.g, at.rows, at.cols} : Shape{};
}

Checker& Checker::allow(std::initializer_list<int> slots, Type type, Shape wanted) {
    for (const int slot : slots) {
        const tensor::View& at = (*this)[slot];
        asked_ |= 1u << slot;
        if (!at.present() || (has_type(type, at.dtype) && shape(slot) == wanted)) continue;
        const std::string found = describe(tensor::name_of(at.dtype), shape(slot));
        refuse(slot, fmt::format("must be {}, got {}", describe(name_of(type), wanted), found));
    }
    return *this;
}

Checker& Checker::needs(std::initializer_list<int> slots, bool condition) {
    for (const int slot : slots) {
        if ((*this)[slot].present() || !condition || missing_) continue;
        problem_.clear();
        refuse(slot, "is missing");
        missing_ = true;
    }
    return *this;
}

Checker& Checker::state(int slot, int k, bool needed) {
    allow({slot}, Type::u8, {k, 1, 1, sizeof(MemberState)}).needs({slot}, needed);
    return that((*this)[slot].stride_k % 8 == 0, "state blocks must be 8 bytes aligned");
}

Checker& Checker::groups(int slot, int k) {
    const int cols = shape(slot).cols, size = static_cast<int>(sizeof(GroupState));
    require({slot}, Type::u8, {k, 1, 1, cols});
    return that(cols >= size && cols % size == 0 && (*this)[slot].stride_k % 4 == 0, "a row of groups must be whole blocks");
}

Checker& Checker::segments(int slot) {
    const int rows = shape(slot).rows;
    return require({slot}, Type::i32, {1, 1, rows, 2}).that(rows >= 1, "there must be at least one segment");
}

Checker& Checker::dropout(float probability, int state_slot, int k) {
    return that(probability >= 0 && probability < 1, "dropout must be in [0, 1)").state(state_slot, k, probability > 0);
}

Checker& Checker::that(bool condition, const char* message) {
    if (problem_.empty() && !condition) problem_ = fmt::format("{}: {}", record_.op->name, message);
    return *this;
}

void Checker::refuse(int slot, const std::string& problem) {
    if (problem_.empty()) problem_ = fmt::format("{}.{} {}", record_.op->name, record_.op->slot(slot).name, problem);
}

const char* Checker::name_of(Type type) const {
    constexpr const char* kNames[] = {"real", "stat", "real or stat", "bf16 or f16", "a number", "f16", "i32", "u8"};
    const auto known = type == Type::real ? real_ : type == Type::stat ? stat_ : std::nullopt;
    return known ? tensor::name_of(*known) : kNames[static_cast<int>(type)];
}

bool Checker::has_type(Type type, DType dtype) {
    const bool known = std::find(reals_.begin(), reals_.end(), dtype) != reals_.end();
    const bool is_real = real_ ? *real_ == dtype : known && (!stat_ || *stat_ == stat_of(dtype));
    const bool is_stat = stat_ ? *stat_ == dtype : known && stat_of(dtype) == dtype;
    if (type == Type::real && is_real) real_ = dtype;
    if ((type == Type::real && is_real) || (type == Type::stat && is_stat)) stat_ = stat_of(dtype);
    switch (type) {
        case Type::real: return is_real;
        case Type::stat: return is_stat;
        case Type::floating: return is_real || is_stat;
        case Type::half: return dtype == DType::bf16 || dtype == DType::f16;
        case Type::number: return dtype != DType::u8;
        case Type::f16: return dtype == DType::f16;
        case Type::i32: return dtype == DType::i32;
        case Type::u8: return dtype == DType::u8;
    }
    return false;
}

base::Status Checker::run() {
    record_.op->check.run(*this);
    for (int slot = 0; slot < record_.op->slot_count(); ++slot) {
        const tensor::View& at = (*this)[slot];
        const SlotDef& def = record_.op->slot(slot);
        const bool shared = (at.k > 1 && at.stride_k == 0) || (at.g > 1 && at.stride_g == 0);
        if (at.present() && (asked_ >> slot & 1u) == 0) refuse(slot, "has no meaning here and must be absent");
        if (at.present() && def.written() && shared && at.count() > 0) refuse(slot, "is written, but members or groups share it");
        if (record_.accumulates(slot) && def.access != Access::add) refuse(slot, "cannot be added to");
    }
    const int last = std::max(static_cast<int>(record_.slots.size()), 32);
    for (int slot = record_.op->slot_count(); slot < last; ++slot)
        that(!(*this)[slot].present() && !record_.accumulates(slot), "the record has more slots than its operator");
    const tensor::View& flags = record_.condition;
    that(!flags.present() || (flags.dtype == DType::i32 && flags.g == 1 && flags.rows == 1 && flags.cols == 1),
         "the condition must be i32 [K, 1, 1, 1]");
    if (problem_.empty()) return base::ok();
    for (int slot = 0, count = 0; slot < record_.op->slot_count(); ++slot)
        if (const tensor::View& at = (*this)[slot]; at.present())
            problem_ += fmt::format("{}{} {}", count++ == 0 ? "; its slots: " : ", ", record_.op->slot(slot).name,
                                    describe(tensor::name_of(at.dtype), shape(slot)));
    return base::Error{problem_, record_.layer};
}

base::Status check_record(const Record& record, std::span<const DType> reals) {
    if (fused_params(record) == nullptr) return Checker(record, reals).run();
    for (const Record* part : parts_of(record)) MILLRACE_TRY(Checker(*part, reals).run());
    return base::ok();
}

}  // namespace millrace::ops
