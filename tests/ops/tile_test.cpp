// Dense layers as products of ops/tile on CUDA: every shape of tiles, blocks with few and many of them, clusters, shared sums.

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "case_runner.h"
#include "op_case.h"
#include "ops/dense/dense.h"
#include "ops/fused.h"
#include "ops/rewrite.h"
#include "tensor/element.h"

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
                         "backward_pair=tiles",
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

class CudaTiles : public ::testing::TestWithParam<const char*> {
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

/// The two records of a pair over memory of their own.
class PairRun {
public:
    PairRun(Backend& backend, Precision precision, const PairCase& pair)
        : backend_(backend), cases_{&pair.dgrad, &pair.backward} {
        for (int part = 0; part < 2; ++part) {
            records_[part] = record_of(*cases_[part], precision);
            bounds_[part].record = &records_[part];
            for (int slot = 0; slot < cases_[part]->op->slot_count(); ++slot) bind(part, slot);
        }
    }

    /// What dense_backward writes, slot by slot.
    std::vector<std::vector<double>> run(bool joined) {
        Record fused;
        std::vector<Bound> all(bounds_, bounds_ + 2);
        if (joined) all = {join(fused)};
        const std::size_t bytes = backend_.measure_scratch(all, {});
        const auto scratch = backend_.allocate(std::max<std::size_t>(bytes, 1)).value();
        auto kernels = backend_.prepare(all, {}, {scratch->data(), bytes});
        EXPECT_TRUE(kernels.ok()) << (kernels.ok() ? "" : kernels.error().text());
        if (!kernels.ok()) return {};
        for (auto& kernel : *kernels) kernel->run();
        backend_.synchronize();
        EXPECT_TRUE(backend_.check().ok());
        std::vector<std::vector<double>> written;
        for (int slot = 0; slot < cases_[1]->op->slot_count(); ++slot)
            if (bounds_[1][slot].present() && cases_[1]->op->slot(slot).written()) written.push_back(read(bounds_[1][slot]));
        return written;
    }

private:
    void bind(int part, int slot) {
        const Slot& given = cases_[part]->slots[static_cast<std::size_t>(slot)];
        if (!given.present) return;
        tensor::View& view = records_[part].slots[static_cast<std::size_t>(slot)];
        tensor::Operand& operand = bounds_[part].operands[static_cast<std::size_t>(slot)];
        if (part == 1 && slot == dense_backward::dy) {
            view = records_[0].slots[linear_dgrad::dx];
            operand = bounds_[0][linear_dgrad::dx];
            return;
        }
        view.buffer = 100 * part + slot;
        std::vector<std::byte> image(static_cast<std::size_t>(view.stride_k * view.k) * tensor::size_of(view.dtype));
        memory_.push_back(backend_.allocate(image.size()).value());
        operand = {memory_.back()->data(), view.dtype,    view.k,         view.g, view.rows, view.cols,
                   view.stride_k,          view.stride_g, view.stride_row};
        if (given.element == Element::state) {
            std::memcpy(image.data(), cases_[part]->states.data(), cases_[part]->states.size() * sizeof(MemberState));
        } else if (given.values.kind != Values::Kind::poison) {
            const std::vector<double> values = initial_values(*cases_[part], slot, 0);
            std::size_t next = 0;
            for (const std::size_t at : places(operand)) tensor::write_element(image.data() + at, view.dtype, values[next++]);
        }
        backend_.upload(memory_.back()->data(), image.data(), image.size());
    }

    Bound join(Record& fused) {
        const Uses uses(bounds_);
        const std::size_t numbers[] = {0, 1};
        const Window window(bounds_, uses, numbers);
        const auto all = rewrites();
        const auto rewrite = std::ranges::find_if(all, [](const Rewrite* r) { return std::string(r->name) == "backward_pair"; });
        const Match match = backend_.match(**rewrite, window);
        EXPECT_EQ(match.count(), 2u);
        if (match.count() != 2) return bounds_[1];
        fused = fuse(*(*rewrite)->fused, match, window);
        Bound bound;
        bound.record = &fused;
        for (std::size_t part = 0; part < 2; ++part) {
            const std::vector<int>& operands = fused_params(fused)->parts[part].operands;
            for (std::size_t slot = 0; slot < operands.size(); ++slot)
                if (operands[slot] != FusedParams::kInner)
                    bound.operands[static_cast<std::size_t>(operands[slot])] = bounds_[part].operands[slot];
        }
        return bound;
    }

