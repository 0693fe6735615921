#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "case_runner.h"

namespace millrace::ops::cases {
namespace {

bool same_nonfinite(double expected, double actual) {
    if (std::isnan(expected) || std::isnan(actual)) return std::isnan(expected) && std::isnan(actual);
    return expected == actual;
}

double largest(const std::vector<double>& values) {
    double scale = 1e-3;  // below this a slot is all but zero and the tolerance becomes an absolute one
    for (const double v : values)
        if (std::isfinite(v)) scale = std::max(scale, std::fabs(v));
    return scale;
}

struct Tolerance {
    double of_slot = 0, of_element = 0;
    double most = std::numeric_limits<double>::infinity();     ///< that the slot's type can hold
    double least = double{std::numeric_limits<float>::min()};  ///< below it both a number and 0 are right
    [[nodiscard]] bool accepts(double expected, double actual) const {
        if (std::fabs(expected) > most && std::isinf(actual)) return std::signbit(expected) == std::signbit(actual);
        if (!std::isfinite(expected) || !std::isfinite(actual)) return same_nonfinite(expected, actual);
        return std::fabs(expected - actual) <= of_slot + of_element * std::fabs(expected);
    }
};

std::string slot_difference(const OpCase& op_case, int s, Precision precision, double tolerance, const Content& expected,
                            const Content& actual) {
    const Slot& slot = op_case.slots[static_cast<std::size_t>(s)];
    const std::vector<double> wants = expected.values(), gots = actual.values();
    if (wants.size() != gots.size()) return fmt::format("slot {}: sizes differ", op_case.op->slot(s).name);
    Tolerance limit;
    if (slot.element != Element::i32 && slot.element != Element::u8 && tolerance > 0) {
        limit.of_slot = tolerance * slot.slack * largest(wants);
        // The neighbour, when the value before rounding differs.
        if (slot.element == Element::bf16) limit.of_element = 1.0 / 128;
        if (slot.element == Element::f16) limit.of_element = 1.0 / 1024;
    }
    if (dtype_of(slot.element, precision) == tensor::DType::f16) {
        limit.most = 65504;
        limit.least = 0x1p-24;
    }
    const auto allowed = static_cast<std::size_t>(op_case.outliers * static_cast<double>(wants.size()));
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < wants.size(); ++i) {
        const double want = wants[i], got = gots[i];
        // Some backends flush what is too small for the type, others keep it, and so does the reference: both are right there.
        const bool tiny = want != 0 && std::fabs(want) < limit.least;
        const bool zeros_differ = slot.exact_zeros && !tiny && (want == 0) != (got == 0);
        if ((limit.accepts(want, got) && !zeros_differ) || ++wrong <= allowed) continue;
        return fmt::format("slot {}: element {} of {} is {}, expected {} (tolerance {})", op_case.op->slot(s).name, i,
                           wants.size(), got, want, limit.of_slot);
    }
    return {};
}

std::string state_difference(const MemberState& want, const MemberState& got, double tolerance) {
    const std::pair<const char*, std::pair<std::uint64_t, std::uint64_t>> counts[] = {
        {"seed", {want.seed, got.seed}},
        {"step", {want.step, got.step}},
        {"micro", {want.micro, got.micro}},
        {"epoch", {want.epoch, got.epoch}},
        {"position", {want.position, got.position}},
        {"eval_position", {want.eval_position, got.eval_position}},
        {"skipped", {want.skipped, got.skipped}},
        {"applied", {want.applied, got.applied}},
        {"good_steps", {want.good_steps, got.good_steps}},
        {"nonfinite", {want.nonfinite, got.nonfinite}},
        {"warmup_steps", {want.warmup_steps, got.warmup_steps}},
        {"total_steps", {want.total_steps, got.total_steps}},
        {"interval", {want.interval, got.interval}},
        {"rows", {want.rows, got.rows}},
        {"correct", {want.correct, got.correct}}};
    for (const auto& [name, values] : counts)
        if (values.first != values.second) return fmt::format("{} is {}, expected {}", name, values.second, values.first);
    const std::pair<const char*, std::pair<double, double>> numbers[] = {
        {"base_lr", {want.base_lr, got.base_lr}},
        {"weight_decay", {want.weight_decay, got.weight_decay}},
        {"beta1", {want.beta1, got.beta1}},
        {"beta2", {want.beta2, got.beta2}},
        {"epsilon", {want.epsilon, got.epsilon}},
        {"clip_norm", {want.clip_norm, got.clip_norm}},
        {"dropout_scale", {want.dropout_scale, got.dropout_scale}},
        {"loss_scale", {want.loss_scale, got.loss_scale}},
        {"lr", {want.lr, got.lr}},
        {"grad_norm", {want.grad_norm, got.grad_norm}},
        {"clip_scale", {want.clip_scale, got.clip_scale}},
        {"loss", {want.loss, got.loss}},
        {"penalty", {want.penalty, got.penalty}}};
    for (const auto& [name, values] : numbers) {
        // Of a dropped step nothing is used, and min(1, NaN) is a matter of taste.
        if (std::strcmp(name, "clip_scale") == 0 && want.nonfinite != 0) continue;
        const Tolerance limit{tolerance * 1e-2, tolerance};
        if (!limit.accepts(values.first, values.second))
            return fmt::format("{} is {}, expected {}", name, values.second, values.first);
    }
    return {};
}

}  // namespace

