#include "ops/cpu/kernel.h"

#include <fmt/format.h>

namespace millrace::ops::cpu {
namespace {

std::string describe(tensor::DType dtype, int k, int g, int rows, int cols) {
    return fmt::format("{} [{}, {}, {}, {}]", name_of(dtype), k, g, rows, cols);
}

}  // namespace

Checker& Checker::require(int slot, tensor::DType dtype, int k, int g, int rows, int cols) {
    if (!problem_.empty()) return *this;
    const tensor::Operand& at = bound_[slot];
    const bool fits = at.dtype == dtype && at.k == k && at.g == g && at.rows == rows && at.cols == cols;
    if (fits && (at.present() || at.count() == 0)) return *this;
    problem_ = fmt::format("{}.{} must be {}, got {}", bound_.record->op->name, bound_.record->op->slot(slot).name,
                           describe(dtype, k, g, rows, cols),
                           at.present() ? describe(at.dtype, at.k, at.g, at.rows, at.cols) : "nothing");
    return *this;
}

Checker& Checker::allow(int slot, tensor::DType dtype, int k, int g, int rows, int cols) {
    return bound_[slot].present() ? require(slot, dtype, k, g, rows, cols) : *this;
}

Checker& Checker::like(int slot, int other) {
    const tensor::Operand& o = bound_[other];
    return require(slot, o.dtype, o.k, o.g, o.rows, o.cols);
}

Checker& Checker::allow_like(int slot, int other) { return bound_[slot].present() ? like(slot, other) : *this; }

Checker& Checker::state(int slot, int k) {
    require(slot, tensor::DType::u8, k, 1, 1, sizeof(MemberState));
    return that(bound_[slot].stride_k % 8 == 0, "state blocks must be 8 bytes aligned");
}

Checker& Checker::groups(int slot, int k) {
    const int cols = bound_[slot].cols, size = static_cast<int>(sizeof(GroupState));
    require(slot, tensor::DType::u8, k, 1, 1, cols);
    return that(cols >= size && cols % size == 0 && bound_[slot].stride_k % 4 == 0, "a row of groups must be whole blocks");
}

Checker& Checker::segments(int slot) {
    const int rows = bound_[slot].rows;
    return require(slot, tensor::DType::i32, 1, 1, rows, 2).that(rows >= 1, "there must be at least one segment");
}

Checker& Checker::dropout(float probability, int state_slot, int k) {
    that(probability >= 0 && probability < 1, "dropout must be in [0, 1)");
    return probability > 0 ? state(state_slot, k) : *this;
}

Checker& Checker::that(bool condition, const char* message) {
    if (problem_.empty() && !condition) problem_ = fmt::format("{}: {}", bound_.record->op->name, message);
    return *this;
}

base::Status Checker::status() const {
    if (problem_.empty()) return base::ok();
    return base::Error{problem_, bound_.record->layer};
}

}  // namespace millrace::ops::cpu
