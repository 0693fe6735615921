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

std::vector<Outcome> run_all(Backend& backend, Precision precision, const std::vector<OpCase>& cases) {
    std::vector<Outcome> outcomes;
    for (const OpCase& op_case : cases) {
        SCOPED_TRACE(op_case.name);
        outcomes.push_back(run(backend, precision, op_case));
    }
    return outcomes;
}

/// Whoever computes a tile, it has the same bits: with one block, where all tiles follow each other, as with one for each tile,
/// and in clusters. `tilings` share their splits; the last one's launches are replayed, too.
void expect_agreement(const std::vector<Tiling>& tilings, Precision precision, const std::vector<OpCase>& cases,
                      const std::vector<Outcome>& expected) {
    std::vector<Outcome> first;
    for (std::size_t t = 0; t < tilings.size(); ++t) {
        SCOPED_TRACE(tilings[t].text());
        const auto backend = make_backend(DeviceKind::cuda, tilings[t].options(false));
        ASSERT_TRUE(backend.ok()) << backend.error().text();
        const std::vector<Outcome> outcomes = run_all(**backend, precision, cases);
        for (std::size_t i = 0; i < cases.size(); ++i) {
            SCOPED_TRACE(cases[i].name);
            if (t > 0) {
                EXPECT_EQ(byte_difference(cases[i], first[i], outcomes[i]), "");
            } else {
                EXPECT_EQ(difference(cases[i], precision, expected[i], outcomes[i]), "");
            }
            if (t + 1 == tilings.size()) {
                EXPECT_EQ(byte_difference(cases[i], outcomes[i], run(**backend, precision, cases[i], 0, Launch::replay)), "");
            }
        }
        if (t == 0) first = outcomes;
    }
}

class CudaTiles : public testing::TestWithParam<const char*> {
protected:
    void SetUp() override {
        if (const auto there = cuda_available(); !there.ok()) GTEST_SKIP() << there.error().text();
    }
};

TEST_P(CudaTiles, AgreeWithRefHoweverBlocksShareThem) {
    static const std::vector<OpCase> cases = tile_cases();
    static const std::vector<Outcome> expected = run_all(*make_backend(DeviceKind::ref, {}).value(), Precision::f64, cases);
    const char* shape = GetParam();
    expect_agreement({{shape, 1, 1, 0}, {shape, 1, 1, 1}, {shape, 2, 1, 2}}, Precision::bf16, cases, expected);
    expect_agreement({{shape, 1, 3, 5}, {shape, 2, 3, 1}}, Precision::bf16, cases, expected);
    expect_agreement({{shape, 1, 1, 2}, {shape, 2, 1, 0}}, Precision::f16, cases, expected);
    expect_agreement({{shape, 2, 3, 5}}, Precision::f16, cases, expected);
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