std::string difference(const OpCase& op_case, Precision precision, const Outcome& expected, const Outcome& actual) {
    const double tolerance = precision == Precision::bf16  ? op_case.bf16_tolerance
                             : precision == Precision::f16 ? std::max(op_case.f32_tolerance, op_case.bf16_tolerance / 4)
                             : precision == Precision::f32 ? op_case.f32_tolerance
                                                           : std::min(1e-12, op_case.f32_tolerance);
    for (int s = 0; s < op_case.op->slot_count(); ++s) {
        const Slot& slot = op_case.slots[static_cast<std::size_t>(s)];
        if (!slot.present || !slot.compare) continue;
        const Content &want = expected.slots[static_cast<std::size_t>(s)], &got = actual.slots[static_cast<std::size_t>(s)];
        for (std::size_t m = 0; m < want.states.size(); ++m)
            if (const auto text = state_difference(want.states[m], got.states[m], tolerance); !text.empty())
                return fmt::format("state of member {}: {}", m, text);
        if (auto text = slot_difference(op_case, s, precision, tolerance, want, got); !text.empty()) return text;
    }
    return {};
}

std::string byte_difference(const OpCase& op_case, const Outcome& expected, const Outcome& actual) {
    for (int s = 0; s < op_case.op->slot_count(); ++s) {
        const Slot& slot = op_case.slots[static_cast<std::size_t>(s)];
        if (!slot.present || !slot.compare) continue;
        const auto &want = expected.slots[static_cast<std::size_t>(s)].bytes,
                   &got = actual.slots[static_cast<std::size_t>(s)].bytes;
        if (want.size() != got.size())
            return fmt::format("slot {}: {} bytes, expected {}", op_case.op->slot(s).name, got.size(), want.size());
        if (std::memcmp(want.data(), got.data(), want.size()) == 0) continue;
        const auto at = std::mismatch(want.begin(), want.end(), got.begin()).first - want.begin();
        return fmt::format("slot {}: bytes differ from {} on", op_case.op->slot(s).name, at);
    }
    return {};
}

Outcome member_of(const OpCase& op_case, const Outcome& outcome, int member) {
    Outcome one;
    const auto index = static_cast<std::ptrdiff_t>(member);
    const auto part = [&](auto& all) {
        const auto length = static_cast<std::ptrdiff_t>(all.size()) / op_case.members;
        return std::remove_cvref_t<decltype(all)>(all.begin() + index * length, all.begin() + (index + 1) * length);
    };
    for (std::size_t s = 0; s < outcome.slots.size(); ++s) {
        const Content& all = outcome.slots[s];
        one.slots[s] = op_case.slots[s].k == op_case.members ? Content{all.dtype, part(all.bytes), part(all.states)} : all;
    }
    return one;
}

}  // namespace millrace::ops::cases
