// Dense layers as products of ops/tile on CUDA: every shape of tiles, blocks with few and many of them, clusters, shared sums.

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "case_runner.h"
#include "op_case.h"

namespace millrace::ops::cases {
namespace {

struct Tiling {
    const char* shape;
    int cluster, splits, seats;
    [[nodiscard]] BackendOptions options(bool deterministic) const {
        BackendOptions options;
        options.deterministic = deterministic;
        options.forms = {"dense_forward=tiles",
                         "linear_dgrad=tiles",
                         "linear_wgrad=tiles",
                         fmt::format("tiles={}", shape),
                         fmt::format("tiles=cluster{}", cluster),
                         fmt::format("tiles=splits{}", splits)};
        if (seats > 0) options.forms.push_back(fmt::format("tiles=seats{}", seats));
        return options;
    }
    [[nodiscard]] std::string text() const {
        return fmt::format("{} cluster {} splits {} seats {}", shape, cluster, splits, seats);
    }
};

Outcome run(Backend& backend, Precision precision, const OpCase& op_case, Launch launch = Launch::eager) {
    auto outcome = run_case(backend, precision, op_case, 0, launch);
    if (!outcome.ok()) {
        ADD_FAILURE() << outcome.error().text();
        return {};
    }
    EXPECT_EQ(outcome->damage, "");
    return std::move(*outcome);
}

std::vector<Outcome> run_all(Backend& backend, Precision precision, const std::vector<OpCase>& cases) {
    std::vector<Outcome> outcomes;
    for (const OpCase& op_case : cases) {
        SCOPED_TRACE(op_case.name);
        outcomes.push_back(run(backend, precision, op_case));
    }
    return outcomes;
}

/// Whoever computes a tile, it has the same bits: with one block, where all tiles follow each other, as with one for each tile,
/// and in clusters.
void expect_agreement(const char* shape, int splits, Precision precision, const std::vector<OpCase>& cases,
                      const std::vector<Outcome>& expected) {
    std::vector<Outcome> first;
    for (const int cluster : {1, 2})
        for (const int seats : {0, 1, 2, 5}) {
            const Tiling tiling{shape, cluster, splits, seats};
            SCOPED_TRACE(tiling.text());
            const auto backend = make_backend(DeviceKind::cuda, tiling.options(false));
            ASSERT_TRUE(backend.ok()) << backend.error().text();
            const std::vector<Outcome> outcomes = run_all(**backend, precision, cases);
            for (std::size_t i = 0; i < cases.size(); ++i) {
                SCOPED_TRACE(cases[i].name);
                EXPECT_EQ(difference(cases[i], precision, expected[i], outcomes[i]), "");
                EXPECT_EQ(byte_difference(cases[i], outcomes[i], run(**backend, precision, cases[i], Launch::replay)), "");
                if (!first.empty()) {
                    EXPECT_EQ(byte_difference(cases[i], first[i], outcomes[i]), "");
                }
            }
            if (first.empty()) first = outcomes;
        }
}

class CudaTiles : public testing::TestWithParam<const char*> {
protected:
    void SetUp() override {
        if (const auto there = cuda_available(); !there.ok()) GTEST_SKIP() << there.error().text();
    }
};

TEST_P(CudaTiles, AgreeWithRefHoweverBlocksShareThem) {
    const std::vector<OpCase> cases = tile_cases();
    const auto reference = make_backend(DeviceKind::ref, {}).value();
    const std::vector<Outcome> expected = run_all(*reference, Precision::f64, cases);
    for (const Precision precision : {Precision::bf16, Precision::f16})
        for (const int splits : {1, 3}) expect_agreement(GetParam(), splits, precision, cases, expected);
}

TEST_P(CudaTiles, MembersEqualSeparateRunsInPinnedOnes) {
    const Tiling tiling{GetParam(), 2, 2, 3};
    const auto backend = make_backend(DeviceKind::cuda, tiling.options(true));
    ASSERT_TRUE(backend.ok()) << backend.error().text();
    for (const OpCase& op_case : tile_cases()) {
        SCOPED_TRACE(op_case.name);
        const Outcome together = run(**backend, Precision::bf16, op_case);
        for (int member = 0; member < op_case.members && op_case.members > 1; ++member) {
            const OpCase one = member_of(op_case, member);
            EXPECT_EQ(byte_difference(one, member_of(op_case, together, member), run(**backend, Precision::bf16, one)), "");
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaTiles, testing::Values("small", "square", "turns", "wide"),
                         [](const testing::TestParamInfo<const char*>& given) { return std::string(given.param); });

}  // namespace
}  // namespace millrace::ops::cases