    /// Bytes from the beginning at which elements lie, [K,G,rows,cols].
    static std::vector<std::size_t> places(const tensor::Operand& o) {
        std::vector<std::size_t> found;
        for (int k = 0; k < o.k; ++k)
            for (int g = 0; g < o.g; ++g)
                for (int row = 0; row < o.rows; ++row)
                    for (int col = 0; col < o.cols; ++col)
                        found.push_back(static_cast<std::size_t>(k * o.stride_k + g * o.stride_g + row * o.stride_row + col) *
                                        tensor::size_of(o.dtype));
        return found;
    }
    std::vector<double> read(const tensor::Operand& o) {
        std::vector<std::byte> image(static_cast<std::size_t>(o.stride_k * o.k) * tensor::size_of(o.dtype));
        backend_.download(image.data(), static_cast<const std::byte*>(o.data), image.size());
        std::vector<double> values;
        for (const std::size_t at : places(o)) values.push_back(tensor::read_element(image.data() + at, o.dtype));
        return values;
    }

    Backend& backend_;
    const OpCase* cases_[2];
    Record records_[2];
    Bound bounds_[2];
    std::vector<std::unique_ptr<Memory>> memory_;
};

/// The largest distance of two outputs, relative to the largest value.
double distance(const std::vector<double>& expected, const std::vector<double>& actual) {
    double largest = 0, apart = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        largest = std::max(largest, std::abs(expected[i]));
        apart = std::max(apart, std::isfinite(actual[i]) ? std::abs(expected[i] - actual[i]) : HUGE_VAL);
    }
    return apart / largest;
}

TEST_P(CudaTiles, PairsAgreeWithRefHoweverBlocksShareThem) {
    using Outputs = std::vector<std::vector<double>>;
    static const std::vector<PairCase> cases = pair_cases();
    static const std::vector<Outputs> expected = [] {
        const auto ref = make_backend(DeviceKind::ref, {}).value();
        std::vector<Outputs> all;
        for (const PairCase& pair : cases) all.push_back(PairRun(*ref, Precision::f64, pair).run(false));
        return all;
    }();
    const char* shape = GetParam();
    std::map<std::string, Outputs> first;  // of those with as many splits
    for (const Tiling& tiling : {Tiling{shape, 1, 1, 0}, Tiling{shape, 1, 1, 1}, Tiling{shape, 2, 1, 2}, Tiling{shape, 1, 3, 5},
                                 Tiling{shape, 2, 3, 1}}) {
        const auto backend = make_backend(DeviceKind::cuda, tiling.options(false));
        ASSERT_TRUE(backend.ok()) << backend.error().text();
        for (const Precision precision : {Precision::bf16, Precision::f16})
            for (std::size_t i = 0; i < cases.size(); ++i) {
                SCOPED_TRACE(cases[i].backward.name + " " + tiling.text());
                const Outputs actual = PairRun(**backend, precision, cases[i]).run(true);
                ASSERT_EQ(actual.size(), expected[i].size());
                for (std::size_t s = 0; s < actual.size(); ++s) EXPECT_LE(distance(expected[i][s], actual[s]), 0.02) << s;
                const std::string alike = fmt::format("{} {} {}", i, static_cast<int>(precision), tiling.splits);
                EXPECT_EQ(first.try_emplace(alike, actual).first->second, actual);
            }
    }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaTiles, ::testing::Values("small", "square", "turns", "wide"),
                         [](const ::testing::TestParamInfo<const char*>& given) { return std::string(given.param); });

}  // namespace
}  // namespace millrace::ops::cases
