// The table of op_case.h run on every backend that the build and the machine have.

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "case_runner.h"
#include "op_case.h"
#include "ops/cpu/cpu_backend.h"
#include "ops/dense/dense.h"
#include "ops/vocabulary/vocabulary.h"

namespace millrace::ops::cases {
namespace {

using Made = base::Result<std::unique_ptr<Backend>>;

Backend& reference() {
    static Made made = make_backend(DeviceKind::ref, {});
    return **made;
}
Made& graphics(bool deterministic) {
    static Made fast = make_backend(DeviceKind::cuda, {});
    static Made pinned = make_backend(DeviceKind::cuda, {.deterministic = true});
    return deterministic ? pinned : fast;
}

/// Every member alone leaves what it left among the others, in `together`: to the bit, or within tolerance.
void expect_members_separate(Backend& backend, Precision precision, const OpCase& op_case, const Outcome& together,
                             bool to_the_bit) {
    if (op_case.members == 1 || !op_case.splits) return;
    for (int member = 0; member < op_case.members; ++member) {
        const OpCase one = member_of(op_case, member);
        const Outcome expected = member_of(op_case, together, member), actual = run(backend, precision, one);
        EXPECT_EQ(to_the_bit ? byte_difference(one, expected, actual) : difference(one, precision, expected, actual), "")
            << "member " << member;
    }
}

void expect_members_separate(Backend& backend, Precision precision, const OpCase& op_case, bool to_the_bit) {
    if (op_case.members > 1 && op_case.splits)
        expect_members_separate(backend, precision, op_case, run(backend, precision, op_case), to_the_bit);
}

template <class Body>
void for_each_case_of(const OpDef* op, Body&& body) {
    for (const OpCase& op_case : op_cases()) {
        if (op_case.op != op) continue;
        SCOPED_TRACE(op_case.name);
        body(op_case);
    }
}

/// One test per operator, each running all of its cases.
class OperatorTest : public ::testing::TestWithParam<const OpDef*> {
protected:
    template <class Body>
    static void for_each_case(Body&& body) {
        for_each_case_of(GetParam(), body);
    }
};
class HostOperator : public OperatorTest {
protected:
    /// Its shape was chosen for the many blocks of a GPU: smaller ones say as much of a processor.
    static bool is_for_gpu(const OpCase& op_case) {
        std::int64_t elements = 0;
        for (const Slot& slot : op_case.slots)
            if (slot.present) elements += std::int64_t{slot.k} * slot.g * slot.rows * slot.cols;
        return elements > 1 << 18;
    }
    /// Kept for the cases of all operators: threads are expensive to start.
    static Backend& processor(const char* table, int threads) {
        static std::map<std::pair<std::string, int>, std::unique_ptr<Backend>> made;
        std::unique_ptr<Backend>& backend = made[{table, threads}];
        if (!backend) backend = make_backend(DeviceKind::cpu, {.threads = threads, .cpu_table = table}).value();
        return *backend;
    }
};
class CudaOperator : public OperatorTest {
protected:
    void SetUp() override {
        if (const auto there = cuda_available(); !there.ok()) GTEST_SKIP() << there.error().text();
        ASSERT_TRUE(graphics(false).ok()) << graphics(false).error().text();
        ASSERT_TRUE(graphics(true).ok()) << graphics(true).error().text();
    }
};

TEST(OpCases, NamesAreUniqueAndEveryOperatorHasSome) {
    std::set<std::string> names;
    std::set<const OpDef*> ops;
    for (const OpCase& op_case : op_cases()) {
        EXPECT_TRUE(names.insert(op_case.name).second) << op_case.name;
        ops.insert(op_case.op);
    }
    EXPECT_EQ(ops.size(), definitions().size());
}

TEST_P(HostOperator, RefRepeatsItselfAndProcessorsAgreeOnAnyThreads) {
    for_each_case([](const OpCase& op_case) {
        const Outcome expected = run(reference(), Precision::f64, op_case);
        for (int s = 0; s < op_case.op->slot_count() && !op_case.makes_nan; ++s) {
            const Slot& slot = op_case.slots[static_cast<std::size_t>(s)];
            if (!slot.present || !slot.compare || !op_case.op->slot(s).written()) continue;
            for (const double value : expected.slots[static_cast<std::size_t>(s)].values())
                ASSERT_TRUE(std::isfinite(value)) << "slot " << op_case.op->slot(s).name;
        }
        if (is_for_gpu(op_case)) {
            const Outcome outcome = run(processor(cpu::tables().front()->id, 2), Precision::f32, op_case);
            EXPECT_EQ(difference(op_case, Precision::f32, expected, outcome), "");
            return;
        }
        EXPECT_EQ(byte_difference(op_case, expected, run(reference(), Precision::f64, op_case)), "") << "second run";
        expect_members_separate(reference(), Precision::f64, op_case, expected, true);
        for (const cpu::SimdKernels* table : cpu::tables()) {
            SCOPED_TRACE(table->id);
            const Outcome outcome = run(processor(table->id, 2), Precision::f32, op_case);
            EXPECT_EQ(difference(op_case, Precision::f32, expected, outcome), "");
            for (const int threads : {2, 1, 3})
                EXPECT_EQ(byte_difference(op_case, outcome, run(processor(table->id, threads), Precision::f32, op_case)), "")
                    << "again with " << threads << " threads";
            expect_members_separate(processor(table->id, 2), Precision::f32, op_case, outcome, true);
        }
    });
}

TEST_P(CudaOperator, AgreesWithRefInF32AndWithItself) {
    for_each_case([](const OpCase& op_case) {
        const Outcome outcome = run(**graphics(false), Precision::f32, op_case);
        EXPECT_EQ(difference(op_case, Precision::f32, run(reference(), Precision::f64, op_case), outcome), "");
        EXPECT_EQ(byte_difference(op_case, outcome, run(**graphics(false), Precision::f32, op_case)), "") << "second run";
    });
}

TEST_P(CudaOperator, AgreesWithRefIn16Bits) {
    for_each_case([](const OpCase& op_case) {
        for (const Precision precision : {Precision::bf16, Precision::f16}) {
            SCOPED_TRACE(precision == Precision::bf16 ? "bf16" : "f16");
            const Outcome outcome = run(**graphics(false), precision, op_case);
            EXPECT_EQ(difference(op_case, precision, run(reference(), Precision::f64, op_case), outcome), "");
        }
    });
}

TEST_P(CudaOperator, ReplayEqualsEagerToTheBit) {
    for_each_case([](const OpCase& op_case) {
        for (const Precision precision : {Precision::f32, Precision::bf16, Precision::f16}) {
            const Outcome eager = run(**graphics(false), precision, op_case, 1);
            EXPECT_EQ(byte_difference(op_case, eager, run(**graphics(false), precision, op_case, 1, Launch::replay)), "");
        }
    });
}

TEST_P(CudaOperator, MembersEqualSeparateRuns) {
    for_each_case([](const OpCase& op_case) {
        for (const Precision precision : {Precision::f32, Precision::bf16, Precision::f16}) {
            expect_members_separate(**graphics(false), precision, op_case, false);
            expect_members_separate(**graphics(true), precision, op_case, true);
        }
    });
}

/// The operands of other tests have few bits, which tf32 keeps.
TEST(CudaProducts, Tf32RoundsOperandsAndStrictKeepsThem) {
    if (const auto there = cuda_available(); !there.ok()) GTEST_SKIP() << there.error().text();
    const Made made = make_backend(DeviceKind::cuda, {.tf32 = true}),
               both = make_backend(DeviceKind::cuda, {.deterministic = true, .tf32 = true});
    ASSERT_TRUE(made.ok() && both.ok());
    OpCase c;
    c.name = "linear_dgrad/f32";
    c.op = &linear_dgrad::kDef;
    c.params = LinearGradParams{};
    c.slot(linear_dgrad::dz, Element::f32, 1, 1, 128, 64, uniform(-1, 1));
    c.slot(linear_dgrad::w, Element::f32, 1, 1, 64, 128, uniform(-1, 1));
    c.slot(linear_dgrad::dx, Element::f32, 1, 1, 128, 128, poison());
    const Outcome pinned = run(**graphics(true), Precision::f32, c), tf32 = run(**made, Precision::f32, c);
    EXPECT_EQ(difference(c, Precision::f32, pinned, run(**graphics(false), Precision::f32, c)), "") << "strict";
    EXPECT_EQ(difference(c, Precision::f32, pinned, tf32).empty(), cuda_lacks_bf16()) << "GPUs with bf16 have tf32";
    c.bf16_tolerance = 1e-3;
    EXPECT_EQ(difference(c, Precision::bf16, pinned, tf32), "");
    EXPECT_EQ(byte_difference(c, pinned, run(**both, Precision::f32, c)), "") << "pinned kernels know no tf32";
}

/// Each form also where the other one would be taken.
TEST(CudaVocabulary, FormsAgreeWithRef) {
    if (const auto there = cuda_available(); !there.ok()) GTEST_SKIP() << there.error().text();
    const Made tiles = make_backend(DeviceKind::cuda, {.forms = {"vocabulary_loss=tiles"}}),
               library = make_backend(DeviceKind::cuda, {.forms = {"vocabulary_loss=library"}});
    ASSERT_TRUE(tiles.ok() && library.ok());
    for_each_case_of(&vocabulary_loss::kDef, [&](const OpCase& op_case) {
        const Outcome expected = run(reference(), Precision::f64, op_case);
        for (const Precision precision : {Precision::bf16, Precision::f16}) {
            const Outcome outcome = run(**tiles, precision, op_case);
            EXPECT_EQ(difference(op_case, precision, expected, outcome), "") << "tiles";
            EXPECT_EQ(byte_difference(op_case, outcome, run(**tiles, precision, op_case, 0, Launch::replay)), "") << "replay";
        }
        if (op_case.name.find("one_large_row") != std::string::npos) return;  // logits of 512 are stored as even numbers
        EXPECT_EQ(difference(op_case, Precision::bf16, expected, run(**library, Precision::bf16, op_case)), "") << "library";
    });
}

/// Blocks of warpgroups go from entries to entries and share the last ones; rows are finished by one block or joined.
TEST(CudaVocabulary, LargeHeadsAgreeWithStoredLogitsInF32) {
    if (const auto there = cuda_available(); !there.ok()) GTEST_SKIP() << there.error().text();
    const Made made = make_backend(DeviceKind::cuda, {});
    ASSERT_TRUE(made.ok()) << made.error().text();
    for (const OpCase& op_case : large_vocabulary_cases()) {
        SCOPED_TRACE(op_case.name);
        for (const Precision precision : {Precision::bf16, Precision::f16}) {
            SCOPED_TRACE(precision == Precision::bf16 ? "bf16" : "f16");
            const Outcome expected = run(**made, Precision::f32, op_case), outcome = run(**graphics(false), precision, op_case);
            EXPECT_EQ(difference(op_case, precision, expected, outcome), "");
            for (int again = 0; again < 3; ++again)
                EXPECT_EQ(byte_difference(op_case, outcome, run(**graphics(false), precision, op_case, 0, Launch::replay)), "");
            expect_members_separate(**graphics(false), precision, op_case, false);
            expect_members_separate(**graphics(true), precision, op_case, true);
        }
    }
}

std::string operator_name(const ::testing::TestParamInfo<const OpDef*>& info) { return info.param->name; }

INSTANTIATE_TEST_SUITE_P(Table, HostOperator, ::testing::ValuesIn(definitions()), operator_name);
INSTANTIATE_TEST_SUITE_P(Table, CudaOperator, ::testing::ValuesIn(definitions()), operator_name);

}  // namespace
}  // namespace millrace::ops::cases
