// The fused kernels of dense layers in every element type, over the table of op_case.h. Operands of f32 have all their bits here,
// where the table's are representable in bf16, so that products of tf32 alone would show.

#include <gtest/gtest.h>

#include "case_runner.h"
#include "ops/dense/dense.h"

namespace millrace::ops::cases {
namespace {

using Made = base::Result<std::unique_ptr<Backend>>;

const std::vector<std::string> kStrips = {"dense_forward=strips", "linear_dgrad=strips", "linear_wgrad=blocks"};

/// Strips, and blocks of weight gradients, wherever they apply.
Backend& strips() {
    static Made made = make_backend(DeviceKind::cuda, {.forms = kStrips});
    return **made;
}
/// Products of the library, each as six of bf16.
Backend& in_parts() {
    static Made made =
        make_backend(DeviceKind::cuda, {.forms = {"dense_forward=library", "linear_dgrad=library", "linear_wgrad=library",
                                                  "split_forward=yes", "split_dgrad=yes", "split_wgrad=yes"}});
    return **made;
}
Backend& strips_in_tf32() {
    static Made made = make_backend(DeviceKind::cuda, {.forms = kStrips, .tf32 = true});
    return **made;
}
Backend& pinned(bool tf32) {
    static Made strict = make_backend(DeviceKind::cuda, {.deterministic = true}),
                rounding = make_backend(DeviceKind::cuda, {.deterministic = true, .tf32 = true});
    return tf32 ? **rounding : **strict;
}
Backend& scalar() {
    static Made made = make_backend(DeviceKind::ref, {});
    return **made;
}

/// The case with f32 numbers of all bits.
OpCase with_all_bits(const OpCase& op_case) {
    OpCase c = op_case;
    for (std::size_t s = 0; s < c.slots.size(); ++s)
        if (c.slots[s].present && c.slots[s].element == Element::real) c.slots[s].element = Element::stat;
    return c;
}

class DenseElements : public ::testing::TestWithParam<const OpDef*> {
protected:
    void SetUp() override {
        if (const auto there = cuda_available(); !there.ok()) GTEST_SKIP() << there.error().text();
    }
    template <class Body>
    static void for_each_case(Body&& body) {
        for (const OpCase& op_case : op_cases()) {
            if (op_case.op != GetParam()) continue;
            SCOPED_TRACE(op_case.name);
            body(op_case);
        }
    }
};

TEST_P(DenseElements, StrictF32KeepsItsError) {
    for_each_case([](const OpCase& op_case) {
        const OpCase c = with_all_bits(op_case);
        const Outcome expected = run(scalar(), Precision::f64, c);
        const Outcome outcome = run(strips(), Precision::f32, c), fixed = run(pinned(false), Precision::f32, c);
        EXPECT_EQ(difference(c, Precision::f32, expected, outcome), "");
        EXPECT_EQ(difference(c, Precision::f32, expected, fixed), "") << "pinned";
        EXPECT_EQ(difference(c, Precision::f32, expected, run(in_parts(), Precision::f32, c)), "") << "parts";
        EXPECT_EQ(byte_difference(c, fixed, run(pinned(true), Precision::f32, c)), "") << "pinned kernels know no tf32";
        EXPECT_EQ(byte_difference(c, outcome, run(strips(), Precision::f32, c, 0, Launch::replay)), "") << "replay";
    });
}

TEST_P(DenseElements, Tf32RoundsOperandsOnce) {
    for_each_case([](const OpCase& op_case) {
        OpCase c = with_all_bits(op_case);
        for (const Slot& slot : op_case.slots)
            if (slot.slack > 1) return;  // two rows that are close together: their distance is a matter of rounding
        c.f32_tolerance = 0x1p-9;
        const Outcome outcome = run(strips_in_tf32(), Precision::f32, c);
        EXPECT_EQ(difference(c, Precision::f32, run(scalar(), Precision::f64, c), outcome), "");
        EXPECT_EQ(byte_difference(c, outcome, run(strips_in_tf32(), Precision::f32, c)), "") << "second run";
    });
}

TEST_P(DenseElements, StripsAgreeWithRefIn16Bits) {
    for_each_case([](const OpCase& op_case) {
        const Outcome expected = run(scalar(), Precision::f64, op_case);
        for (const Precision precision : {Precision::bf16, Precision::f16}) {
            SCOPED_TRACE(precision == Precision::bf16 ? "bf16" : "f16");
            if (precision == Precision::bf16 && cuda_lacks_bf16()) continue;
            EXPECT_EQ(difference(op_case, precision, expected, run(strips(), precision, op_case)), "");
        }
    });
}

TEST_P(DenseElements, PinnedMembersEqualSeparateRunsInF32) {
    for_each_case([](const OpCase& op_case) {
        if (op_case.members == 1 || !op_case.splits) return;
        const OpCase c = with_all_bits(op_case);
        const Outcome together = run(pinned(false), Precision::f32, c);
        for (int member = 0; member < c.members; ++member) {
            const OpCase one = member_of(c, member);
            EXPECT_EQ(byte_difference(one, member_of(c, together, member), run(pinned(false), Precision::f32, one)), "")
                << "member " << member;
        }
    });
}

TEST(WeightGradientBlocks, LargeTilesOfSharedRows) {
    if (const auto there = cuda_available(); !there.ok()) GTEST_SKIP() << there.error().text();
    using namespace linear_wgrad;
    constexpr int kRows = 2067, kIn = 500, kOut = 520;
    OpCase c;
    c.name = "linear_wgrad/large";
    c.op = &kDef;
    c.params = LinearGradParams{};
    c.f32_tolerance = 0x1p-9;
    c.slot(dz, Element::stat, 1, 1, kRows, kOut, uniform(-1, 1));
    c.slot(x, Element::stat, 1, 1, kRows, kIn, uniform(-1, 1));
    c.slot(dw, Element::stat, 1, 1, kOut, kIn, uniform(-1, 1)).accumulates(dw);
    c.slot(dbias, Element::stat, 1, 1, 1, kOut, uniform(-1, 1)).accumulates(dbias);
    const Outcome outcome = run(strips_in_tf32(), Precision::f32, c);
    EXPECT_EQ(difference(c, Precision::f32, run(scalar(), Precision::f64, c), outcome), "");
    EXPECT_EQ(byte_difference(c, outcome, run(strips_in_tf32(), Precision::f32, c, 0, Launch::replay)), "") << "replay";
}

INSTANTIATE_TEST_SUITE_P(Operators, DenseElements,
                         ::testing::Values(&dense_forward::kDef, &dense_backward::kDef, &linear_dgrad::kDef, &linear_wgrad::kDef),
                         [](const auto& given) { return std::string(given.param->name); });

}  // namespace
}  // namespace millrace::ops::cases
